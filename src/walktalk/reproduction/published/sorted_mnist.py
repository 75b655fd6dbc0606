"""BTPP (You and Pu 2024), Figure on MNIST: twelve algorithms on 24 nodes with sorted labels; .mat files in ryou98/BTPP.

13,000 iterations of batches of 8, learning rate 0.01, × 0.1 at 8,000 and 11,000 (not for D²), after 6,000 steps of
warm-up on everybody's data; accuracy of the mean model, the last of 44 evaluations (iteration 12,900), one seed. The
network ends with a log-softmax over the batch (`learning.models.BatchSoftmaxConv`). Of BTPP that code evaluates the
root's model, not the mean. Its CECA is not what CECA's paper says (`CodedCECA`): row
`ceca-code` goes by that code, row `ceca` by the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

from walktalk.graphs import Graph
from walktalk.protocols import (
    CECA,
    HALF,
    MODEL,
    UPDATE,
    Combine,
    Doubling,
    Effect,
    Meeting,
    NetworkView,
    Rule,
    Trained,
    doublings,
)
from walktalk.reproduction.published.table import Cell, Row, Table

NODES, ITERATIONS, SIDE = 24, 13_000, 4
RING = {"topology": "cycle", "nodes": NODES}
COMPLETE = {"topology": "complete", "nodes": NODES}
TREE = {"topology": "binary_tree", "nodes": NODES}
EQUI_DYN = {"topology": "equi_dyn", "nodes": NODES, "eta": 0.5}
TRACKING = {"name": "gradient_tracking"}


def grid(nodes: int) -> Graph:
    """Four columns, and as many rows as it takes; nothing wraps around."""
    edges = [(k, k + 1) for k in range(nodes - 1) if k % SIDE < SIDE - 1]
    return Graph.from_edges(nodes, [*edges, *((k, k + SIDE) for k in range(nodes - SIDE))], f"grid({nodes})")


def one(value: float) -> dict[str, Cell]:
    return {"sorted": Cell(0.01, value)}


def dsgd(name: str, title: str, topology: str, value: float) -> Row:
    return Row(name, f"D-SGD, {title}", {"topology": topology, "nodes": NODES}, {"name": "local_dsgd"}, one(value))


OURS = {"sorted": Cell(0.01)}
ROWS = (
    Row("dsgt-equidyn", "gradient tracking, EquiDyn", EQUI_DYN, TRACKING, one(92.12)),
    dsgd("dsgd-complete", "complete graph", "complete", 91.94),
    Row("btpp", "BTPP, binary tree", TREE, {"name": "push_pull"}, one(91.92)),
    dsgd("dsgd-exponential", "exponential graph", "exponential", 90.35),
    Row("dsgt-ring", "gradient tracking, ring", RING, TRACKING, one(89.44)),
    dsgd("dsgd-one-peer", "one-peer exponential graph", "one_peer_exponential", 87.82),
    dsgd("dsgd-base", "Base-2 graph", "base_graph", 87.23),
    Row("ceca-code", "CECA as in the published code", COMPLETE, {"name": f"{__name__}:CodedCECA"}, one(86.90)),
    Row("relay-tree", "RelaySGD, binary tree", TREE, {"name": "relay_sgd"}, one(80.80)),
    Row("d2-ring", "D², ring", RING, {"name": "d2", "lazy": False}, one(76.71), {"schedule": {"decay_at": []}}),
    dsgd("dsgd-grid", "grid", f"{__name__}:grid", 76.37),
    dsgd("dsgd-ring", "ring", "cycle", 61.29),
    Row("ceca", "CECA by its paper", COMPLETE, {"name": "ceca"}, OURS, is_ours=True),
    Row("gossip-ring", "pairwise gossip, ring", RING, {"name": "async_gossip"}, OURS, is_ours=True),
    Row("walks1-ring", "Multi-Walk, R = 1, ring", RING, {"name": "multi_walk", "walks": 1}, OURS, is_ours=True),
    Row("walks4-ring", "Multi-Walk, R = 4, ring", RING, {"name": "multi_walk", "walks": 4}, OURS, is_ours=True),
)

TABLE5 = Table(
    name="table5",
    title="MNIST, labels sorted over 24 nodes: test accuracy of the mean model in %",
    source="BTPP (You and Pu 2024), record/*.mat in ryou98/BTPP, one seed",
    columns={"sorted": {}},
    rows=ROWS,
    measure="mean_test_accuracy",
    measured="test accuracy of the mean model at iteration 12,900",
    last=0.99,
    paper={
        "task": {"name": "mnist", "split": "sorted", "softmax": "batch", "warm_up": 6000, "warm_up_lr": 4e-4},
        "training": {"batch_size": 8, "local_steps": 1, "optimizer_state": "node", "precision": "fp32"},
        "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.0, "nesterov": False},
        "schedule": {"decay_at": [8000 / ITERATIONS, 11000 / ITERATIONS], "factor": 0.1},
        "stop": {"iterations": NODES * 12_900},
        "evaluate": {"every": NODES * 1290, "samples": 6400, "members": True},
    },
    smoke={
        "task": {"name": "digits", "alpha": 1.0},
        "stop": {"iterations": 480},
        "evaluate": {"every": 48, "samples": 200},
    },
)


# What the code of a published table on sorted MNIST (ryou98/BTPP, `dsgd_ceca.py`) does by the name of CECA.
#
# Every node has a second worker there for its second model, but both have the same `rank`, by which rows of the weights
# are taken: so the second model takes the rows of the first, and is the same. And a round mixes copies (`model_copy`),
# which are made anew in a round of the first models' gradients for those alone, and in one of the second's for these
# alone: in a round with digit 0 the first models are mixed in as they were before the last round with digit 1.
#
#     digit 1:  x̂ ← x,  h = x − η g(x),  x ← (h_i + h_j)/2
#     digit 0:          h = x − η g(x),  x ← ((m+1) (x̂ − η g) + m h_j) / (2m+1)

STALE, REST = "stale", "rest"  # x̂, and x̂ − ηg


@dataclass(frozen=True)
class CodedCECA(CECA):
    """CECA with the weights of that code, with which no mean is exact."""

    def rule(self, around: NetworkView) -> Rule:
        return StaleWindows(doublings(around.nodes))


class StaleWindows(Rule):
    """One model a node, and what it was."""

    __slots__ = ("rounds",)

    def __init__(self, rounds: tuple[Doubling, ...]) -> None:
        self.rounds = rounds

    def begin(self) -> list[Effect]:
        return [Combine(STALE, {MODEL: 1.0})]

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        copied = [Combine(STALE, {MODEL: 1.0})] if self._now(meeting).is_odd else []
        half, rest = (
            Combine(into, {of: 1.0, UPDATE: 1.0}, {UPDATE: 1.0}) for into, of in ((HALF, MODEL), (REST, STALE))
        )
        return [*copied, half, rest, *meeting.send(HALF, "round")]

    def mix(self, meeting: Meeting) -> list[Effect]:
        now, own = self._now(meeting), HALF if self._now(meeting).is_odd else REST
        theirs = 0.5 if now.is_odd else now.width / (2 * now.width + 1)
        came = {meeting.slot("round", sender): theirs for sender in meeting.there("round")}
        return [Combine(MODEL, {own: 1.0 - sum(came.values()), **came})]

    def _now(self, meeting: Meeting) -> Doubling:
        return self.rounds[meeting.round % len(self.rounds)]
