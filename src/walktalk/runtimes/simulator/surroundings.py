"""What each node of a simulated network knows before the first message."""

from __future__ import annotations

from walktalk.graphs import Graph
from walktalk.protocols import Surroundings
from walktalk.runtimes.simulator.timing import Stopwatch


def all_surroundings(
    graph: Graph, stopwatch: Stopwatch | None = None, samples: tuple[int, ...] = ()
) -> list[Surroundings]:
    """Of every node. Equal numbers are one object: less memory, and near each other in it.

    Of what counts in an election, machines differ here in how fast they compute: a straggler is not preferred.
    """
    names, bounds = list(range(graph.nodes)), graph.indptr.tolist()
    peers = [names[peer] for peer in graph.indices.tolist()]
    degrees = graph.degrees[graph.indices].tolist()
    alike = (0.0, 0.0, 1.0)
    slowness = stopwatch.slowness if stopwatch is not None else []
    resources = [(0.0, 0.0, 1.0 / factor) for factor in slowness] or [alike] * graph.nodes
    heard = [graph.reverse.neighbours(node) for node in names] if graph.directed else [None] * graph.nodes
    counts = samples or (1,) * graph.nodes
    return [
        Surroundings(
            node, graph.nodes, tuple(peers[start:end]), tuple(degrees[start:end]), own, heard[node], counts[node],
            graph.rounds,
        )
        for node, start, end, own in zip(names, bounds[:-1], bounds[1:], resources, strict=True)
    ]  # fmt: skip
