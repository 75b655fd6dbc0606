"""What a node has to train: one model at a time, first come first served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from walktalk.protocols import Differentiate, Train
from walktalk.runtimes.meaning import Work
from walktalk.runtimes.peers.node_state import NodeSetup
from walktalk.runtimes.peers.training import Outcome, TrainingThread
from walktalk.runtimes.stacked import RowTrainer

Asked: TypeAlias = Train | Differentiate


class Trainings:
    """The queue, and the training under way."""

    def __init__(
        self,
        setup: NodeSetup,
        trainer: RowTrainer,
        report: Callable[[Outcome], None],
        measured: Callable[[float, float], None],
    ) -> None:
        self.count = 0  # trainings that were begun
        self._waiting: deque[Asked] = deque()
        self.swallowed: list[Asked] = []
        self.current: Work | None = None
        part = setup.around.node if setup.part is None else setup.part
        self._thread = TrainingThread(trainer, part, report, measured, setup.pace)
        self.measuring = False  # a model that is not trained any more

    def __len__(self) -> int:
        return len(self._waiting) + (self.current is not None)

    @property
    def walks(self) -> list[int]:
        """Walks that are here; callable from any thread."""
        current, waiting = self.current, tuple(self._waiting)
        here = [current.walk] if current is not None else []
        return sorted(walk for walk in (*here, *(effect.walk for effect in waiting)) if walk > 0)

    def ask(self, effect: Asked) -> None:
        """One more to do."""
        self._waiting.append(effect)

    def swallow(self, effect: Asked) -> None:
        """One that is kept and not done."""
        self.swallowed.append(effect)

    def let_go(self) -> None:
        """Those are to be done after all."""
        self._waiting.extend(self.swallowed)
        self.swallowed.clear()

    def next(self) -> Asked | None:
        """The one whose turn it is, off the queue; None while one is under way."""
        return self._waiting.popleft() if self._waiting and self.current is None else None

    def begin(self, work: Work) -> None:
        """Train it; the report comes from a thread."""
        self.current = work
        self.count += 1
        self._thread.begin(work)

    def measure(self, model: Tensor) -> None:
        """Measure a model; the report comes from a thread."""
        self.measuring = True
        self._thread.measure(model)

    def end(self, outcome: Outcome) -> bool:
        """A report; False where the model was handed on before its training ended."""
        if self.current is not outcome.work:
            return False
        self.current = None
        return True

    def give_up(self) -> list[Asked]:
        """Everything that is here or waits, and forget it."""
        current, self.current = self.current, None
        given: list[Asked] = [Train(current.slot, current.walk)] if current is not None else []
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
