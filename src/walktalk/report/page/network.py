"""Network and partition as data for the page: where nodes are drawn, who is joined to whom, who holds what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from walktalk import plots
from walktalk.errors import UserError
from walktalk.learning import Task
from walktalk.report.study import Study

MOST_NODES = 3000  # beyond, a drawing is a grey blot
MOST_EDGES = 6000
MOST_COLUMNS = 120  # nodes in the table of who holds what


def network_data(study: Study, samples: list[int] | None, names: Sequence[str] | None = None) -> dict[str, Any] | None:
    """The drawing: places from 0 to 1, edges as pairs, sites; none where the graph is too large to see.

    Args:
        study: whose network it is.
        samples: how many each node has, where that is known.
        names: of the nodes, where the data has some; those of the graph come first.
    """
    try:
        graph = study.graph
    except UserError:  # a file of edges that has gone
        return None
    title = {"name": graph.name, "nodes": graph.nodes, "edges": graph.edges, "notes": list(graph.notes)}
    if graph.nodes > MOST_NODES:
        return title
    places = plots.positions(graph)
    low, span = places.min(axis=0), float(np.ptp(places, axis=0).max()) or 1.0
    edges = graph.edge_list()
    kept = np.linspace(0, len(edges) - 1, MOST_EDGES).astype(int) if len(edges) > MOST_EDGES else np.arange(len(edges))
    sites = graph.sites
    return {
        **title,
        "places": [[round(float(x), 4), round(float(y), 4)] for x, y in (places - low) / span],
        "pairs": edges[kept].tolist(),
        "shown": len(kept),
        "degrees": graph.degrees.tolist(),
        "names": None if (called := graph.names or names) is None else list(called),
        "aggregator": study.aggregator,
        "samples": samples,
        "sites": None if sites is None else {"names": list(sites.names), "of": sites.site_of.tolist()},
    }


def partition_data(task: Task, alpha: float | None) -> dict[str, Any] | None:
    """Samples of each class at each node; none where the task has no classes."""
    if task.labels is None:
        return None
    classes, counts = plots.class_counts(task)
    return {
        "classes": [str(name) for name in classes],
        "counts": counts[:MOST_COLUMNS].tolist(),
        "names": None if task.names is None else list(task.names),
        "nodes": len(counts),
        "alpha": alpha,
    }
