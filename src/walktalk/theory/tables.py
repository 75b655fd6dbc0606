"""Tables 1 to 4 of the paper: as printed, and as numbers for a given network.

Tables 1 and 2 compare the two largest terms with iid and with heterogeneous data; Table 3 is Theorems 1 and 2 in
transmitted bits, Table 4 in wall-clock time. The one entry that the paper leaves open is filled in: H² of the 2-D torus
is Θ(V² log V). On a square torus it tends to V²((5/2π) ln V + 0.4877): the sum over the lattice's eigenvalues.
"""

from __future__ import annotations

from dataclasses import dataclass

from walktalk.core.errors import SpecError
from walktalk.core.settings import misfit
from walktalk.theory.comparison import iterations_from_bits, iterations_from_time
from walktalk.theory.problem import Bound, Network, Problem
from walktalk.theory.theorems import theorem1_order, theorem2_order


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
