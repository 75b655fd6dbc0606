"""Every topology by name, and `build`, which makes a graph from what a study's specification says.

A topology is a function that returns a `Graph`. Of its arguments, `nodes` and `seed` come from the study; all others
are its settings. Where `nodes` may be None, the settings can say how many there are; where it is no argument at all,
the function alone knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

from annotated_types import Ge, Gt, Le

from walktalk.core.errors import GraphError, SettingError
from walktalk.core.plugins import Registry, of_the_person, returns, seed_for
from walktalk.core.seeds import Seed
from walktalk.core.settings import REQUIRED, Setting, misfit, settings_of, typed
from walktalk.core.settings import complete as completed
from walktalk.graphs.changing_rounds import base_graph, equi_dyn, matcha
from walktalk.graphs.classic import (
    barbell,
    binary_tree,
    complete,
    cycle,
    erdos_renyi,
    hypercube,
    path,
    random_regular,
    small_world,
    spanning_tree,
    squarest,
    star,
    torus,
    two_binary_trees,
)
from walktalk.graphs.graph import Graph, as_graph
from walktalk.graphs.rounds import (
    exponential,
    k_peer_exponential,
    one_peer_exponential,
    random_groups,
    random_matchings,
)
from walktalk.graphs.sites import edge_list, edges, us_five_sites, with_sites

Topology: TypeAlias = Callable[..., Graph]
NODES = 20  # the paper's V, where nobody says another
MOST_NODES = 2**24  # 16 million, as many as the largest hypercube
MOST_EDGES = 200_000_000  # 400 million neighbours, 3 GB: the complete graph of 20,000
FROM_THE_STUDY = ("nodes", "seed")


def _torus(
    nodes: int | None = None, rows: Annotated[int, Ge(1)] | None = None, cols: Annotated[int, Ge(1)] | None = None
) -> Graph:
    """A 2-D grid that wraps around, as square as the number of nodes allows.

    Args:
        nodes: how many nodes, V.
        rows: how many rows.
        cols: how many columns.
    """
    side = cols if rows is None else rows
    if side is None:
        return torus(*squarest(_need(nodes)))
    if nodes is None or (rows is not None and cols is not None):
        return torus(side, cols)
    if nodes % side:
        raise GraphError(f"torus: a side of {side} does not divide nodes = {nodes}")
    return torus(side, nodes // side) if cols is None else torus(nodes // side, side)


def _hypercube(nodes: int | None = None, dimension: Annotated[int, Ge(0)] | None = None) -> Graph:
    """Bit strings that differ in one bit; the number of nodes is a power of two.

    Args:
        nodes: how many nodes, V.
        dimension: log₂ of the number of nodes.
    """
    if dimension is not None:
        return hypercube(dimension)
    nodes = _need(nodes)
    if nodes & (nodes - 1):
        raise misfit("hypercube: nodes", nodes, "a power of two", GraphError)
    return hypercube(nodes.bit_length() - 1)


def _matcha(
    nodes: int,
    seed: int | Seed = 0,
    budget: Annotated[float, Gt(0), Le(1)] = 0.5,
    p: Annotated[float, Gt(0), Le(1)] = 0.3,
) -> Graph:
    """A random graph of which only some matchings are used in each round, the important ones more often.

    Args:
        nodes: how many nodes, V.
        seed: of the graph, and of what is used in which round.
        budget: how many of the matchings are used in a round, on average, as a share of all.
        p: with which probability any two nodes have a link.
    """
    return matcha(erdos_renyi(nodes, p=p, seed=seed), budget, seed)


def _spanning_tree(
    nodes: int, seed: int | Seed = 0, p: Annotated[float, Gt(0), Le(1)] = 0.3, root: Annotated[int, Ge(0)] = 0
) -> Graph:
    """A tree of the links of a random graph, the one that erdos_renyi is with the same seed; everybody near the root.

    Args:
        nodes: how many nodes, V.
        seed: of the graph.
        p: with which probability any two nodes have a link in it.
        root: the node to which all are as near as in the graph.
    """
    if root >= nodes:
        raise GraphError(f"spanning_tree: root = {root}, but nodes are 0 to {nodes - 1}")
    return spanning_tree(erdos_renyi(nodes, p=p, seed=seed), root)


def _edge_list(file: str) -> Graph:
    """Read from a file, one edge a line.

    Args:
        file: the path of the file.
    """
    return edge_list(file)


def _given(called: str = "graph", nodes: int | None = None, digest: str = "") -> Graph:
    """A graph that was handed over in Python, and that no specification can say: one with sites or rounds of its own.

    Args:
        called: how it is called.
        nodes: how many nodes, V.
        digest: of its edges.
    """
    raise GraphError(
        f"topology: {called!r} was given in Python, so this specification does not say what it is; write a function "
        "that returns it, and name that as module:function"
    )


def _us_five_sites(nodes: int = NODES) -> Graph:
    """The paper's Figure 2: 20 nodes in CA, NV, IA, IL and KS."""
    return us_five_sites()


ELSEWHERE = {
    "ring": "cycle",
    "line": "path",
    "chain": "path",
    "grid": "torus",
    "full": "complete",
    "fully_connected": "complete",
    "all_to_all": "complete",
    "clique": "complete",
    "random": "erdos_renyi",
    "er": "erdos_renyi",
    "gnp": "erdos_renyi",
    "regular": "random_regular",
    "expander": "random_regular",
    "watts_strogatz": "small_world",
    "server": "star",
    "tree": "binary_tree",
    "one_peer_exp": "one_peer_exponential",
    "file": "edge_list",
}

TOPOLOGIES: Registry[Topology] = Registry(
    "topology",
    "a topology is a function that returns a Graph (-> wt.Graph)",
    lambda thing: returns(thing, Graph),
    elsewhere=ELSEWHERE,
)
"""The topologies that `build` knows, by name."""

_OURS: dict[str, Topology] = {
    "cycle": cycle,
    "path": path,
    "torus": _torus,
    "complete": complete,
    "erdos_renyi": erdos_renyi,
    "random_regular": random_regular,
    "small_world": small_world,
    "exponential": exponential,
    "one_peer_exponential": one_peer_exponential,
    "k_peer_exponential": k_peer_exponential,
    "base_graph": base_graph,
    "random_matchings": random_matchings,
    "random_groups": random_groups,
    "equi_dyn": equi_dyn,
    "matcha": _matcha,
    "binary_tree": binary_tree,
    "two_binary_trees": two_binary_trees,
    "spanning_tree": _spanning_tree,
    "star": star,
    "barbell": barbell,
    "hypercube": _hypercube,
    "edges": edges,
    "edge_list": _edge_list,
    "us_five_sites": _us_five_sites,
    "given": _given,
}
for _name, _make in _OURS.items():
    TOPOLOGIES.add(_name, _make)


def known_as(topology: str) -> str:
    """The name as it is registered: dashes and underscores are the same, but not in `module:object`.

    Args:
        topology: a name as a person writes it.
    """
    return topology if ":" in topology else topology.replace("-", "_")


def topology_settings(topology: str) -> dict[str, Setting]:
    """What a topology takes, beside the number of nodes and the seed that the study gives it."""
    return settings_of(TOPOLOGIES.find(known_as(topology), "topology"), FROM_THE_STUDY)


def default_nodes(topology: str, given: Mapping[str, Any]) -> int | None:
    """How many nodes there are if nobody says; None where the topology or the settings given say it themselves."""
    takes = settings_of(TOPOLOGIES.find(known_as(topology), "topology"))
    if "nodes" not in takes:
        return None
    default = takes["nodes"].default
    if default is None and any(given.get(name) is not None for name in takes if name not in FROM_THE_STUDY):
        return None
    return NODES if default is None or default is REQUIRED else int(default)


def build(topology: str, nodes: int | None = None, seed: int | Seed = 0, **parameters: Any) -> Graph:
    """A graph from a topology's name and settings.

    Args:
        topology: a name (dashes and underscores are the same in it) or `module:object`.
        nodes: how many nodes; may be left out where the settings say it.
        seed: of a random topology.
        parameters: the topology's settings; `sites="us-five-sites"` lays any of them over sites.
    """
    name, sites = known_as(topology), parameters.pop("sites", None)
    try:
        make = TOPOLOGIES.find(name, "topology")
    except SettingError as error:
        raise GraphError(str(error)) from error
    try:
        given = completed(parameters, topology_settings(name), ())
        nodes = typed("nodes", nodes, Setting(Annotated[int, Ge(1)] | None, None))
    except SettingError as error:
        raise GraphError(f"{name}: {error}") from error
    _check_size(name, nodes, given)
    with of_the_person(f"topology: {name}", make, GraphError):
        made = _call(make, nodes, seed, given)
    graph = _checked(name, made, nodes)
    return graph if sites is None else with_sites(graph, sites)


def _call(make: Topology, nodes: int | None, seed: int | Seed, given: Mapping[str, Any]) -> object:
    """The function with those arguments that it has."""
    takes = inspect.signature(make).parameters
    from_study: dict[str, Any] = {"seed": seed_for(make, seed)} if "seed" in takes else {}
    if "nodes" in takes:
        default = takes["nodes"].default
        from_study["nodes"] = nodes if nodes is not None or default is None else _need(None, default)
    return make(**from_study, **given)


def _checked(name: str, made: object, nodes: int | None) -> Graph:
    """What the function made, if it is a graph of the size that was asked for; one of networkx will do."""
    try:
        graph = as_graph(made)
    except GraphError as error:
        raise GraphError(f"topology {name}: its function gave back no graph: {error}") from error
    if nodes is not None and graph.nodes != nodes:
        raise GraphError(f"{name}: nodes = {nodes}, but the graph described has {graph.nodes}")
    return graph


def _check_size(name: str, nodes: int | None, given: Mapping[str, Any]) -> None:
    """Refuse what no machine holds before it is tried: a process that runs out of memory takes others with it."""
    if nodes is None:
        return
    if nodes > MOST_NODES:
        raise misfit(f"{name}: nodes", nodes, f"{MOST_NODES:,} or less", GraphError)
    dense = {"erdos_renyi": nodes * (given.get("p") or 0), "barbell": nodes / 2}
    degree = given.get("degree")
    edges = nodes * dense.get(name, degree if isinstance(degree, int) else 0) / 2
    if edges > MOST_EDGES:
        allowed = (
            f"{MOST_EDGES:,} edges or fewer, not some {edges:.0e}, to fit in memory; take fewer nodes or neighbours"
        )
        raise misfit(f"{name}: nodes", nodes, allowed, GraphError)


def _need(nodes: int | None, default: Any = REQUIRED) -> int:
    if nodes is None and default is REQUIRED:
        raise GraphError("nodes is missing: the number of nodes, 1 or more")
    return int(default if nodes is None else nodes)
