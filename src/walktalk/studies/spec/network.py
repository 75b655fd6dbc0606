"""The `network` section: which graph, laid over which sites."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, model_serializer, model_validator

from walktalk.errors import SettingError
from walktalk.graphs import SITE_PRESETS, TOPOLOGIES, default_nodes, known_as, topology_settings
from walktalk.settings import complete, misfit
from walktalk.studies.spec.fields import Section, Whole, key


class NetworkSpec(Section):
    """Who may talk to whom. Beside the keys below it takes the settings of its topology."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    topology: str = key("erdos_renyi", "a topology (see below) or module:object", "the family of graphs")
    nodes: Whole | None = key(
        None,
        "a whole number from 1 to 16,777,216",
        "how many nodes, V; 20 unless the topology or its settings say",
        ge=1,
        le=2**24,
    )
    sites: str | None = key(
        None, ", ".join(sorted(SITE_PRESETS)), "where the nodes stand: sets latency and bandwidth of `network` timing"
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """The topology's settings, given or default, each of the right type."""
        if not isinstance(given, dict) or not isinstance(given.get("topology", ""), str):
            return given
        topology = known_as(given.get("topology", "erdos_renyi"))
        takes = topology_settings(topology)
        for name in set(given) - set(takes) - set(cls.model_fields):
            if any(name in topology_settings(other) for other in TOPOLOGIES):
                words = ", ".join(("nodes", "sites", *takes))
                value = f"{given[name]!r} has no meaning for topology {topology}, which takes {words}"
                raise SettingError(f"{name}: {value}")
        settings = complete(given, takes, tuple(cls.model_fields))
        return {"nodes": default_nodes(topology, given), **given, **settings, "topology": topology}

    @model_validator(mode="after")
    def _fits(self) -> NetworkSpec:
        if self.sites is not None and self.sites.replace("_", "-") not in SITE_PRESETS:
            raise misfit("sites", self.sites, ", ".join(sorted(SITE_PRESETS)))
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        """What the topology takes beyond the number of nodes."""
        return {name: value for name, value in (self.model_extra or {}).items() if value is not None}

    @property
    def title(self) -> str:
        """What people call the topology: its name without the module, or, handed over in Python, the graph's own."""
        called = self.parameters.get("called") if self.topology in ("edges", "given") else None
        return str(called) if called is not None else self.topology.rpartition(":")[2]

    @model_serializer
    def _written(self) -> dict[str, Any]:
        """Where the nodes stand comes last, as people write it."""
        written = {"topology": self.topology, "nodes": self.nodes, **self.parameters, "sites": self.sites}
        return {name: value for name, value in written.items() if value is not None}
