"""The 2-D torus: a grid that wraps around (Tables 1 and 2), p = Θ(1/V).

Its H² is Θ(V² log V); the paper leaves it open.
"""

from __future__ import annotations

from math import isqrt

import numpy as np

from walktalk.graphs.checks import at_least
from walktalk.graphs.graph import Graph


def torus(rows: int, cols: int | None = None) -> Graph:
    """rows × cols nodes, each with a neighbour to the left, right, above and below, around the edges too.

    A side of 2 gives one edge where two would fall together; a side of 1 gives none.

    Args:
        rows: How many rows.
        cols: How many columns; as many as rows if left out.
    """
    rows = at_least("torus", "rows", rows, 1)
    cols = rows if cols is None else at_least("torus", "cols", cols, 1)
    name = f"torus({rows}, {cols})"
    if rows < 3 or cols < 3:
        return Graph.from_edges(rows * cols, _edges(rows, cols), name)
    row, col = np.divmod(np.arange(rows * cols, dtype=np.int64), cols)
    around = [((row - 1) % rows, col), ((row + 1) % rows, col), (row, (col - 1) % cols), (row, (col + 1) % cols)]
    indices = np.stack([r * cols + c for r, c in around], axis=1)
    indices.sort(axis=1)
    return Graph(np.arange(0, 4 * rows * cols + 1, 4, dtype=np.int64), indices.ravel(), name)


def squarest(nodes: int) -> tuple[int, int]:
    """The two factors of `nodes` that are nearest to each other."""
    rows = next(side for side in range(isqrt(nodes), 0, -1) if nodes % side == 0)
    return rows, nodes // rows


def _edges(rows: int, cols: int) -> list[tuple[int, int]]:
    """Edges of a torus with a short side, loops left out."""
    cells = [(r, c) for r in range(rows) for c in range(cols)]
    down = [(r * cols + c, (r + 1) % rows * cols + c) for r, c in cells]
    right = [(r * cols + c, r * cols + (c + 1) % cols) for r, c in cells]
    return [(a, b) for a, b in down + right if a != b]
