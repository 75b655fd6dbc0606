"""What can stand in a slot: the one thing that differs between those who carry out effects.

The simulator and the replay of a real run write down arithmetic to be done later, a peer has the numbers themselves,
the ledger asks which updates are in there. All of them are `Contents`; what is done with slots is the interpreter's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

Content = TypeVar("Content")
SUM = 1e-9  # how near to 1 the weights of a mean add up


class Work(NamedTuple):
    """A training or a gradient that has begun, with all that decides its outcome."""

    node: int
    slot: str  # the model's
    walk: int  # the walk that carries it; -1: none
    number: int  # counts the trainings
    gradient: bool  # whether a gradient is asked for and not a trained model
    start: Any  # the content that it begins with
    key: int  # decides the batches
    lr: float  # the schedule's
    rate: float  # times which the training takes it
    steps: int  # local steps, or batches of a gradient
    correction: Any = None  # the content that is added to every gradient
    anchor: Any = None  # the content that every step is pulled back to
    pull: float = 0.0
    state: Any = None  # the optimizer state to begin with; None: a fresh one

    @property
    def is_plain(self) -> bool:
        """Whether it is a training as the study describes it, but for its number of steps."""
        return not self.gradient and self.correction is None and self.anchor is None


@dataclass(frozen=True)
class Encoded(Generic[Content]):
    """A model in a codec's form."""

    codec: str
    content: Content  # the model that it stands for
    data: Any = None  # its bytes, where there are any


def is_mean(terms: Mapping[str, float]) -> bool:
    """Whether a combination is a mean of models, weights of which may be negative, and not a model with an update."""
    return len(terms) > 1 and abs(sum(terms.values()) - 1.0) < SUM


class Contents(ABC, Generic[Content]):
    """How contents are made of others."""

    @abstractmethod
    def combined(
        self, here: Mapping[str, Content], terms: Mapping[str, float], statistics: Mapping[str, float] | None
    ) -> Content:
        """A linear combination of slots; of statistics by other weights, if there are any."""

    @abstractmethod
    def screened(self, own: Content, others: Sequence[tuple[Content, float]], rule: str, key: int) -> Content:
        """A model mixed with others, each with its weight, by a screen; random numbers follow from the key."""

    @abstractmethod
    def update(self, start: Content, trained: Content) -> Content:
        """Trained minus start; for statistics the trained ones."""

    @abstractmethod
    def encoded(self, content: Content, codec: str, key: int) -> Encoded[Content]:
        """A model in a codec's form, with random numbers that follow from the key."""

    @abstractmethod
    def mean(self, contents: Iterable[Content]) -> Content:
        """The plain average of several contents."""
