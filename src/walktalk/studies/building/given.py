"""A study of things that are handed over in Python: a task with its data, a graph, protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from walktalk.errors import DataError, GraphError
from walktalk.graphs import Graph, GraphLike, as_graph
from walktalk.learning import Task, tasks
from walktalk.protocols import Protocol
from walktalk.studies.building.build import build_graph, build_protocols, check_links
from walktalk.studies.building.foundation import Foundation
from walktalk.studies.building.match import matched
from walktalk.studies.spec import algorithms_section, make_spec, network_section

GivenTask: TypeAlias = Task | str | Mapping[str, Any]
"""A task, or what a specification says of one: a name, `module:function`, or the keys of the section `task`."""

GivenGraph: TypeAlias = GraphLike | str | Mapping[str, Any]
"""A graph of ours or networkx's, or what a specification says of one: a topology, or the keys of `network`."""

GivenAlgorithm: TypeAlias = Protocol | str | Mapping[str, Any]
"""A protocol, or what a specification says of one: a name, `module:class`, or the keys of an entry of `algorithms`."""


def given_foundation(
    task: GivenTask,
    algorithms: GivenAlgorithm | Sequence[GivenAlgorithm],
    graph: GivenGraph,
    sections: Mapping[str, Any] | None = None,
) -> Foundation:
    """What a study stands on, with a specification that says as much of it as one can.

    Args:
        task: What is learned.
        algorithms: What is compared.
        graph: Who may talk to whom.
        sections: All other keys of the specification.
    """
    network = as_graph_or_section(graph, task)
    if isinstance(task, Task) and isinstance(network, Graph):
        task, network = matched(task, network)
    spec = make_spec(
        {
            **(sections or {}),
            "network": network_section(network) if isinstance(network, Graph) else network,
            "task": task_section(task),
            "algorithms": algorithms_section(algorithms),
        }
    )
    built = network if isinstance(network, Graph) else build_graph(spec)
    check_links(spec, built)
    plans = build_protocols(spec, built.nodes)
    return Foundation(spec, built, plans, matched(task, built)[0] if isinstance(task, Task) else None)


def as_graph_or_section(graph: Any, task: Any) -> Graph | dict[str, Any]:
    """The graph itself, or the section `network`; its nodes are the task's, where only that says how many."""
    if isinstance(graph, (str, Mapping)):
        section = {"topology": graph} if isinstance(graph, str) else dict(graph)
        return {"nodes": task.nodes, **section} if isinstance(task, Task) else section
    try:
        return as_graph(graph)
    except GraphError as error:
        if isinstance(graph, type) or callable(graph):
            raise GraphError(f"{error}; call it, as in wt.graphs.cycle(20)") from None
        raise


def task_section(task: Any) -> Mapping[str, Any]:
    """The section `task`, of a task that is there or that is named."""
    if isinstance(task, Task):
        return tasks.section_of(task)
    if isinstance(task, str):
        return {"name": task}
    if isinstance(task, Mapping):
        return task
    raise DataError(
        f"task: {type(task).__name__} is not possible; allowed: a task such as wt.tasks.torch(…), or its name"
    )
