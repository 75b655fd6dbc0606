"""Stopped by Ctrl-C or killed at any moment, a study that is resumed ends with the bytes of an unbroken one."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from tests.support.folders import assert_same_folder

from walktalk.core.errors import StudyError
from walktalk.records import RunFolder, load_checkpoint, read_trace
from walktalk.runtimes.peers.operations.launcher import PRELOADED
from walktalk.studies import Interrupted, make_spec, run_study
from walktalk.studies.execution import groups as groups_module
from walktalk.studies.execution import run_log as run_log_module
from walktalk.studies.execution import runner as runner_module
from walktalk.studies.execution.process import asking_to_stop
from walktalk.studies.execution.workers import do_share
from walktalk.studies.peers import run_node

SPEC = {
    "name": "resumed",
    "repetitions": 2,
    "network": {"topology": "cycle", "nodes": 6},
    "training": {"optimizer_state": "node"},
    "schedule": {"warmup": 0.1, "decay_at": [0.75]},
    "algorithms": [{"name": "multi_walk", "walks": [1, 3]}, {"name": "async_gossip"}, {"name": "sync_gossip"}],
    "stop": {"iterations": 300},
    "evaluate": {"every": 50},
}


def study(folder: Path) -> None:
    """A study that stops for a checkpoint after every few trainings, so that there are many moments to be killed at."""
    torch.set_num_threads(1)
    runner_module.trainings_a_stretch = lambda width: 60
    run_log_module.CheckpointClock.is_due = lambda self: True  # type: ignore[method-assign]
    try:
        run_study(make_spec(SPEC), folder, resume=True, device="cpu", workers=1)
    except KeyboardInterrupt:
        sys.exit(130)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken") / "study"
    run_study(make_spec(SPEC), folder, device="cpu", workers=1)
    return folder


def start(folder: Path) -> BaseProcess:
    """From the server of nodes' processes, which has torch loaded, once for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, run_node.__module__])
    process = context.Process(target=study, args=(folder,))
    process.start()
    return process


def wait_for_checkpoint(folder: Path, process: BaseProcess, after: float) -> bool:
    """Until some checkpoint is younger than `after`; False if the study ended first."""
    while process.is_alive():
        if any(p.stat().st_mtime > after for p in folder.rglob("checkpoint.safetensors") if p.exists()):
            return True
        time.sleep(0.005)
    return False


def test_killed_again_and_again_it_still_ends_the_same(tmp_path, unbroken):
    folder = tmp_path / "study"
    kills = 0
    for attempt in range(3):
        process = start(folder)
        if wait_for_checkpoint(folder, process, time.time()):
            time.sleep(0.03 * attempt)  # sometimes in the middle of the next stretch, sometimes while saving
            process.kill()
            kills += 1
        process.join(60)
    assert kills >= 2
    result = run_study(make_spec(SPEC), folder, resume=True, device="cpu", workers=1)
    assert len(result.runs) == 8
    assert_same_folder(folder, unbroken)


def test_interrupted_it_saves_and_says_so(tmp_path, unbroken):
    folder = tmp_path / "study"
    process = start(folder)
    assert wait_for_checkpoint(folder, process, 0.0)
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    assert process.exitcode == 130
    assert not (folder / "history.csv").exists()
    run_study(make_spec(SPEC), folder, resume=True, device="cpu", workers=1)
    assert_same_folder(folder, unbroken)


@pytest.mark.parametrize("forked", [True, False], ids=["forked", "spawned"])
def test_several_workers_write_the_same_bytes_and_survive_the_death_of_one(tmp_path, unbroken, monkeypatch, forked):
    monkeypatch.setattr("walktalk.studies.execution.workers.fork_is_safe", lambda: forked)
    folder = tmp_path / "study"
    killed = []

    def kill_one(progress) -> None:
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, text=True)
        workers = [int(pid) for pid in children.stdout.split() if _is_worker(int(pid))]
        if workers and not killed:
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])

    run_study(make_spec(SPEC), folder, device="cpu", workers=2, progress=kill_one)
    assert killed
    assert_same_folder(folder, unbroken)


def dies_while_it_speaks(prepare, share, folder, resume, memory, line, parent) -> None:
    """A worker that is killed in the middle of a word, the first time."""
    if not resume:
        os.write(line.fileno(), b"\0\0\4\0half a word")
        os.kill(os.getpid(), signal.SIGKILL)
    do_share(prepare, share, folder, resume, memory, line, parent)


def test_who_dies_while_it_speaks_keeps_nobody_from_speaking(tmp_path, unbroken, monkeypatch):
    """All had one queue: whoever died while it wrote kept its lock for ever, and the study hung."""
    monkeypatch.setattr("walktalk.studies.execution.workers.do_share", dies_while_it_speaks)
    monkeypatch.setattr("walktalk.studies.execution.workers.fork_is_safe", lambda: True)
    folder = tmp_path / "study"
    run_study(make_spec(SPEC), folder, device="cpu", workers=2)
    assert_same_folder(folder, unbroken)


def _is_worker(pid: int) -> bool:
    """Started afresh, or a fork of this process."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
    return "spawn_main" in line or line == Path("/proc/self/cmdline").read_text()


@pytest.mark.parametrize("ahead", [False, True])
def test_a_stop_in_this_process_is_resumed_too(tmp_path, unbroken, monkeypatch, ahead):
    """Also where, as on a GPU, a stretch is planned and another written down while one is computed."""
    monkeypatch.setattr(runner_module, "trainings_a_stretch", lambda width: 100)
    monkeypatch.setattr(run_log_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.05 if ahead else 10.0)
    monkeypatch.setattr(groups_module, "Runner", partial(runner_module.Runner, ahead=ahead))
    folder = tmp_path / "study"
    asked = []

    def stop_half_way(progress) -> None:
        if progress.done > progress.total / 2 and not asked:
            asked.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run_study(make_spec(SPEC), folder, device="cpu", workers=1, progress=stop_half_way)
    run_study(make_spec(SPEC), folder, resume=True, device="cpu", workers=1)
    assert_same_folder(folder, unbroken)


def test_a_checkpoint_is_of_the_models_moment_while_the_next_stretch_is_planned(tmp_path, unbroken, monkeypatch):
    """As on a GPU, where simulations are a stretch ahead of what a checkpoint holds when the process dies."""
    monkeypatch.setattr(runner_module, "trainings_a_stretch", lambda width: 200)
    monkeypatch.setattr(run_log_module.CheckpointClock, "is_due", lambda self: True)
    monkeypatch.setattr(groups_module, "Runner", partial(runner_module.Runner, ahead=True))
    planned_then: list[bool] = []
    save = runner_module.Runner.save

    def noting(self) -> None:
        planned_then.append(self._next is not None)
        save(self)

    monkeypatch.setattr(runner_module.Runner, "save", noting)

    def die(progress) -> None:
        if progress.done > progress.total / 2:
            raise RuntimeError("the power is gone")

    folder = tmp_path / "study"
    with pytest.raises(RuntimeError, match="power"):
        run_study(make_spec(SPEC), folder, device="cpu", workers=1, progress=die)
    assert sum(planned_then) > 2
    facts = [load_checkpoint(file)[1] for file in folder.rglob("checkpoint.safetensors")]
    assert all(0.2 < one["progress"] < 0.8 for one in facts)
    run_study(make_spec(SPEC), folder, resume=True, device="cpu", workers=1)
    assert_same_folder(folder, unbroken)


def test_a_run_ends_where_it_meets_its_target_however_it_is_cut(tmp_path, monkeypatch):
    spec = {**SPEC, "stop": {"iterations": 300, "target_loss": 1.0}}
    runs = run_study(make_spec(spec), tmp_path / "whole", device="cpu", workers=1).runs
    assert sum(run.met_target for run in runs) > 0
    assert all(len(read_trace(f)) for f in (tmp_path / "whole").rglob("trace.parquet"))
    monkeypatch.setattr(runner_module, "trainings_a_stretch", lambda width: 100)
    run_study(make_spec(spec), tmp_path / "cut", device="cpu", workers=1)
    assert_same_folder(tmp_path / "cut", tmp_path / "whole")
    asked = []

    def stop_on_the_way(progress) -> None:
        if progress.done > 500 and not asked:
            asked.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run_study(make_spec(spec), tmp_path / "stopped", device="cpu", workers=1, progress=stop_on_the_way)
    run_study(make_spec(spec), tmp_path / "stopped", resume=True, device="cpu", workers=1)
    assert_same_folder(tmp_path / "stopped", tmp_path / "whole")


def test_a_truncated_checkpoint_is_refused(tmp_path, unbroken):
    folder = tmp_path / "study"
    shutil.copytree(unbroken, folder)
    file = next(folder.rglob("checkpoint.safetensors"))
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(StudyError, match="truncated"):
        run_study(make_spec(SPEC), folder, resume=True, device="cpu", workers=1)


def test_a_finished_study_is_resumed_at_once(tmp_path, unbroken):
    folder = tmp_path / "study"
    shutil.copytree(unbroken, folder)
    before = (folder / "history.csv").read_bytes()
    run_study(make_spec(SPEC), folder, resume=True, device="cpu", workers=1)
    assert (folder / "history.csv").read_bytes() == before


def test_a_run_alone_has_the_bytes_it_has_inside_a_study(tmp_path, unbroken):
    alone = {**SPEC, "algorithms": [{"name": "multi_walk", "walks": 3}], "repetitions": 1}
    result = run_study(make_spec(alone), tmp_path / "alone", device="cpu", workers=1)
    text = (unbroken / "history.csv").read_text().splitlines()
    mine = (tmp_path / "alone" / "history.csv").read_text().splitlines()
    assert [line for line in text if line.startswith("multi_walk-3,0,")] == mine[1:]
    assert result.summary


def test_what_is_kept_of_a_finished_run_is_what_its_model_is_made_of(unbroken):
    """Not every walk, copy and optimizer state: of a large model that would be hundreds of gigabytes for nothing."""
    kept = {}
    for run in sorted((unbroken / "runs").glob("*/0")):
        tensors, facts = load_checkpoint(RunFolder(run).checkpoint)
        assert facts["values"]["states"] == []
        kept[run.parent.name] = len(tensors["models"])
    assert kept["multi_walk-1"] == kept["multi_walk-3"] == 1
    assert all(count <= 6 for count in kept.values())  # the nodes' models


def test_the_first_ctrl_c_says_that_it_was_heard_and_the_second_stops_at_once(capsys):
    with asking_to_stop() as ask:
        signal.raise_signal(signal.SIGINT)
        assert ask.stop
        assert "Ctrl-C again stops at once" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert capsys.readouterr().err == ""
