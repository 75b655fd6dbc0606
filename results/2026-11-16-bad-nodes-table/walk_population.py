"""How often the number of walks leaves 1 … 2R where one node swallows them, at best, over all A and q.

The walks as a birth–death chain: n of them die at rate n/V (one node of V takes every visit), and are born at rate

    average crossing:  n q exp(−A n/V)           (a visitor is doubled if the last visit was longer ago than A visits)
    create if late:    n q / (exp(A n/V) − 1)    (a node begins one whenever nobody came for A)

with gaps between visits that are exponential, as far from the node that swallows. On a graph gaps come in clusters, so
real runs are a little worse; `tests/protocols/failures/test_swallowed_walks.py` has those.

    python results/2026-11-16-bad-nodes-table/walk_population.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
ITERATIONS = 10_000
THRESHOLDS = np.linspace(0.05, 2.0, 80)  # A/V
CHANCES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


def crossing(n: Floats, a: float, q: float) -> Floats:
    return np.asarray(n * q * np.exp(-a * n))


def creating(n: Floats, a: float, q: float) -> Floats:
    return np.asarray(n * q / np.expm1(a * n))


def exits(nodes: int, walks: int, births: Callable[[Floats], Floats]) -> tuple[float, float]:
    """Expected times that no walk is left, and that there are more than 2R; after each it begins with R again."""
    most = 2 * walks
    n = np.arange(1.0, most + 1)
    born, dies = births(n), n / nodes
    rates = np.diag(born[:-1], 1) + np.diag(dies[1:], -1)
    rates[0, walks - 1] += dies[0]
    rates[-1, walks - 1] += born[-1]
    rates -= np.diag(rates.sum(1))
    equations, right = np.vstack([rates.T, np.ones(most)]), np.zeros(most + 1)
    right[-1] = 1.0
    law = np.linalg.lstsq(equations, right, rcond=None)[0]
    time = ITERATIONS / float(law @ n)
    return time * float(law[0] * dies[0]), time * float(law[-1] * born[-1])


def main() -> None:
    for nodes, walks in ((50, 10), (20, 6), (20, 4)):
        for name, rule in (("average crossing", crossing), ("create if late", creating)):
            (_, a, q), (none, many) = min(
                ((sum(found), a, q), found)
                for a, q in itertools.product(THRESHOLDS, CHANCES)
                for found in [exits(nodes, walks, lambda n, a=a, q=q, rule=rule: rule(n, a, q))]  # type: ignore[misc]
            )
            print(f"V = {nodes}, R = {walks}, {name}: {none:.2g} times none, {many:.2g} times above 2R, "
                  f"with A = {a:.2g} V and q = {q:g}")  # fmt: skip


if __name__ == "__main__":
    main()
