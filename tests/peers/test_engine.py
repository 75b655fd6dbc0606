"""`--engine peers`: a study on real processes leaves the same folder as a simulated one."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from walktalk.core.errors import StudyError, UnavailableError, UserError
from walktalk.learning import tasks
from walktalk.records import read_history, read_trace
from walktalk.studies import make_spec, run_study
from walktalk.studies.peers import run_on_peers

STUDY = {
    "name": "small",
    "network": {"topology": "cycle", "nodes": 3},
    "algorithms": [{"name": "multi_walk", "walks": 2}],
    "stop": {"iterations": 60},
    "evaluate": {"every": 20},
}


@pytest.mark.slow
def test_a_study_on_real_processes_trains_and_leaves_the_same_records(tmp_path: Path) -> None:
    result = run_on_peers(make_spec(STUDY), tmp_path / "out")
    history = read_history(tmp_path / "out" / "history.csv")
    assert list(history.iteration[:4]) == [0, 20, 40, 60]
    assert history.train_loss.iloc[-1] < history.train_loss.iloc[0] / 2
    trace = read_trace(tmp_path / "out" / "runs" / "multi_walk-2" / "0" / "trace.parquet")
    assert (trace.event == "trained").sum() == history.iteration.iloc[-1]
    assert 8 * trace.bytes.sum() == history.bits.iloc[-1]
    for name in ("spec.yaml", "summary.json", "runs/multi_walk-2/0/model.safetensors"):
        assert (tmp_path / "out" / name).is_file()
    assert result.runs[0].trainings == history.iteration.iloc[-1]


@pytest.mark.slow
def test_an_interrupted_study_goes_on_and_a_finished_one_stays(tmp_path: Path) -> None:
    spec = make_spec({**STUDY, "stop": {"iterations": 400}})

    def interrupt() -> None:
        """Ctrl-C, as soon as there is something to lose."""
        end = time.monotonic() + 60.0
        while time.monotonic() < end and sum(f.read_text().count('"trained"') for f in event_logs()) < 50:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    def event_logs() -> list[Path]:
        return list((tmp_path / "out").rglob("trace-*.jsonl"))

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us deaf to it
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_on_peers(spec, tmp_path / "out", pace=0.05)
    assert len(event_logs()) == 3
    result = run_on_peers(spec, tmp_path / "out", resume=True)
    history = read_history(tmp_path / "out" / "history.csv")
    assert history.iteration.is_monotonic_increasing
    assert 400 <= history.iteration.iloc[-1] < 450
    assert history.time.diff().max() < 15.0  # while nobody was there, no time has passed
    trace = read_trace(tmp_path / "out" / "runs" / "multi_walk-2" / "0" / "trace.parquet")
    assert (trace.event == "resumed").sum() == 1
    again = run_on_peers(spec, tmp_path / "out", resume=True)
    assert again.runs[0].history == result.runs[0].history


def test_what_needs_the_simulator_is_refused_before_anything_starts(tmp_path: Path) -> None:
    spec = make_spec({**STUDY, "algorithms": [{"name": "async_gossip", "mixing": "matrix"}]})
    with pytest.raises(UnavailableError, match="simulator only"):
        run_on_peers(spec, tmp_path / "out")


def test_a_simulated_study_is_not_gone_on_with_nor_touched(tmp_path: Path) -> None:
    spec, out = make_spec(STUDY), tmp_path / "out"
    run_study(spec, out, device="cpu", workers=1)
    files = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    with pytest.raises(StudyError, match="holds runs of --engine sim"):
        run_on_peers(spec, out, resume=True)
    with pytest.raises(StudyError, match="finished results of this study"):
        run_on_peers(spec, out)
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == files


def test_a_node_keeps_its_own_samples_in_their_order_and_no_others() -> None:
    task = tasks.build("digits", nodes=4, seed=0)
    mine = task.only(2)
    assert mine.nodes == 1
    np.testing.assert_array_equal(mine.inputs.numpy(), task.inputs[task.parts[2]].numpy())
    np.testing.assert_array_equal(mine.targets.numpy(), task.targets[task.parts[2]].numpy())


def test_a_graph_that_an_algorithm_cannot_run_on_is_refused_before_nodes_wait_forever(tmp_path: Path) -> None:
    spec = make_spec({**STUDY, "network": {"topology": "cycle", "nodes": 4}, "algorithms": [{"name": "fedavg"}]})
    with pytest.raises(UserError, match="take star"):
        run_on_peers(spec, tmp_path / "out")
