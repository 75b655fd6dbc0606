"""One run in virtual time: protocol machines, an agenda, and a notebook in which the arithmetic is written down.

When things happen never depends on the values in a model, so no model is touched here. `advance` runs the events up
to a share of the run and hands out the schedule of that stretch; doing it again from the start gives the same, which
is how a stopped study is resumed without saving any of this.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import Any

from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import (
    Apply,
    Combine,
    Decode,
    Differentiate,
    Encode,
    Forget,
    Machine,
    MixEveryone,
    Note,
    Protocol,
    Record,
    Send,
    SetTimer,
    Started,
    Train,
)
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator.faults import Faults
from walktalk.runtimes.simulator.links import Transport
from walktalk.runtimes.simulator.node_faults import Running
from walktalk.runtimes.simulator.nodes import CarryOut, Nodes, Timers, Trainings
from walktalk.runtimes.simulator.recording import Recording
from walktalk.runtimes.simulator.schedule import (
    EVALUATION,
    INFINITY,
    INITIAL_VALUE,
    TRAINED,
    Agenda,
    Chunk,
    Terms,
    Training,
    no_garbage_collection,
)
from walktalk.runtimes.simulator.timing import RunSetup, Stopwatch

log = logging.getLogger(__name__)


class Simulation:
    """The state of one run; `advance` moves it on."""

    def __init__(self, setup: RunSetup) -> None:
        setup.protocol.check_graph(setup.graph)
        protocol = setup.protocol.resilient_form() if setup.faults.has_failures else setup.protocol
        stopwatch = Stopwatch(setup.timing, setup.graph, setup.seed)
        self.setup = setup
        self.agenda = Agenda()
        self.recording = Recording(setup, self.agenda, protocol.messages)
        self.interpreter = self.recording.interpreter
        self.transport = Transport(setup, self.agenda, self.recording)
        self.nodes = Nodes(setup, protocol, stopwatch, self.transport, self.recording)
        queue = self.transport.links is not None
        self.trainings = Trainings(setup, self.agenda, stopwatch, self.nodes, self.recording, queue)
        self.timers = Timers(self.agenda, self.nodes)
        self.events = 0
        self.finished = False
        self.advanced_to = 0.0  # the share of the run up to which `advance` has gone
        self._happens: tuple[Callable[[Any], None], ...] = (  # by kind of agenda entry
            self._training_ends,
            self.nodes.receive,
            self.timers.fire,
            self.transport.transfer_ends,
            self._evaluation_is_due,
            self.transport.round_trip_ends,
        )
        self.nodes.carries_out = self._handlers()
        self.faults = self._expect_faults()
        self._begin()

    def _handlers(self) -> dict[type, CarryOut]:
        """Who carries out which effect; where nothing is written down, those that say what a model is are let pass."""
        recording, interpreter = self.recording, self.interpreter
        when: dict[type, CarryOut] = {
            Train: self.trainings.ask,
            Differentiate: self.trainings.ask,
            Send: self.transport.send,
            SetTimer: self.timers.set,
            MixEveryone: recording.mix_everyone,
        }
        told: dict[type, CarryOut] = {
            Combine: interpreter.combine,
            Record: interpreter.record,
            Forget: interpreter.forget,
            Note: interpreter.note,
            Encode: recording.encode,
            Apply: recording.apply,
            Decode: interpreter.decode,
        }
        return {**when, **told} if recording.written else when

    def _expect_faults(self) -> Faults | None:
        """What will go wrong, and stands between the agenda and all others."""
        setup, carries_out = self.setup, self.nodes.carries_out
        if not setup.faults or setup.protocol.pools_data:
            return None
        running = Running(self.transport, self.trainings, self.timers, self.interpreter.output)
        faults = Faults(setup, self.agenda, self.recording, self.nodes, running, self._end)
        self._happens = faults.between(self._happens)
        carries_out[Record] = faults.watching(carries_out.get(Record))
        carries_out[Train] = carries_out[Differentiate] = faults.guarding(self.trainings.ask)
        return faults

    @property
    def iteration(self) -> int:
        """Trainings that are done."""
        return self.interpreter.iteration

    @property
    def bytes(self) -> int:
        """Bytes sent between nodes so far."""
        return self.interpreter.traffic.bytes

    @property
    def utilization(self) -> float:
        """The share of the nodes' time so far that they spent in training, those that are under way by as much as is
        done of them; above 1 where nodes train several models at once.
        """
        trained = self.trainings.seconds - self.agenda.still_to_go(TRAINED)
        return trained / (self.setup.graph.nodes * self.agenda.now) if self.agenda.now > 0 else 0.0

    @property
    def machines(self) -> list[Machine]:
        """The machines of all nodes."""
        return self.nodes.machines

    def output(self) -> Terms:
        """The model that is measured and handed out."""
        return self.recording.output()

    # -- the loop -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        changes = self.nodes.changes
        for node in range(self.setup.graph.nodes):
            self.interpreter.add_node(node, ((INITIAL_VALUE, 1.0),))
            if changes is None or node not in changes.absent:
                self.nodes.give(node, Started())
        self._evaluate()
        if self.setup.evaluate.seconds is not None:
            self.agenda.put_at(self.setup.evaluate.seconds, EVALUATION, None)
        if self.faults is not None:
            self.faults.begin()

    def advance(self, progress: float = 1.0) -> Chunk:
        """Run until this share of the run is done (or the run is), and hand out what was written down."""
        stop = self.setup.stop
        self.advanced_to = max(self.advanced_to, progress)
        iterations = math.ceil(stop.iterations * progress) if stop.iterations is not None else math.inf
        time = stop.time * progress if stop.time is not None else math.inf
        most_bytes = stop.bits * progress / 8 if stop.bits is not None else math.inf
        with no_garbage_collection():
            self._run_events(iterations, time, most_bytes)
        self._finish_if_done()
        return self.recording.hand_out(self.finished)

    def _finish_if_done(self) -> None:
        stop, next_time = self.setup.stop, self.agenda.next_time()
        out_of_time = stop.time is not None and next_time > stop.time
        done = stop.progress(self.iteration, 0.0, self.bytes * 8) >= 1.0 or out_of_time or next_time == INFINITY
        if done and not self.finished:
            if out_of_time and stop.time is not None:
                self.agenda.now = self.nodes.context.now = stop.time
            self._end()
            self.advanced_to = 1.0  # however the run was cut

    def _run_events(self, iterations: float, time: float, most_bytes: float) -> None:
        """The loop itself, until a limit is reached or nothing is left to happen."""
        take, happens, context = self.agenda.take, self._happens, self.nodes.context
        done, traffic = self.interpreter, self.interpreter.traffic
        while not self.finished and done.iteration < iterations and traffic.bytes < most_bytes:
            entry = take(time)
            if entry is None:
                return
            self.events += 1
            context.now = entry[0]
            happens[entry[2]](entry[3])

    def _training_ends(self, training: Training) -> None:
        self.trainings.end(training)
        interpreter, every = self.interpreter, self.setup.evaluate.every
        if interpreter.releases.privacy is not None and interpreter.releases.spent(training.node):
            self._look_for_a_budget()
        if every is not None and interpreter.iteration % every == 0:
            self._evaluate()

    def _evaluate(self) -> None:
        self.recording.evaluate(self.events)

    def _evaluation_is_due(self, nothing: None) -> None:
        self._evaluate()
        if self.setup.evaluate.seconds is not None:
            self.agenda.put(self.setup.evaluate.seconds, EVALUATION, None)

    def _look_for_a_budget(self) -> None:
        """Where every node that is there has spent its privacy budget, nothing is learned any more: the run ends."""
        dead: Container[int] = self.faults.dead if self.faults is not None else ()
        interpreter, releases = self.interpreter, self.interpreter.releases
        if all(node in dead or releases.spent(node) for node in range(self.setup.graph.nodes)):
            interpreter.note_down(-1, "budget_spent", number=releases.most)
            log.warning(
                "%s: every node has spent its privacy budget by iteration %d (%d updates each, ε = %.3g); the run ends "
                "there",
                self.setup.protocol.label, interpreter.iteration, releases.most, releases.epsilon or 0.0,
            )  # fmt: skip
            self._end()

    def _end(self) -> None:
        """The end of the run: nothing will be trained any more."""
        self._evaluate()
        self.finished = True


# -- What one iteration of an algorithm costs, from a run without any arithmetic --------------------------------------

ROUNDS, LEAST = 40, 800  # trainings of each active model, and of all, from which the cost of an iteration is read


@dataclass(frozen=True)
class Rates:
    """What one iteration of an algorithm costs, on average."""

    seconds: float
    bits: float

    def of(self, objective: str) -> float:
        """In the objective's own unit."""
        return {"iterations": 1.0, "time": self.seconds, "bits": self.bits}[objective]


def planned_run(protocol: Protocol, graph: Graph, model_bytes: int) -> RunSetup:
    """A run with the usual timing, for those who only want to know what it costs."""
    return RunSetup(
        protocol, graph, Seed(0).child("rates", protocol.label), Stop(iterations=1), model_bytes=model_bytes
    )


def measured_rates(setup: RunSetup) -> Rates:
    """Seconds and bits of an iteration."""
    active = setup.protocol.active_models(setup.graph.nodes)
    planning = replace(setup, stop=Stop(iterations=max(LEAST, ROUNDS * active)), keep_trace=False, keep_schedule=False)
    simulation = Simulation(planning)
    simulation.advance()
    done = max(simulation.iteration, 1)
    return Rates(simulation.agenda.now / done, simulation.bytes * 8.0 / done)
