"""What all protocols in rounds share: send my thing of the round, wait for everybody's whom I hear, mix, train again.

A protocol says what it trains, sends and mixes in a `Rule`; `InRounds` is the node that goes by it in a world without
failures, `resilient` in one with them. Nobody waits for more than those it hears, so a node can be ahead of another by
as many rounds as there are links between them. Where something is lost a round is mixed without it, so a rule asks the
meeting who is there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from walktalk.protocols.effects import INITIAL, MEMBER, Combine, Differentiate, Effect, Forget, Record, Send, Train
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.weights import row_of

Turns: TypeAlias = Sequence[Sequence[str]]
MODEL = "model"  # the slot of every node's model x
HALF = "half"  # that of x after the training and before the mixing


class Meeting:
    """Whom a node meets in the round that it is in, and what has come of them.

    Args:
        around: what the node knows of the network.
        kinds: the messages that everybody sends to everybody it meets, one of each in a round.
        links: for kinds that go to some of them alone and come from the same: to whom.
        turns: the kinds of one round, of the next, and so on, over and over; none: all kinds in every round.
    """

    __slots__ = ("around", "came", "cut", "kinds", "links", "missed", "round", "turns")

    def __init__(
        self, around: Surroundings, kinds: Iterable[str], links: Mapping[str, tuple[int, ...]], turns: Turns = ()
    ) -> None:
        self.around, self.kinds, self.links, self.round = around, tuple(kinds), links, 0
        self.turns = turns
        self.came: dict[int, dict[tuple[str, int], bytes]] = {}  # round -> kind and sender -> the note that came along
        self.missed: dict[
            int, set[tuple[str, int]]
        ] = {}  # round -> kinds and senders whose message is known to be lost
        self.cut: set[int] = set()  # nodes that are lost, as the runtime says: nothing is sent to them

    @property
    def targets(self) -> tuple[int, ...]:
        """Whom it sends to in this round."""
        return tuple(to for to in self.around.meets(self.round)[0] if to not in self.cut)

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
        if message.round < self.round or not self.expects(sender, message):
            raise ValueError(f"{sender} does not meet this node in round {message.round}")
        self.came.setdefault(message.round, {})[message.kind, sender] = message.note

    def miss(self, sender: int, message: Message) -> None:
        """Something will not come."""
        if message.round >= self.round and self.expects(sender, message):
            self.missed.setdefault(message.round, set()).add((message.kind, sender))

    def expects(self, sender: int, message: Message) -> bool:
        """Whether a node sends such a message to this one."""
        return message.kind in self.kinds and sender in self._heard(message.kind, message.round)

    def is_complete(self) -> bool:
        """Whether all of this round is here."""
        return len(self.came.get(self.round, {})) == sum(len(self._heard(kind, self.round)) for kind in self.kinds)

    def awaited(self) -> list[int]:
        """Senders of which something of this round is neither here nor known to be lost."""
        here, lost = self.came.get(self.round, {}), self.missed.get(self.round, ())
        everything = ((kind, sender) for kind in self.kinds for sender in self._heard(kind, self.round))
        return [sender for kind, sender in everything if (kind, sender) not in here and (kind, sender) not in lost]

    def there(self, kind: str) -> list[int]:
        """Whose message of a kind is here, of this round: all of them, where nothing is lost."""
        here = self.came.get(self.round, {})
        return [sender for sender in self._heard(kind, self.round) if (kind, sender) in here]

    def _heard(self, kind: str, round_: int) -> tuple[int, ...]:
        """Who sends messages of a kind to this node in a round."""
        if self.turns and kind not in self.turns[round_ % len(self.turns)]:
            return ()
        return self.links[kind] if kind in self.links else self.around.meets(round_)[1]

    def note(self, kind: str, sender: int) -> bytes:
        """What came along with a message of this round."""
        return self.came[self.round][kind, sender]

    def slot(self, kind: str, sender: int) -> str:
        """Where what came of a sender in this round is."""
        return f"{kind}/{self.round}/{sender}"

    def mean(self, own: str, kind: str, lazy: bool = False) -> dict[str, float]:
        """The row of W as weights of slots: one's own and all that came. `lazy`: that of (I + W)/2.

        The weight of one that is missing stays with the node itself, so the row sums to one whatever is lost.
        """
        others = {slot: 0.5 * weight if lazy else weight for slot, weight in self.weights(kind)[1].items()}
        return {own: 1.0 - sum(others.values()), **others}

    def weights(self, kind: str) -> tuple[float, dict[str, float]]:
        """The row of W as it is: the node's own weight, and those of all that came."""
        row, here = row_of(self.around, self.round), set(self.there(kind))
        came = {self.slot(kind, sender): weight for sender, weight in row.items() if sender in here}
        return 1.0 - sum(row.values()), came

    def close(self) -> list[Effect]:
        """Go to the next round; what came is not needed any more."""
        return self.go_to(self.round + 1)

    def go_to(self, number: int) -> list[Effect]:
        """To a later round; what came of those before it is not needed any more."""
        gone = [
            (round_, kind, sender) for round_, came in self.came.items() if round_ < number for kind, sender in came
        ]
        self.came = {round_: came for round_, came in self.came.items() if round_ >= number}
        self.missed = {round_: lost for round_, lost in self.missed.items() if round_ >= number}
        self.round = number
        return [Forget(f"{kind}/{round_}/{sender}") for round_, kind, sender in gone]


class Rule(ABC):
    """What a protocol does in a round. The model that it trains and puts out is in slot `MODEL`."""

    __slots__ = ()

    @abstractmethod
    def begin(self) -> list[Effect]:
        """Before the first round of a life, with the initial model in `MODEL`, or the one that a node died with."""

    @abstractmethod
    def work(self) -> Train | Differentiate:
        """What a round begins with."""

    @abstractmethod
    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        """That is done: take it in, and send what the others are to have."""

    @abstractmethod
    def mix(self, meeting: Meeting) -> list[Effect]:
        """Everybody's is here, but for what is lost: set `MODEL` to what the next round begins with."""

    def push_on(self, meeting: Meeting) -> list[Effect]:
        """What is sent in this round in place of training first, where there are several rounds to a training."""
        return []


class InRounds(Machine):
    """One node that goes by a rule, in a world without failures."""

    __slots__ = ("meeting", "node", "rule", "trained")

    def __init__(self, meeting: Meeting, rule: Rule) -> None:
        self.node, self.rule, self.meeting, self.trained = meeting.around.node, rule, meeting, False

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
