"""What a node has to train: one model at a time, first come first served, each with the optimizer state it owns."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

from walktalk.protocols import Train
from walktalk.runtimes.peers.node_state import NodeSetup
from walktalk.runtimes.peers.slots import Slots
from walktalk.runtimes.peers.training import Job, Outcome, TrainingThread
from walktalk.runtimes.stacked import RowTrainer


class Trainings:
    """The queue, and the training under way."""

    def __init__(
        self, setup: NodeSetup, trainer: RowTrainer, batches: random.Random, report: Callable[[Outcome], None]
    ) -> None:
        self._kind, self._state_width = setup.optimizer_state, trainer.state_width
        self._batches = batches  # decides which samples a training sees
        self._count = 0
        self._waiting: deque[Train] = deque()
        self.current: Job | None = None
        self.states: dict[str, Tensor] = {}  # of optimizers, by slot of the model they belong to
        part = setup.around.node if setup.part is None else setup.part
        self._thread = TrainingThread(trainer, part, report, setup.pace)

    def __len__(self) -> int:
        return len(self._waiting) + (self.current is not None)

    @property
    def walks(self) -> list[int]:
        """Walks that are here; callable from any thread."""
        current, waiting = self.current, tuple(self._waiting)
        here = [current.walk] if current is not None else []
        return sorted(walk for walk in (*here, *(effect.walk for effect in waiting)) if walk > 0)

    def ask(self, effect: Train) -> None:
        """One more to do."""
        self._waiting.append(effect)

    def next(self) -> Train | None:
        """The one whose turn it is, off the queue; None while one is under way."""
        return self._waiting.popleft() if self._waiting and self.current is None else None

    def begin(self, effect: Train, slots: Slots, lr: float) -> Job:
        """Train it; the report comes from a thread."""
        start, key = slots.read(effect.slot), self._batches.getrandbits(63)
        self.current = Job(effect.slot, effect.walk, self._count, start, key, lr, self._optimizer_state(effect.slot))
        self._count += 1
        self._thread.begin(self.current)
        return self.current

    def end(self, outcome: Outcome) -> bool:
        """A report; False where the model was handed on before its training ended."""
        if self.current is not outcome.job:
            return False
        self.current = None
        if outcome.state is not None:
            self.states[self._state_owner(outcome.job.slot)] = outcome.state
        return True

    def give_up(self) -> list[Train]:
        """Everything that is here or waits, and forget it."""
        current, self.current = self.current, None
        given = [Train(current.slot, current.walk)] if current is not None else []
        given += self._waiting
        self._waiting.clear()
        return given

    def close(self) -> None:
        """Let the training under way end, if it does so at once."""
        self._thread.close(0.1)

    def _optimizer_state(self, slot: str) -> Tensor | None:
        """Where it starts from: nothing, the walk's own, or the node's own; a fresh one is all zeros."""
        if self._kind == "visit" or self._state_width == 0:
            return None
        return self.states.get(self._state_owner(slot), torch.zeros(self._state_width))

    def _state_owner(self, slot: str) -> str:
        """The model that it belongs to, or "" for the node itself."""
        return slot if self._kind == "walk" else ""
