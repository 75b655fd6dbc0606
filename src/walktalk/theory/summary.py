"""Everything that theory says about one graph, as plain numbers: what `walktalk theory` prints; with Tables 1 to 4.

Tables 1 and 2 compare the two largest terms with iid and with heterogeneous data; Table 3 is Theorems 1 and 2 in
transmitted bits, Table 4 in wall-clock time. The one entry that the paper leaves open is filled in: H² of the 2-D torus
is Θ(V² log V). On a square torus it tends to V²((5/2π) ln V + 0.4877): the sum over the lattice's eigenvalues.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from walktalk.chains import ReturnTime, aggregators, metropolis_hastings
from walktalk.core.errors import GraphError, SpecError
from walktalk.core.settings import misfit
from walktalk.graphs import Graph, GraphLike, as_graph
from walktalk.theory.comparison import (
    bits_from_iterations,
    crossover_walks,
    gossip_speed_up,
    iterations_from_bits,
    iterations_from_time,
    messages_per_iteration,
    on_axis,
    paper_messages_per_iteration,
    speed_up,
    winner,
)
from walktalk.theory.others import multi_walk_by_age, orders, weighted_walk
from walktalk.theory.problem import Bound, Network, NotApplicable, Problem
from walktalk.theory.theorems import (
    stages,
    theorem1,
    theorem1_order,
    theorem2,
    theorem2_order,
    theorem3,
    theorem3_order,
)


@dataclass(frozen=True)
class Row:
    """One line of a table as the paper prints it."""

    topology: str  # empty in Tables 3 and 4
    algorithm: str
    rate: str  # convergence rate, inside the O(·)
    communication: str  # order of the models, or bits, sent
    computation: str  # order of the trainings
    wins: str = ""  # the paper's check mark, with its condition


_IID = "σ/√T + ({} √({})/T)^⅔"
_NONIID = "√((σ² + ζ²)/T) + ({} √({})/T)^⅔"

TABLES: dict[int, tuple[str, tuple[Row, ...]]] = {
    1: (
        "Convergence rate and communication, iid data, Metropolis–Hastings P",
        (
            Row("cycle, p = Θ(1/V²)", "Multi-Walk", _IID.format("R", "Vσ²"), "Θ(T)", "T", "✓"),
            Row("cycle, p = Θ(1/V²)", "Asynchronous Gossip", _IID.format("V", "V²σ²"), "Θ(VT)", "T"),
            Row("2-D torus, p = Θ(1/V)", "Multi-Walk", _IID.format("R", "Vσ²"), "Θ(T)", "T", "✓"),
            Row("2-D torus, p = Θ(1/V)", "Asynchronous Gossip", _IID.format("V", "Vσ²"), "Θ(VT)", "T"),
            Row("complete, p = 1", "Multi-Walk", _IID.format("R", "Vσ²"), "Θ(T)", "T", "✓ if R = O(√V)"),
            Row("complete, p = 1", "Asynchronous Gossip", _IID.format("V", "σ²"), "Θ(V²T)", "T", "✓ if R = Ω(√V)"),
        ),
    ),
    2: (
        "Convergence rate and communication, heterogeneous data, Metropolis–Hastings P",
        (
            Row("cycle, p = Θ(1/V²)", "Multi-Walk", _NONIID.format("R", "Vσ² + V³ζ²"), "Θ(T)", "T", "✓"),
            Row("cycle, p = Θ(1/V²)", "Asynchronous Gossip", _NONIID.format("V", "V²σ² + V⁴ζ²"), "Θ(VT)", "T"),
            Row("2-D torus, p = Θ(1/V)", "Multi-Walk", _NONIID.format("R", "Vσ² + H²ζ²"), "Θ(T)", "T"),
            Row("2-D torus, p = Θ(1/V)", "Asynchronous Gossip", _NONIID.format("V", "Vσ² + V²ζ²"), "Θ(VT)", "T"),
            Row("complete, p = 1", "Multi-Walk", _NONIID.format("R", "Vσ² + V²ζ²"), "Θ(T)", "T"),
            Row("complete, p = 1", "Asynchronous Gossip", _NONIID.format("V", "σ² + ζ²"), "Θ(V²T)", "T"),
        ),
    ),
    3: (
        "In total transmitted bits B",
        (
            Row("", "Multi-Walk", "FLRHm/B + Rζ²m/(p'B) + √(FLm(σ² + ζ²)/B) + (FLRm√(Vσ² + H²ζ²)/B)^⅔", "B", "Θ(B/m)"),
            Row(
                "",
                "Asynchronous Gossip",
                "FLVm‖P‖₀/(pB) + √(FLm‖P‖₀(σ² + ζ²)/B) + (FLVm‖P‖₀√(σ²/p + ζ²/p²)/B)^⅔",
                "B",
                "Θ(B/(m‖P‖₀))",
            ),
        ),
    ),
    4: (
        "In wall-clock time Z",
        (
            Row(
                "",
                "Multi-Walk",
                "FLHd/Z + ζ²d/(p'Z) + √(FLd(σ² + ζ²)/(RZ)) + (FLd√(σ²V + ζ²H²)/Z)^⅔",
                "Θ(ZRm/d)",
                "Θ(ZR/d)",
            ),
            Row(
                "",
                "Asynchronous Gossip",
                "FLd/(pZ) + √(FLd(σ² + ζ²)/(VZ)) + (FLd√(σ²/p + ζ²/p²)/Z)^⅔",
                "Θ(ZVm‖P‖₀/d)",
                "Θ(ZV/d)",
            ),
        ),
    ),
}
"""The paper's tables: caption and rows."""

TORUS_H2 = "Θ(V² log V): V²((5/2π) ln V + 0.4877) on a large square torus"
"""The second moment of the return time on the 2-D torus, which the paper's Table 2 leaves as H²."""


@dataclass(frozen=True)
class Numbers:
    """One line of a table for a given network."""

    algorithm: str  # "multi_walk" or "async_gossip_matrix"
    rate: Bound  # Tables 1 and 2: noise and deviation only
    communication: float  # models (Tables 1, 2) or bits (3, 4), as the paper counts: ‖P‖₀ with its diagonal
    communication_sent: float  # the same, without what stays at its node
    computation: float  # trainings


def table(
    number: int, network: Network, problem: Problem, walks: int, budget: float, model_bits: float = 1.0, d: float = 1.0
) -> tuple[Numbers, Numbers]:
    """Table 1, 2, 3 or 4 for this network: Multi-Walk, then gossip.

    The budget is T for Tables 1 and 2, B (bits) for Table 3 and Z (seconds) for Table 4. Table 1 takes ζ² as 0.

    Args:
        number: 1 to 4.
        network: what `network(graph)` found.
        problem: F, L, σ² and ζ² of the task.
        walks: R, from 1 to the number of nodes.
        budget: T, B or Z, as above.
        model_bits: m, the size of one model (Table 3).
        d: mean seconds of one iteration of a walk or node (Table 4).
    """
    if number not in TABLES:
        raise misfit("table", number, "1, 2, 3 or 4", SpecError)
    counted, sent = (1.0, float(network.nonzeros)), (network.move_probability, float(network.nonzeros_off_diagonal))
    if number == 3:
        times = [iterations_from_bits(budget, model_bits, messages) for messages in counted]
    elif number == 4:
        times = [iterations_from_time(budget, active, d) for active in (walks, network.nodes)]
    else:
        times = [budget, budget]
    if number == 1:
        problem = Problem(problem.F, problem.L, problem.sigma2, 0.0)
    bounds = [theorem1_order(network, problem, walks, times[0]), theorem2_order(network, problem, times[1])]
    if number in (1, 2):
        bounds = [Bound(bound.theorem, 0.0, 0.0, bound.noise, bound.deviation, note=bound.note) for bound in bounds]
    unit = model_bits if number in (3, 4) else 1.0
    lines = [
        Numbers(name, bound, t * c * unit, t * s * unit, t)
        for name, bound, t, c, s in zip(
            ("multi_walk", "async_gossip_matrix"), bounds, times, counted, sent, strict=True
        )
    ]
    return lines[0], lines[1]


EXACT_AGGREGATORS = 1500  # nodes; above this the best aggregator costs many solves and is left out
EXACT_DIAMETER = 3000  # nodes; above this the diameter takes more than seconds
CHANGES = "who meets whom changes by round; this is of the graph with all links at all times, so rounds mix more slowly"


@dataclass(frozen=True)
class Question:
    """What is asked about a graph: walks, iterations, aggregator, failures, and the model's size."""

    walks: int = 4  # R
    iterations: int = 3000  # T
    aggregator: int = 0  # the node at which walks are mixed
    failures: int = 0  # E
    model_bits: float = 32 * 269_722  # m: ResNet-20 in float32, the paper's 1.08 MB
    d: float = 1.0  # mean seconds of one training and one hop
    step_size: float | None = None  # one's own η; None tunes it by Lemma 5
    weights: tuple[float, ...] = ()  # of a weighted walk, one for each node; none: it is not asked for
    jump: float = 0.0  # how often that one jumps

    def __post_init__(self) -> None:
        for name in ("iterations", "model_bits", "d"):
            value = getattr(self, name)
            if not (isfinite(value) and value > 0):
                raise misfit(name, value, "a number above 0", SpecError)


def summary(graph: GraphLike, problem: Problem, question: Question) -> dict[str, Any]:
    """The answers, ready for JSON.

    Args:
        graph: The graph.
        problem: The task's constants.
        question: Walks, iterations and the rest of what is asked.
    """
    graph = as_graph(graph)
    if graph.directed:
        raise GraphError(
            f"{graph.name} has one-way links, of which these bounds know nothing; take an undirected graph, or ask "
            "`walktalk advise`, which measures"
        )
    networks = stages(graph, question.failures, question.aggregator)
    network = networks[0]
    return {
        "graph": graph.name,
        "notes": [*graph.notes, *([CHANGES] if graph.rounds is not None else [])],
        "nodes": network.nodes,
        "edges": network.edges,
        "degree": _degrees(graph),
        "diameter": graph.diameter() if graph.nodes <= EXACT_DIAMETER else None,
        "p": network.p,
        "p_prime": network.p_prime,
        "eigenvalues": {"second": 1 - network.p_prime, "smallest": network.smallest, "modulus": network.modulus},
        "return_time": _return_time(network.returning),
        "age": {"mean": network.age.mean, "mean_square": network.age.mean_square},
        "aggregators": _aggregators(graph),
        "nonzeros": {"with_diagonal": network.nonzeros, "without_diagonal": network.nonzeros_off_diagonal},
        "messages_per_iteration": messages_per_iteration(network),
        "paper_messages_per_iteration": paper_messages_per_iteration(network),
        "problem": asdict(problem),
        "question": asdict(question),
        "crossover_walks": {
            "iid": _finite(crossover_walks(network)),
            "this_problem": _finite(crossover_walks(network, problem)),
        },
        "speed_up": _speed_ups(network, problem, question),
        "axes": _axes(network, problem, question),
        "bounds": _bounds(networks, problem, question),
        "others": _others(network, problem, question),
        **({"weighted_walk": _weighted(graph, question)} if question.weights else {}),
        "tables": _tables(network, problem, question),
    }


def _degrees(graph: Graph) -> dict[str, float]:
    degrees = graph.degrees
    return {"min": int(degrees.min()), "mean": float(degrees.mean()), "max": int(degrees.max())}


def _return_time(time: ReturnTime) -> dict[str, float]:
    return {"node": time.node, "mean": time.mean, "second_moment": time.second_moment, "deviation": time.deviation}


def _aggregators(graph: Graph) -> dict[str, Any] | None:
    if graph.nodes > EXACT_AGGREGATORS:
        return None
    found = aggregators(metropolis_hastings(graph))
    return {"best": _return_time(found.best), "worst": _return_time(found.worst)}


def _speed_ups(network: Network, problem: Problem, question: Question) -> dict[str, Any] | None:
    """Over one walk, in wall-clock time: to where one walk's order is after T iterations, and in the long run."""
    target = theorem1_order(network, problem, 1, question.iterations).total
    if target == 0:
        return None
    return {
        "multi_walk": speed_up(network, problem, question.walks, target),
        "async_gossip_matrix": gossip_speed_up(network, problem, target),
        "long_run": {"multi_walk": question.walks, "async_gossip_matrix": network.nodes},
    }


def _axes(network: Network, problem: Problem, question: Question) -> dict[str, Any]:
    """Both orders at the same iterations, and at the bits and the time that Multi-Walk spends on them."""
    m, d = question.model_bits, question.d
    bits = bits_from_iterations(question.iterations, m, max(network.move_probability, 1e-12))
    budgets = {"iterations": question.iterations, "bits": bits, "time": question.iterations * d / question.walks}
    if network.nodes == 1:
        del budgets["bits"]  # nothing is ever sent
    found: dict[str, Any] = {}
    for axis, budget in budgets.items():
        bounds = on_axis(network, problem, question.walks, axis, budget, m, d)
        totals = {name: bound.total for name, bound in bounds.items()}
        found[axis] = {"budget": budget, **totals, "winner": winner(bounds)}
    return found


def _others(network: Network, problem: Problem, question: Question) -> dict[str, Any]:
    """The orders of other algorithms after as many iterations."""
    found = orders(network, problem, question.iterations)
    terms = ("start", "noise", "deviation", "total")
    return {name: {"paper": b.theorem, **{term: getattr(b, term) for term in terms}} for name, b in found.items()}


def _weighted(graph: Graph, question: Question) -> dict[str, Any]:
    law = weighted_walk(graph, question.weights, question.jump)
    return {**asdict(law), "bias": law.bias}


def _bounds(networks: list[Network], problem: Problem, question: Question) -> dict[str, Any]:
    walks, t, eta = question.walks, question.iterations, question.step_size
    return {
        "theorem1": {
            "with_constants": _bound(theorem1(networks[0], problem, walks, t, eta)),
            "order": _bound(theorem1_order(networks[0], problem, walks, t)),
        },
        "by_age": {"with_constants": _bound(multi_walk_by_age(networks[0], problem, walks, t, eta))},
        "theorem2": {
            "with_constants": _bound(theorem2(networks[0], problem, t, eta)),
            "order": _bound(theorem2_order(networks[0], problem, t)),
        },
        "theorem3": {
            "failures": len(networks) - 1,
            "with_constants": _bound(theorem3(networks, problem, walks, t, eta)),
            "order": _bound(theorem3_order(networks, problem, walks, t)),
        },
    }


def _bound(bound: Bound | NotApplicable) -> dict[str, Any]:
    found = {
        key: value for key, value in asdict(bound).items() if value is not None and value != "" and key != "theorem"
    }
    if isinstance(bound, NotApplicable):
        return {"applicable": False, "note": bound.note, **found}
    return {"applicable": True, "total": bound.total, **found}


def _tables(network: Network, problem: Problem, question: Question) -> dict[str, Any]:
    """Tables 1 to 4 as numbers: T as asked, B and Z what Multi-Walk spends on T by the paper's count."""
    t, m, d = question.iterations, question.model_bits, question.d
    budgets = {1: t, 2: t, 3: t * m, 4: t * d / question.walks}
    return {
        str(number): [
            {
                "algorithm": line.algorithm,
                "rate": line.rate.total,
                "communication": line.communication,
                "communication_sent": line.communication_sent,
                "computation": line.computation,
            }
            for line in table(number, network, problem, question.walks, budget, m, d)
        ]
        for number, budget in budgets.items()
    }


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
