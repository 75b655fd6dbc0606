"""What the theory asks of a graph, at a million nodes: spectral gap and return time, against dense linear algebra."""

from __future__ import annotations

import math
import time

import numpy as np

from walktalk import graphs
from walktalk.bench.result import BenchResult, Say
from walktalk.chains import metropolis_hastings, return_time, spectrum

SIDE = 1_000  # a torus of a million nodes
DENSE_SIDE = 40  # a torus of 1,600 nodes: the dense way takes a second


def theory(say: Say) -> BenchResult:
    """Nodes/s of the gap p and the return time's second moment on a torus of a million nodes."""
    say(f"{SIDE * SIDE:,} nodes, sparse; about half a minute")
    began = time.process_time()
    chain = metropolis_hastings(graphs.torus(SIDE, SIDE))
    gap = spectrum(chain).p
    moment = return_time(chain, 0).second_moment
    seconds = time.process_time() - began
    say(f"{DENSE_SIDE**2:,} nodes, dense")
    began = time.process_time()
    dense_gap, dense_moment = dense_quantities(DENSE_SIDE)
    dense_seconds = time.process_time() - began
    known = closed_form_gap(SIDE)
    details = {
        "seconds": seconds,
        "p": gap,
        "relative error of p": abs(gap - known) / known,
        "H2": moment,
        "dense seconds": dense_seconds,
        "dense p": dense_gap,
        "dense H2": dense_moment,
    }
    return BenchResult(
        "theory",
        SIDE * SIDE / seconds,
        DENSE_SIDE**2 / dense_seconds,
        "nodes per CPU second",
        f"gap and return time on a torus of {SIDE * SIDE:,} nodes",
        f"NumPy's dense eigenvalues and solve on {DENSE_SIDE**2:,} nodes; its cost a node grows as V²",
        details=details,
    )


def dense_quantities(side: int) -> tuple[float, float]:
    """p and the second moment of node 0's return time, as the formulas are written."""
    matrix = metropolis_hastings(graphs.torus(side, side)).matrix.toarray()
    values = np.linalg.eigvalsh(matrix)
    rest = np.eye(len(matrix) - 1) - matrix[1:, 1:]
    hitting = np.linalg.solve(rest, np.ones(len(rest)))
    second = np.linalg.solve(rest, 2 * hitting - 1)  # E[T²] = 1 + 2 P E[T] + P E[T²]
    moment = 1 + 2 * matrix[0, 1:] @ hitting + matrix[0, 1:] @ second
    return float(1 - max(values[-2], -values[0]) ** 2), float(moment)


def closed_form_gap(side: int) -> float:
    """p = 1 − λ₂² of the torus, all weights 1/5: λ₂ = (3 + 2 cos(2π/n)) / 5."""
    return 1 - ((3 + 2 * math.cos(2 * math.pi / side)) / 5) ** 2
