"""Planning: every wave only reads what is there, no living row is overwritten, and how it is cut changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runs import ALL_PROTOCOLS, Played, setup, some_graphs, some_protocols, some_timings
from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.protocols import AsyncGossip, MultiWalk
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, Simulation
from walktalk.runtimes.stacked import Engine, EvaluateStep, Planner, TrainStep, WavePolicy
from walktalk.testing.quadratic import QuadraticTrainer


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_stretches_and_wave_widths_change_no_byte(data):
    graph = data.draw(some_graphs)
    run = setup(data.draw(some_protocols(graph.nodes)), graph, timing=data.draw(some_timings))
    whole = Played(run, stretches=1)
    parts = Played(run, stretches=data.draw(st.integers(2, 7)), policy=WavePolicy(widest=data.draw(st.integers(1, 4))))
    assert np.array_equal(whole.output, parts.output)
    assert whole.trace == parts.trace
    assert len(whole.measurements) > 1
    assert list(map(repr, whole.measurements)) == list(map(repr, parts.measurements))  # repr: nan is nan


@pytest.mark.parametrize("state", ["visit", "walk", "node"])
@pytest.mark.parametrize("protocol", ALL_PROTOCOLS, ids=lambda p: p.label)
def test_a_run_alone_and_inside_a_study_gives_the_same_bytes(protocol, state):
    graph = graphs.erdos_renyi(7, p=0.5, seed=2)
    trainer = QuadraticTrainer(7, momentum=0.5)
    runs = [setup(p, graph, optimizer_state=state, state_bytes=20, seed=Seed(0).child(p.label)) for p in ALL_PROTOCOLS]
    together = Engine(trainer, runs, [trainer.initial()] * len(runs))
    together.advance(0.4)
    together.advance(1.0)
    alone = Engine(trainer, [runs[ALL_PROTOCOLS.index(protocol)]], [trainer.initial()])
    alone.advance(1.0)
    assert np.array_equal(together.output(ALL_PROTOCOLS.index(protocol)).numpy(), alone.output(0).numpy())


@pytest.mark.parametrize("state", ["visit", "node"])
def test_a_wave_in_pieces_gives_the_same_bytes(state, monkeypatch):
    monkeypatch.setattr("walktalk.runtimes.stacked.waves.COMBINED_AT_ONCE", 2)
    graph, outputs = graphs.complete(9), []
    for widest in (None, 2):
        trainer = QuadraticTrainer(9, momentum=0.5)
        trainer.best_width = widest
        run = setup(AsyncGossip(), graph, optimizer_state=state, state_bytes=20, stop=Stop(iterations=200))
        engine = Engine(trainer, [run], [trainer.initial()])
        engine.advance(1.0)
        outputs.append(engine.output(0).numpy())
        assert max(trainer.widths) > 2 if widest is None else max(trainer.widths) <= 2
    assert np.array_equal(*outputs)


def test_no_step_writes_a_row_that_it_or_its_level_reads():
    """So that pieces of it may be done one after the other."""
    planner = Planner()
    planner.place(0, 0)
    simulation = Simulation(setup(AsyncGossip(), graphs.cycle(6), stop=Stop(iterations=300)))
    steps = planner.plan({0: simulation.advance(1.0)})
    both = [step for step in steps if getattr(step, "outs", ()) and getattr(step, "sources", ())]
    assert {type(step).__name__ for step in both} == {"CombineStep", "TrainStep"}
    for step in both:
        assert not set(step.outs) & set(step.sources)


def test_waves_are_even_and_as_few_as_the_longest_chain():
    graph = graphs.complete(10)
    runs = [MultiWalk(1), MultiWalk(5), MultiWalk(10), AsyncGossip()]
    trainer = QuadraticTrainer(10)
    setups = [setup(p, graph, stop=Stop(iterations=300)) for p in runs]
    engine = Engine(trainer, setups, [trainer.initial()] * len(runs))
    engine.advance(1.0)
    assert len(trainer.widths) <= 302  # R = 1 is a chain of 300
    assert np.mean(trainer.widths[-50:]) > 2.0  # nothing wide was used up early
    assert max(trainer.widths) <= 6


def test_no_row_is_written_twice_in_a_step_and_rows_stay_few():
    graph = graphs.cycle(6)
    simulation = Simulation(setup(AsyncGossip(), graph, stop=Stop(iterations=500)))
    planner = Planner()
    planner.place(0, 0)
    written = [step.outs for step in planner.plan({0: simulation.advance(1.0)}) if getattr(step, "outs", [])]
    assert max(map(len, written)) > 1
    for outs in written:
        assert len(set(outs)) == len(outs)
    assert planner.models.size <= 6 * 5


def test_trainings_that_nobody_needs_are_not_done():
    """When a run ends, walks are still under way; what they would have become is of no interest."""
    run = setup(MultiWalk(5), graphs.complete(5), stop=Stop(iterations=50))
    simulation = Simulation(run)
    planner = Planner()
    planner.place(0, 0)
    steps = planner.plan({0: simulation.advance(1.0)})
    done = sum(len(step.outs) for step in steps if isinstance(step, TrainStep))
    assert simulation.trainings.begun > 50 >= done


def test_preferred_sizes_are_used():
    assert WavePolicy(sizes=(4, 8, 16)).width(remaining=100, longest_chain=20) == 8
    assert WavePolicy().width(remaining=100, longest_chain=30) == 4
    assert WavePolicy(widest=3).width(remaining=100, longest_chain=1) == 3


def test_restoring_a_run_continues_it_exactly():
    graph = graphs.erdos_renyi(6, p=0.5, seed=4)
    for protocol in ALL_PROTOCOLS:
        run = setup(protocol, graph, optimizer_state="node", state_bytes=20)
        trainer = QuadraticTrainer(6, momentum=0.5)
        unbroken = Engine(trainer, [run], [trainer.initial()])
        unbroken.advance(1.0)
        first = Engine(trainer, [run], [trainer.initial()])
        first.advance(0.5)
        saved = first.living(0)
        second = Engine(trainer, [run], [trainer.initial()])
        second.restore(0, 0.5, *saved)
        second.advance(1.0)
        assert np.array_equal(second.output(0).numpy(), unbroken.output(0).numpy())


def test_of_what_is_measured_only_models_at_their_target_are_kept():
    """A language model's row is half a gigabyte, and a stretch may measure many."""
    graph = graphs.cycle(4)
    first = Played(setup(MultiWalk(1), graph)).measurements
    losses = sorted(m.train_loss for m in first)
    assert not [m for m in first if m.model is not None]
    target = losses[len(losses) // 3]
    met = Played(setup(MultiWalk(1), graph, stop=Stop(iterations=60, target_loss=target))).measurements
    assert [m.model is not None for m in met] == [m.train_loss <= target for m in met]


def test_measurements_come_in_the_runs_own_order_whatever_is_ready_first():
    """With its aggregator dead a run's later models wait for less than an earlier one's."""
    faults = FaultPlan(tuple(Fault("kill", at=float(at), node="aggregator") for at in (30, 60)), Seed(3))
    graph, trainer = graphs.erdos_renyi(12, p=0.4, seed=1), QuadraticTrainer(12)
    often = {"stop": Stop(time=90.0), "evaluate": Evaluate(every=None, seconds=1.0), "faults": faults}
    setups = [setup(p, graph, seed=Seed(k), **often) for p in (MultiWalk(2), MultiWalk(6)) for k in range(4)]

    planner = Planner()
    for run in range(len(setups)):
        planner.place(run, 0)
    steps = planner.plan({run: Simulation(one).advance(1.0) for run, one in enumerate(setups)})
    ready: dict[int, list[float]] = {}
    for step in steps:
        if isinstance(step, EvaluateStep):
            ready.setdefault(step.run, []).append(step.op.time)
    assert any(times != sorted(times) for times in ready.values())  # or the rest would show nothing

    whole = Engine(trainer, setups, [trainer.initial()] * len(setups)).advance(1.0).measurements
    parted = Engine(trainer, setups, [trainer.initial()] * len(setups))
    parts = [m for share in (0.2, 0.55, 1.0) for m in parted.advance(share).measurements]
    for run in range(len(setups)):
        measured = [m for m in whole if m.run == run]
        assert [m.op.time for m in measured] == sorted(ready[run])
        assert [m.op.noted for m in measured] == sorted(m.op.noted for m in measured)
        cut = [(m.op, m.train_loss) for m in parts if m.run == run]
        assert [(m.op, m.train_loss) for m in measured] == cut
