"""A node whose training hangs while it talks: the others go on, it is named, and it takes part again when it can."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from walktalk import graphs
from walktalk.graphs import Graph
from walktalk.learning import TrainingRows
from walktalk.protocols import PROTOCOLS, MultiWalk
from walktalk.runtimes.peers import Ledger
from walktalk.runtimes.peers.node.training import Outcome, TrainingThread
from walktalk.runtimes.peers.operations.metrics import NodeMetrics
from walktalk.runtimes.semantics import Stop, UsualTraining, Work
from walktalk.studies import make_spec
from walktalk.studies.planning import prepare
from walktalk.testing.cluster import LocalCluster, running, wait_for
from walktalk.testing.quadratic import SlowTrainer

HANGING = 1  # the node


class HangingTrainer(SlowTrainer):
    """One that waits for ever at one node while it is told to, as on a GPU that is gone."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes)
        self.works = threading.Event()
        self.works.set()
        self.hung = threading.Event()

    def train(self, given: TrainingRows) -> tuple[Tensor, Tensor | None]:
        if int(given.parts[0]) == HANGING and not self.works.is_set():
            self.hung.set()
            self.works.wait(120.0)
        return super().train(given)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs is noticed within a second or so, not ten."""
    monkeypatch.setattr("walktalk.runtimes.semantics.usual.LEAST", 1.0)


def of_others(cluster: LocalCluster) -> int:
    return sum(node.progress.tally.own.iterations for v, node in enumerate(cluster.nodes) if v != HANGING)


def goes_on(count: Callable[[], int], by: int) -> None:
    before = count()
    wait_for(lambda: count() >= before + by, "training of the others")


STAR = ("fedavg", "fedbuff", "diloco")
NAMES = ("multi_walk", "token_saga", "digest", "async_gossip", "swarm_sgd", "local_dsgd", "sgp", "osgp", *STAR)

OFTEN = ("multi_walk", "local_dsgd")  # the others take minutes; in virtual time one of each mechanism is asked
TRIED = [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.slow) for name in NAMES]


def graph_of(name: str) -> Graph:
    return graphs.star(4) if name in STAR else graphs.complete(4)


@pytest.mark.parametrize("name", TRIED)
def test_a_training_that_hangs_stops_nobody_and_is_named(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """17.7 iterations a second came to 0.0 within 20 s, and nobody complained."""
    graph, trainer = graph_of(name), HangingTrainer(4)
    with running(PROTOCOLS.find(name)(), graph, tmp_path, Stop(time=600.0), trainer=trainer) as cluster:
        node = cluster.nodes[HANGING]
        wait_for(lambda: node.progress.tally.own.iterations > 5, "a beginning")
        trainer.works.clear()
        try:
            assert trainer.hung.wait(60.0)
            wait_for(lambda: bool(node.state.hangs), "a complaint")
            (complaint,) = node.health.complaints()
            assert complaint.startswith("its training has hung for ")
            assert "s is usual" in complaint
            metrics = {metric.name: metric for metric in NodeMetrics(node.health).collect()}
            assert metrics["walktalk_training_hangs"].samples[0].value == 1.0
            assert metrics["walktalk_healthy"].samples[0].value == 0.0
            assert [r for r in caplog.records if r.levelno == logging.ERROR and "its training has hung" in r.message]
            neighbour = cluster.nodes[0]
            wait_for(
                lambda: "n1 says that nothing is trained there; its own status says why" in neighbour.health.warnings(),
                "news",
            )
            goes_on(lambda: of_others(cluster), 40)
            assert node.state.hangs
        finally:
            trainer.works.set()
        wait_for(lambda: not node.state.hangs, "a recovery")
        goes_on(lambda: node.progress.tally.own.iterations, 3)  # it takes part again
        assert not node.health.complaints()
    if name == "multi_walk":
        trace = cluster.trace()
        trainings = sum(row.event == "train" for row in trace)
        assert Ledger(MultiWalk(), 4, trainings).play(trace).sound  # what came of the walk after all counts nowhere


def test_a_training_that_reports_progress_is_never_punished(tmp_path: Path) -> None:
    trainer = HangingTrainer(3)
    with running(MultiWalk(walks=2), graphs.complete(3), tmp_path, Stop(time=600.0), trainer=trainer) as cluster:
        node = cluster.nodes[HANGING]
        wait_for(lambda: node.progress.tally.own.iterations > 5, "a beginning")
        trainer.works.clear()
        try:
            assert trainer.hung.wait(60.0)
            end = time.monotonic() + 3.0
            while time.monotonic() < end:
                node.training.queue.report_progress()
                time.sleep(0.05)
                assert not node.state.hangs
        finally:
            trainer.works.set()


class Mortal(SlowTrainer):
    """What ends the thread that trains, and is no `Exception`."""

    def train(self, given: TrainingRows) -> tuple[Tensor, Tensor | None]:
        raise SystemExit("the driver is gone")


@pytest.mark.parametrize("gradient", [False, True], ids=["chain", "stacked"])
def test_every_step_of_a_training_is_progress(gradient: bool) -> None:
    """A site that trains for hours was taken for one that hangs: nobody told that it went on."""
    study: dict[str, object] = {"network": {"topology": "cycle", "nodes": 3}, "stop": {"iterations": 1}}
    study |= {"algorithms": [{"name": "local_dsgd"}], "training": {"local_steps": 7}}
    ready = prepare(make_spec(study), "cpu")
    ends, made = queue.SimpleQueue[Outcome](), list[None]()
    thread = TrainingThread(ready.trainer, 0, ends.put, lambda loss, accuracy: None)
    progress = thread.progress
    thread.progress = lambda: made.append(progress())  # type: ignore[method-assign]
    thread.begin(Work(0, "x", 1, 0, gradient, ready.runs[0].initial.cpu(), 1, 0.1, 1.0, 7))
    outcome = ends.get(timeout=60.0)
    thread.close(1.0)
    assert outcome.error is None
    assert len(made) >= 1 + 7


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the node ends with that error
def test_a_training_thread_never_dies_in_silence(tmp_path: Path) -> None:
    with running(MultiWalk(walks=3), graphs.complete(3), tmp_path, Stop(time=600.0)) as cluster:
        node = cluster.nodes[HANGING]
        wait_for(lambda: node.progress.tally.own.iterations > 2, "a beginning")
        node.training.queue._thread._trainer = Mortal(3)
        wait_for(lambda: node.state.failure is not None, "an end")
        assert str(node.state.failure) == "the driver is gone"


def test_what_is_usual_is_learned_and_the_limit_is_generous() -> None:
    usual = UsualTraining()
    assert usual.limit == 1800.0
    for _ in range(50):
        usual.observe(3600.0)
    assert usual.limit >= 12 * 3600.0  # hours, where hours are usual
    brief = UsualTraining()
    for seconds in (0.1, 0.2, 0.1, 0.3):
        brief.observe(seconds)
    assert brief.limit == pytest.approx(3.0, abs=3.0)
