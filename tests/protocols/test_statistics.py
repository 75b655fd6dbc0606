"""What a model carries beside its weights is averaged: a variance never leaves the range of those that went into it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from walktalk.protocols.statistics import TRAINED, for_statistics, with_update

from tests.support.quadratic_trainer import MeasuringTrainer
from tests.support.runs import setup, some_graphs, some_protocols, some_timings
from walktalk import graphs
from walktalk.protocols import AsyncGossip, MultiWalk, SyncGossip
from walktalk.runtimes.meaning import Evaluate, Stop
from walktalk.runtimes.peers.slots import Slots
from walktalk.runtimes.simulator import PoissonTiming
from walktalk.runtimes.simulator.schedule import CombineOp, Notebook
from walktalk.runtimes.stacked import Engine, Executor, executor
from walktalk.runtimes.stacked.waves import CombineStep
from walktalk.seeds import Seed


@given(st.integers(1, 30))
def test_line_8_becomes_an_average(walks):
    share = 1 / walks
    terms = {"copy/1": 1.0, "walk/2": share, "copy/2": -share}
    found = for_statistics(terms)
    assert found == pytest.approx({"copy/1": 1 - share, "walk/2": share})
    assert min(found.values()) >= 0
    assert sum(found.values()) == pytest.approx(sum(terms.values()))


@pytest.mark.parametrize("terms", [{"a": 1.0}, {"a": 0.5, "b": 0.5}, {"model": 1.0, "update": 1.0}])
def test_what_is_no_difference_is_left_as_it_is(terms):
    assert for_statistics(terms) is terms


def test_a_value_that_cancels_out_is_still_there_for_the_statistics():
    notebook = Notebook()
    for slot, value in (("a", 1), ("b", 2), ("c", 2)):  # b and c are the same model
        notebook.write(0, slot, ((value, 1.0),))
    notebook.combine(0, "d", {"a": 1.0, "b": 0.25, "c": -0.25})
    (made,) = notebook.ops
    assert isinstance(made, CombineOp)
    assert dict(made.terms) == {1: 1.0, 2: 0.0}
    assert made.statistics == (0.75, 0.25)


@pytest.mark.parametrize("begun_with", ["model", None])
def test_an_update_is_the_trained_model_itself(begun_with):
    terms = {"model": 0.4, "peer/1": 0.6, "update": 1.0}
    found = with_update(terms, "update", begun_with)
    expected = {TRAINED: 0.4, "peer/1": 0.6} if begun_with else {"model": 0.2, "peer/1": 0.3, TRAINED: 0.5}
    assert found == pytest.approx(expected)


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
def test_as_a_sum_of_increments_it_would_not(protocol):
    """The other way round: the check above can fail."""
    lows = []
    for averaged in (True, False):
        trainer = MeasuringTrainer(6)
        node = Evaluate(every=1, model="node")  # a mean of all hides what one has
        run = setup(protocol, graphs.cycle(6), stop=Stop(iterations=2000), timing=PoissonTiming(1.0), evaluate=node)
        engine = Engine(trainer, [run], [trainer.initial()])
        engine.simulations[0].notebook.statistics = averaged
        engine.advance(1.0)
        lows.append(min(row[-1] for row in trainer.evaluated))
    assert lows[0] > 0 > lows[1]


@pytest.mark.parametrize("widest", [2**21, 1], ids=["all at once", "row by row"])
def test_both_runtimes_combine_alike(widest, monkeypatch):
    monkeypatch.setattr(executor, "WIDEST_BAG", widest)
    trainer = MeasuringTrainer(4)
    rows = torch.rand(6, trainer.width, generator=torch.Generator().manual_seed(3))
    terms = {"a": 1.0, "b": 0.25, "c": -0.25}
    slots = Slots({name: rows[k].clone() for k, name in enumerate("abc")}, trainer.parameters)
    slots.combine("d", terms)
    stacked = Executor(trainer, lambda run: torch.eye(4))
    stacked.models.reserve(6)
    stacked.models.data[:6] = rows
    calmer = [for_statistics(terms).get(name, 0.0) for name in terms]
    step = CombineStep([4, 5], [0, 1, 2, 1], [*terms.values(), 1.0], [0, 3], [*calmer, 1.0])
    stacked.carry_out([step])
    assert torch.equal(stacked.models.data[4], slots.read("d"))
    assert torch.equal(stacked.models.data[5], rows[1])
    p = trainer.parameters
    expected = torch.cat((rows[0][:p] + 0.25 * (rows[1] - rows[2])[:p], 0.75 * rows[0][p:] + 0.25 * rows[1][p:]))
    assert torch.allclose(slots.read("d"), expected, atol=1e-6)
