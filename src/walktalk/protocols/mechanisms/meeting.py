"""Whom a node meets in a round, what has come of them, and the weights with which it is mixed.

Every message says by its term which network its sender knows (`NetworkView.version`). Only what comes from nodes that
know the same network is mixed: then both ends of a link have the same weight for it, so rows and columns of W sum to
one also while nodes come and go, and the news of it is not everywhere yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from walktalk.core.errors import SpecError
from walktalk.graphs import Rounds, WeightedRounds
from walktalk.protocols.effects import Arrival, Combine, Decode, Effect, Encode, Forget, Message, Send
from walktalk.protocols.machine import NetworkView, row_of

Links: TypeAlias = Mapping[str, tuple[Sequence[int], Sequence[int]]]
MODEL = "model"  # the slot of every node's model x
HALF = "half"  # that of x after the training and before the mixing


class Came(NamedTuple):
    """A message that is here."""

    version: int  # of the network that its sender knows
    note: Any  # what the rule has read in its note; the bytes, where it reads nothing


class Meeting:
    """Whom a node meets in the round that it is in, and what has come of them.

    Args:
        around: what the node knows of the network.
        kinds: the messages that everybody sends to everybody it meets, one of each in a round; with how they arrive,
            where they are encoded.
        links: for kinds that go to some of them alone: to whom, and from whom they come.
        fragments: of a model, of which one is sent in a round, and the next in the next; its number ends the kind.
        delay: how many rounds the node may be ahead of the last of which everything is here.
    """

    __slots__ = (
        "around", "came", "codecs", "cut", "delay", "fragments", "kinds", "links", "missed", "round", "since",
    )  # fmt: skip

    def __init__(
        self,
        around: NetworkView,
        kinds: Iterable[str] | Mapping[str, Arrival],
        links: Links,
        fragments: int = 1,
        delay: int = 0,
    ) -> None:
        self.around, self.kinds, self.links, self.round, self.delay = around, tuple(kinds), links, 0, delay
        self.codecs = {kind: arrival.codec for kind, arrival in kinds.items()} if isinstance(kinds, Mapping) else {}
        self.fragments = fragments
        self.since = 0  # the round in which it began, or began again by another network, or after it had missed some
        self.came: dict[int, dict[tuple[str, int], Came]] = {}  # round -> kind and sender -> what came
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

    @property
    def awaited(self) -> int:
        """The round of which everything has to be here before the node goes to the next one."""
        return self.round - self.delay

    def send(
        self, slot: str, kind: str, note: bytes = b"", *, to: Iterable[int] | None = None, seen: str = ""
    ) -> list[Effect]:
        """Send a slot's model as a message of a kind, by the codec of that kind.

        Args:
            slot: the model.
            kind: of the message.
            note: what goes with it.
            to: those who are sent it; if left out, all whom such a message goes to in this round.
            seen: a slot for what the receivers will see of it; "": nobody asks.
        """
        kind = self.now(kind)
        message = Message(kind, round=self.round, term=self.around.version, note=note)
        targets = [one for one in self._told(kind) if one not in self.cut] if to is None else to
        if not (codec := self.codecs.get(kind, "")):
            copied: list[Effect] = [Combine(seen, {slot: 1.0})] if seen else []
            return [*copied, *(Send(one, message, slot) for one in targets)]
        packed = f"packed/{slot}"
        shown: list[Effect] = [Decode(packed, seen)] if seen else []
        sends = [Send(one, message, packed) for one in targets]
        return [Encode(slot, packed, codec), *shown, *sends, Forget(packed)]

    def receive(self, sender: int, message: Message, note: Any = None) -> None:
        """Write down a message that has come, perhaps one of a later round; `ValueError` where nobody can have sent it.

        Args:
            sender: the node that sent it.
            message: what it says.
            note: what the rule has read in its note; if left out, the note itself.
        """
        if message.round < self.awaited or not (self.expects(sender, message) or self.is_of_other_network(message)):
            raise ValueError(f"{sender} does not meet this node in round {message.round}")
        came = Came(message.term, message.note if note is None else note)
        self.came.setdefault(message.round, {})[message.kind, sender] = came

    def opened(self, *kinds: str) -> list[Effect]:
        """Decode what is here of these kinds, each into its own slot; nothing to do where nothing is encoded."""
        encoded = [kind for kind in map(self.now, kinds) if self.codecs.get(kind)]
        slots = [self.slot(kind, sender) for kind in encoded for sender in self.there(kind)]
        return [Decode(slot, slot) for slot in slots]  # codes have slots of their own, of the same names

    def is_of_other_network(self, message: Message) -> bool:
        """Whether its sender knows of nodes that have come or left, and this one does not, or the other way round."""
        return message.kind in self.kinds and message.term != self.around.version

    def miss(self, sender: int, message: Message) -> None:
        """Something will not come."""
        if message.round >= self.awaited and self.expects(sender, message):
            self.missed.setdefault(message.round, set()).add((message.kind, sender))

    def expects(self, sender: int, message: Message) -> bool:
        """Whether a node sends such a message to this one."""
        return message.kind in self.kinds and sender in self._heard(message.kind, message.round)

    def is_complete(self) -> bool:
        """Whether all that is awaited is here."""
        number = self.awaited
        return len(self.came.get(number, {})) == sum(len(self._heard(kind, number)) for kind in self.kinds)

    def missing(self) -> list[int]:
        """Senders of which something that is awaited is neither here nor known to be lost."""
        number = self.awaited
        here, lost = self.came.get(number, {}), self.missed.get(number, ())
        everything = ((kind, sender) for kind in self.kinds for sender in self._heard(kind, number))
        return [sender for kind, sender in everything if (kind, sender) not in here and (kind, sender) not in lost]

    def lost(self, kind: str) -> list[int]:
        """Neighbours that live, and whose message of the awaited round is lost, or of another network."""
        if self.awaited < self.since:
            return []
        here = {*self.there(kind, self.awaited), *self.cut}
        return [sender for sender in self._heard(kind, self.awaited) if sender not in here]

    def there(self, kind: str, round_: int | None = None, *, as_they_came: bool = False) -> list[int]:
        """Whose message of a kind is here, of this round: all, where nothing is lost and nobody comes or goes."""
        number = self.round if round_ is None else round_
        here, version = self.came.get(number, {}), self.around.version
        heard = self._heard(kind, number)
        there = [sender for sender in heard if (kind, sender) in here and here[kind, sender].version == version]
        return sorted(there, key=[sender for _, sender in here].index) if as_they_came else there

    def now(self, kind: str) -> str:
        """The kind of messages that bring this round's fragment; where models are sent whole, it is the same."""
        return f"{kind}_{self.round % self.fragments}" if self.fragments > 1 else kind

    def _heard(self, kind: str, round_: int) -> tuple[int, ...]:
        """Who sends messages of a kind to this node in a round."""
        if round_ < 0 or (self.fragments > 1 and kind.rpartition("_")[2] != f"{round_ % self.fragments}"):
            return ()
        return tuple(self.links[kind][1]) if kind in self.links else self.around.meets(round_)[1]

    def _told(self, kind: str) -> Sequence[int]:
        """Whom messages of a kind go to in this round, the lost ones, too."""
        return self.links[kind][0] if kind in self.links else self.around.meets(self.round)[0]

    def said(self, kind: str, sender: int) -> Any:
        """What the rule has read in the note of a message of this round (`Rule.check`), or the note itself."""
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
        kind = self.now(kind)
        row, here = row_of(self.around, self.round), set(self.there(kind))
        came = {self.slot(kind, sender): weight for sender, weight in row.items() if sender in here}
        return 1.0 - sum(row.values()), came

    def continue_from(self, before: Meeting) -> None:
        """Go on in the round, and with what has come, of a meeting that knew the network as it was until now."""
        self.round, self.cut, self.came, self.missed = before.round, before.cut, before.came, before.missed
        self.since = self.round

    def go_to(self, number: int) -> list[Effect]:
        """Go to a later round; what came of those before the one that is awaited then is not needed any more."""
        self.since = self.since if number == self.round + 1 else number
        self.round, first = number, number - self.delay
        gone = [(round_, kind, sender) for round_, came in self.came.items() if round_ < first for kind, sender in came]
        self.came = {round_: came for round_, came in self.came.items() if round_ >= first}
        self.missed = {round_: lost for round_, lost in self.missed.items() if round_ >= first}
        return [Forget(f"{kind}/{round_}/{sender}") for round_, kind, sender in gone]


@lru_cache(maxsize=64)  # asked for at every message
def arrivals(*kinds: str, codec: str = "", once: bool = True, fragments: int = 1) -> Mapping[str, Arrival]:
    """How messages of these kinds arrive: a slot for each round and sender.

    Args:
        kinds: what the messages are called.
        codec: what encodes their models; empty: nothing does.
        once: whether what comes is mixed into one slot only.
        fragments: of a model, of which one is sent in a round; each is a kind of its own.
    """
    if fragments > 1:
        parts = [(f"{kind}_{p}", f"part({p}, {fragments})") for p in range(fragments) for kind in kinds]
        return {kind: Arrival(f"{kind}/{{round}}/{{sender}}", codec=part, once=once) for kind, part in parts}
    return {kind: Arrival(f"{kind}/{{round}}/{{sender}}", codec=codec, once=once) for kind in kinds}


# -- Rounds among all who are there, on a graph on which anybody can meet anybody --------------------------------------


def everybody_there(around: NetworkView) -> tuple[int, ...]:
    """Numbers of all who take part, in order, where everybody is everybody's neighbour; without those that leave."""
    return tuple(sorted({around.node, *around.neighbours} - around.leaving))


def drawn_among(around: NetworkView, draw: Callable[[int], Rounds]) -> NetworkView:
    """Has a node meet whom is drawn among all nodes, or, once nodes have come or left, among all that are there.

    Args:
        around: what the node knows of the network.
        draw: makes the draws for a number of nodes, which are numbered from 0.
    """
    if not around.version:
        return replace(around, rounds=draw(around.nodes))
    there = everybody_there(around)
    if around.neighbours and len({*there, around.node}) < around.nodes:
        raise SpecError("network: where nodes join or leave, all need links to all others; take complete")
    return replace(around, nodes=len(there), rounds=Among(there, draw(len(there))))


@dataclass(frozen=True)
class Among(WeightedRounds):
    """Draws among those who are there, whose numbers need not be consecutive once nodes have come and left."""

    there: tuple[int, ...]
    drawn: Rounds

    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        return self._numbers(self.drawn.targets, node, round_)

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return self._numbers(self.drawn.sources, node, round_)

    def weight(self, node: int, source: int, round_: int) -> float:
        return 1.0 / (len(self.sources(node, round_)) + 1)

    def _numbers(self, draw: Callable[[int, int], tuple[int, ...]], node: int, round_: int) -> tuple[int, ...]:
        """Whom a node is drawn, by their numbers; one that leaves is drawn nobody."""
        places = draw(self.there.index(node), round_) if node in self.there else ()
        return tuple(self.there[place] for place in places)
