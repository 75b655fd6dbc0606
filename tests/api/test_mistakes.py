"""Whatever a person gives to a public function or class that it cannot take: one line, never a traceback of ours."""

from __future__ import annotations

import inspect
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import walktalk as wt
from walktalk.core.errors import GraphError, SpecError, UserError
from walktalk.core.settings import says_what_is_allowed

DOORS = ("graphs", "chains", "theory", "tasks", "adapters", "advisor")
FIGURES = ("curves", "timeline", "network", "failures", "save")  # those of docs/api; the others draw parts of them
NONSENSE = (None, 3, -1, 2.5, "nonsense", [1, 2], {"a": 1}, object(), np.zeros((3, 3)), float("nan"), True, b"x")


def public() -> Iterator[tuple[str, Any]]:
    """Every function and class that people call, by its name; what cannot be called as it is, is none."""
    found = [(name, getattr(wt, name)) for name in dir(wt)]
    found += [(f"{door}.{name}", getattr(getattr(wt, door), name)) for door in DOORS for name in dir(getattr(wt, door))]
    found += [(f"figures.{name}", getattr(wt.figures, name)) for name in FIGURES]
    for name, thing in found:
        error = isinstance(thing, type) and issubclass(thing, BaseException)
        if (inspect.isfunction(thing) or inspect.isclass(thing)) and not error and not inspect.isabstract(thing):
            yield name, thing


def calls(thing: Callable[..., Any], value: object) -> Iterator[dict[str, Any]]:
    """What it needs, each of this value; and where it needs nothing, each of its arguments alone."""
    parameters = inspect.signature(thing).parameters
    named = [one for one in parameters.values() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    needed = [one.name for one in named if one.default is one.empty]
    yield dict.fromkeys(needed, value)
    few = {"samples": 40} if "samples" in parameters and not needed else {}
    if not needed:
        yield from ({**few, one.name: value} for one in named)


def line_of(thing: Callable[..., Any], given: dict[str, Any]) -> str:
    """What the error says; nothing where there is none."""
    try:
        thing(**given)
    except UserError as error:
        return str(error)
    return ""


def _no_network(*_: object, **__: object) -> None:
    raise OSError("there is no network here")


@pytest.mark.parametrize(("name", "thing"), [pytest.param(name, thing, id=name) for name, thing in public()])
def test_nonsense_is_one_line(name: str, thing: Callable[..., Any], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # what takes any text may make a file of that name
    monkeypatch.setattr(socket, "getaddrinfo", _no_network)  # nobody is asked for a model of that name
    for value in NONSENSE:
        for given in calls(thing, value):
            said = line_of(thing, given)
            assert "\n" not in said, f"{name}({given}): {said}"


def test_there_is_much_to_call() -> None:
    assert len(list(public())) > 150


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: wt.Stop(iterations="10"), "iterations: '10' is not possible; allowed: a whole number"),
        (
            lambda: wt.graphs.from_networkx(np.zeros((2, 2))),
            "graph: array.* is not possible; allowed: a graph of networkx",
        ),
        (lambda: wt.graphs.cycle("many"), "nodes: 'many' is not possible; allowed: a whole number"),
        (lambda: wt.SGD(lr="fast"), "lr: 'fast' is not possible; allowed: a number"),
        (lambda: wt.StudySpec(repetitions="x"), "repetitions: 'x' is not possible"),
        (lambda: wt.run_study(7), "spec: 7 is not possible"),
        (lambda: wt.forecast("multi_walk", "cycle", model_bytes="x"), "model_bytes: 'x' is not possible"),
    ],
)
def test_the_line_says_what_was_given_and_what_is_allowed(call: Callable[[], Any], line: str) -> None:
    with pytest.raises(UserError, match=line):
        call()


@pytest.mark.parametrize("call", [wt.train, wt.compare])
def test_what_breaks_inside_is_not_put_down_to_an_argument(monkeypatch: Any, call: Callable[..., Any]) -> None:
    """An error of a device, say, is left as it is: each of these arguments is one that the signature allows."""

    def broken(*_: Any) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr("walktalk.learning.trainer.stack", broken)
    given = {"batch_size": 4, "local_steps": [1, 2, 3, 4], "stop": 4, "objective": "sites", "progress": False}
    algorithms = "multi_walk" if call is wt.train else ["multi_walk"]
    with pytest.raises(RuntimeError, match="the device is gone"):
        call(wt.tasks.digits(nodes=4), algorithms, wt.graphs.cycle(4), **given)


def test_names_do_where_objects_do() -> None:
    by_name = wt.forecast("multi_walk", "cycle", model_bytes=1000, stop=50)
    assert by_name == wt.forecast(wt.MultiWalk(), wt.graphs.cycle(20), model_bytes=1000, stop=50)
    assert [run.trainings for run in wt.run_study("smoke").runs] == [
        run.trainings for run in wt.run_study(wt.load_spec("smoke")).runs
    ]


@pytest.mark.parametrize("value", ["[cycle,complete]", "5", "{a: 1}"])
def test_a_topology_that_is_no_text_is_one_line(value: str) -> None:
    with pytest.raises(SpecError, match=re.escape("network.topology")):
        wt.load_spec("smoke", [f"network.topology={value}"])


def test_a_call_that_works_is_left_as_it_is() -> None:
    """Types are looked at only after a call has failed: a duck of another type does, as it did."""

    def first(row: dict[str, int]) -> int:
        return row["a"]

    answering = says_what_is_allowed(first)
    assert answering(pd.Series({"a": 3})) == 3  # type: ignore[arg-type]
    with pytest.raises(UserError, match="row: 3 is not possible"):
        answering(3)  # type: ignore[arg-type]
    with pytest.raises(KeyError):  # of the right type: not the type is wrong
        answering({"b": 1})


def test_one_thing_wherever_it_is_found() -> None:
    from walktalk.graphs import classic
    from walktalk.graphs.classic import cycle

    assert wt.graphs.cycle is cycle is classic.cycle
    assert wt.graphs.from_networkx(nx.cycle_graph(4)).nodes == 4
    with pytest.raises(GraphError):
        wt.graphs.from_networkx(nx.MultiGraph([(0, 1), (0, 1)]))
