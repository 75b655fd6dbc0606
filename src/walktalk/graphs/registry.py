"""Every topology by name, and `build`, which makes a graph from what a study's specification says.

A family here is a name, a sentence, its parameters with their defaults, and a function from (nodes, seed, parameters).
Adding a topology is one file with the function and one entry below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from walktalk.errors import GraphError
from walktalk.graphs.barbell import barbell
from walktalk.graphs.complete import complete
from walktalk.graphs.cycle import cycle
from walktalk.graphs.edge_list import edge_list
from walktalk.graphs.erdos_renyi import erdos_renyi
from walktalk.graphs.graph import Graph
from walktalk.graphs.hypercube import hypercube
from walktalk.graphs.path import path
from walktalk.graphs.random_regular import random_regular
from walktalk.graphs.rounds import exponential, one_peer_exponential, random_matchings
from walktalk.graphs.sites import with_sites
from walktalk.graphs.small_world import small_world
from walktalk.graphs.star import star
from walktalk.graphs.torus import squarest, torus
from walktalk.graphs.us_five_sites import us_five_sites
from walktalk.seeds import Seed


@dataclass(frozen=True)
class Parameter:
    """One parameter of a family."""

    kind: type  # int, float or str
    default: Any  # None: follows from the others; `REQUIRED`: must be given
    description: str  # what it is and what is allowed


REQUIRED = object()


@dataclass(frozen=True)
class Family:
    """One topology: what it is, what it takes and how it is made."""

    description: str
    make: Callable[[int | None, int | Seed, Mapping[str, Any]], Graph]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


def _sized(make: Callable[[int], Graph]) -> Callable[[int | None, int | Seed, Mapping[str, Any]], Graph]:
    return lambda nodes, seed, given: make(_need(nodes))


def _random(make: Callable[..., Graph]) -> Callable[[int | None, int | Seed, Mapping[str, Any]], Graph]:
    return lambda nodes, seed, given: make(_need(nodes), seed=seed, **given)


def _torus(nodes: int | None, seed: int | Seed, given: Mapping[str, Any]) -> Graph:
    rows, cols = given["rows"], given["cols"]
    if rows is None and cols is None:
        return torus(*squarest(_need(nodes)))
    if nodes is not None and (rows is None or cols is None):
        side = rows if rows is not None else cols
        if side < 1 or nodes % side:
            raise GraphError(f"torus: a side of {side} does not divide nodes = {nodes}")
        rows, cols = (side, nodes // side) if cols is None else (nodes // side, side)
    graph = torus(rows if rows is not None else cols, cols)
    return _same_size("torus", graph, nodes)


def _hypercube(nodes: int | None, seed: int | Seed, given: Mapping[str, Any]) -> Graph:
    if given["dimension"] is not None:
        return _same_size("hypercube", hypercube(given["dimension"]), nodes)
    nodes = _need(nodes)
    if nodes & (nodes - 1):
        raise GraphError(f"hypercube: nodes = {nodes}, but it must be a power of two")
    return hypercube(nodes.bit_length() - 1)


MOST_NODES = 2**24  # 16 million, as many as the largest hypercube
MOST_EDGES = 200_000_000  # 400 million neighbours, 3 GB: the complete graph of 20,000

FAMILIES: dict[str, Family] = {
    "cycle": Family("a ring", _sized(cycle)),
    "path": Family("a row", _sized(path)),
    "torus": Family(
        "a 2-D grid that wraps around, as square as the number of nodes allows",
        _torus,
        {"rows": Parameter(int, None, "rows, 1 or more"), "cols": Parameter(int, None, "columns, 1 or more")},
    ),
    "complete": Family("every two nodes are neighbours", _sized(complete)),
    "erdos_renyi": Family(
        "every pair is an edge with probability p; drawn again until connected",
        _random(erdos_renyi),
        {"p": Parameter(float, 0.3, "probability of an edge, 0 to 1")},
    ),
    "random_regular": Family(
        "random, with the same number of neighbours everywhere",
        _random(random_regular),
        {"degree": Parameter(int, 4, "neighbours of each node; nodes × degree is even")},
    ),
    "small_world": Family(
        "a ring of near neighbours with some edges rewired (Watts–Strogatz)",
        _random(small_world),
        {
            "degree": Parameter(int, 4, "near neighbours of each node, even"),
            "rewire": Parameter(float, 0.1, "share of the edges that are rewired, 0 to 1"),
        },
    ),
    "exponential": Family("one-way links to the nodes 1, 2, 4 … further on", _sized(exponential)),
    "one_peer_exponential": Family(
        "the same, one of these links a round: averages exactly where nodes are a power of two",
        _sized(one_peer_exponential),
    ),
    "random_matchings": Family("random pairs, others in every round", _random(random_matchings)),
    "star": Family("node 0 in the middle, all others its neighbours", _sized(star)),
    "barbell": Family("two complete halves and one link between them", _sized(barbell)),
    "hypercube": Family(
        "bit strings that differ in one bit; the number of nodes is a power of two",
        _hypercube,
        {"dimension": Parameter(int, None, "log₂ of the number of nodes")},
    ),
    "edge_list": Family(
        "read from a file, one edge a line",
        lambda nodes, seed, given: _same_size("edge_list", edge_list(given["file"]), nodes),
        {"file": Parameter(str, REQUIRED, "path of the file")},
    ),
    "us_five_sites": Family(
        "the paper's Figure 2: 20 nodes in CA, NV, IA, IL and KS",
        lambda nodes, seed, given: _same_size("us_five_sites", us_five_sites(), nodes),
    ),
}
"""The topologies that `build` knows, by name."""


def build(topology: str, nodes: int | None = None, seed: int | Seed = 0, **parameters: Any) -> Graph:
    """A graph from a topology's name and parameters; `sites="us-five-sites"` lays any of them over sites.

    Dashes and underscores are the same in a name. `nodes` may be left out where the parameters say it.
    """
    name = topology.replace("-", "_")
    if name not in FAMILIES:
        raise GraphError(f"topology = {topology!r} is unknown; choose from {', '.join(FAMILIES)}")
    sites = parameters.pop("sites", None)
    if nodes is not None:
        nodes = _typed(name, "nodes", nodes, Parameter(int, None, "the number of nodes, a whole number"))
        if nodes < 1:
            raise GraphError(f"{name}: nodes = {nodes}, but it must be 1 or more")
    given = _complete(name, parameters)
    _check_size(name, nodes, given)
    graph = FAMILIES[name].make(nodes, seed, given)
    return graph if sites is None else with_sites(graph, sites)


def _check_size(name: str, nodes: int | None, given: Mapping[str, Any]) -> None:
    """Refuse what no machine holds before it is tried: a process that runs out of memory takes others with it."""
    if nodes is None:
        return
    if nodes > MOST_NODES:
        raise GraphError(f"{name}: nodes = {nodes}, but it must be {MOST_NODES:,} or less")
    dense = {"erdos_renyi": nodes * (given.get("p") or 0), "barbell": nodes / 2}
    edges = nodes * dense.get(name, given.get("degree") or 0) / 2
    if edges > MOST_EDGES:
        raise GraphError(
            f"{name}: nodes = {nodes} means some {edges:.0e} edges, but they must be {MOST_EDGES:,} or fewer to fit in "
            "memory; take fewer nodes or fewer neighbours"
        )


def _complete(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The family's parameters, given or default, each of the right type."""
    known = FAMILIES[name].parameters
    for key, value in given.items():
        if key not in known:
            allowed = ", ".join(known) or "none"
            raise GraphError(f"{name}: parameter {key} = {value!r} is unknown; it takes nodes, sites and: {allowed}")
    complete = {key: given.get(key, parameter.default) for key, parameter in known.items()}
    for key, value in complete.items():
        if value is REQUIRED:
            raise GraphError(f"{name}: parameter {key} is missing: {known[key].description}")
    return {key: _typed(name, key, value, known[key]) for key, value in complete.items()}


def _typed(name: str, key: str, value: Any, parameter: Parameter) -> Any:
    fits = {int: (int,), float: (int, float), str: (str,)}[parameter.kind]
    if value is None and parameter.default is None:
        return None
    if isinstance(value, bool) or not isinstance(value, fits):
        kind = parameter.kind.__name__
        raise GraphError(f"{name}: {key} = {value!r}, but it must be {kind}: {parameter.description}")
    return value


def _need(nodes: int | None) -> int:
    if nodes is None:
        raise GraphError("nodes is missing: the number of nodes, 1 or more")
    return nodes


def _same_size(name: str, graph: Graph, nodes: int | None) -> Graph:
    if nodes is not None and graph.nodes != nodes:
        raise GraphError(f"{name}: nodes = {nodes}, but the graph described has {graph.nodes}")
    return graph
