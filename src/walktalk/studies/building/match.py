"""A task's nodes are the graph's: as many, and by name where both have names."""

from __future__ import annotations

from walktalk.errors import DataError
from walktalk.graphs import Graph, GraphLike, as_graph
from walktalk.learning import Task


def matched(task: Task, graph: GraphLike) -> tuple[Task, Graph]:
    """The task with its data in the order of the graph's nodes, and the graph with the names that either has."""
    graph = as_graph(graph)
    if graph.names is not None and task.names is not None:
        return task.ordered(graph.names), graph
    if task.nodes != graph.nodes:
        raise DataError(
            f"the task is split over {task.nodes} nodes, but the graph has {graph.nodes}; make them equal, as with "
            f"network.nodes: {task.nodes}"
        )
    if graph.names is not None:
        return task.ordered(graph.names), graph
    return task, graph if task.names is None else graph.named(task.names)
