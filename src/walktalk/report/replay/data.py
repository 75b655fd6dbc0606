"""The replay's data: of every algorithm of a study one run or several, from their traces."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from walktalk.errors import UserError
from walktalk.plots import WALK_COLOURS
from walktalk.protocols import known
from walktalk.records import read_history, read_trace
from walktalk.report.page.names import names_of
from walktalk.report.page.network import network_data
from walktalk.report.page.shades import on_dark, on_light
from walktalk.report.replay.coding import encode
from walktalk.report.replay.events import Events, events_of
from walktalk.report.replay.thinning import thinned
from walktalk.report.replay.words import incident, template
from walktalk.report.study import Study, open_study

EVENTS = 200_000  # of all runs together: less than a megabyte of page
POINTS = 300  # of a run's loss curve


def replay_data(folder: str | PathLike[str], repetitions: Sequence[int] = (0,)) -> dict[str, Any] | None:
    """All that `WalktalkReplay.mount` needs, or None where no run left a trace or the network cannot be drawn.

    `repetitions`: which runs of each algorithm. All of them share a budget of events, so that the page stays small; a
    run with more of them is thinned, and says so.
    """
    study = open_study(folder)
    network = network_data(study, None)
    if network is None or "places" not in network:
        return None
    runs = runs_data(study, repetitions)
    return None if runs is None else {"network": network, **runs}


def runs_data(study: Study, repetitions: Sequence[int] = (0,)) -> dict[str, Any] | None:
    """The same without the network, which a page has already."""
    found = _traces(study, repetitions)
    if not found:
        return None
    described = known([label for label, _, _ in found], study.algorithms)
    names = names_of(described)
    runs = []
    most = _fair([len(trace) for _, _, trace in found], EVENTS)
    for label, repetition, trace in found:
        named = {"label": label, "title": names[label].name, "repetition": repetition}
        seen = {"colour": on_light(described[label].colour), "colour_dark": on_dark(described[label].colour)}
        curve = curve_of(_history(study, label, repetition))
        runs.append({**named, **seen, **run_data(trace, most), "curve": curve})
    return with_words(runs, "virtual" if study.engine == "sim" else "real")


def with_words(runs: list[dict[str, Any]], clock: str) -> dict[str, Any]:
    """The runs, and what they have in common: colours of walks, words for what happens. `clock`: virtual or real."""
    return {
        "clock": clock,
        "walk_colours": [on_light(colour) for colour in WALK_COLOURS],
        "walk_colours_dark": [on_dark(colour) for colour in WALK_COLOURS],
        "words": {name: template(name) for name in _kinds(runs)},
        "incidents": {name: mark for name in _kinds(runs) if (mark := incident(name)) is not None},
        "runs": runs,
    }


def run_data(trace: pd.DataFrame, most: int) -> dict[str, Any]:
    """One run: its events, thinned to about `most`, and how many of each kind the trace has."""
    events = events_of(trace)
    shown = thinned(events, most)
    return {
        "end": float(events.time[-1]) if len(events) else 0.0,
        "counts": _as_in_the_trace(trace),
        "walks": int(events.walk.max(initial=0)),
        "aggregators": _aggregators(events),
        "iterations": _iterations(shown.events, events),
        "left_out": list(shown.left_out),
        "scenes": [list(scene) for scene in shown.scenes],
        "events": encode(shown.events),
    }


def curve_of(history: pd.DataFrame | None) -> dict[str, list[float | None]]:
    """The run's loss and accuracy against its time."""
    if history is None or not len(history):
        return {"time": [], "iteration": [], "loss": [], "accuracy": []}
    ordered = history.sort_values("time", kind="stable")
    places = np.unique(np.linspace(0, len(ordered) - 1, min(POINTS, len(ordered))).round().astype(int))
    names = {"time": "time", "iteration": "iteration", "loss": "train_loss", "accuracy": "test_accuracy"}
    return {key: _numbers(ordered[name].to_numpy(float)[places]) for key, name in names.items()}


def _traces(study: Study, repetitions: Sequence[int]) -> list[tuple[str, int, pd.DataFrame]]:
    """The traces that are there, and can be read."""
    found = []
    for algorithm in study.spec.algorithms:
        for repetition in repetitions:
            path = study.folder.run(algorithm.title, repetition).trace
            try:
                trace = read_trace(path) if path.is_file() else None
            except UserError:  # a damaged file: the page does without it
                continue
            if trace is not None and len(trace):
                found.append((algorithm.title, repetition, trace))
    return found


def _fair(lengths: Sequence[int], budget: int) -> int:
    """The most events that a run may have: short runs leave what they do not need to the long ones."""
    left = budget
    for count, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - count)
        if length > share:
            return share
        left -= length
    return budget


def _history(study: Study, label: str, repetition: int) -> pd.DataFrame | None:
    path = study.folder.run(label, repetition).history
    try:
        return read_history(path) if path.is_file() else None
    except UserError:
        return None


def _kinds(runs: list[dict[str, Any]]) -> list[str]:
    return sorted({kind["name"] for run in runs for kind in run["events"]["kinds"]})


def _as_in_the_trace(trace: pd.DataFrame) -> dict[str, int]:
    counts = trace["event"].value_counts()
    return {str(name): int(count) for name, count in counts.items() if count}


def _aggregators(events: Events) -> list[list[float]]:
    """From when on which node aggregates."""
    told = events.of("record.aggregate") | events.of("elected")
    time, node = events.time[told], events.node[told]
    changes = np.flatnonzero(np.diff(node, prepend=-1))
    return [[float(time[i]), int(node[i])] for i in changes]


def _iterations(shown: Events, everything: Events) -> list[int] | None:
    """The iteration of each `trained` that is shown, where some are left out; else they are counted from 1."""
    every, some = everything.of("trained"), shown.of("trained")
    if every.sum() == some.sum():
        return None
    return [int(place) + 1 for place in np.searchsorted(everything.time[every], shown.time[some], side="left")]


def _numbers(values: Any) -> list[float | None]:
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values]
