"""The paper's theorems and tables for any graph: bounds in iterations, bits and wall-clock time.

`network(graph)` gathers what the bounds need of a graph, `Problem` what they need of a task. `theorem1`, `theorem2` and
`theorem3` give bounds with the constants of the proofs, for the step size that the lemmas allow; `theorem1_order` and
its sisters are the plain expressions inside the O(·). `multi_walk_by_age` stands in for Theorem 1 where graphs are
compared. `TABLES` are the paper's tables as printed, `table` gives their numbers, and `summary` gathers all of it for
one graph.
"""

from walktalk.lazy import listing
from walktalk.theory.bound import Bound, Inequality, NotApplicable
from walktalk.theory.by_age import by_age_inequality, multi_walk_by_age
from walktalk.theory.comparison import crossover_walks, gossip_speed_up, iterations_to, on_axis, speed_up, winner
from walktalk.theory.costs import (
    bits_from_iterations,
    iterations_from_bits,
    iterations_from_time,
    messages_per_iteration,
    paper_messages_per_iteration,
    time_deviation_bound,
    time_from_iterations,
)
from walktalk.theory.exact import (
    d2_order,
    extra_order,
    gradient_tracking_order,
    k_gt_order,
    push_pull_order,
    scaffold_order,
)
from walktalk.theory.failures import stages, theorem3, theorem3_inequality, theorem3_order
from walktalk.theory.gossip import theorem2, theorem2_inequality, theorem2_order
from walktalk.theory.momentum import fedbuff_order, fedopt_order, momentum_tracking_order, slowmo_order
from walktalk.theory.multi_walk import theorem1, theorem1_inequality, theorem1_order
from walktalk.theory.network import Network, network
from walktalk.theory.others import (
    PROVED,
    ceca_order,
    d_psgd_order,
    epidemic_order,
    fedavg_order,
    orders,
    teleportation_order,
)
from walktalk.theory.problem import Problem
from walktalk.theory.summary import Question, summary
from walktalk.theory.tables import TABLES, TORUS_H2, Numbers, Row, table
from walktalk.theory.weighted import WeightedWalkLaw, weighted_walk

__all__ = [
    "PROVED",
    "TABLES",
    "TORUS_H2",
    "Bound",
    "Inequality",
    "Network",
    "NotApplicable",
    "Numbers",
    "Problem",
    "Question",
    "Row",
    "WeightedWalkLaw",
    "bits_from_iterations",
    "by_age_inequality",
    "ceca_order",
    "crossover_walks",
    "d2_order",
    "d_psgd_order",
    "epidemic_order",
    "extra_order",
    "fedavg_order",
    "fedbuff_order",
    "fedopt_order",
    "gossip_speed_up",
    "gradient_tracking_order",
    "iterations_from_bits",
    "iterations_from_time",
    "iterations_to",
    "k_gt_order",
    "messages_per_iteration",
    "momentum_tracking_order",
    "multi_walk_by_age",
    "network",
    "on_axis",
    "orders",
    "paper_messages_per_iteration",
    "push_pull_order",
    "scaffold_order",
    "slowmo_order",
    "speed_up",
    "stages",
    "summary",
    "table",
    "teleportation_order",
    "theorem1",
    "theorem1_inequality",
    "theorem1_order",
    "theorem2",
    "theorem2_inequality",
    "theorem2_order",
    "theorem3",
    "theorem3_inequality",
    "theorem3_order",
    "time_deviation_bound",
    "time_from_iterations",
    "weighted_walk",
    "winner",
]

__dir__ = listing(__all__)
