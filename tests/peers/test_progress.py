"""How far a run on real peers is, from its nodes' event logs."""

from __future__ import annotations

from pathlib import Path

from walktalk.runtimes.peers import EventLog
from walktalk.studies import make_spec
from walktalk.studies.peers.study import Reporter, Watch
from walktalk.studies.planning import Progress, pick_device, prepare


def note(event_log: EventLog, event: str, size: int = 0) -> None:
    event_log.write((1000.0, 0, event, "", -1, -1, -1, 0, size, 0, 0.0, ""))


def test_diaries_are_read_as_they_grow(tmp_path: Path) -> None:
    earlier = EventLog(tmp_path / "node-0", 1)
    for event in ("started", "trained", "trained"):
        note(earlier, event)
    watch = Watch(tmp_path, seconds_before=7.0)
    assert (watch.iterations, watch.bytes, watch.seconds) == (2, 0, 7.0)  # nobody has begun again yet
    now = EventLog(tmp_path / "node-1", 2)
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
    event_log = EventLog(tmp_path / "node-0", 1)
    for _ in range(20):
        note(event_log, "trained")
    reporter.report(0, [])
    reporter.now_and_then(1, watch, [])
    reporter.report(2, [])
    reporter.report(2, [])  # the end is said once
    assert [(p.done, p.total) for p in told] == [(0, 100), (70, 100), (100, 100)]
    assert told[1].phase == "sync_gossip on real peers"
