"""The replay's data: everything that is in the trace, in few bytes; less where it must be, and said; words for all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import walktalk
from walktalk.core.errors import StudyError
from walktalk.records import read_trace
from walktalk.report import replay_data, write_film
from walktalk.report.replay.data import run_data, thinned
from walktalk.report.replay.events import NONE, Events, decode, encode, events_of, form_of
from walktalk.report.replay.film import moments
from walktalk.report.replay.words import WORDS, incident, sentence

Studies = Callable[[str], Path]
COLUMNS = ("kind", "node", "peer", "walk", "number", "link", "text")


@st.composite
def event_lists(draw: st.DrawFn) -> Events:
    """Events as they may come: all kinds, ends that have a beginning and ends that have none."""
    kinds = ("kill", "lost", "receive", "send", "train", "trained")
    begun: dict[str, list[int]] = {"train": [], "send": []}
    rows: list[list[int]] = []
    for index in range(draw(st.integers(0, 60))):
        kind = draw(st.integers(0, len(kinds) - 1))
        node, peer, walk = (draw(st.integers(-1, 300)) for _ in range(3))
        number, text, link = draw(st.integers(-1, 10**9)), draw(st.integers(-1, 3)), NONE
        form = form_of(kinds[kind])
        if "back" in form:
            open_ones = begun["train" if kinds[kind] == "trained" else "send"]
            if open_ones and draw(st.booleans()):
                link = draw(st.sampled_from(open_ones))
                walk, peer = rows[link][3], rows[link][1] if rows[link][2] >= 0 else NONE
            number = text = NONE
        else:
            peer = peer if "peer" in form else NONE
            number = number if "number" in form else NONE
            text = text if "text" in form else NONE
            if kinds[kind] in begun:
                begun[kinds[kind]].append(index)
        rows.append([kind, node, peer, walk, number, link, text])
    table = np.array(rows, dtype=np.int64).reshape(-1, 7).T
    gaps = draw(st.lists(st.floats(0, 1e6), min_size=len(rows), max_size=len(rows)))
    columns = dict(zip(COLUMNS, table, strict=True))
    return Events(kinds, time=np.cumsum(gaps), texts=("a", "b", "c", "walk|12"), **columns)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine is slow to make up lists
@given(event_lists())
def test_what_is_encoded_is_read_again(events: Events) -> None:
    again = decode(json.loads(json.dumps(encode(events))))
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(again, name), getattr(events, name), err_msg=name)
    tick = encode(events)["tick"]
    assert np.all(np.abs(again.time - events.time) <= tick * (0.5 + 1e-6) + 1e-9 * np.abs(events.time))


@pytest.mark.parametrize("kind", ["simulated", "broken", "real"])
def test_the_replay_has_every_event_of_the_trace(studies: Studies, kind: str) -> None:
    folder = studies(kind)
    data = replay_data(folder)
    assert data is not None
    assert data["clock"] == ("real" if kind == "real" else "virtual")
    for run in data["runs"]:
        trace = read_trace(folder / "runs" / run["label"] / "0" / "trace.parquet")
        counts = {str(name): int(count) for name, count in trace["event"].value_counts().items() if count}
        events = decode(run["events"])
        mine: dict[str, int] = {}
        for name, count in events.counts().items():
            mine[name.split(".")[0]] = mine.get(name.split(".")[0], 0) + count
        assert mine == counts == run["counts"]
        assert run["left_out"] == []
        np.testing.assert_allclose(events.time, trace["time"].cummax(), atol=run["end"] / 1000)
        assert len(run["events"]["bytes"]) < 8 * len(trace)
        assert len(run["curve"]["time"]) > 2


def test_what_ends_is_linked_to_its_beginning(studies: Studies) -> None:
    folder = studies("broken")
    trace = read_trace(folder / "runs" / "multi_walk-4" / "0" / "trace.parquet")
    events = events_of(trace)
    number, name = trace["number"].to_numpy(), trace["event"].astype(str).to_numpy()
    for last, first in (("trained", "train"), ("receive", "send")):
        ends = np.flatnonzero(name == last)
        assert len(ends)
        assert (events.link[ends] >= 0).all()
        assert (name[events.link[ends]] == first).all()
        np.testing.assert_array_equal(number[events.link[ends]], number[ends])


@pytest.mark.parametrize("most", [60, 100, 400])
def test_less_is_shown_where_it_must_be_and_said(studies: Studies, most: int) -> None:
    trace = read_trace(studies("broken") / "runs" / "multi_walk-4" / "0" / "trace.parquet")
    everything = events_of(trace)
    shown = thinned(everything, most)
    rare = [name for name in everything.kinds if incident(name) is not None]
    assert "kill" in rare
    for name in rare:
        assert shown.events.of(name).sum() == everything.of(name).sum()
    assert shown.left_out
    assert len(shown.events) < len(everything)
    assert len(shown.events) <= 4 * most + sum(everything.of(name).sum() for name in rare)
    data = run_data(trace, most)
    assert data["counts"] == run_data(trace, 10**9)["counts"]
    assert data["events"]["count"] == len(shown.events)
    done = np.flatnonzero(everything.of("trained"))
    if data["iterations"] is not None:  # the numbers that the trace has, not a count of what is left
        kept = shown.events.time[shown.events.of("trained")]
        np.testing.assert_allclose([everything.time[done[k - 1]] for k in data["iterations"]], kept)


def test_there_are_words_for_everything_that_a_protocol_or_a_fault_notes() -> None:
    source = Path(walktalk.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in source.rglob("*.py")]
    noting = r"(?:Note|_note|(?:node|self|_stage|_scheduler)\.note|_reports\.trace)"
    calls = noting + r"\(\s*(?:[\w.-]+(?:\[\d\])?, )?\"(\w+)\""
    noted = {name for text in texts for name in re.findall(calls, text)}
    assert {"kill", "lost", "joined", "swallowed", "slow", "resume", "elected", "restarted", "rejoined"} <= noted
    kinds = {name.split(".")[0] for name in WORDS}
    assert noted <= kinds


def test_words_are_filled_in() -> None:
    assert sentence("train", 3, {"walk": 2}) == "Node 3 starts to train walk 2"
    assert sentence("train", 3, {}) == "Node 3 starts to train its model"
    assert sentence("heal", -1, {}) == "The network is whole again"
    assert sentence("found", 1, {"peer": 0}, ["lyon", "nice"]) == "nice is connected to lyon"
    assert sentence("heal", -1, {}, ["lyon", "nice"]) == "The network is whole again"
    assert sentence("my_own_event", 1, {"peer": 4}) == "Node 1 my own event, node 4"


def test_a_film_goes_to_the_end_and_is_small(studies: Studies, tmp_path: Path) -> None:
    from PIL import Image

    for name in ("film.gif", "film.webp"):
        path = write_film(studies("broken"), tmp_path / name, seconds=1.0)
        film: Any = Image.open(path)
        assert film.n_frames >= 10
        assert path.stat().st_size < 1_500_000
    with pytest.raises(StudyError, match=r"neither a \.gif nor a \.webp"):
        write_film(studies("broken"), tmp_path / "film.mp4")
    with pytest.raises(StudyError, match="allowed: multi_walk-1"):
        write_film(studies("broken"), tmp_path / "film.gif", algorithm="nobody")


@pytest.mark.parametrize(("end", "pace"), [(3000.0, 1.0), (2.0, 1.0), (0.5, 0.01)])
def test_a_film_begins_slowly_and_ends_with_the_run(end: float, pace: float) -> None:
    times = moments(end, pace, 100)
    steps = np.diff(times)
    assert times[0] == 0.0
    assert times[-1] == pytest.approx(end, rel=1e-3)
    assert (steps >= -1e-9).all()
    assert len(times) == 101
