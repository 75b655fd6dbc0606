"""Whom a node meets in a round, what has come of them, and the weights with which it is mixed.

Every message says by its term which network its sender knows (`NetworkView.version`). Only what comes from nodes that
know the same network is mixed: then both ends of a link have the same weight for it, so rows and columns of W sum to
one also while nodes come and go, and the news of it is not everywhere yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from walktalk.protocols.effects import Arrival, Effect, Forget, Message, Send
from walktalk.protocols.machine import NetworkView, row_of

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
        self, around: NetworkView, kinds: Iterable[str], links: Mapping[str, tuple[int, ...]], turns: Turns = ()
    ) -> None:
        self.around, self.kinds, self.links, self.round = around, tuple(kinds), links, 0
        self.turns = turns
        self.came: dict[int, dict[tuple[str, int], Message]] = {}  # round -> kind and sender -> what came
        self.missed: dict[int, set[tuple[str, int]]] = {}  # round -> kinds and senders whose message is lost
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
        """Send a slot's model to all targets, as a message of that kind."""
        message = Message(kind, round=self.round, term=self.around.version, note=note)
        return [Send(to, message, slot) for to in self.targets]

    def take(self, sender: int, message: Message) -> None:
        """Note that a message has come, perhaps one of a later round; `ValueError` where nobody can have sent it."""
        if message.round < self.round or not (self.expects(sender, message) or self.is_of_other_network(message)):
            raise ValueError(f"{sender} does not meet this node in round {message.round}")
        self.came.setdefault(message.round, {})[message.kind, sender] = message

    def is_of_other_network(self, message: Message) -> bool:
        """Whether its sender knows of nodes that have come or left, and this one does not, or the other way round."""
        return message.kind in self.kinds and message.term != self.around.version

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
        """Whose message of a kind is here, of this round: all, where nothing is lost and nobody comes or goes."""
        here, version = self.came.get(self.round, {}), self.around.version
        return [
            sender
            for sender in self._heard(kind, self.round)
            if (kind, sender) in here and here[kind, sender].term == version
        ]

    def _heard(self, kind: str, round_: int) -> tuple[int, ...]:
        """Who sends messages of a kind to this node in a round."""
        if self.turns and kind not in self.turns[round_ % len(self.turns)]:
            return ()
        return self.links[kind] if kind in self.links else self.around.meets(round_)[1]

    def note(self, kind: str, sender: int) -> bytes:
        """What came along with a message of this round."""
        return self.came[self.round][kind, sender].note

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

    def continue_from(self, before: Meeting) -> None:
        """Go on in the round, and with what has come, of a meeting that knew the network as it was until now."""
        self.round, self.cut, self.came, self.missed = before.round, before.cut, before.came, before.missed

    def go_to(self, number: int) -> list[Effect]:
        """Go to a later round; what came of those before it is not needed any more."""
        gone = [
            (round_, kind, sender) for round_, came in self.came.items() if round_ < number for kind, sender in came
        ]
        self.came = {round_: came for round_, came in self.came.items() if round_ >= number}
        self.missed = {round_: lost for round_, lost in self.missed.items() if round_ >= number}
        self.round = number
        return [Forget(f"{kind}/{round_}/{sender}") for round_, kind, sender in gone]


def arrivals(*kinds: str, codec: str = "", once: bool = True) -> Mapping[str, Arrival]:
    """How messages of these kinds arrive: a slot for each round and sender.

    Args:
        kinds: what the messages are called.
        codec: what encodes their models; empty: nothing does.
        once: whether what comes is mixed into one slot only.
    """
    return {kind: Arrival(f"{kind}/{{round}}/{{sender}}", codec=codec, once=once) for kind in kinds}
