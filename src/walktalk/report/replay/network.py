"""The network as the replay draws it: places on a grid of whole numbers, edges, sites."""

from __future__ import annotations

from typing import Any

import numpy as np

from walktalk.graphs import Graph
from walktalk.plots import positions

GRID = 1000  # the longer side of the drawing
EDGES = 6000  # that are drawn; more are a grey blot, and a complete graph of 1,000 nodes has half a million


def network_data(graph: Graph) -> dict[str, Any]:
    """Where each node is, who is connected to whom, and at which site a node is, where there are sites."""
    places = _on_grid(positions(graph))
    edges = np.asarray(graph.edge_list(), dtype=np.int64).reshape(-1, 2)
    shown = edges if len(edges) <= EDGES else edges[np.linspace(0, len(edges) - 1, EDGES).round().astype(int)]
    sites = graph.sites
    return {
        "nodes": graph.nodes,
        "x": places[:, 0].tolist(),
        "y": places[:, 1].tolist(),
        "edges": shown.ravel().tolist(),
        "edge_count": len(edges),
        "sites": None if sites is None else {"names": list(sites.names), "of": [int(s) for s in sites.site_of]},
    }


def _on_grid(places: Any) -> Any:
    """Upside down, as screens count, and as large as the grid allows with both axes alike."""
    low = places.min(axis=0)
    size = max(float((places.max(axis=0) - low).max()), 1e-9)
    placed = (places - low) / size * GRID
    placed[:, 1] = placed[:, 1].max() - placed[:, 1]
    return placed.round().astype(int)
