"""The `network` section: which graph, laid over which sites."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from walktalk.errors import suggestion
from walktalk.graphs import FAMILIES, REQUIRED, SITE_PRESETS
from walktalk.studies.spec.fields import Section, Whole, key, misfit

NODES = 20  # the paper's V
# Parameters that say how many nodes there are, so that `nodes` need not.
SIZED_BY = {"edge_list": ("file",), "torus": ("rows", "cols"), "hypercube": ("dimension",)}


class NetworkSpec(Section):
    """Who may talk to whom. Keys that the topology does not take are left out."""

    topology: str = key("erdos_renyi", ", ".join(FAMILIES), "the family of graphs")
    nodes: Whole | None = key(None, "a whole number, 1 or more", f"how many nodes, V; {NODES} unless a file says", ge=1)
    p: float | None = key(None, "a number from 0 to 1", "erdos_renyi: the probability of an edge", ge=0, le=1)
    degree: Whole | None = key(
        None, "a whole number, 0 or more", "random_regular, small_world: neighbours of each node", ge=0
    )
    rewire: float | None = key(None, "a number from 0 to 1", "small_world: the share of rewired edges", ge=0, le=1)
    rows: Whole | None = key(None, "a whole number, 1 or more", "torus: rows", ge=1)
    cols: Whole | None = key(None, "a whole number, 1 or more", "torus: columns", ge=1)
    dimension: Whole | None = key(None, "a whole number, 0 or more", "hypercube: log₂ of the number of nodes", ge=0)
    file: str | None = key(None, "the path of a file with one edge a line", "edge_list: the file")
    sites: str | None = key(
        None, ", ".join(sorted(SITE_PRESETS)), "where the nodes stand: sets latency and bandwidth of `network` timing"
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """Defaults of the family, so that a written specification is whole."""
        if not isinstance(given, dict):
            return given
        topology = str(given.get("topology", "erdos_renyi")).replace("-", "_")
        if topology not in FAMILIES:
            return given
        defaults = {name: p.default for name, p in FAMILIES[topology].parameters.items() if p.default is not REQUIRED}
        sized = any(given.get(name) is not None for name in SIZED_BY.get(topology, ()))
        return {**defaults, "nodes": None if sized else NODES, **given, "topology": topology}

    @model_validator(mode="after")
    def _fits(self) -> NetworkSpec:
        if self.topology not in FAMILIES:
            raise misfit("topology", self.topology, f"{', '.join(FAMILIES)}{suggestion(self.topology, FAMILIES)}")
        if self.sites is not None and self.sites.replace("_", "-") not in SITE_PRESETS:
            raise misfit("sites", self.sites, ", ".join(sorted(SITE_PRESETS)))
        parameters = FAMILIES[self.topology].parameters
        for name in PARAMETERS:
            value = getattr(self, name)
            if value is not None and name not in parameters:
                takes = ", ".join(("nodes", "sites", *parameters))
                raise ValueError(f"{name}: {value!r} has no meaning for topology {self.topology}, which takes {takes}")
            if value is None and name in parameters and parameters[name].default is REQUIRED:
                raise ValueError(f"{name}: is missing; topology {self.topology} needs {parameters[name].description}")
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        """What the family takes beyond the number of nodes."""
        return {name: getattr(self, name) for name in PARAMETERS if getattr(self, name) is not None}


PARAMETERS = ("p", "degree", "rewire", "rows", "cols", "dimension", "file")
