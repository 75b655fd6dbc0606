"""What all protocols in rounds share: send my thing of the round, wait for everybody's whom I hear, mix, train again.

A protocol says what it trains, sends and mixes in a `Rule`; `InRounds` is the node that goes by it. Nobody waits for
more than those it hears, so a node can be ahead of another by as many rounds as there are links between them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from walktalk.protocols.effects import INITIAL, MEMBER, Combine, Differentiate, Effect, Forget, Record, Send, Train
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.weights import row_of

MODEL = "model"  # the slot of every node's model x
HALF = "half"  # that of x after the training and before the mixing


class Meeting:
    """Whom a node meets in the round that it is in, and what has come of them."""

    __slots__ = ("around", "came", "kinds", "links", "round")

    def __init__(self, around: Surroundings, kinds: Iterable[str], links: Mapping[str, tuple[int, ...]]) -> None:
        """
        - `around`: what the node knows of the network.
        - `kinds`: the messages that everybody sends to everybody it meets, one of each in a round.
        - `links`: for kinds that go to some of them alone and come from the same: to whom.
        """
        self.around, self.kinds, self.links, self.round = around, tuple(kinds), links, 0
        self.came: dict[int, dict[tuple[str, int], bytes]] = {}  # round -> kind and sender -> the note that came along

    @property
    def targets(self) -> tuple[int, ...]:
        """Whom it sends to in this round."""
        return self.around.meets(self.round)[0]

    @property
    def sources(self) -> tuple[int, ...]:
        """Whom it hears in this round."""
        return self.around.meets(self.round)[1]

    def send(self, slot: str, kind: str, note: bytes = b"") -> list[Effect]:
        """The same to all targets."""
        message = Message(kind, round=self.round, note=note)
        return [Send(to, message, slot) for to in self.targets]

    def take(self, sender: int, message: Message) -> None:
        """Something has come, perhaps of a later round."""
        if message.round < self.round or sender not in self._heard(message.kind, message.round):
            raise ValueError(f"{sender} does not meet this node in round {message.round}")
        self.came.setdefault(message.round, {})[message.kind, sender] = message.note

    def is_complete(self) -> bool:
        """Whether all of this round is here."""
        return len(self.came.get(self.round, {})) == sum(len(self._heard(kind, self.round)) for kind in self.kinds)

    def _heard(self, kind: str, round_: int) -> tuple[int, ...]:
        """Who sends messages of a kind to this node in a round."""
        return self.links[kind] if kind in self.links else self.around.meets(round_)[1]

    def note(self, kind: str, sender: int) -> bytes:
        """What came along with a message of this round."""
        return self.came[self.round][kind, sender]

    def slot(self, kind: str, sender: int) -> str:
        """Where what came of a sender in this round is."""
        return f"{kind}/{self.round}/{sender}"

    def mean(self, own: str, kind: str, lazy: bool = False) -> dict[str, float]:
        """The row of W as weights of slots: one's own and all that came. `lazy`: that of (I + W)/2."""
        row, part = row_of(self.around, self.round), 0.5 if lazy else 1.0
        others = {self.slot(kind, sender): part * weight for sender, weight in row.items()}
        return {own: 1.0 - sum(others.values()), **others}

    def close(self) -> list[Effect]:
        """Go to the next round; what came is not needed any more."""
        gone = self.came.pop(self.round, {})
        forget: list[Effect] = [Forget(self.slot(kind, sender)) for kind, sender in gone]
        self.round += 1
        return forget


class Rule(ABC):
    """What a protocol does in a round. The model that it trains and puts out is in slot `MODEL`."""

    __slots__ = ()

    @abstractmethod
    def begin(self) -> list[Effect]:
        """Before the first round, when the initial model is in `MODEL`."""

    @abstractmethod
    def work(self) -> Train | Differentiate:
        """What a round begins with."""

    @abstractmethod
    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        """That is done: take it in, and send what the others are to have."""

    @abstractmethod
    def mix(self, meeting: Meeting) -> list[Effect]:
        """Everybody's is here: set `MODEL` to what the next round begins with."""

    def push_on(self, meeting: Meeting) -> list[Effect]:
        """What is sent in this round in place of training first, where there are several rounds to a training."""
        return []


class InRounds(Machine):
    """One node that goes by a rule."""

    __slots__ = ("meeting", "node", "rule", "trained")

    def __init__(
        self, around: Surroundings, rule: Rule, kinds: Iterable[str], links: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        self.node, self.rule, self.meeting, self.trained = around.node, rule, Meeting(around, kinds, links or {}), False

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            self.meeting.take(event.sender, event.message)
            return self._finish()
        if isinstance(event, Trained):
            self.trained = True
            return [*self.rule.learn(event, self.meeting), *self._finish()]
        if isinstance(event, Started):
            begin: list[Effect] = [Combine(MODEL, {INITIAL: 1.0}), Record(MEMBER, self.node, MODEL)]
            return [*begin, *self.rule.begin(), self.rule.work()]
        return []

    def _finish(self) -> list[Effect]:
        effects: list[Effect] = []
        while self.trained and self.meeting.is_complete():
            effects += [*self.rule.mix(self.meeting), *self.meeting.close()]
            further = self.rule.push_on(self.meeting)
            if not further:
                self.trained = False
                further = [Record(MEMBER, self.node, MODEL), self.rule.work()]
            effects += further
        return effects


def arrivals(*kinds: str, codec: str = "", once: bool = True) -> Mapping[str, Arrival]:
    """How messages of these kinds arrive: a slot for each round and sender, by default to be mixed in once."""
    return {kind: Arrival(f"{kind}/{{round}}/{{sender}}", codec=codec, once=once) for kind in kinds}
