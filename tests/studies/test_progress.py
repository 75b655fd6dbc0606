"""What a study reports while it runs."""

from __future__ import annotations

from pathlib import Path

from walktalk.studies import Progress, make_spec, run_study

STUDY = {
    "repetitions": 2,
    "network": {"topology": "cycle", "nodes": 4},
    "training": {"batch_size": 8, "local_steps": 1},
    "algorithms": [{"name": "multi_walk", "walks": 2}, {"name": "async_gossip"}],
    "stop": {"iterations": 24},
    "evaluate": {"every": 6},
}


def test_every_report_of_a_shared_study_is_of_the_whole_study(tmp_path: Path) -> None:
    seen: list[Progress] = []
    run_study(make_spec(STUDY), tmp_path / "out", workers=2, device="cpu", progress=seen.append)
    assert {report.total for report in seen} == {4 * 24}
    assert seen[-1].done == 4 * 24
