"""How a task with classes splits its data: iid, by Dirichlet(alpha), or by label."""

from __future__ import annotations

import numpy as np

from walktalk.errors import DataError
from walktalk.learning.partition import by_label, iid, true_dirichlet
from walktalk.seeds import Seed


def split_by_class(
    labels: np.ndarray, nodes: int, seed: Seed, alpha: float | None, labels_per_node: int | None = None
) -> list[np.ndarray]:
    """The parts of the nodes; only one of the two settings may be given."""
    if alpha is not None and labels_per_node is not None:
        raise DataError(f"alpha: {alpha} and labels_per_node: {labels_per_node} exclude each other; leave one out")
    if labels_per_node is not None:
        return by_label(labels, nodes, labels_per_node, seed)
    return iid(len(labels), nodes, seed) if alpha is None else true_dirichlet(labels, nodes, alpha, seed)
