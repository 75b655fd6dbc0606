"""How a task with classes splits its data: iid, by Dirichlet(alpha), or by label."""

from __future__ import annotations

import numpy as np

from walktalk.errors import DataError
from walktalk.learning.partition import by_label, iid, true_dirichlet
from walktalk.seeds import Seed


def own_part(parts: list[np.ndarray], part: int | None) -> np.ndarray | None:
    """The samples of that node; None where everybody's are wanted."""
    if part is None:
        return None
    if not 0 <= part < len(parts):
        raise DataError(f"part: {part} is not possible; allowed: 0 to {len(parts) - 1}")
    return parts[part]


def split_by_class(
    labels: np.ndarray, nodes: int, seed: Seed, alpha: float | None, labels_per_node: int | None = None
) -> list[np.ndarray]:
    """The parts of the nodes; only one of the two settings may be given."""
    if alpha is not None and labels_per_node is not None:
        raise DataError(f"alpha: {alpha} and labels_per_node: {labels_per_node} exclude each other; leave one out")
    if labels_per_node is not None:
        return by_label(labels, nodes, labels_per_node, seed)
    return iid(len(labels), nodes, seed) if alpha is None else true_dirichlet(labels, nodes, alpha, seed)
