"""Nothing is lost and nothing counted twice: the laws of `NOTES.md`, at every mixing, with staleness and queues."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runs import Played, setup, some_graphs, some_timings
from walktalk.core.seeds import Seed
from walktalk.protocols import AsyncGossip, MultiWalk, SyncGossip
from walktalk.runtimes.semantics import Stop


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_multi_walk_aggregate_is_the_start_plus_a_share_of_every_mixed_update(data):
    graph = data.draw(some_graphs)
    walks = data.draw(st.integers(1, graph.nodes))
    aggregator = data.draw(st.integers(0, graph.nodes - 1))
    seed = Seed(data.draw(st.integers(0, 1000)))
    played = Played(setup(MultiWalk(walks, aggregator=aggregator), graph, timing=data.draw(some_timings), seed=seed))
    law = MixedSoFar(walks, aggregator, played.trainer.initial().double().numpy())
    played.replay().play(played.trace, law.watch)
    # The replay obeys the law to float64; the executor's float32 aggregate is held against it at every iteration.
    scale = np.abs(played.trainer.centres).max()
    assert law.checked == sum(row.event == "record" and row.detail == "aggregate" for row in played.trace)
    aggregates = evaluated_aggregates(played)
    for iteration, expected in law.after_iteration.items():
        np.testing.assert_allclose(aggregates[iteration], expected, rtol=1e-5, atol=1e-5 * scale)


class MixedSoFar:
    """u_l = x_0 + (1/R) · (sum of all updates mixed so far), after every visit to the aggregator."""

    def __init__(self, walks: int, aggregator: int, initial: np.ndarray) -> None:
        self.walks, self.aggregator, self.initial = walks, aggregator, initial
        self.unmixed: dict[int, np.ndarray] = {}
        self.mixed = np.zeros_like(initial)
        self.checked = 0
        self.iteration = 0
        self.after_iteration: dict[int, np.ndarray] = {0: initial}

    def watch(self, replay, event) -> None:
        _, node, kind, _, _, walk, iteration, _, _, _, _, detail = event
        if kind == "trained":
            self.iteration = iteration
            self.unmixed[walk] = self.unmixed.get(walk, 0) + replay.updates[-1]
            if node == self.aggregator:
                self.mixed = self.mixed + self.unmixed.pop(walk)
            self.after_iteration[iteration] = self.initial + self.mixed / self.walks
        if kind == "record" and detail == "aggregate":
            self.checked += 1
            np.testing.assert_allclose(replay.aggregate, self.after_iteration[self.iteration], rtol=1e-9, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_gossip_moves_the_sum_by_each_update_and_by_nothing_else(data):
    graph = data.draw(some_graphs)
    mixing = data.draw(st.sampled_from(["pairwise", "neighbourhood", "matrix"]))
    seed = Seed(data.draw(st.integers(0, 1000)))
    played = Played(setup(AsyncGossip(mixing), graph, timing=data.draw(some_timings), seed=seed))
    weights = {(i, j): weight(graph, mixing, i, j) for i in range(graph.nodes) for j in graph.neighbours(i)}
    scale = np.abs(played.trainer.centres).max() * graph.nodes

    def watch(replay, event) -> None:
        # An exchange is half done between the passive node's average and the active node's: the difference that the
        # active one will still add is known from what is on the way.
        if event.event not in ("record", "mix_everyone") or len(replay.members) < graph.nodes:
            return
        expected = graph.nodes * replay.slots[0]["initial"] + np.sum(replay.updates, axis=0)
        total = np.sum([replay.slots[v]["model"] for v in range(graph.nodes)], axis=0)
        for into, answer in replay.on_the_way.values():
            if into.startswith("answer/"):
                passive = int(into.split("/")[1])
                active = waiting_for(replay, passive, answer)
                total = total + weights[active, passive] * (answer - replay.slots[active]["offered"])
        np.testing.assert_allclose(total, expected, rtol=1e-9, atol=1e-9 * scale)

    receivers: dict[int, int] = {row.number: row.peer for row in played.trace if row.event == "send"}

    def waiting_for(replay, passive: int, answer: np.ndarray) -> int:
        number = next(n for n, (_, model) in replay.on_the_way.items() if model is answer)
        return receivers[number]

    replay = played.replay().play(played.trace, watch)
    np.testing.assert_allclose(played.output, replay.output(), rtol=1e-5, atol=1e-5 * scale)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_synchronous_gossip_conserves_the_mean_over_rounds(data):
    """Over all nodes, a round changes the sum of the models by the sum of its updates: W's columns sum to one, too."""
    graph = data.draw(some_graphs)
    played = Played(setup(SyncGossip(), graph, timing=data.draw(some_timings), stop=Stop(iterations=12 * graph.nodes)))
    models: list[list[np.ndarray]] = [[] for _ in range(graph.nodes)]  # by node, after each of its rounds
    updates: list[list[np.ndarray]] = [[] for _ in range(graph.nodes)]

    def watch(replay, event) -> None:
        if event.event == "combine" and event.slot == "model" and "own_update" in event.detail:
            models[event.node].append(replay.slots[event.node]["model"].copy())
            updates[event.node].append(replay.slots[event.node]["own_update"].copy())

    replay = played.replay().play(played.trace, watch)
    rounds = min(map(len, models))  # that all have finished
    assert rounds >= 10
    total, scale = graph.nodes * replay.slots[0]["initial"], np.abs(played.trainer.centres).max()
    for k in range(rounds):
        total = total + np.sum([of[k] for of in updates], axis=0)
        np.testing.assert_allclose(np.sum([of[k] for of in models], axis=0), total, rtol=1e-9, atol=1e-9 * scale)
    np.testing.assert_allclose(played.output, replay.output(), rtol=1e-5, atol=1e-5 * np.abs(played.output).max())


def weight(graph, mixing: str, i: int, j: int) -> float:
    degrees = [len(graph.neighbours(v)) for v in (i, j)]
    return 0.5 if mixing == "pairwise" else 1 / (max(degrees) + 1)


def evaluated_aggregates(played: Played) -> dict[int, np.ndarray]:
    """The executor's own float32 aggregates: the trainer keeps all rows that it evaluates, in order."""
    rows = iter(played.trainer.evaluated)
    found = {}
    for m in played.measurements:
        found[m.op.iteration] = next(rows)
        if not same(m.op):
            next(rows)
    return found


def same(op) -> bool:
    """Whether the mean over members was not evaluated on its own because it is the aggregate."""
    total: dict[int, float] = {}
    for terms in op.members:
        for value, w in terms:
            total[value] = total.get(value, 0.0) + w / len(op.members)
    return total == dict(op.aggregate)
