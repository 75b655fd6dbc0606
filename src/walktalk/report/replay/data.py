"""The replay's data: of every algorithm of a study one run or several, from their traces."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from walktalk.core.errors import UserError
from walktalk.protocols import known
from walktalk.records import read_history, read_trace
from walktalk.report.figures import WALK_COLOURS
from walktalk.report.page.data import names_of, network_data, on_dark, on_light, page_colours
from walktalk.report.replay.events import STARTS, Events, Floats, Ints, encode, events_of
from walktalk.report.replay.words import incident, template
from walktalk.report.study import Study, open_study

# What of a long run a page shows, and says that it does: first everything, then less and less until it fits.
#
# 1. everything;
# 2. without the bookkeeping: what is recorded for the observer, copies and updates of slots;
# 3. without messages that carry no model;
# 4. of many walks or nodes only some, followed from the beginning to the end;
# 5. of a long time only scenes, spread evenly.
#
# What goes wrong, and what is done about it, always stays.

FOLLOWED = 24  # walks or nodes that a person can follow at once
SCENES = 12  # of a run that is too long
INCIDENTS_AT_MOST = 2000  # of one run: more are no incidents but how things go

Mask = npt.NDArray[np.bool_]


class Thinned(NamedTuple):
    """The events that are shown, and what is not."""

    events: Events
    left_out: tuple[str, ...]  # sentences; none where everything is there
    scenes: tuple[tuple[float, float], ...]  # the times that are shown; one from 0 to the end unless it was too long


def thinned(events: Events, most: int) -> Thinned:
    """At most about this many of the events, chosen so that a person sees what goes on."""
    end = float(events.time[-1]) if len(events) else 0.0
    chosen, left_out = np.ones(len(events), dtype=bool), []
    scenes: tuple[tuple[float, float], ...] = ((0.0, end),)
    always = _incidents(events)
    for leave_out in (_bookkeeping, _without_model, _not_followed):
        if chosen.sum() <= most:
            break
        less, sentence = leave_out(events, chosen, most)
        if (less | always).sum() < chosen.sum():
            chosen = chosen & (less | always)
            left_out.append(sentence)
    if chosen.sum() > most:
        seen = _scenes(events.time[chosen & ~always], most, end)
        within = _within(events.time, seen) | _ended_within(events, seen)
        if (chosen & (within | always)).sum() < chosen.sum():
            chosen, scenes = chosen & (within | always), tuple(seen)
            left_out.append(f"Of {end:,.3g} seconds {len(seen)} scenes are shown, spread evenly.")
    return Thinned(events.kept(chosen), tuple(left_out), scenes)


def _incidents(events: Events) -> Mask:
    names = {name for name in events.kinds if incident(name) is not None}
    found = events.of(*(name for name in names if "." not in name))
    if found.sum() > INCIDENTS_AT_MOST:  # lost messages are many where many are lost
        found = found & ~events.of("lost")
    return found if found.sum() <= INCIDENTS_AT_MOST else np.zeros(len(events), dtype=bool)


def _bookkeeping(events: Events, chosen: Mask, most: int) -> tuple[Mask, str]:
    plain = np.isin(events.kind, [i for i, name in enumerate(events.kinds) if name in BOOKKEEPING])
    return ~plain, "What a node notes down for itself is left out: records, copies, updates."


BOOKKEEPING = ("record.member", "record.aggregate", "combine.copy", "combine.update", "encode", "decode", "saved")


def _without_model(events: Events, chosen: Mask, most: int) -> tuple[Mask, str]:
    control = np.isin(events.kind, [i for i, name in enumerate(events.kinds) if name.endswith(".control")])
    return ~control, "Messages without a model are left out: heartbeats, acknowledgements and the like."


def _not_followed(events: Events, chosen: Mask, most: int) -> tuple[Mask, str]:
    owner = owners(events)
    everyone = np.unique(owner[events.of(*STARTS)])
    share = most / max(int(chosen.sum()), 1)
    count = max(FOLLOWED, int(share * len(everyone)))
    if count >= len(everyone):
        return np.ones(len(events), dtype=bool), ""
    followed = everyone[np.unique(np.linspace(0, len(everyone) - 1, count).round().astype(int))]
    what = "walks" if (followed > 0).any() else "nodes"
    sentence = f"Of {len(everyone):,} {what} {len(followed):,} are followed; the others train and send unseen."
    return np.isin(owner, followed), sentence


def owners(events: Events) -> Ints:
    """Whose event it is: the walk's, else the node's (as −1 − node); the end of a message is the sender's."""
    owner = np.where(events.walk > 0, events.walk, -1 - events.node)
    return np.where(events.link >= 0, owner[events.link], owner)


def _scenes(time: Floats, most: int, end: float) -> list[tuple[float, float]]:
    """Stretches of time that begin evenly spread and have as many events as may be shown."""
    each = max(1, most // SCENES)
    starts = np.linspace(0.0, end, SCENES, endpoint=False)
    scenes: list[tuple[float, float]] = []
    for start in starts.tolist():
        first = int(np.searchsorted(time, start))
        last = min(first + each, len(time) - 1)
        if not scenes or start > scenes[-1][1]:
            scenes.append((start, float(time[last])))
    return scenes


def _within(time: Floats, scenes: list[tuple[float, float]]) -> Mask:
    found = np.zeros(len(time), dtype=bool)
    for start, end in scenes:
        found |= (time >= start) & (time <= end)
    return found


def _ended_within(events: Events, scenes: list[tuple[float, float]]) -> Mask:
    """What began in a scene is seen to its end, and what ends in one from its beginning."""
    within = _within(events.time, scenes)
    linked = events.link >= 0
    ends = linked & within[events.link]
    begins = np.zeros(len(events), dtype=bool)
    begins[events.link[linked & within]] = True
    return ends | begins


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
    """The runs of the replay, without the network, which a page has already."""
    found = _traces(study, repetitions)
    if not found:
        return None
    described = known([label for label, _, _ in found], study.algorithms)
    names = names_of(described)
    colours = page_colours(known([one.title for one in study.spec.algorithms], study.algorithms))  # as of the curves
    runs = []
    most = _fair([len(trace) for _, _, trace in found], EVENTS)
    for label, repetition, trace in found:
        named = {"label": label, "title": names[label].name, "repetition": repetition}
        seen = dict(zip(("colour", "colour_dark"), colours[label], strict=True))
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
    """The nodes that aggregate, each with the time from which it does."""
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
