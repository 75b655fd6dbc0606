"""Training in a thread of its own: the node's loop goes on answering messages meanwhile."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from walktalk.learning import Extras
from walktalk.runtimes.meaning import Work
from walktalk.runtimes.stacked import RowTrainer

MEASURE_EVERY = 1.0  # seconds between two measurements of the loss, which `walktalk status` shows
MEASURING = 0.05  # of the time may go into them


@dataclass(frozen=True)
class Outcome:
    """A training that is over."""

    work: Work
    result: Tensor | None  # the trained model, or the gradient; None: it failed
    state: Tensor | None
    error: BaseException | None = None
    loss: float | None = None  # of the model before, on this node's data; measured now and then
    accuracy: float = math.nan  # of the same, on its test samples, where it has any


class TrainingThread:
    """Trains one model at a time on one node's data."""

    def __init__(
        self,
        trainer: RowTrainer,
        part: int,
        report: Callable[[Outcome], None],
        measured: Callable[[float, float], None],
        least: float = 0.0,
    ) -> None:
        self._trainer, self._part, self._report, self._measured = trainer, part, report, measured
        self._least = least  # seconds that a training takes at least
        self._measure_at = 0.0
        self._jobs: queue.SimpleQueue[Work | Tensor | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)
        self._thread.start()

    def begin(self, work: Work) -> None:
        """Start a training; the report comes from the thread."""
        self._jobs.put(work)

    def measure(self, model: Tensor) -> None:
        """Measure a model, and report its loss and accuracy."""
        self._jobs.put(model)

    def close(self, seconds: float) -> None:
        """Let the training under way end, if it does so in time."""
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
                self._measured(*self._loss_and_accuracy(work[None].to(self._trainer.device)))
                continue
            try:
                outcome = self._train(work)
            except Exception as error:  # anything at all in a model or loss: the node reports it and ends
                outcome = Outcome(work, None, None, error)
            time.sleep(max(0.0, began + self._least - time.monotonic()))
            self._report(outcome)

    def _train(self, work: Work) -> Outcome:
        device = self._trainer.device
        loss, accuracy = self._measure(work.start[None].to(device))
        rows, state = self._trainer.train(
            work.start[None].to(device),
            torch.tensor([self._part], device=device),
            torch.tensor([work.key], device=device),
            torch.tensor([work.lr * work.rate], device=device),
            work.state[None].to(device) if work.state is not None else None,
            self._extras(work),
        )
        return Outcome(work, rows[0].cpu(), state[0].cpu() if state is not None else None, None, loss, accuracy)

    def _extras(self, work: Work) -> Extras | None:
        """What is out of the ordinary in it; None where nothing is."""
        if work.is_plain and work.steps == self._trainer.local_steps:
            return None
        device = self._trainer.device
        correction, anchor = (None if t is None else t[None].to(device) for t in (work.correction, work.anchor))
        pulls = None if anchor is None else torch.tensor([work.pull], device=device)
        return Extras(work.steps, work.gradient, correction, anchor, pulls)

    def _measure(self, rows: Tensor) -> tuple[float | None, float]:
        """Loss and accuracy of a model as it came, on this node's data; trained on them, it would look too good."""
        began = time.monotonic()
        if began < self._measure_at:
            return None, math.nan
        loss, accuracy = self._loss_and_accuracy(rows)
        took = time.monotonic() - began
        self._measure_at = began + max(MEASURE_EVERY, took / MEASURING)
        return loss, accuracy

    def _loss_and_accuracy(self, rows: Tensor) -> tuple[float, float]:
        losses, accuracies = self._trainer.evaluate(rows)
        return float(losses[0]), float(accuracies[0])
