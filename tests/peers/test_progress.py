"""How far a run on real peers is, from its nodes' diaries."""

from __future__ import annotations

from pathlib import Path

from walktalk.runtimes.peers import Diary
from walktalk.studies import make_spec
from walktalk.studies.building import Progress, pick_device, prepare
from walktalk.studies.peers.progress import Reporter, Watch


def note(diary: Diary, event: str, size: int = 0) -> None:
    diary.note((1000.0, 0, event, "", -1, -1, -1, 0, size, 0, 0.0, ""))


def test_diaries_are_read_as_they_grow(tmp_path: Path) -> None:
    earlier = Diary(tmp_path / "node-0", 1)
    for event in ("started", "trained", "trained"):
        note(earlier, event)
    watch = Watch(tmp_path, seconds_before=7.0)
    assert (watch.iterations, watch.bytes, watch.seconds) == (2, 0, 7.0)  # nobody has begun again yet
    now = Diary(tmp_path / "node-1", 2)
    note(now, "started")
    note(now, "trained")
    note(now, "send", 100)
    with (tmp_path / "node-1" / "trace-2.jsonl").open("a") as file:
        file.write('[1000.0, 1, "trai')  # not whole yet
    watch.look()
    watch.look()
    assert (watch.iterations, watch.bytes) == (3, 100)
    assert watch.seconds > 7.0
    with (tmp_path / "node-1" / "trace-2.jsonl").open("a") as file:
        file.write('ned"]\n')
    watch.look()
    assert watch.iterations == 4


def test_a_study_is_told_of_as_iterations_of_all_its_runs(tmp_path: Path) -> None:
    study = {
        "network": {"topology": "cycle", "nodes": 3},
        "stop": {"iterations": 50},
        "algorithms": [{"name": "multi_walk"}, {"name": "sync_gossip"}],
    }
    ready = prepare(make_spec(study), pick_device("cpu"))
    told: list[Progress] = []
    reporter = Reporter(told.append, ready.runs)
    watch = Watch(tmp_path)
    diary = Diary(tmp_path / "node-0", 1)
    for _ in range(20):
        note(diary, "trained")
    reporter.report(0, [])
    reporter.now_and_then(1, watch, [])
    reporter.report(2, [])
    reporter.report(2, [])  # the end is said once
    assert [(p.done, p.total) for p in told] == [(0, 100), (70, 100), (100, 100)]
    assert told[1].phase == "sync_gossip on real peers"
