"""Traces in parts: whatever reads a trace reads all of it, and nothing is deleted unless somebody says so."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path

import pytest

import walktalk.runtimes.peers.operations.replaying as traces
from walktalk.records import TraceRow
from walktalk.runtimes.peers import EventLog, merge, parts_in, read_event_log, read_lives
from walktalk.runtimes.peers.node.event_log import FILES, archive_earlier_run
from walktalk.studies.peers.study import Watch

LINE = len(json.dumps(TraceRow(0.0, 0, "trained", number=10))) + 1
PART = 10 * LINE  # ten lines, as numbers from 10 on


def tidied() -> None:
    for thread in threading.enumerate():
        if thread.name == "attic":
            thread.join()


def written(folder: Path, life: int, lines: int, keep: float = math.inf) -> None:
    """A life of so many trainings, in parts of ten."""
    event_log = EventLog(folder, life, keep=keep, part_bytes=PART)
    for number in range(10, 10 + lines):
        event_log.write(TraceRow(0.0, 0, "trained", number=number))
        tidied()
    event_log.close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_full_parts_are_compressed_and_all_are_read(tmp_path: Path) -> None:
    written(tmp_path, 7, 25)
    written(tmp_path, 8, 5)
    assert names(tmp_path) == ["trace-7.1.jsonl.gz", "trace-7.2.jsonl", "trace-7.jsonl.gz", "trace-8.jsonl"]
    assert all(FILES.fullmatch(name) for name in names(tmp_path))  # whoever collects gets them
    first, second = read_lives(tmp_path)
    assert [row.number for row in first] == list(range(10, 35))
    assert [row.number for row in second] == list(range(10, 15))
    archive_earlier_run(tmp_path)
    assert names(tmp_path) == ["earlier"]


def test_parts_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    written(tmp_path, 7, 90 + 25)  # eleven parts and a half: .10 comes after .9
    (parts,) = parts_in(tmp_path).values()
    assert len(parts) == 12
    assert [row.number for row in read_event_log(tmp_path)] == list(range(10, 125))


def test_a_part_that_was_compressed_but_not_yet_deleted_is_read_once(tmp_path: Path) -> None:
    written(tmp_path, 7, 12)
    (tmp_path / "trace-7.jsonl").write_text(json.dumps(TraceRow(0.0, 0, "trained", number=99)) + "\n")
    assert [row.number for row in read_event_log(tmp_path)] == list(range(10, 22))


def test_what_a_killed_life_left_is_compressed_by_the_next(tmp_path: Path) -> None:
    lines = [json.dumps(TraceRow(0.0, 0, "trained", number=number)) for number in range(10, 20)]
    (tmp_path / "trace-3.jsonl").write_text("\n".join(lines) + "\n")
    written(tmp_path, 7, 1)
    assert names(tmp_path) == ["trace-3.jsonl.gz", "trace-7.jsonl"]
    assert [row.number for row in read_event_log(tmp_path)] == [*range(10, 20), 10]


def test_a_part_that_is_compressed_while_it_is_read_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 7, 25)
    listed = traces.parts_in

    def late(folder: Path) -> dict[int, list[Path]]:
        """As they were a moment ago."""
        monkeypatch.setattr(traces, "parts_in", listed)
        return {7: [folder / "trace-7.jsonl", *listed(folder)[7][1:]]}

    monkeypatch.setattr(traces, "parts_in", late)
    assert [row.number for row in read_event_log(tmp_path)] == list(range(10, 35))


def test_a_damaged_part_ends_its_life(tmp_path: Path) -> None:
    written(tmp_path, 7, 25)
    whole = (tmp_path / "trace-7.1.jsonl.gz").read_bytes()
    (tmp_path / "trace-7.1.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    found = [row.number for row in read_event_log(tmp_path)]
    assert found == list(range(10, 10 + len(found)))
    assert 10 <= len(found) < 20  # the first part, and what is whole of the second; no gap


@pytest.mark.parametrize("keep", [0.0, 200.0])
def test_only_so_much_is_kept_where_somebody_says_so(tmp_path: Path, keep: float) -> None:
    written(tmp_path, 7, 55, keep=keep)
    assert sum(path.stat().st_size for path in tmp_path.glob("*.gz")) <= keep
    rest = [row.number for row in read_event_log(tmp_path)]
    assert rest == list(range(rest[0], 65))  # the latest, without a gap
    assert rest[0] > 10
    assert [row.number for row in merge([read_event_log(tmp_path)])] == [-1] * len(rest)  # their beginnings are gone


def test_progress_counts_what_is_compressed_meanwhile(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    event_log = EventLog(tmp_path / "node-0", 7, part_bytes=PART)
    for number in range(10, 45):
        event_log.write(TraceRow(0.0, 0, "trained", number=number))
        tidied()
        if number in (16, 33):
            watch.look()
            assert watch.iterations == number - 9
    event_log.close()
    watch.look()
    watch.look()
    assert watch.iterations == 35
