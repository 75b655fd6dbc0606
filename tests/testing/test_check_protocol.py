"""The conformance suite: our own protocols pass it, strangers' do, and what is broken is told."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import walktalk as wt
from tests.support.mechanisms import ONE_OF_EACH, slow_unless
from walktalk import graphs
from walktalk.protocols import (
    HALF,
    INITIAL,
    MEMBER,
    OSGP,
    PROTOCOLS,
    UPDATE,
    Arrival,
    AsyncSGD,
    Combine,
    Context,
    Effect,
    Event,
    FedAvg,
    Machine,
    Meeting,
    Message,
    NetworkView,
    NoLoCo,
    Received,
    Record,
    Send,
    Started,
    SwarmSGD,
    Train,
    Trained,
)
from walktalk.testing import ProtocolFlaws, check_protocol

sys.path.append(str(Path(__file__).parents[2] / "examples" / "protocols"))
sys.path.append(str(Path(__file__).parents[2] / "examples"))
from directed_push_sum import DirectedPushSum
from eight_bits import EightBitGossip
from gt_adam import GTAdam
from lazy_rounds import LazyRounds, PartOfTheWay

QUICK = {"heartbeat": 0.1, "patience": 0.4}  # settings that say how long to wait, where a protocol has them


WAIT_FOR_NOBODY = ("fedbuff", "fedasync", "async_sgd", "swift", "swarm_sgd")  # who is dead need not be found out


def quick(protocol: type[wt.Protocol]) -> list[wt.Protocol]:
    """The forms that people compare, few and impatient."""
    found = []
    for usual in protocol.usual()[:3]:
        short = {key: value for key, value in QUICK.items() if key in usual.settings}
        found.append(type(usual)(**{**usual.settings, **short}))
    return found


OTHER_FORMS = [  # that are algorithms of their own, though nobody compares them by default
    wt.AsyncGossip(overlap=True, patience=0.4),
    FedAvg(tree=True),
    AsyncSGD(tree=True),
]
RARER_FORMS = [
    SwarmSGD(steps=2, random_steps=True, patience=0.4),
    NoLoCo(fragments=3, patience=0.4),
    OSGP(delay=0, patience=0.4),
]
OURS = [*(one for name in PROTOCOLS for one in quick(PROTOCOLS[name])), *OTHER_FORMS, *RARER_FORMS]
# What tests/conformance does not ask of real nodes: rounds with codes, and a server.
# All others are among the slow tests, as each takes some ten seconds there.
ON_REAL_NODES = ("choco_sgd",)
IN_VIRTUAL_TIME = 3.0  # seconds: nobody is held up there, and each takes as long as five in reality
# What tests/conformance asks as much of.
LONG = {"async_gossip-neighbourhood", "async_gossip-pairwise-overlap", "agraf", "fedbuff", "swift"}


def seconds_for(protocol: wt.Protocol) -> float:
    return 5.0 if protocol.name in WAIT_FOR_NOBODY else 7.0


@pytest.mark.parametrize(
    "protocol",
    [pytest.param(p, marks=slow_unless(p.name in ONE_OF_EACH and p.label not in LONG), id=p.label) for p in OURS],
)
def test_every_protocol_that_is_registered_passes(protocol: wt.Protocol) -> None:
    check_protocol(protocol, engines=("sim",), seconds=IN_VIRTUAL_TIME)


@pytest.mark.parametrize(
    "protocol",
    [pytest.param(one, marks=slow_unless(one.label.startswith(ON_REAL_NODES)), id=one.label) for one in OURS],
)
def test_so_it_does_on_real_nodes(protocol: wt.Protocol) -> None:
    check_protocol(protocol, engines=("peers",), seconds=seconds_for(protocol))


@pytest.mark.parametrize(
    "protocol",
    [DirectedPushSum(), EightBitGossip(), pytest.param(GTAdam(), marks=pytest.mark.slow)],  # this one is ours as well
    ids=lambda protocol: protocol.label,
)
def test_a_strangers_passes_in_both_runtimes(protocol: wt.Protocol) -> None:
    check_protocol(protocol)


@pytest.mark.parametrize(
    "graph", [graphs.one_peer_exponential(8), graphs.random_matchings(6, seed=1)], ids=lambda graph: graph.name
)
def test_push_sum_on_graphs_that_change_by_round(graph: wt.Graph) -> None:
    check_protocol(DirectedPushSum(), graph=graph)


class Faulty(Machine):
    """Trains its own model and sends it to the next node, with one thing wrong."""

    def __init__(self, around: NetworkView, fault: str) -> None:
        self.around, self.fault = around, fault

    def handle(self, event: Event, context: Context) -> list[Effect]:
        around = self.around
        if isinstance(event, Started):
            return [Combine("x", {INITIAL: 1.0}), Record(MEMBER, around.node, "x"), Train("x")]
        if isinstance(event, Received):
            weight = 0.5 if self.fault != "sum" else 0.6
            return [Combine("x", {"x": 0.5, event.slot: weight}), Record(MEMBER, around.node, "x")]
        if not isinstance(event, Trained):
            return []
        dice = random if self.fault == "random" else context.random
        to = around.neighbours[int(dice.random() * len(around.neighbours))]
        if self.fault == "stranger":
            to = (around.node + 2) % around.nodes
        grow = {"x": 1.0, UPDATE: -1.0} if self.fault == "loss" else {"x": 1.0, UPDATE: 1.0}
        learn = Combine("x", grow, None if self.fault == "statistics" else {UPDATE: 1.0})
        kind = "other" if self.fault == "undeclared" else "model"
        return [learn, Record(MEMBER, around.node, "x"), Send(to, Message(kind), "x"), Train("x")]


@dataclass(frozen=True)
class Broken(wt.Protocol):
    """Pushes its model to a neighbour, who averages."""

    fault: str = "none"

    @property
    def conserves(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("sum",) if self.fault == "sum" else ()

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return {"model": Arrival("model/{sender}")}

    def machine(self, network_view: NetworkView) -> Machine:
        return Faulty(network_view, self.fault)


def test_one_without_a_fault_passes() -> None:
    check_protocol(Broken(), graph=graphs.cycle(5))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("random", "something random does not come from outside"),
        ("stranger", "to which it has no link"),
        ("undeclared", "'other' are not declared"),
        ("loss", "the loss starts at"),
        ("statistics", "a variance is"),
        ("sum", "sum"),
    ],
)
def test_what_is_broken_is_told(fault: str, said: str) -> None:
    with pytest.raises(ProtocolFlaws, match=said):
        check_protocol(Broken(fault), engines=("sim",), graph=graphs.cycle(5))


def digits_with_batch_norm(nodes: int) -> wt.Task:
    from sklearn.datasets import load_digits

    data = load_digits()
    inputs, labels = torch.tensor(data.data / 16.0, dtype=torch.float32), torch.tensor(data.target)
    model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    parts = np.array_split(np.random.default_rng(0).permutation(len(inputs)), nodes)
    return wt.tasks.torch(
        model, nn.functional.cross_entropy, [(inputs[p], labels[p]) for p in parts], test=(inputs, labels)
    )


def test_push_sum_on_one_way_links_learns_as_gossip_does_with_batch_norm() -> None:
    task, losses = digits_with_batch_norm(8), {}
    for protocol, graph in ((DirectedPushSum(), graphs.exponential(8)), (wt.AsyncGossip(), graphs.complete(8))):
        stop, rate = wt.Stop(iterations=500), wt.SGD(lr=0.05)
        runs = [
            wt.train(task, protocol, graph, stop=stop, optimizer=rate, evaluate=wt.Evaluate(every=50), seed=seed)
            for seed in (0, 1)
        ]
        # One loss of one run differs by several per cent from one machine's arithmetic to another's. A mean along
        # the course of two runs, once the first rush is over, does not.
        losses[protocol.name] = np.mean([np.log(run.history["train_loss"].iloc[4:]).mean() for run in runs])
    assert losses["directed_push_sum"] == pytest.approx(losses["async_gossip"], abs=np.log(1.1))


def test_eight_bits_learn_as_gossip_does_and_cost_a_quarter() -> None:
    task, graph, losses, bits = wt.tasks.digits(nodes=8, alpha=1.0, seed=0), graphs.cycle(8), {}, {}
    for protocol in (EightBitGossip(), wt.SyncGossip()):
        run = wt.train(task, protocol, graph, stop=wt.Stop(iterations=1600), evaluate=wt.Evaluate(every=80), seed=0)
        losses[protocol.name] = np.log(run.history["train_loss"].iloc[5:]).mean()  # a mean, as above
        bits[protocol.name] = run.history["bits"].iloc[-1]
    assert losses["eight_bit_gossip"] == pytest.approx(losses["sync_gossip"], abs=np.log(1.1))
    assert bits["eight_bit_gossip"] == pytest.approx(bits["sync_gossip"] / 4, rel=0.02)


def test_a_rule_of_rounds_from_outside_passes_and_the_whole_way_is_local_sgd() -> None:
    """What it needs is all at the front door; that it survives failures comes with the rounds."""
    check_protocol(LazyRounds(patience=0.4), engines=("sim",))
    assert LazyRounds().survives_failures
    meeting = Meeting(NetworkView(0, 3, (1, 2), (2, 2)), ("round",), {})
    for sender in (1, 2):
        meeting.receive(sender, Message("round", round=0))
    row = meeting.mean(HALF, "round")
    assert row == pytest.approx({HALF: 1 / 3, "round/0/1": 1 / 3, "round/0/2": 1 / 3})
    for share in (1.0, 0.5):
        (mixed,) = PartOfTheWay(share).mix(meeting)
        assert isinstance(mixed, Combine)
        assert mixed.terms == pytest.approx(
            {slot: share * weight + (slot == HALF) * (1 - share) for slot, weight in row.items()}
        )
