"""What a node trains and measures: from what its machine asks for to what its machine is told.

Trainings are done in a thread of their own, one after the other, so that the node's loop goes on answering messages.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from walktalk.core.errors import ProtocolError
from walktalk.learning import Extras, TrainingRows, told_of_steps
from walktalk.protocols import Event, Train, Trained
from walktalk.runtimes.peers.node.event_log import BestCopy
from walktalk.runtimes.peers.node.models import Models
from walktalk.runtimes.peers.node.outside import ACCURACIES, LOSSES, OutsideTrainer, one_of
from walktalk.runtimes.peers.node.progress import ALL_LOST, OTHERS, Progress
from walktalk.runtimes.peers.node.reports import Reports
from walktalk.runtimes.peers.node.state import NodeSetup, NodeState, TrainingRequest
from walktalk.runtimes.peers.wire.link import Link
from walktalk.runtimes.semantics import StepFactors, UsualTraining, Work
from walktalk.runtimes.stacked import RowTrainer, measured_by

MEASURE_EVERY = 1.0  # seconds between two measurements of the loss, which `walktalk status` shows
MEASURING = 0.05  # of the time may go into them
HAND_ON_WITHIN = 1.0  # seconds: a walk that stays put for so long has nowhere to go
METRIC = "metric:"  # before a name, in the trace of what was measured
HAND_ON = "hand on"  # timer: walks have waited long enough for a training that hangs

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The result of a training that is over."""

    work: Work
    result: Tensor | None  # the trained model, or the gradient; None: it failed, or nothing came of it
    state: Tensor | None
    error: BaseException | None = None
    measured: Mapping[str, float] | None = None  # of the model before, on this node's data; now and then
    seconds: float = 0.0  # that it took
    samples: int | None = None  # that it says it was trained on
    diverged: bool = False  # nothing came of it, because its numbers were not finite


def without_usual(metrics: Mapping[str, float]) -> dict[str, float]:
    """What was measured beside loss and accuracy."""
    return {name: value for name, value in metrics.items() if name not in (*LOSSES, *ACCURACIES)}


def by_usual_names(metrics: Mapping[str, float]) -> dict[str, float]:
    """What somebody else's loop has measured, with loss and accuracy called as they are here."""
    usual = {"train_loss": one_of(metrics, LOSSES), "test_accuracy": one_of(metrics, ACCURACIES)}
    return {**usual, **without_usual(metrics)} if metrics else {}


class TrainingThread:
    """Trains one model at a time on one node's data."""

    def __init__(
        self,
        trainer: RowTrainer,
        part: int,
        report: Callable[[Outcome], None],
        measured: Callable[[Mapping[str, float]], None],
        least: float = 0.0,
    ) -> None:
        self._trainer, self._part, self._report, self._measured = trainer, part, report, measured
        self._least = least  # seconds that a training takes at least
        self._measure_at = 0.0
        self._state: Tensor | None = None  # the node's, as the last training knew it
        self.reported: dict[str, float] = {}  # that somebody else's loop has said when it gave models back
        self.metrics: Mapping[str, float] = {}  # that somebody else's loop has measured of a model last
        self._closing = False
        self.progressed_at = 0.0  # when the training under way began, or reported progress
        self._jobs: queue.SimpleQueue[Work | Tensor | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)
        self._thread.start()

    def begin(self, work: Work) -> None:
        """Start a training; the report comes from the thread."""
        self.progress()
        self._jobs.put(work)

    def progress(self) -> None:
        """A training goes on: whoever says so now and then is waited for, however long it takes. From any thread."""
        self.progressed_at = time.monotonic()

    @property
    def died(self) -> bool:
        """Whether nothing will ever be trained again: the thread is gone, and nobody has asked it to go."""
        return not self._closing and not self._thread.is_alive()

    def measure(self, model: Tensor) -> None:
        """Measure a model, and report its loss, and what else is measured."""
        self._jobs.put(model)

    def close(self, seconds: float) -> None:
        """Let the training under way end, if it does so in time."""
        self._closing = True
        self._jobs.put(None)
        self._thread.join(seconds)

    @property
    def busy(self) -> bool:
        """Whether a training is under way still, after `close`."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._jobs.get()) is not None:
            began = time.monotonic()
            if isinstance(work, Tensor):
                self._measured(self._measured_safely(work))
                continue
            try:
                with told_of_steps(self.progress):
                    outcome = self._train(work)
            except BaseException as error:  # anything at all in a model or loss: the node reports it and ends
                outcome = Outcome(work, None, None, error)
            outcome = replace(outcome, seconds=time.monotonic() - began)
            time.sleep(max(0.0, began + self._least - time.monotonic()))
            self._report(outcome)

    def _train(self, work: Work) -> Outcome:
        if isinstance(self._trainer, OutsideTrainer):
            return self._trained_outside(self._trainer, work)
        device = self._trainer.device
        self._state = work.state
        measured = self._measure(work.start[None].to(device))
        given = TrainingRows(
            work.start[None].to(device),
            torch.tensor([self._part], device=device),
            torch.tensor([work.key], device=device),
            torch.tensor([work.lr * work.rate], device=device),
            work.state[None].to(device) if work.state is not None else None,
            self._extras(work),
        )
        rows, state = self._trainer.train(given)
        self._state = None if state is None else state[0].cpu()
        return Outcome(work, rows[0].cpu(), state[0].cpu() if state is not None else None, None, measured)

    def _trained_outside(self, trainer: OutsideTrainer, work: Work) -> Outcome:
        """Have somebody else's loop train; what it reports counts where it has not measured the model as it came."""
        self._state = work.state
        self._measure(work.start[None])
        answer = trainer.visit(work)
        self._state = answer.state if answer.state is not None else self._state
        self.reported |= answer.metrics
        metrics = {**self.reported, **self.metrics}  # of each the last that is known
        return Outcome(
            work,
            answer.row,
            answer.state,
            None,
            by_usual_names(metrics) or None,
            samples=answer.samples,
            diverged=answer.diverged,
        )

    def _extras(self, work: Work) -> Extras | None:
        """What is out of the ordinary in it; None where nothing is."""
        if work.is_plain and work.steps == self._trainer.local_steps:
            return None
        device = self._trainer.device
        correction, anchor = (None if t is None else t[None].to(device) for t in (work.correction, work.anchor))
        pulls = None if anchor is None else torch.tensor([work.pull], device=device)
        return Extras(work.steps, work.gradient, correction, anchor, pulls)

    def _measure(self, rows: Tensor) -> Mapping[str, float] | None:
        """How good a model is as it came, on this node's data: after it trained on them, it would look too good."""
        began = time.monotonic()
        if began < self._measure_at:
            return None
        measured = self._measured_now(rows)
        took = time.monotonic() - began
        self._measure_at = began + max(MEASURE_EVERY, took / MEASURING)
        return measured

    def _measured_safely(self, model: Tensor) -> Mapping[str, float]:
        """How good it is in the end; nothing, where measuring fails: what was learned counts all the same."""
        try:
            return self._measured_now(model[None].to(self._trainer.device))
        except BaseException:
            log.exception("the last model cannot be measured")
            return {}

    def _measured_now(self, rows: Tensor) -> Mapping[str, float]:
        if isinstance(self._trainer, OutsideTrainer):
            self.metrics = self._trainer.measure(rows[0], self._state)
            return by_usual_names(self.metrics)
        has_private = getattr(self._trainer, "private", None) is not None
        states = self._state[None] if has_private and self._state is not None else None
        return {name: values[0] for name, values in measured_by(self._trainer, rows, states).items()}


class TrainingQueue:
    """What a node has to train, one model at a time, first come first served; and the training under way."""

    def __init__(
        self,
        setup: NodeSetup,
        trainer: RowTrainer,
        report: Callable[[Outcome], None],
        measured: Callable[[Mapping[str, float]], None],
    ) -> None:
        """
        - `setup`, `trainer`: the node's.
        - `report`: called from a thread with every training that is over.
        - `measured`: called from a thread with how good a model is that was to be measured.
        """
        self.count = 0  # trainings that were begun
        self._waiting: deque[TrainingRequest] = deque()
        self.current: Work | None = None
        part = setup.around.node if setup.part is None else setup.part
        self._thread = TrainingThread(trainer, part, report, measured, setup.pace)
        self._outside = trainer if isinstance(trainer, OutsideTrainer) else None
        self.measuring = False  # a model that is not trained any more
        self.usual = UsualTraining()
        self.hung: Work | None = None  # a training that hangs, whether or not its model was handed on
        if self._outside is not None:
            self._outside.node.progress = self._thread.progress
            self._outside.node.limit = lambda: self.usual.limit

    def __len__(self) -> int:
        return len(self._waiting) + (self.current is not None)

    @property
    def walks(self) -> list[int]:
        """Walks that are here; callable from any thread."""
        current, waiting = self.current, tuple(self._waiting)
        here = [current.walk] if current is not None else []
        return sorted(walk for walk in (*here, *(request.walk for request in waiting)) if walk > 0)

    @property
    def under_way(self) -> str | None:
        """What is trained right now, in words; None: nothing. Callable from any thread."""
        work = self.current or self.hung
        if work is None:
            return None
        return f"walk {work.walk}" if work.walk > 0 else "its own model"

    def add(self, request: TrainingRequest) -> None:
        """Add a training to the queue."""
        self._waiting.append(request)

    def next(self) -> TrainingRequest | None:
        """The one whose turn it is, off the queue; None while one is under way, or hangs."""
        free = self.current is None and self.hung is None and not self.missing
        return self._waiting.popleft() if self._waiting and free else None

    @property
    def missing(self) -> str:
        """Why nobody trains here now, where that is somebody else's loop; "": all is well."""
        return "" if self._outside is None else self._outside.missing

    @property
    def is_outside(self) -> bool:
        """Whether somebody else's loop trains here."""
        return self._outside is not None

    @property
    def metrics(self) -> dict[str, float]:
        """What that loop has measured of the last model, beside loss and accuracy."""
        return without_usual({**self._thread.reported, **self._thread.metrics})

    def tell_over(self, why: str) -> None:
        """Tell that loop that there is nothing more to train."""
        if self._outside is not None:
            self._outside.tell_over(why)

    @property
    def is_planned(self) -> bool:
        """Whether that nobody trains here is what a person wants."""
        return self._outside is not None and self._outside.planned

    def _release(self, work: Work | None) -> bool:
        """Wait no more for a training that somebody else does; False where it is done already."""
        return self._outside is None or work is None or self._outside.release(work)

    @property
    def why_hung(self) -> str:
        """Why nothing is trained, though it should be; "" where all is well."""
        if self._thread.died:
            return "its training thread has died; start the node again"
        if self.missing:
            return self.missing
        if self.current is None and self.hung is None:
            return ""
        lasts = time.monotonic() - self._thread.progressed_at
        if lasts <= self.usual.limit:
            return ""
        usual = "nothing is known of what is usual" if self.usual.mean is None else f"{self.usual.mean:.3g} s is usual"
        return f"its training has hung for {lasts:.0f} s, and {usual}; look at its GPU, its disks and its data"

    @property
    def seconds(self) -> float | None:
        """Since the training under way began, or reported progress; None where there is none."""
        busy = self.current is not None or self.hung is not None
        return time.monotonic() - self._thread.progressed_at if busy else None

    def report_progress(self) -> None:
        """The training under way goes on: who reports that is waited for, however long it takes. From any thread."""
        self._thread.progress()

    def hang(self) -> None:
        """The training under way hangs: until it ends after all, no other begins."""
        self.hung = self.hung or self.current

    def take_walks(self) -> list[TrainingRequest]:
        """The walks that are here or wait, where the training under way hangs; what it makes of one counts no more."""
        walks: list[TrainingRequest] = [request for request in self._waiting if request.walk > 0]
        self._waiting = deque(request for request in self._waiting if request.walk <= 0)
        if self.current is not None and self.current.walk > 0 and self._release(self.current):
            walks.insert(0, Train(self.current.slot, self.current.walk))
            self.current = None
        return walks

    def begin(self, work: Work) -> None:
        """Start a training; the report comes from a thread."""
        self.current = work
        self.count += 1
        self._thread.begin(work)

    def measure(self, model: Tensor) -> None:
        """Measure a model; the report comes from a thread."""
        self.measuring = True
        self._thread.measure(model)

    def end(self, outcome: Outcome) -> bool:
        """A training is over; False where the model was handed on before that."""
        if outcome.result is not None or self._outside is None:
            self.usual.observe(min(outcome.seconds, self.usual.limit))  # one that hung says nothing of what is usual
        if self.hung is outcome.work:
            self.hung = None
        if self.current is not outcome.work:
            return False
        self.current = None
        return True

    def give_up(self) -> list[TrainingRequest]:
        """Forget everything that is here or waits, and return it."""
        current, self.current = self.current, None
        self._release(current)
        given: list[TrainingRequest] = [Train(current.slot, current.walk)] if current is not None else []
        given += self._waiting
        self._waiting.clear()
        return given

    def close(self) -> None:
        """Let the training under way end, if it does so at once."""
        self._thread.close(0.1)

    @property
    def busy(self) -> bool:
        """Whether a training goes on though nobody waits for it any more."""
        return self._thread.busy


class TrainingControl:
    """Begins trainings, counts what comes of them, and sees when the run is over."""

    def __init__(
        self,
        setup: NodeSetup,
        queue: TrainingQueue,
        models: Models,
        state: NodeState,
        progress: Progress,
        link: Link,
        reports: Reports,
        give: Callable[[Event], None],
    ) -> None:
        """
        - `setup`: learning rate and schedule, and what is known of the node's data.
        - `queue`, `models`, `state`, `progress`, `link`, `reports`: the node's.
        - `give`: gives an event to the machine.
        """
        self.queue = queue
        self._setup, self._models, self._state, self._progress = setup, models, state, progress
        self._link, self._reports, self._give = link, reports, give
        changes = setup.objective.changes_steps
        self._steps = StepFactors(setup.objective, setup.protocol.weighs_nodes) if changes else None
        self._told: int | None = None  # samples that a script has named, and that was said

    def ask(self, request: TrainingRequest) -> None:
        """Queue what the machine wants trained, and begin it if nothing is under way."""
        self.queue.add(request)
        if self._state.hangs:
            self._state.clock.set_timer(HAND_ON, self.queue.usual.stay)
        else:
            self.train_next()

    # -- trainings that hang ------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """See whether the training under way makes progress; to be asked several times a second."""
        state, why = self._state, "" if self._progress.end.seen else self.queue.why_hung
        if why and not state.hangs:
            level = logging.INFO if self.queue.is_planned else logging.ERROR
            log.log(level, "%s: %s; walks go on without it", self._link.endpoint.name, why)
            self._reports.trace("hangs")
            self.queue.hang()
            state.clock.set_timer(HAND_ON, 0.0)
        elif state.hangs and not why:
            self._reports.news.say("trains again")
            self._reports.trace("trains_again")
        if not why and self.queue.is_outside and self.queue.current is None and len(self.queue):
            state.clock.set_timer(HAND_ON, 0.0)  # what has waited for a script is begun
        state.hangs = why

    def hand_hung_walks_on(self) -> None:
        """Walks that wait for a training that hangs go on as they came; where nobody is there, they wait for it."""
        if not self._state.hangs:
            self.train_next()
        elif not self._state.alive:
            self._state.clock.set_timer(HAND_ON, 1.0)
        else:
            for request in self.queue.take_walks():
                self._hand_on(request)

    def _hand_on(self, request: TrainingRequest) -> None:
        models = self._models
        if request.slot in models.slots:
            models.interpreter.hand_on(models.me, request.slot, request.walk)
            self._give(Trained(request.slot, request.walk, self._setup.lr, 0))
            models.interpreter.forget_result(models.me)

    def train_next(self) -> None:
        """Begin the training whose turn it is, if there is one and none is under way."""
        models, end = self._models, self._progress.end
        request = None if self._state.leaving or end.seen else self.queue.next()
        if request is None:
            return
        lr = self._setup.lr * self._setup.schedule(end.progress(self._state.clock.run_time))
        key, interpreter = models.draw_key(), models.interpreter
        try:
            work = interpreter.begin_training(models.me, request, self.queue.count, key, lr, self._step_factor())
        except ProtocolError as error:
            self._link.drop("nonsense", f"a training of {request.slot!r}: {error}")
            return
        if interpreter.keeps_states and work.state is None:
            work = work._replace(state=torch.zeros(models.state_width))
        self.queue.begin(work)

    def _step_factor(self) -> float:
        """Times which this node's gradients count now, by what it has heard of all nodes; 1 until it has."""
        if self._steps is None:
            return 1.0
        known, me = self._progress.tally.counts, self._models.me
        counts = {node: count.samples for node, count in known.items() if count.samples} | {me: self._setup.samples}
        self._steps.look(counts, {node: known[node].iterations for node in counts if node in known})
        return self._steps.factors[me]

    def trained(self, outcome: Outcome) -> None:
        """Handle the result of a training, as the training thread reports it."""
        work, state, models = outcome.work, self._state, self._models
        interpreter = models.interpreter
        counts = self.queue.end(outcome)
        self.watch()
        if outcome.error is not None:
            state.failure = outcome.error
            return
        if not counts:
            self.train_next()
            return
        if outcome.result is None and not outcome.diverged:
            self._pass_on(work)
            return
        if outcome.result is None or (not models.plausibility.accept_own(outcome.result) and not work.gradient):
            self._leave_out(work)
            return
        if outcome.measured is not None:
            state.loss = outcome.measured.get("train_loss")
            state.metrics = without_usual(outcome.measured) if self.queue.is_outside else {}
            self._trace_measured(outcome.measured, work.walk, self._samples(outcome))
        self._progress.tally.add(iterations=1)
        if interpreter.keeps_states and outcome.state is not None:
            interpreter.states[interpreter.state_owner(models.me, work.slot)] = outcome.state
        interpreter.end_training(work, outcome.result)
        state.busy_at = state.clock.elapsed
        self._after_training(work)

    def _leave_out(self, work: Work) -> None:
        """A training that led to no finite model is as if it had not been."""
        if not self._state.diverged:
            log.warning(
                "%s: a training led to numbers that are not finite, and is left out; is optimizer.lr too large?",
                self._link.endpoint.name,
            )
        self._state.diverged += 1
        self._pass_on(work)

    def _pass_on(self, work: Work) -> None:
        """Go on as if a training had brought nothing."""
        self._models.interpreter.hand_on(self._models.me, work.slot, work.walk)
        self._after_training(work._replace(steps=0))

    @property
    def _owned(self) -> int:
        """How many samples this node says that it has; 0 where nobody need know."""
        return self._setup.samples if self._setup.owned is None else self._setup.owned

    def _samples(self, outcome: Outcome) -> int:
        """How many samples a training was of; whoever counts otherwise than the study is told once."""
        own = self._owned
        if own and outcome.samples not in (None, own, self._told):
            self._told = outcome.samples
            log.warning(
                "%s: its script trained on %s samples, and the study counts it as %d; task.samples is what counts",
                self._link.endpoint.name,
                outcome.samples,
                own,
            )
        return (outcome.samples or own) if own else 0

    def _after_training(self, work: Work) -> None:
        self._give(Trained(work.slot, work.walk, work.lr, work.steps))
        self._models.interpreter.forget_result(self._models.me)
        self.look_for_end()
        self.train_next()

    def look_for_end(self) -> None:
        """Where the run is over: measure for the last time, and tell the neighbours."""
        end, models, state = self._progress.end, self._models, self._state
        spent = models.budget_spent
        why = "" if end.seen else end.look(state.clock.run_time, state.alive, spent)
        if not why:
            return
        if why in (ALL_LOST, OTHERS) and spent and models.budget is not None:
            why = f"every node has spent its privacy budget, this one ε = {models.budget.epsilon:.3g}"
            self._reports.trace("budget_spent")
        elif why == ALL_LOST:
            self._reports.trace("all_lost")
        self._reports.trace("over")
        self._reports.news.say(f"the run is over: {why}")
        self._measure_last()
        self._progress.tally.end(over=True)
        self._progress.announce_to_all()

    def _measure_last(self) -> None:
        """Measure what this node has in the end, on its own data: the last that is known of the run's loss."""
        copy = self._models.newest_copy() if self._setup.named is not None else None
        if copy is not None:
            self.queue.measure(copy.model)
        else:
            self.queue.tell_over("the run is over")

    def measured_last(self, measured: Mapping[str, float]) -> None:
        """The last measurement is done."""
        measured = {**by_usual_names(self.queue.metrics), **measured} if self.queue.is_outside else measured
        if not self.queue.is_outside or not math.isnan(one_of(measured, LOSSES)):  # else nobody has measured this one
            self._trace_measured(measured)
        self.queue.measuring = False
        self.queue.tell_over("the run is over")

    def _trace_measured(self, measured: Mapping[str, float], walk: int = 0, samples: int | None = None) -> None:
        """Write it into the trace, for whoever collects: nobody else sees this node's data."""
        setup = self._setup
        if setup.best_by is not None:
            self._state.score = measured.get(setup.best_by, math.nan)
        whose = {"samples": samples or self._owned, "weight": setup.samples, "tested": setup.tested}
        facts = {"loss": one_of(measured, LOSSES), "accuracy": one_of(measured, ACCURACIES), **whose}
        facts |= {f"{METRIC}{name}": value for name, value in without_usual(measured).items()}
        detail = {name: value for name, value in facts.items() if not math.isnan(value)}
        self._reports.trace("measured", walk=walk, detail=detail)

    def look_for_best(self) -> BestCopy | None:
        """The model that this node would hand out now, and how good nodes have measured models on average of late.

        None where nobody wants the best one to be kept, or too few have measured any.
        """
        by, tally = self._setup.best_by, self._progress.tally
        score = math.nan if by is None else tally.score
        copy = None if math.isnan(score) else self._models.newest_copy()
        return None if by is None or copy is None else BestCopy(copy, by, score, tally.iterations)

    def hand_walks_on(self) -> None:
        """Send every walk that is here to a neighbour, as if its training here had brought nothing."""
        models = self._models
        for request in self.queue.give_up():
            end = time.monotonic() + HAND_ON_WITHIN
            while time.monotonic() < end:  # where all neighbours are silent it would stay for ever
                self.queue.give_up()  # it stays here, by the matrix: once more
                if request.slot not in models.slots or request.walk <= 0:
                    break
                models.interpreter.hand_on(models.me, request.slot, request.walk)
                self._give(Trained(request.slot, request.walk, self._setup.lr, 0))
        models.interpreter.forget_result(models.me)
