"""The whole family: every algorithm that is registered, on one graph, one split of the data and the same seeds.

What cannot run on that graph has the one that it is made for, with the same data and seeds; a panel is one graph. What
is registered when it is asked for is what is run, plug-ins included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from walktalk.core.errors import SpecError
from walktalk.core.plugins import REGISTRIES
from walktalk.core.seeds import Seed
from walktalk.graphs import TOPOLOGIES, Graph, build
from walktalk.protocols import Protocol
from walktalk.reproduction.paper.panels import FAMILY, Figure, Panel

COMMON: Mapping[str, Any] = {"topology": "erdos_renyi", "nodes": 20, "p": 0.3}  # the graph of all that can run on it
FORMS: Mapping[str, tuple[Mapping[str, Any], ...]] = {"multi_walk": ({"walks": 1}, {"walks": 4})}
"""Settings to compare, by name of the protocol, where there is more than one form to look at; else the defaults."""


def family() -> Figure:
    """The study of all of them: a panel a graph."""
    title = "All algorithms on one graph, data and seeds: loss against iterations, time and data"
    return Figure(FAMILY, title, FAMILY, FAMILY, panels(), tuned=True)


def panels() -> tuple[Panel, ...]:
    """The common graph, and one for each other graph that somebody needs."""
    placed: dict[str, list[dict[str, Any]]] = {}
    known = {topology: _graph(topology) for topology in (COMMON["topology"], *_others())}
    for entry, protocol in members():
        placed.setdefault(home(protocol, known), []).append(entry)
    return tuple(
        Panel(topology, _title(topology), _network(topology), algorithms=tuple(entries))
        for topology, entries in placed.items()
    )


def members() -> list[tuple[dict[str, Any], Protocol]]:
    """Every registered algorithm that has defaults, as an entry of a study and as a protocol."""
    found = []
    for name, kind in REGISTRIES["algorithm"].items():
        for form in FORMS.get(name, ({},)):
            try:
                found.append(({"name": name, **form}, kind(**form)))
            except TypeError:  # a setting without a default: nobody can say what is meant
                continue
    return found


def home(protocol: Protocol, known: Mapping[str, Graph]) -> str:
    """The first graph on which it can run, the one that it is made for before the rest."""
    common = next(iter(known))
    for topology in (common, protocol.made_for, *known):
        if topology in known and _fits(protocol, known[topology]):
            return topology
    raise SpecError(f"{FAMILY}: {protocol.label} runs on none of {', '.join(known)}; leave it out of the registry")


def _others() -> Iterable[str]:
    """Topologies of this many nodes that need no settings and that some protocol is made for."""
    made_for = dict.fromkeys(protocol.made_for for _, protocol in members())
    return [topology for topology in made_for if topology in TOPOLOGIES]


def _graph(topology: str) -> Graph:
    return build(topology, COMMON["nodes"], seed=Seed(0).child("graph"), **_settings(topology))


def _settings(topology: str) -> dict[str, Any]:
    given = COMMON if topology == COMMON["topology"] else {}
    return {name: value for name, value in given.items() if name not in ("topology", "nodes")}


def _network(topology: str) -> dict[str, Any]:
    return {"topology": topology, "nodes": COMMON["nodes"], **_settings(topology)}


def _title(topology: str) -> str:
    return (
        f"Erdős–Rényi ({COMMON['p']:g})" if topology == COMMON["topology"] else topology.replace("_", " ").capitalize()
    )


def _fits(protocol: Protocol, graph: Graph) -> bool:
    try:
        protocol.check_graph(graph)
    except SpecError:
        return False
    return True
