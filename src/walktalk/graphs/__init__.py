"""Topologies: who may talk to whom, and how far apart they are.

`build("erdos_renyi", 20, seed=1, p=0.3)` makes any family by name, as a study's specification does; every family is
also a function. All graphs are connected, or there is a `GraphError`. `TOPOLOGIES` lists them; `walktalk.register` adds
one's own.
"""

from walktalk.graphs.barbell import barbell
from walktalk.graphs.base_graph import base_graph
from walktalk.graphs.changing import Changing, attached
from walktalk.graphs.complete import complete
from walktalk.graphs.cycle import cycle
from walktalk.graphs.edge_list import edge_list
from walktalk.graphs.equi_dyn import equi_dyn
from walktalk.graphs.erdos_renyi import erdos_renyi
from walktalk.graphs.graph import Graph, GraphLike, as_graph, from_networkx
from walktalk.graphs.hypercube import hypercube
from walktalk.graphs.matcha import matcha
from walktalk.graphs.path import path
from walktalk.graphs.random_regular import random_regular
from walktalk.graphs.random_rounds import RandomCirculants, RandomTargets, random_groups
from walktalk.graphs.registry import TOPOLOGIES, build, default_nodes, known_as, topology_settings
from walktalk.graphs.rounds import (
    Rounds,
    Shifts,
    WeightedRounds,
    exponential,
    k_peer_exponential,
    one_peer_exponential,
    random_matchings,
)
from walktalk.graphs.sites import PRESETS as SITE_PRESETS
from walktalk.graphs.sites import Sites, with_sites
from walktalk.graphs.small_world import small_world
from walktalk.graphs.star import star
from walktalk.graphs.torus import torus
from walktalk.graphs.trees import binary_tree, pair_of_trees, spanning_tree, two_binary_trees
from walktalk.graphs.us_five_sites import us_five_sites
from walktalk.lazy import listing

__all__ = [
    "SITE_PRESETS",
    "TOPOLOGIES",
    "Changing",
    "Graph",
    "GraphLike",
    "RandomCirculants",
    "RandomTargets",
    "Rounds",
    "Shifts",
    "Sites",
    "WeightedRounds",
    "as_graph",
    "attached",
    "barbell",
    "base_graph",
    "binary_tree",
    "build",
    "complete",
    "cycle",
    "default_nodes",
    "edge_list",
    "equi_dyn",
    "erdos_renyi",
    "exponential",
    "from_networkx",
    "hypercube",
    "k_peer_exponential",
    "known_as",
    "matcha",
    "one_peer_exponential",
    "pair_of_trees",
    "path",
    "random_groups",
    "random_matchings",
    "random_regular",
    "small_world",
    "spanning_tree",
    "star",
    "topology_settings",
    "torus",
    "two_binary_trees",
    "us_five_sites",
    "with_sites",
]

__dir__ = listing(__all__)
