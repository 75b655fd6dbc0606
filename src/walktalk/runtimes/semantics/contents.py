"""What can stand in a slot, and when a run is measured and ends.

What stands in a slot is the one thing that differs between those who carry out effects.

The simulator and the replay of a real run write down arithmetic to be done later, a peer has the numbers themselves,
the ledger asks which updates are in there. All of them are `Contents`; what is done with slots is the interpreter's.
"""

from __future__ import annotations

import collections
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from walktalk.core.errors import SpecError
from walktalk.protocols import AGGREGATE, Record
from walktalk.transforms.rules import MOST, Privacy

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


# -- When a run ends, when and what of it is measured, and where optimizer states live: the same in every runtime -----

EvaluatedModel: TypeAlias = Literal["aggregated", "mean", "node"]
OptimizerState: TypeAlias = Literal["visit", "walk", "node"]


@dataclass(frozen=True)
class Stop:
    """When a run ends: at the first of these that is met."""

    iterations: int | None = None  # local trainings completed, over all nodes
    time: float | None = None  # seconds of virtual time
    bits: float | None = None  # sent between nodes
    target_loss: float | None = None  # of the aggregated model, seen at an evaluation
    target_accuracy: float | None = None  # on the test samples, likewise; from 0 to 1
    patience: int | None = None  # evaluations in a row without a lower loss: on test samples, where there are any

    def __post_init__(self) -> None:
        for name in ("iterations", "time", "bits", "patience"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SpecError(f"stop.{name}: {value} is not possible; a number above 0 is needed")
        if self.iterations is None and self.time is None and self.bits is None:
            raise SpecError("stop: at least one of iterations, time, bits is needed, or the run would never end")

    def progress(self, iteration: int, time: float, bits: float) -> float:
        """The share of the run that is done: 0 at the start, 1 at the end."""
        done = 0.0
        if self.iterations is not None:
            done = iteration / self.iterations
        if self.time is not None:
            done = max(done, time / self.time)
        if self.bits is not None:
            done = max(done, bits / self.bits)
        return min(done, 1.0)


BestBy: TypeAlias = Literal["valid_loss", "valid_accuracy", "test_loss", "test_accuracy", "train_loss"]


@dataclass(frozen=True)
class Evaluate:
    """When a run is measured: at the start, at the end, and every so often between."""

    every: int | None = 100  # iterations
    seconds: float | None = None  # of virtual time
    model: EvaluatedModel = "aggregated"  # which model is measured
    members: bool = False  # whether every member's model is measured, too: worst, mean and spread
    validation: float | None = None  # share of every node's samples that is not trained on, but measured on
    best: BestBy | None = None  # by which measure the best model is kept; by validation where there is any

    def __post_init__(self) -> None:
        for name in ("every", "seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SpecError(f"evaluate.{name}: {value} is not possible; a number above 0 is needed")


# -- What a run comes to: the models that it puts out, the bytes that it sends, and what it lets out of nodes' data ---


class Output(Generic[Content]):
    """The models that nodes recorded: members that are to agree, and the aggregate where there is one."""

    def __init__(self, contents: Contents[Content]) -> None:
        self._contents = contents
        self.members: dict[int, Content] = {}  # what `Record` said last
        self.owners: dict[int, int] = {}  # member -> the node that recorded it
        self.aggregate: Content | None = None
        self.aggregated_at: int | None = None  # the iteration in which it was last brought up to date
        self.aggregate_term = 0  # of two that aggregate at the same time, the higher term counts
        self.aggregate_slot = ""  # where the node that recorded it has it
        self.aggregator: int | None = None  # that node

    def record(self, node: int, effect: Record, content: Content, iteration: int) -> None:
        """Remember what is one of the members, or the model that the algorithm puts out."""
        if effect.role != AGGREGATE:
            self.members[effect.key], self.owners[effect.key] = content, node
        elif effect.key >= self.aggregate_term:
            self.aggregate, self.aggregate_term, self.aggregate_slot = content, effect.key, effect.slot
            self.aggregated_at, self.aggregator = iteration, node

    def model(self, which: EvaluatedModel) -> Content:
        """The model that is measured and handed out.

        "aggregated": the aggregate where there is one, else the mean of the members; "mean": always the mean;
        "node": the first member (node 0 in gossip, walk 1 in Multi-Walk), as the authors' own code does for gossip.
        """
        if which == "node":
            return self.members[min(self.members)]
        if which == "aggregated" and self.aggregate is not None:
            return self.aggregate
        return self._contents.mean(self.members.values())

    def in_order(self) -> list[Content]:
        """The models of all members, by node."""
        return [self.members[key] for key in sorted(self.members)]

    def node_dies(self, node: int) -> None:
        """What it held is out of the mean; somebody must be left. Where it aggregated, whoever still does counts."""
        if node == self.aggregator:
            self.aggregate_term = 0
        gone = [key for key, owner in self.owners.items() if owner == node and key in self.members]
        for key in gone if len(gone) < len(self.members) else gone[1:]:
            del self.owners[key]
            del self.members[key]


class Traffic:
    """The bytes that were sent between nodes."""

    __slots__ = ("bytes", "payload_bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self.payload_bytes = 0  # the models' part of it

    def add(self, size: int, payload: int) -> None:
        """A message goes out: its bytes, and how many of them are a model's."""
        self.bytes += size
        self.payload_bytes += payload

    def withdraw(self, size: int, payload: int) -> None:
        """A message that was counted does not go out after all."""
        self.bytes -= size
        self.payload_bytes -= payload


class Releases:
    """How often every node let something out that its data are behind, and whether it may again."""

    def __init__(
        self,
        privacy: Privacy | None = None,
        most: int = MOST,
        ask: Callable[[], bool] | None = None,
        secret: bool = False,
    ) -> None:
        """
        - `privacy`: what protects the nodes' data; None: nothing is private.
        - `most`: how often a node may.
        - `ask`: is asked before every time, where something else keeps the account.
        - `secret`: whether the numbers that noise is made from are kept out of the trace.
        """
        self.privacy, self.most, self.secret = privacy, most, secret
        self.counts: collections.Counter[int] = collections.Counter()  # by node
        self._ask = ask

    def allow(self, node: int) -> bool:
        """Counts one more of a node; False, and nothing is counted, where it may let out no more."""
        if self.spent(node) or (self._ask is not None and not self._ask()):
            return False
        self.counts[node] += 1
        return True

    def spent(self, node: int) -> bool:
        """Whether a node may let out no more."""
        return self.counts[node] >= self.most

    @property
    def epsilon(self) -> float | None:
        """What the node that has released most has spent; None where nothing is private."""
        return None if self.privacy is None else self.privacy.epsilon(max(self.counts.values(), default=0))
