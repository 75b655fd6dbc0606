"""Worker processes: what is tried again and what is not, and who is blamed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walktalk.core.errors import StudyError, UnavailableError, WalktalkError
from walktalk.records import StudyFolder
from walktalk.studies import make_spec, prepare
from walktalk.studies.execution import run as execution
from walktalk.studies.execution import workers
from walktalk.studies.execution.run import Batch, RayCrew, do_batch
from walktalk.studies.execution.workers import STARTS_AT_MOST, Crew, Share

SPEC = {
    "name": "crew",
    "network": {"topology": "cycle", "nodes": 4},
    "algorithms": [{"name": "multi_walk", "walks": [1, 2]}],
    "stop": {"iterations": 20},
}


def crew(folder: Path, misfortune: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Crew, Path]:
    """Two processes that count their starts in a file, and then meet with a misfortune."""
    monkeypatch.setattr(workers, "fork_is_safe", lambda: True)
    starts = folder / "starts"

    def prepared(device: str) -> Any:
        with starts.open("a") as file:
            file.write("x")
        misfortune()

    ready = prepare(make_spec(SPEC), "cpu")
    one = Crew(
        prepared, [Share(0, (0,)), Share(1, (1,))], StudyFolder(folder), None, prepared=(ready.trainer, ready.runs)
    )
    monkeypatch.setattr(one, "prepared", None)  # or a fork would not prepare anything
    monkeypatch.setattr(workers.multiprocessing, "get_context", lambda kind: forking)
    return one, starts


forking = workers.multiprocessing.get_context("fork")


def test_a_mistake_in_a_worker_is_shown_as_it_is_and_not_tried_again(tmp_path, monkeypatch):
    def mistake() -> None:
        raise ZeroDivisionError("somebody's program")

    one, starts = crew(tmp_path, mistake, monkeypatch)
    with pytest.raises(WalktalkError, match=r"(?s)a worker process failed.*Traceback.*somebody's program") as raised:
        one.run(resume=False)
    assert "memory" not in str(raised.value)
    assert len(starts.read_text()) <= 2  # once in each process


def test_an_end_with_an_error_is_not_tried_again_either(tmp_path, monkeypatch):
    one, starts = crew(tmp_path, lambda: os._exit(3), monkeypatch)
    with pytest.raises(WalktalkError, match="ended with exit code 3"):
        one.run(resume=False)
    assert len(starts.read_text()) <= 2


def test_no_memory_is_said_at_once(tmp_path, monkeypatch):
    def too_much() -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")

    one, starts = crew(tmp_path, too_much, monkeypatch)
    with pytest.raises(StudyError, match="no memory left; take fewer --workers"):
        one.run(resume=False)
    assert len(starts.read_text()) <= 2


def test_a_worker_that_is_killed_is_tried_again(tmp_path, monkeypatch):
    one, starts = crew(tmp_path, lambda: os.kill(os.getpid(), signal.SIGKILL), monkeypatch)
    with pytest.raises(StudyError, match=r"ended 3 times \(signal 9\).*memory.*--resume"):
        one.run(resume=False)
    assert STARTS_AT_MOST <= len(starts.read_text()) <= 2 * STARTS_AT_MOST


@pytest.fixture
def cluster(monkeypatch):
    """A cluster of machines with two and with eight processors, one of which is gone."""
    nodes = [
        {"Alive": alive, "Resources": {"CPU": count}} for count, alive in ((2.0, True), (8.0, True), (64.0, False))
    ]
    stand_in = SimpleNamespace(cluster_resources=lambda: {"CPU": 10.0}, nodes=lambda: nodes)
    monkeypatch.setattr(execution, "started_ray", lambda: stand_in)


def test_memory_is_shared_by_what_a_machine_does_at_once_on_ray(tmp_path, cluster):
    ready = prepare(make_spec({**SPEC, "repetitions": 20}), "cpu")
    many = RayCrew(lambda device: None, ready.runs, StudyFolder(tmp_path), None, "cpu", memory=8e9)
    assert many.batch(many.work[0], False).memory == 1e9
    few = RayCrew(lambda device: None, ready.runs[:2], StudyFolder(tmp_path), None, "cpu", memory=8e9)
    assert few.batch(few.work[0], False).memory == 4e9
    assert RayCrew(lambda device: None, ready.runs, StudyFolder(tmp_path), None, "cpu").memory is None


def test_a_batch_on_ray_uses_no_more_memory_than_it_may():
    ready = prepare(make_spec(SPEC), "cpu")
    batch = Batch(Share(0, (0,)), "cpu", {}, memory=1e3)
    with pytest.raises(UnavailableError, match="may be used"):
        do_batch(lambda device: (ready.trainer, ready.runs), batch)


def test_a_machine_with_several_gpus_has_a_process_for_each(monkeypatch):
    monkeypatch.setattr(workers.torch.cuda, "device_count", lambda: 3)
    assert workers.devices_of("cuda") == ["cuda:0", "cuda:1", "cuda:2"]
    assert workers.devices_of("cuda:1") == ["cuda:1"]  # somebody said which
    assert workers.devices_of("cpu") == ["cpu"]
    runs = prepare(make_spec({**SPEC, "repetitions": 5}), "cpu").runs
    assert workers.workers_that_pay(runs, 10**6, workers.devices_of("cuda")) == 3
    assert workers.workers_that_pay(runs, 10**6, ["cuda"]) == 1
    assert workers.workers_that_pay(runs, 100, workers.devices_of("cuda")) == 1
    work = workers.dealt(workers.shares(runs, 5), workers.devices_of("cuda"))
    assert [share.device for share in work] == ["cuda:0", "cuda:1", "cuda:2", "cuda:0", "cuda:1"]
    assert sorted(k for share in work for k in share.runs) == list(range(len(runs)))


def test_models_that_train_one_by_one_are_dealt_out_by_their_number():
    algorithms = [{"name": "multi_walk", "walks": [1, 4]}, {"name": "async_gossip", "mixing": "pairwise"}]
    runs = prepare(make_spec({**SPEC, "algorithms": algorithms, "repetitions": 2}), "cpu").runs
    assert sorted(len(share.runs) for share in workers.shares(runs, 2, one_by_one=True)) == [3, 3]
    assert len({len(share.runs) for share in workers.shares(runs, 2)}) == 2  # a wave costs as much whatever its width


def test_processes_on_one_device_share_its_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "free_memory", lambda device: 12e9 if device.type == "cuda" else 8e9)
    work = [Share(0, (0,), "cuda:0"), Share(1, (1,), "cuda:1"), Share(2, (2,), "cuda:0")]
    assert Crew(lambda device: None, work, StudyFolder(tmp_path), None).memory == {0: 6e9, 1: 12e9, 2: 6e9}
    assert Crew(lambda device: None, work, StudyFolder(tmp_path), None, memory=3e9).memory == {0: 1e9, 1: 1e9, 2: 1e9}


def test_a_process_prepares_on_the_device_of_its_share(tmp_path, monkeypatch):
    asked = tmp_path / "asked"

    def prepared(device: str) -> Any:
        with asked.open("a") as file:
            file.write(f"{device} ")
        return (ready.trainer, ready.runs)

    ready = prepare(make_spec(SPEC), "cpu")
    monkeypatch.setattr(workers, "fork_is_safe", lambda: False)
    monkeypatch.setattr(workers.multiprocessing, "get_context", lambda kind: forking)
    monkeypatch.setattr(workers, "free_memory", lambda device: 8e9)
    work = [Share(0, (0,), "cuda:0"), Share(1, (1,), "cuda:1")]
    one = Crew(prepared, work, StudyFolder(tmp_path), None, prepared=(ready.trainer, ready.runs))
    assert len(one.run(resume=False)) == 2
    assert sorted(asked.read_text().split()) == ["cuda:0", "cuda:1"]


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 50)), min_size=1, max_size=8), st.integers(1, 5))
def test_runs_are_dealt_out_as_evenly_as_can_be(runs: list[tuple[int, float]], processes: int) -> None:
    """Beside all ways to cut the row; and every process gets something while there is enough."""
    runs = sorted(runs, key=lambda run: -run[1])

    def load(first: int, end: int) -> float:
        return sum(work for work, _ in runs[first:end]) + runs[first][1] if first < end else 0.0

    def worst(cuts: Sequence[int]) -> float:
        return max(load(a, b) for a, b in pairwise((0, *cuts, len(runs))))

    parts = min(processes, len(runs))
    found = workers._cuts(load, len(runs), parts)
    ways = combinations(range(1, len(runs)), parts - 1)
    assert len(found) == len(set(found)) == parts - 1
    assert worst(found) <= min(worst(cuts) for cuts in ways) * (1 + 1e-6)


def test_dealing_out_many_runs_takes_no_time() -> None:
    """It took 7.8 CPU seconds for 300 runs on 64 processes, and eight times as much for twice as many."""
    work = [1.0 + k % 7 for k in range(3_000)]
    before = [0.0, *accumulate(work)]
    began = time.process_time()
    assert len(workers._cuts(lambda first, end: before[end] - before[first], len(work), 64)) == 63
    assert time.process_time() - began < 5.0
