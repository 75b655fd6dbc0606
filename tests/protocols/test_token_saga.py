"""Token SAGA: ḡ is the mean of all that nodes noted, whatever happens; and it ends at the optimum of unlike nodes."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.test_family_rounds import Unlike
from tests.support.mechanisms import slow_unless
from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import MultiWalk, Protocol, TokenSaga, Trained, Walkman
from walktalk.protocols.mechanisms.tokens.protocol import WalkNode, Walks
from walktalk.protocols.mechanisms.tokens.resilient import ResilientNode
from walktalk.protocols.mechanisms.tokens.rule import Lineages, Name, name_in
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import (
    Fault,
    FaultPlan,
    NetworkTiming,
    PoissonTiming,
    RunSetup,
    Timing,
    all_network_views,
)
from walktalk.runtimes.stacked import Engine
from walktalk.testing import check_protocol

GRAPH = graphs.erdos_renyi(6, p=0.5, seed=2)
FORMS = [TokenSaga(), TokenSaga(estimate="sag"), TokenSaga(local=True), TokenSaga(walks=2)]
forms = pytest.mark.parametrize("protocol", FORMS, ids=lambda p: p.label)


class Run:
    """One in virtual time, at whose slots one can look."""

    def __init__(
        self,
        protocol: Protocol,
        graph: Graph,
        stop: Stop,
        faults: tuple[Fault, ...] = (),
        lr: float = 0.1,
        steps: int = 1,
        timing: Timing | None = None,
        seed: int = 1,
    ) -> None:
        self.trainer = Unlike(graph.nodes, steps)
        plan = FaultPlan(faults, Seed(seed))
        timing = timing or PoissonTiming()
        setup = RunSetup(
            protocol, graph, Seed(seed), stop, timing, Evaluate(every=10**6), lr=lr, model_bytes=12, faults=plan
        )
        self.engine = Engine(self.trainer, [setup], [self.trainer.initial()])
        self.simulation = self.engine.simulations[0]

    def advance(self, share: float) -> Run:
        self.engine.advance(share)
        return self

    def slot(self, node: int, slot: str) -> np.ndarray:
        return self.value(self.simulation.interpreter.slots[node][slot])

    def value(self, terms: tuple[tuple[int, float], ...]) -> np.ndarray:
        rows = [(self.engine.planner.rows[0, value], weight) for value, weight in terms]
        return np.asarray(self.engine.executor.blend(rows).double().numpy())

    def output(self) -> np.ndarray:
        return np.asarray(self.engine.output(0).double().numpy())

    @property
    def distance(self) -> float:
        return float(np.abs(self.output() - self.trainer.optimum()).max())


def walks_here(run: Run) -> list[tuple[int, int, bytes, str]]:
    """Node, walk, what it carries, and the slot of its ḡ."""
    dead = run.simulation.faults.dead if run.simulation.faults else {}
    found: list[tuple[int, int, bytes, str]] = []
    for node, machine in enumerate(run.simulation.machines):
        if isinstance(machine, WalkNode):
            found += [(node, walk, token.state, f"mean/{walk}") for walk, token in machine.carried.items()]
        elif isinstance(machine, ResilientNode) and node not in dead:
            found += [(node, walk, token.carried.state, f"mean/{walk}") for walk, token in machine.copies.here.items()]
            leaving = machine.hops.leaving.items()
            found += [(node, walk, hop.token.carried.state, f"hop/mean/{walk}") for walk, hop in leaving]
    return found


def assert_law(run: Run) -> int:
    """ḡ of every walk is the mean over all nodes of what they noted under its lineage; how many were looked at."""
    looked = 0
    lineages = [machine.rule.lineages for machine in run.simulation.machines]  # type: ignore[attr-defined]
    for node, walk, more, slot in walks_here(run):
        name, total = name_in(more), np.zeros(3)
        if name is None or any(one.unsure and walk not in one.noted for one in lineages):
            continue  # it begins anew at its next visit, or when it comes to a node that has forgotten it
        for other, one in enumerate(lineages):
            if one.has(walk, name):
                total += run.slot(other, f"noted/{walk}")
        assert np.allclose(run.slot(node, slot), total / len(run.simulation.machines), atol=1e-4)
        looked += 1
    return looked


@forms
@pytest.mark.parametrize(
    "timing", [PoissonTiming(), NetworkTiming(compute=1.0, spread=0.5, latency=0.3, bandwidth=100)]
)
def test_the_mean_that_travels_is_that_of_all_noted_gradients(protocol: TokenSaga, timing: Timing) -> None:
    run = Run(protocol, GRAPH, Stop(iterations=200), timing=timing, steps=3)
    looked = sum(assert_law(run.advance(k / 40)) for k in range(1, 40))  # not while it is on its way
    assert looked >= 5


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["kill", "pause", "partition", "lose"]), st.integers(0, 5))
def test_it_is_so_again_some_time_after_failures(seed: int, kind: str, node: int) -> None:
    """A node that comes back has forgotten, a walk that was sent twice has two pasts, a lost one none."""
    more = {"partition": {"nodes": (node,)}, "lose": {"share": 0.3}}.get(kind, {"node": node})
    faults = tuple(Fault(kind, at=at, seconds=9.0, **more) for at in (5.0, 15.0, 27.0))  # type: ignore[arg-type]
    run = Run(TokenSaga(walks=2, heartbeat=2.0), GRAPH, Stop(time=160.0), faults, seed=seed)
    looked = sum(assert_law(run.advance(share)) for share in (0.92, 0.94, 0.96, 0.98))
    assert looked >= 4


@pytest.mark.parametrize("protocol", FORMS[:3], ids=lambda p: p.label)
def test_it_reaches_the_optimum_and_a_plain_walk_does_not(protocol: TokenSaga) -> None:
    steps, lr = (3, 0.05) if protocol.local else (1, 0.15 if protocol.estimate == "saga" else 0.05)
    end = Run(protocol, GRAPH, Stop(iterations=1500), lr=lr, steps=steps).advance(1.0)
    assert end.distance < 1e-4
    plain = Run(MultiWalk(1), GRAPH, Stop(iterations=1000), lr=lr, steps=steps).advance(1.0)
    assert plain.distance > 1e-2


def test_so_do_several_walks_and_one_after_a_failure() -> None:
    assert Run(TokenSaga(walks=2), GRAPH, Stop(iterations=3000), lr=0.15).advance(1.0).distance < 1e-4
    assert Run(MultiWalk(2), GRAPH, Stop(iterations=1000), lr=0.15).advance(1.0).distance > 1e-2
    faults = (Fault("kill", at=50.0, node="random", seconds=20.0), Fault("kill", at=150.0, node=0, seconds=50.0))
    failed = TokenSaga(heartbeat=5.0)
    assert Run(failed, GRAPH, Stop(time=1500.0), faults, lr=0.15).advance(1.0).distance < 1e-4


@pytest.mark.parametrize(
    ("protocol", "lr", "steps"), [(TokenSaga(heartbeat=5.0), 0.15, 1), (Walkman(heartbeat=5.0), 0.1, 5)]
)
def test_after_nodes_have_joined_and_left_it_ends_at_the_optimum_of_those_that_are_there(
    protocol: Protocol, lr: float, steps: int
) -> None:
    changes = (Fault("join", at=60.0, node=5), Fault("leave", at=200.0, node=2))
    run = Run(protocol, GRAPH, Stop(time=2500.0), changes, lr=lr, steps=steps).advance(1.0)
    there = [0, 1, 3, 4, 5]
    curvatures, centres = run.trainer.curvatures[there], run.trainer.centres[there]
    optimum = (curvatures * centres).sum(0) / curvatures.sum(0)
    assert np.abs(run.output() - optimum).max() < 1e-4
    assert np.abs(optimum - run.trainer.optimum()).max() > 1e-2


def test_it_follows_its_rule() -> None:
    """On two nodes, where the way of the walk is in the trace."""
    graph, lr = graphs.complete(2), 0.1
    run = Run(TokenSaga(), graph, Stop(iterations=40), lr=lr)
    trace = run.engine.advance(1.0).traces[0]
    way = [row.node for row in trace if row.event == "trained"]
    z, noted, mean = run.trainer.initial().double().numpy(), np.zeros((2, 3)), np.zeros(3)
    for v in way:
        gradient = run.trainer.curvatures[v] * (z - run.trainer.centres[v])
        z = z - lr * (gradient - noted[v] + mean)
        mean = mean + (gradient - noted[v]) / 2
        noted[v] = gradient
    assert set(way) == {0, 1}
    assert np.allclose(run.value(run.simulation.interpreter.output.members[1]), z, atol=1e-4)


def test_two_models_a_hop() -> None:
    traces = [Run(p, GRAPH, Stop(iterations=50)).engine.advance(1.0).traces[0] for p in (TokenSaga(), MultiWalk(1))]
    sent = [[row for row in trace if row.event == "send"] for trace in traces]
    hops = [[row for row in rows if row.walk == 1] for rows in sent]
    assert len(sent[0]) == 2 * len(hops[0])
    assert len(sent[1]) == len(hops[1])
    assert {row.bytes for row in hops[0]} == {64 + 12 + 9}  # a header, a model, the name of a lineage


def test_one_local_step_is_the_rule_of_the_paper() -> None:
    ends = [Run(TokenSaga(local=local), GRAPH, Stop(iterations=100)).advance(1.0).output() for local in (False, True)]
    assert np.allclose(*ends, atol=1e-4)


def test_sag_has_no_local_steps() -> None:
    with pytest.raises(SpecError, match="local: true needs estimate: saga"):
        TokenSaga(estimate="sag", local=True)


@pytest.mark.parametrize(
    "protocol", [pytest.param(one, marks=slow_unless(one is FORMS[1])) for one in FORMS[1:]], ids=lambda p: p.label
)
def test_its_other_forms_pass_in_virtual_time(protocol: TokenSaga) -> None:
    check_protocol(protocol, engines=("sim",), seconds=3.0)


def test_lineages_of_one_walk() -> None:
    dice: Callable[[], random.Random] = lambda: random.Random(1)  # noqa: E731
    here = Lineages()
    first, begins = here.meets(1, None, dice())
    assert begins
    here.notes(1, first)
    assert here.meets(1, first, dice()) == (first, False)
    later = Name(first.number + 5, 0)
    assert here.meets(1, later, dice()) == (later, False)  # what was noted before counts for nothing
    assert not here.has(1, later)
    here.notes(1, later)
    again, begins = here.meets(1, first, dice())  # a copy that was left behind
    assert begins
    assert again > later
    here.rejoined()
    anew, begins = here.meets(1, later, dice())
    assert begins
    assert anew > later
    here.notes(1, anew)
    assert here.meets(1, anew, dice()) == (anew, False)
    assert name_in(anew.encode()) == anew
    with pytest.raises(ValueError, match="longer"):
        name_in(b"abc")


@pytest.mark.parametrize("protocol", [TokenSaga(), Walkman()], ids=lambda p: p.label)
def test_a_copy_that_is_trained_in_vain_overwrites_notes_that_no_walk_counts_on(protocol: Walks) -> None:
    """An older copy began anew and was retired in its training; the walk then counted the node a second time."""
    dice, rule = random.Random(1), protocol.rule(all_network_views(GRAPH)[0])

    def visited(state: bytes) -> bytes:
        return rule.learn(Trained("walk/1", 1, 0.1), rule.work(1, state, dice)[1])[1]

    older = visited(rule.first_state)
    rule.rejoined()  # what it noted is unsure
    walk = visited(older)
    assert name_in(visited(walk)) == name_in(walk)  # nothing happens: the lineage goes on
    rule.work(1, older, dice)  # its notes are set to nothing for this one, whose result is dropped
    again = name_in(rule.work(1, walk, dice)[1])
    assert again is not None
    assert again > name_in(walk)  # it counts anew over all nodes


def test_with_local_steps_a_momentum_is_refused() -> None:
    with pytest.raises(SpecError, match="set momentum to 0"):
        TokenSaga(local=True).check_momentum(0.9)
    TokenSaga().check_momentum(0.9)
