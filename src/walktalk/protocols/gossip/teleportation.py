"""Teleportation (Takezawa and Stich 2025): a few models, at other nodes in every round, gossip on a small graph.

    a(t): the k nodes that have the models in round t, drawn anew in every round, all different
    x_r½ = x_r − η g_a(x_r),  a = a_r(t),    x_r ← Σ_s W_rs x_s½,   r, s = 1 … k, at node a_r(t+1)

W is that of a graph of k, however many nodes there are, so models agree as fast as k nodes would, and everybody's data
count. A node sends what it trained to those that have the neighbours of its model next, and they average: the same as
averaging first and sending the mean on. With k = V it is D-PSGD in the order train, then mix, of models that change
their places; with k = 1 one model at one random node after the other. All draw from one seed, so that a node knows when
its turn is, and whom to wait for. (Written from the paper's abstract and from memory of it.)

Where nodes and messages are lost (of which the paper says nothing), a node averages what has come for its turn when
nothing else of it can come, or the rest is later than others ever were; weights are divided by their sum. Where
nothing has come the turn is left out, which is told to those that wait for it (not where all that this node waited for
have told it so: that would go round for ever), and the model is made in the next round by those that would have
averaged with it. When all are lost, who has heard of none for LONG times as long as usual goes on with the one that it
had last. Who hears of a later round than its own goes there, and what comes for an earlier one is dropped: of several
such beginnings the one that is furthest is left. The mean of all is then kept no more exactly; with one model, or where
links are lost for long, take walks, which are watched over.

Where nodes join and leave, places are drawn among those that are there, by each from when it hears of it. It averages
what it has by then, and says with each model which one it is: it was not at the node that the new draw had for it. What
was on its way then is trained where it arrives, unless a model is there, and nobody waits for it elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.core.errors import GraphError, SpecError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph, build
from walktalk.protocols.effects import (
    INITIAL,
    MEMBER,
    UPDATE,
    Arrival,
    Combine,
    Effect,
    Forget,
    Message,
    Note,
    Record,
    Send,
    SetTimer,
    Train,
)
from walktalk.protocols.events import (
    Event,
    NetworkChanged,
    PeerFound,
    PeerLost,
    Received,
    Rejoined,
    Started,
    TimerFired,
    Trained,
)
from walktalk.protocols.machine import Context, Machine, NetworkView, row_of
from walktalk.protocols.mechanisms.attendance import INTERVALS, LAST, LATE, Arrivals, Attendance
from walktalk.protocols.mechanisms.meeting import HALF, MODEL, arrivals, everybody_there
from walktalk.protocols.mechanisms.rounds import NeighbourRounds
from walktalk.protocols.self_description import BALANCED, COMPLETE, Demand

TOKEN = "token"  # kind of a message: a trained model for one of those that average it
NOTHING = "nothing"  # the sender has no model for this round
SILENT = "silent"  # timer: nothing has been heard for so long that all models must be lost
LONG = 20.0  # times the mean time between two turns: by chance once in e²⁰, where turns are drawn at random
MESSAGES = {**arrivals(TOKEN), NOTHING: Arrival()}


@dataclass(frozen=True)
class Teleportation(NeighbourRounds):
    """A few models that are at other nodes in every round, and averaged with each other along a small graph.

    Args:
        active: how many models there are, k; so many nodes train in a round.
        topology: of the models' graph: the name of one that needs no settings, such as cycle, exponential or complete.
        steps: local steps of a training; 0: as many as the study says.
        seed: of the draws, which all nodes share.
    """

    active: Annotated[int, Ge(1)] = 4
    topology: str = "cycle"
    steps: Annotated[int, Ge(0)] = 0
    seed: int = 0
    name: ClassVar[str] = "teleportation"
    proved: ClassVar[str] = "Takezawa & Stich 2025, here with four models on a cycle"
    bound: ClassVar[str] = "teleportation_order"
    paper: ClassVar[str] = "Takezawa and Stich, ICLR 2025"
    keeps: ClassVar[str] = "k models, each at another node in every round"
    sends: ClassVar[str] = "each of k models to those that average it next, in a round; the other nodes send nothing"
    guarantees: ClassVar[str] = (
        "the mean of the k models moves by the mean update alone, and they agree as fast as on a graph of k nodes; a "
        "constant rate leaves a rest on unlike nodes"
    )
    title: ClassVar[str] = "Teleportation"
    description: ClassVar[str] = (
        "A few models jump to other nodes in every round, train there, and are averaged with each other."
    )
    colour: ClassVar[str] = "#3F8A8C"
    demands: ClassVar[tuple[Demand, ...]] = (COMPLETE,)
    made_for: ClassVar[str] = "complete"
    models_travel: ClassVar[bool] = True

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MESSAGES

    def check(self, nodes: int) -> None:
        super().check(nodes)
        if self.active > nodes > 1:
            raise SpecError(f"active: {self.active} is not possible with {nodes} nodes; {nodes} or fewer are needed")
        BALANCED.check(self.graph(nodes), self.label)

    def active_models(self, nodes: int) -> int:
        return min(self.active, nodes)

    def graph(self, nodes: int) -> Graph:
        """That of the models."""
        models = self.active_models(nodes)
        try:
            return build(self.topology if models > 1 else "complete", models, seed=Seed(self.seed).child("topology"))
        except GraphError as error:
            raise SpecError(f"topology: {error}") from error

    def places(self, around: NetworkView) -> Places:
        """Where the models are, of all nodes or of those that are there."""
        there = everybody_there(around) if around.version else tuple(range(around.nodes))
        return Places(there, self.active_models(len(there)), Seed(self.seed))

    def machine(self, network_view: NetworkView) -> Machine:
        return TeleportNode(self, network_view)


@dataclass(frozen=True)
class Places:
    """Which node has which model when."""

    there: tuple[int, ...]  # who takes part
    tokens: int  # how many models there are
    seed: Seed

    def holders(self, round_: int) -> tuple[int, ...]:
        """The node of every model in a round."""
        return _drawn(self.there, self.tokens, self.seed, round_)

    def turn_after(self, node: int, round_: int) -> int:
        """The next round in which a node has a model; never, for one that leaves."""
        if node not in self.there:
            return LAST
        round_ += 1
        while node not in self.holders(round_):
            round_ += 1
        return round_


@lru_cache(maxsize=4096)
def _drawn(there: tuple[int, ...], tokens: int, seed: Seed, round_: int) -> tuple[int, ...]:
    return tuple(seed.child("teleportation", round_).python().sample(there, tokens))


class Tokens:
    """The graph of the models: by whom each is averaged, and with what weights."""

    __slots__ = ("around",)

    def __init__(self, graph: Graph) -> None:
        self.around = []
        for token in range(graph.nodes):
            neighbours = graph.neighbours(token)
            degrees = tuple(len(graph.neighbours(other)) for other in neighbours)
            heard = graph.reverse.neighbours(token) if graph.directed else None
            self.around.append(NetworkView(token, graph.nodes, neighbours, degrees, heard=heard, rounds=graph.rounds))

    def receivers(self, token: int, round_: int) -> list[int]:
        """Those that average what this one was trained to in a round, itself first."""
        return [token, *self.around[token].meets(round_)[0]] if token < len(self.around) else []

    def row(self, token: int, round_: int) -> dict[int, float]:
        """The row of W."""
        others = row_of(self.around[token], round_)
        return {token: 1.0 - sum(others.values()), **others}


class TeleportNode(Machine):
    """One node. It takes its turns in order; what comes for a later one waits."""

    __slots__ = (
        "around", "blank", "came", "cut_short", "empty", "gaps", "missing", "places", "protocol", "token", "tokens",
        "trains", "turn", "who",
    )  # fmt: skip

    def __init__(self, protocol: Teleportation, around: NetworkView) -> None:
        self.protocol = protocol
        self._learn_of(around)
        self.turn, self.trains, self.token = self.places.turn_after(around.node, -1), False, 0
        self.blank = False  # whether no model has been here yet
        self.came: dict[int, dict[int, int]] = {}  # round -> model that is here for it -> from whom
        self.missing: dict[int, set[int]] = {}  # round -> models for it that are known to be lost
        self.empty: dict[int, set[int]] = {}  # round -> models for it that their nodes did not have
        self.cut_short = False  # whether others may have gone on, since nodes came or left, without what was for here
        self.who = Attendance(protocol.patience)
        mean = protocol.patience / 4 * around.nodes / self.places.tokens
        self.gaps = Arrivals(mean, 0.0)  # between two turns

    def handle(self, event: Event, context: Context) -> list[Effect]:
        now = context.now
        match event:
            case Received():
                return [*self._heard(event), *self._go_on(now)]
            case Trained():
                self.gaps.arrived(now)
                return [*self._hand_on(), *self._listen(), *self._go_on(now)]
            case TimerFired(name) if name == SILENT:
                return self._listen() if self.trains or self.came else self._begin_again()
            case TimerFired():
                return self._too_late(now)
            case PeerLost(peer):
                self.who.lost(peer)
                return self._go_on(now)
            case PeerFound(peer):
                self.who.found(peer)
            case NetworkChanged(around):
                return self._change(around)
            case Started(late):
                self.gaps.last = now
                self.blank = late
                return [*([] if late else [Combine(MODEL, {INITIAL: 1.0})]), *self._come(self.turn, late)]
            case Rejoined(memory):
                self.gaps.last = now
                self.blank = memory[4:] == b"\1"
                return self._come(int.from_bytes(memory[:4], "little"), late=True)
        return []

    def keepsake(self) -> bytes:
        return self.turn.to_bytes(4, "little") + (b"\1" if self.blank else b"")

    def may_go(self) -> bool:
        """When it has handed on what it trains."""
        return not self.trains

    def missed(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """A model is lost on its way: it is averaged without it."""
        if message.term == self.around.version and message.round >= max(self.turn, 1):
            token = self._token_of(sender, message)
            self.missing.setdefault(message.round, set()).add(token)
            self._told(token, message)
        return self._go_on(context.now)

    def refused(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """What is no model is as good as lost."""
        return self.missed(sender, message, context)

    # -- where models are -------------------------------------------------------------------------------------------

    def _learn_of(self, around: NetworkView) -> None:
        self.around, self.places = around, self.protocol.places(around)
        self.tokens = Tokens(self.protocol.graph(len(self.places.there)))

    def _sources(self, round_: int) -> dict[int, float]:
        """Models that are averaged for a round, and with what weight."""
        return self.tokens.row(self.places.holders(round_).index(self.around.node), round_ - 1)

    def _receivers(self, token: int, round_: int) -> list[int]:
        """To whom what became of a model in a round goes, perhaps to this node itself."""
        after = self.places.holders(round_ + 1)
        return [after[one] for one in self.tokens.receivers(token, round_)]

    def _token_of(self, sender: int, message: Message) -> int:
        """Which model is averaged by this message; `ValueError` where none is sent to this node for that round."""
        round_, before = message.round, self.places.holders(message.round - 1)
        if 0 < round_ <= LAST and self.around.node in self.places.holders(round_):
            drawn = before.index(sender) if sender in before else -1
            token = int.from_bytes(message.note, "little") if message.note else drawn
            if token in self._sources(round_):
                return token
        raise ValueError(f"{sender} does not meet this node in round {round_}")

    def _message(self, kind: str, round_: int, token: int) -> Message:
        """Which model it is stands in it where that was at another node than is drawn for it."""
        drawn = self.places.holders(round_ - 1)[token]
        note = b"" if drawn == self.around.node else token.to_bytes(2, "little")
        return Message(kind, round=round_, term=self.around.version, note=note)

    # -- turns ------------------------------------------------------------------------------------------------------

    def _come(self, turn: int, late: bool) -> list[Effect]:
        """Take part from a turn on; who comes late has no part in the first round."""
        if turn == 0 and not late:
            return [*self._begin(), *self._listen()]
        self.turn = self.places.turn_after(self.around.node, max(turn, 1) - 1)
        return self._listen()

    def _listen(self) -> list[Effect]:
        return [SetTimer(SILENT, LONG * max(self.gaps.mean, self.gaps.expected))] if self.protocol.resilient else []

    def _begin_again(self) -> list[Effect]:
        """All models are lost: the last that was here goes on."""
        if self.turn == LAST:
            return []
        first = [Combine(MODEL, {INITIAL: 1.0})] if self.blank else []
        return [Note("begins_again", number=self.turn), *first, *self._begin()]

    def _begin(self) -> list[Effect]:
        self.trains, self.blank, self.token = True, False, self.places.holders(self.turn).index(self.around.node)
        return [Record(MEMBER, self.token, MODEL), Train(MODEL, steps=self.protocol.steps)]

    def _hand_on(self) -> list[Effect]:
        """What was trained goes to all that average it, perhaps to this node itself."""
        effects: list[Effect] = [Combine(HALF, {MODEL: 1.0, UPDATE: 1.0}, {UPDATE: 1.0})]
        node, after = self.around.node, self.turn + 1
        for to in self._receivers(self.token, self.turn):
            if to == node:
                self.came.setdefault(after, {})[self.token] = node
                effects.append(Combine(_slot(after, to), {HALF: 1.0}))
            elif to not in self.who.cut:
                effects.append(Send(to, self._message(TOKEN, after, self.token), HALF))
        self.turn, self.trains = self.places.turn_after(node, self.turn), False
        return effects

    def _heard(self, event: Received) -> list[Effect]:
        sender, message, number = event.sender, event.message, event.message.round
        drop: list[Effect] = [Forget(event.slot)] if event.slot else []
        if event.slot and sender in self.came.get(number, {}).values():  # it would take the place of the first
            raise ValueError(f"{sender} sends a second model for round {number}")
        if message.term != self.around.version:  # of one that knows others, and has drawn others
            on_its_way = self.cut_short and message.kind == TOKEN and self.turn != LAST
            if not on_its_way or self.trains or self.came:
                return drop
            return [Combine(MODEL, {event.slot: 1.0}), *drop, *self._begin()]  # when nodes came or left: is not lost
        token = self._token_of(sender, message)
        if not self.who.believes(sender, number, self.turn, self.around.neighbours):
            return [*drop, Note("disbelieved", peer=sender, number=number)]
        behind = [] if self.trains or number <= self.turn + self.places.tokens else self._catch_up(number)
        self.who.speaks(sender)
        if number < self.turn or (self.trains and number == self.turn) or token in self.came.get(number, ()):
            if not self.protocol.resilient:
                raise ValueError(f"{sender} does not meet this node in round {number}")
            return drop  # and it is not ahead
        self._told(token, message)
        if message.kind == NOTHING:
            self.missing.setdefault(number, set()).add(token)
        else:
            self.came.setdefault(number, {})[token] = sender
        return behind

    def _told(self, token: int, message: Message) -> None:
        """It may have been told, though that was lost, that the sender has no model."""
        if message.kind == NOTHING:
            self.empty.setdefault(message.round, set()).add(token)

    def _catch_up(self, number: int) -> list[Effect]:
        """Models are further than they can be from one that takes part: join them, and wait for none but who speaks."""
        self.turn, self.who.began = number, None
        self.who.absent.update(self.places.there)
        return [*self._forget_before(number), Note("catches_up", number=number)]

    def _forget_before(self, number: int) -> list[Effect]:
        gone = [_slot(round_, one) for round_, here in self.came.items() if round_ < number for one in here.values()]
        for known in (self.came, self.missing, self.empty):
            for round_ in [round_ for round_ in known if round_ < number]:
                del known[round_]
        return [Forget(slot) for slot in gone]

    def _change(self, around: NetworkView) -> list[Effect]:
        """Nodes have come or left: go on with what is here for this turn, and draw among those that are there."""
        here = {} if self.trains else self.came.get(self.turn, {})
        effects = [*(self._average(here) if here else []), *self._forget_before(LAST)]
        self.cut_short = True
        before, self.who.began = set(self.around.neighbours), None
        self.who.cut |= (before ^ set(around.neighbours)) | around.leaving
        self._learn_of(around)
        if not self.trains:
            self.turn = self.places.turn_after(around.node, min(max(self.turn, 1), LAST - 1) - 1)
        return effects

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _go_on(self, now: float) -> list[Effect]:
        """Average and train, if nothing else can come for the next turn; else wait, if its time has come."""
        effects: list[Effect] = []
        while not self.trains and (self.came or self.missing):
            sources, here = self._sources(self.turn), self.came.get(self.turn, {})
            lost, before = self.missing.get(self.turn, set()), self.places.holders(self.turn - 1)
            if self.cut_short and any(round_ > self.turn for round_ in self.came):  # by others' draws it came elsewhere
                lost = sources.keys() - here.keys()
            out = {token for token in sources if before[token] in self.who.out}
            if lost.issuperset(sources):
                tells = not self.empty.get(self.turn, set()).issuperset(sources)
                effects += self._leave_out_turn(self.places.turn_after(self.around.node, self.turn), tells)
            elif here and (here.keys() | lost | out).issuperset(sources):
                self.who.complete(now)
                effects += self._average(here)
            else:
                waits = self.protocol.resilient and not self.who.is_waiting
                return [*effects, *(self._wait(now) if waits else [])]
        return effects

    def _wait(self, now: float) -> list[Effect]:
        """After nodes came or left what is awaited may be nowhere: then as long as some turns take, and no longer."""
        usual = self.who.wait(now)
        return [SetTimer(LATE, min(self.who.waits.patience, INTERVALS * self.gaps.mean)) if self.cut_short else usual]

    def _too_late(self, now: float) -> list[Effect]:
        """Without those that have not come; or to the next turn for which something has."""
        if self.trains or not self.who.is_waiting:
            return []
        here, before = self.came.get(self.turn, {}), self.places.holders(self.turn - 1)
        late = {
            before[one] for one in self._sources(self.turn).keys() - here.keys() - self.missing.get(self.turn, set())
        }
        effects = self.who.leave_out(sorted(late - self.who.out), self.turn)
        if here:
            return [*effects, *self._average(here)]
        further = min((round_ for round_ in self.came if round_ > self.turn), default=None)
        after = self.places.turn_after(self.around.node, self.turn) if further is None else further
        return [*effects, *self._leave_out_turn(after, tells=further is not None), *self._go_on(now)]

    def _average(self, here: Mapping[int, int]) -> list[Effect]:
        """What is there, with weights that sum to one."""
        sources = self._sources(self.turn)
        row = {here[token]: weight for token, weight in sources.items() if token in here}
        if len(row) == len(sources):
            self.cut_short = False
        else:
            total = sum(row.values())
            row = {sender: weight / total if total else 1.0 / len(row) for sender, weight in row.items()}
        terms = {_slot(self.turn, sender): weight for sender, weight in row.items()}
        for known in (self.came, self.missing, self.empty):
            known.pop(self.turn, None)
        return [Combine(MODEL, terms), *(Forget(slot) for slot in terms), *self._begin()]

    def _leave_out_turn(self, after: int, tells: bool) -> list[Effect]:
        """Nothing has come for it: the next turn that this node has a part in is `after`."""
        skipped, node, token = self.turn, self.around.node, self.places.holders(self.turn).index(self.around.node)
        told = self._receivers(token, skipped) if tells else []
        self.turn = after
        if node in told:
            self.missing.setdefault(skipped + 1, set()).add(token)
        forgotten = self._forget_before(after)
        message = self._message(NOTHING, skipped + 1, token)
        tell = [Send(to, message) for to in told if to not in {node, *self.who.cut}]
        return [*forgotten, Note("left_out", peer=node, number=skipped), *tell]


def _slot(round_: int, sender: int) -> str:
    """Where what a node sent for a round is."""
    return f"{TOKEN}/{round_}/{sender}"
