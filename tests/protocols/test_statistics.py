"""What a model carries beside its weights is averaged: a variance never leaves the range of those that went into it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runs import setup, some_graphs, some_protocols, some_timings
from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.protocols import UPDATE, AsyncGossip, Combine, MultiWalk, SyncGossip, absorb, apply_update
from walktalk.runtimes.peers.node.models import Tensors
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import CombineOp, PoissonTiming, ScheduleRecorder
from walktalk.runtimes.stacked import Engine, Executor, executor
from walktalk.runtimes.stacked.waves import CombineStep
from walktalk.testing.quadratic import MeasuringTrainer


@given(st.integers(1, 30))
def test_line_8_becomes_an_average(walks):
    share = 1 / walks
    mixed = absorb("walk/2", "copy/1", share, "walk/2", "copy/2")
    assert mixed.terms == pytest.approx({"copy/1": 1.0, "walk/2": share, "copy/2": -share})
    assert mixed.statistics == pytest.approx({"copy/1": 1 - share, "walk/2": share} if walks > 1 else {"walk/2": 1.0})
    assert min(mixed.statistics.values()) >= 0
    assert sum(mixed.statistics.values()) == pytest.approx(sum(mixed.terms.values()))


def test_the_same_walk_twice_in_a_row_is_one_average_for_both():
    mixed = absorb("walk/2", "copy/2", 0.25, "walk/2", "copy/2")
    assert mixed.terms == mixed.statistics == pytest.approx({"copy/2": 0.75, "walk/2": 0.25})


def test_a_value_that_cancels_out_is_still_there_for_the_statistics():
    notebook = ScheduleRecorder()
    here = {"a": ((1, 1.0),), "b": ((2, 1.0),), "c": ((2, 1.0),)}  # b and c are the same model
    mixed = absorb("d", "a", 0.25, "b", "c")
    notebook.combined(here, mixed.terms, mixed.statistics)
    (made,) = notebook.ops
    assert isinstance(made, CombineOp)
    assert dict(made.terms) == {1: 1.0, 2: 0.0}
    assert made.statistics == (0.75, 0.25)


@pytest.mark.parametrize("moved", [False, True])
def test_an_update_is_the_trained_model_itself(moved):
    notebook = ScheduleRecorder()
    here = {"model": ((3, 1.0),), UPDATE: notebook.update(((3, 1.0),), ((4, 1.0),))}
    applied = apply_update("model", moved)
    assert notebook.combined(here, applied.terms, applied.statistics) == ((4, 1.0),) if not moved else True
    if moved:  # another model stands in the slot by now
        here["model"] = ((5, 1.0),)
        notebook.combined(here, applied.terms, applied.statistics)
        made = notebook.ops[-1]
        weights = {value: (weight, other) for (value, weight), other in zip(made.terms, made.statistics, strict=True)}
        assert weights == {5: (1.0, 0.5), 4: (1.0, 0.5), 3: (-1.0, 0.0)}


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_variance_stays_in_the_range_of_the_nodes_own(data):
    graph = data.draw(some_graphs)
    run = setup(
        data.draw(some_protocols(graph.nodes)),
        graph,
        timing=data.draw(some_timings),
        seed=Seed(data.draw(st.integers(0, 1000))),
    )
    trainer = MeasuringTrainer(graph.nodes)
    engine = Engine(trainer, [run], [trainer.initial()])
    engine.advance(1.0)
    seen = np.array([row[-1] for row in trainer.evaluated])
    lowest = min(trainer.variances.min(), trainer.initial()[-1])
    assert seen.min() >= lowest * (1 - 1e-5)
    assert seen.max() <= max(trainer.variances.max(), trainer.initial()[-1]) * (1 + 1e-5)


@pytest.mark.parametrize("protocol", [MultiWalk(4), AsyncGossip(), SyncGossip()], ids=lambda p: p.label)
def test_as_a_sum_of_increments_it_would_not(protocol, monkeypatch):
    """The other way round: the check above can fail."""

    class Counting(MeasuringTrainer):
        """For which a variance is one more parameter."""

        def __init__(self, nodes: int) -> None:
            super().__init__(nodes)
            self.weights, self.parameters = self.parameters, self.width

        def train(self, given):
            self.parameters = self.weights
            try:
                return super().train(given)
            finally:
                self.parameters = self.width

        def evaluate(self, rows):
            self.parameters = self.weights
            try:
                return super().evaluate(rows)
            finally:
                self.parameters = self.width

    lows = []
    for trainer in (MeasuringTrainer(6), Counting(6)):
        node = Evaluate(every=1, model="node")  # a mean of all hides what one has
        run = setup(protocol, graphs.cycle(6), stop=Stop(iterations=2000), timing=PoissonTiming(1.0), evaluate=node)
        initial = torch.cat((torch.linspace(-2.0, 2.0, trainer.width - 1), torch.ones(1)))
        Engine(trainer, [replace(run)], [initial]).advance(1.0)
        lows.append(min(row[-1] for row in trainer.evaluated))
    assert lows[0] > 0 > lows[1]


@pytest.mark.parametrize("widest", [2**21, 1], ids=["all at once", "row by row"])
def test_both_runtimes_combine_alike(widest, monkeypatch):
    monkeypatch.setattr(executor, "WIDEST_BAG", widest)
    trainer = MeasuringTrainer(4)
    rows = torch.rand(6, trainer.width, generator=torch.Generator().manual_seed(3))
    mixed = absorb("d", "a", 0.25, "b", "c")
    here = {name: rows[k].clone() for k, name in enumerate("abc")}
    made = Tensors(trainer.width, trainer.parameters).combined(here, mixed.terms, mixed.statistics)
    stacked = Executor(trainer, lambda run: torch.eye(4))
    stacked.models.reserve(6)
    stacked.models.data[:6] = rows
    calmer = [mixed.statistics.get(name, 0.0) for name in mixed.terms]
    step = CombineStep([4, 5], [0, 1, 2, 1], [*mixed.terms.values(), 1.0], [0, 3], [*calmer, 1.0])
    stacked.carry_out([step])
    assert torch.equal(stacked.models.data[4], made)
    assert torch.equal(stacked.models.data[5], rows[1])
    p = trainer.parameters
    expected = torch.cat((rows[0][:p] + 0.25 * (rows[1] - rows[2])[:p], 0.75 * rows[0][p:] + 0.25 * rows[1][p:]))
    assert torch.allclose(made, expected, atol=1e-6)


def test_what_is_not_declared_is_combined_by_the_same_weights():
    """Push-sum's shares: a half of everything, statistics too."""
    share = Combine("share", {"x": 0.5})
    made = Tensors(3, 2).combined({"x": torch.tensor([2.0, 4.0, 6.0])}, share.terms, share.statistics)
    assert made.tolist() == [1.0, 2.0, 3.0]
