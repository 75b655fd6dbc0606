"""Scripts of one's own train a whole cluster; they die, hang and come again, and every update counts once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

import walktalk as wt
from tests.support.mechanisms import ONE_OF_EACH
from walktalk.learning import LoopTrainer, tasks
from walktalk.protocols import PROTOCOLS, Protocol
from walktalk.records import TraceRow, read_history
from walktalk.runtimes.peers import Ledger, Node, ReplaySetup, load_cluster, merge, read_lives, replay
from walktalk.runtimes.semantics import Evaluate
from walktalk.studies import read_sites
from walktalk.studies.collecting import collect
from walktalk.studies.peers import NodeJob, node_job, run_node
from walktalk.testing.cluster import wait_for

CENTRES = {"lyon": -1.0, "nice": 1.0, "paris": 3.0}
STAR = ("fedavg", "fedbuff", "diloco")
OTHERS = {*ONE_OF_EACH, "local_dsgd", "osgp", "swarm_sgd", *STAR} - {"multi_walk"}
NAMES = ["multi_walk", *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(OTHERS))]


def step(state: dict[str, Any], data: float, lr: float, rng: np.random.Generator) -> dict[str, Any]:
    """A training, in the simulator and in scripts alike."""
    x = state["x"]
    return {"x": x - np.float32(lr) * (x - np.float32(data) + rng.normal(size=4).astype(np.float32))}


@dataclass
class Scripts:
    """Three nodes in threads of this process, and the scripts that train them, each a thread, too."""

    config: Path
    nodes: dict[str, Node] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CENTRES, 0))
    sites: dict[str, wt.Site] = field(default_factory=dict)

    def start(self, call: Callable[[], None]) -> None:
        def run() -> None:
            try:
                call()
            except BaseException as error:
                self.errors.append(error)

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def node(self, name: str) -> None:
        run_node(
            NodeJob(load_cluster(self.config), name, rejoin=True, deployed=True),
            meets=lambda node: self.nodes.__setitem__(name, node),
        )

    def script(self, name: str, stumbles: Callable[[wt.Visit], bool] = lambda visit: False) -> None:
        """What a person writes, but for a stumble: then it ends as one that is killed."""
        site = self.sites[name] = wt.site(self.config, name, start=False, evaluate=self.evaluate)
        for visit in site:
            if stumbles(visit):
                site._talk.hang_up()
                return
            new = step({"x": visit.state["x"]}, CENTRES[name], visit.lr, visit.rng)
            time.sleep(0.005)
            self.counted[name] += visit.finish(new, samples=10, metrics={"far": 2.0})

    @staticmethod
    def evaluate(visit: wt.Visit) -> dict[str, float]:
        return {"train_loss": float(((visit.state["x"] - CENTRES[visit.node]) ** 2).sum())}

    def iterations(self) -> int:
        return sum(node.progress.tally.own.iterations for node in self.nodes.values())

    def wait(self) -> None:
        for thread in self.threads:
            thread.join(60.0)
            assert not thread.is_alive()
        if self.errors:
            raise self.errors[0]


@contextmanager
def cluster_of_scripts(folder: Path, algorithm: str, iterations: int) -> Iterator[Scripts]:
    tasks.write_state({"x": torch.full((4,), 5.0)}, folder / "start.safetensors")
    content = {
        "name": "mine",
        "study": {
            "name": "mine",
            "network": {"topology": "star" if algorithm in STAR else "complete", "nodes": 3},
            "task": {"name": "outside", "state": "start.safetensors", "samples": 10},
            "algorithms": [{"name": algorithm}],
            "stop": {"iterations": iterations},
            "evaluate": {"every": 10},
        },
        "folder": "records",
        "wait": 20.0,
        "nodes": {name: {"address": "127.0.0.1"} for name in CENTRES},
    }
    config = folder / "cluster.yaml"
    config.write_text(yaml.safe_dump(content, sort_keys=False))
    made = Scripts(config)
    for name in CENTRES:
        made.start(lambda name=name: made.node(name))  # type: ignore[misc]
        wait_for(lambda name=name: (folder / "records" / name / "site.sock").exists(), "a node")  # type: ignore[misc]
    try:
        yield made
    finally:
        for node in made.nodes.values():
            with suppress(Exception):
                node.leave()


def trace_of(folder: Path) -> list[TraceRow]:
    """All that the nodes have written down, over all their lives."""
    found = [read_lives(folder / "records" / name) for name in CENTRES]
    return merge([row for life in lives for row in life] for lives in found)


@pytest.fixture(autouse=True)
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are threads here, and not processes that signals reach."""
    for name in ("leave_on_signals", "quiet_process", "end_process"):
        monkeypatch.setattr(node_job, name, lambda *given: None)


@pytest.mark.parametrize("algorithm", NAMES)
def test_scripts_train_a_cluster_though_one_dies(algorithm: str, tmp_path: Path) -> None:
    with cluster_of_scripts(tmp_path, algorithm, 150) as scripts:
        stumbled = threading.Event()

        def stumble(visit: wt.Visit) -> bool:
            if visit.number >= 3:
                stumbled.set()
            return visit.number >= 3

        scripts.start(lambda: scripts.script("nice", stumble))
        for name in ("lyon", "paris"):
            scripts.start(lambda name=name: scripts.script(name))  # type: ignore[misc]
        assert stumbled.wait(30.0)
        nice = scripts.nodes["nice"]
        wait_for(lambda: "has ended without a word; it trains again when" in nice.state.hangs, "a complaint")
        assert nice.state.hangs in nice.health.complaints()
        before = nice.progress.tally.own.iterations
        assert not nice.progress.end.seen
        scripts.start(lambda: scripts.script("nice"))
        wait_for(lambda: nice.progress.tally.own.iterations > before, "its return")
        scripts.wait()
    trace = trace_of(tmp_path)
    trained = sum(row.event == "trained" for row in trace)
    assert trained >= 150
    assert trained == sum(scripts.counted.values())
    protocol = PROTOCOLS.find(algorithm)()
    if protocol.family in ("walks", "gossip"):
        assert Ledger(protocol, 3, sum(row.event == "train" for row in trace)).play(trace).sound
    check_that_the_simulator_agrees(protocol, trace, list(scripts.nodes.values()))
    done = collect(load_cluster(scripts.config), tmp_path / "out", seconds=0.1)
    assert done.state == "finished"
    assert -1.0 < float(load_file(done.model)["x"].mean()) < 4.0  # it was 5, and nodes have −1, 1 and 3
    history = read_history(done.folder / "history.csv")
    assert history["far"].iloc[-1] == 2.0
    assert history["train_loss"].iloc[-1] < 40.0
    sites = read_sites(done.folder / "sites.csv")
    assert sites is not None
    assert sites["samples"].tolist() == [10] * 3
    assert set(sites["far"].dropna()) == {2.0}  # a site that no walk came to has none


def check_that_the_simulator_agrees(protocol: Protocol, trace: list[TraceRow], nodes: list[Node]) -> None:
    """The same loop as a function, by the trace of the real run: the models that the scripts have made."""
    parts = dict(CENTRES)
    start = {"x": np.full(4, 5.0, dtype=np.float32)}
    task = wt.tasks.loop(step, start, parts, evaluate=lambda state, data: 0.0, samples=lambda data: 10)
    assert isinstance(task, tasks.LoopTask)
    trainer = LoopTrainer(task, optimizer=wt.SGD(lr=0.05, momentum=0.0, nesterov=False))
    setup = ReplaySetup(3, trainer.initial_row(0), Evaluate(every=10), messages=protocol.resilient_form().messages)
    replayed = replay(trace, setup, trainer)
    last = {row.walk: row.node for row in trace if row.event == "record" and row.detail == "member"}
    assert last
    by_number = {node.models.me: node.models.interpreter.output for node in nodes}
    for key, where in last.items():
        assert replayed.members[key].numpy() == pytest.approx(by_number[where].members[key].numpy(), rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_a_script_that_hangs_is_gone_round_and_its_late_work_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("walktalk.runtimes.semantics.usual.LEAST", 1.0)
    works, hung, late = threading.Event(), threading.Event(), list[bool]()

    def hang(visit: wt.Visit) -> bool:
        if visit.number >= 6 and not hung.is_set():
            hung.set()
            assert works.wait(60.0)
            late.append(visit.finish(samples=10))
            return True  # another script goes on
        return False

    with cluster_of_scripts(tmp_path, "multi_walk", 600) as scripts:
        scripts.start(lambda: scripts.script("nice", hang))
        for name in ("lyon", "paris"):
            scripts.start(lambda name=name: scripts.script(name))  # type: ignore[misc]
        assert hung.wait(30.0)
        nice = scripts.nodes["nice"]
        wait_for(lambda: nice.state.hangs.startswith("its training has hung for"), "a complaint")
        before = scripts.iterations()
        wait_for(lambda: scripts.iterations() >= before + 20, "the others to go on")
        works.set()
        wait_for(lambda: bool(late), "its late work")
        scripts.start(lambda: scripts.script("nice"))
        scripts.wait()
    assert late == [False]
    trace = trace_of(tmp_path)
    assert sum(row.event == "trained" for row in trace) == sum(scripts.counted.values())
    protocol = PROTOCOLS.find("multi_walk")()
    assert Ledger(protocol, 3, sum(row.event == "train" for row in trace)).play(trace).sound
