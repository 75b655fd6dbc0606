"""Rounds in which models go from node to node: a node trains only in its turns, and waits for the models of the next.

What it trains it hands on, and keeps a copy. Nobody goes ahead of the others: between its turns a node waits until
something of the next one is here or known to be lost, or until others are further. What is late or lost then is left
out, as in `rounds`, and the weights of the rest are divided by their sum; where nothing has come at all, the node goes
on with its copy. So every turn is taken, and nobody waits for a model that is nowhere. Who knows that all are dead whom
its model would go to, trains it further itself. When all are lost, who has heard of none for `SILENCE` times as long as
usual goes on with its copy, too. Of several such beginnings the one that is furthest is left.

Where nodes join and leave, turns are those of the new network from when a node hears of it. Who has just trained a
model then goes on with it; what others have sent meanwhile is trained where it arrives, unless a model is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from walktalk.core.seeds import Seed
from walktalk.graphs import Graph, Rounds
from walktalk.protocols.effects import Effect, Forget, Note, SetTimer
from walktalk.protocols.events import Event, NetworkView, Received, TimerFired
from walktalk.protocols.machine import Protocol, row_of
from walktalk.protocols.mechanisms.attendance import LAST, Arrivals, Attendance
from walktalk.protocols.mechanisms.meeting import Meeting, everybody_there
from walktalk.protocols.mechanisms.rounds import BEGIN, RoundNode, Rule

SILENCE = 20.0  # times the mean time until a turn: by chance once in e²⁰, where turns are drawn at random


@dataclass(frozen=True)
class Places(Rounds):
    """Which node has which model when, and by whom it is averaged: drawn anew in every round, all different."""

    there: tuple[int, ...]  # who takes part
    tokens: int  # how many models there are
    seed: Seed
    models: tuple[NetworkView, ...] = ()  # their graph, as each of them sees it

    def holders(self, round_: int) -> tuple[int, ...]:
        """The node of every model in a round."""
        return _drawn(self.there, self.tokens, self.seed, round_)

    def model_at(self, node: int, round_: int) -> int:
        """The number of the model that a node has in a round that is its turn."""
        return self.holders(round_).index(node)

    def turn_after(self, node: int, round_: int) -> int:
        """The next round in which a node has a model; never, for one that leaves."""
        round_ = round_ + 1 if node in self.there else LAST
        while round_ < LAST and node not in self.holders(round_):
            round_ += 1
        return round_

    def row(self, node: int, round_: int) -> dict[int, float]:
        """The row of W of the model that a node has next: the nodes whose models of this round are averaged in it."""
        before, after = self.holders(round_), self.holders(round_ + 1)
        if node not in after:
            return {}
        model = after.index(node)
        others = row_of(self.models[model], round_)
        return {before[one]: weight for one, weight in {model: 1.0 - sum(others.values()), **others}.items()}

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return tuple(other for other in self.row(node, round_) if other != node)

    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        before, after = self.holders(round_), self.holders(round_ + 1)
        if node not in before:
            return ()
        model = before.index(node)
        heard_by = (model, *self.models[model].meets(round_)[0])
        return tuple(after[one] for one in heard_by if after[one] != node)


@lru_cache(maxsize=4096)
def _drawn(there: tuple[int, ...], tokens: int, seed: Seed, round_: int) -> tuple[int, ...]:
    return tuple(seed.child("teleportation", round_).python().sample(there, tokens))


def in_turns(around: NetworkView, graph: Callable[[int], Graph], seed: Seed) -> NetworkView:
    """Has nodes take turns: models that are averaged along a graph of their own are drawn other nodes in every round.

    Args:
        around: what the node knows of the network.
        graph: makes that of the models, for a number of nodes that take part.
        seed: of the draws, which all nodes share.
    """
    there = everybody_there(around) if around.version else tuple(range(around.nodes))
    small = graph(len(there))
    degrees = [len(small.neighbours(one)) for one in range(small.nodes)]
    models = tuple(
        NetworkView(
            one,
            small.nodes,
            small.neighbours(one),
            tuple(degrees[other] for other in small.neighbours(one)),
            heard=small.reverse.neighbours(one) if small.directed else None,
            rounds=small.rounds,
        )
        for one in range(small.nodes)
    )
    return replace(around, rounds=Places(there, len(models), seed, models))


def places_of(around: NetworkView) -> Places:
    """Who has which model when, in a network whose nodes take turns (`in_turns`)."""
    assert isinstance(around.rounds, Places)
    return around.rounds


def mean_for_next(meeting: Meeting, own: str, kind: str) -> dict[str, float]:
    """The row of W of the model that a node has next, as weights of slots: those of what is here, divided by their sum.

    Args:
        meeting: whom the node meets in this round.
        own: the slot of the model that it trained last.
        kind: of the messages that bring the others.
    """
    node = meeting.around.node
    row = places_of(meeting.around).row(node, meeting.round)
    slots = {node: own, **{one: meeting.slot(kind, one) for one in meeting.there(kind)}}
    mean = {slots[one]: weight for one, weight in row.items() if one in slots}
    if len(mean) == len(row):
        return mean
    total = sum(mean.values())
    return {slot: weight / total if total else 1.0 / len(mean) for slot, weight in mean.items()}


class TurnNode(RoundNode):
    """One node of those that train in turns."""

    __slots__ = ("done", "pace", "rests")

    def __init__(self, protocol: Protocol, meeting: Meeting, rule: Rule, patience: float | None = None) -> None:
        """
        - `protocol`, `meeting`, `rule`, `patience`: as in `RoundNode`; the network is one `in_turns`.
        """
        super().__init__(protocol, meeting, rule, patience)
        self.rests = False  # whether the round before its turn is others' alone, so that it waits for them to come
        self.pace = Arrivals((patience or 1.0) / 4, 0.0)  # how long a round takes
        self.done: tuple[float, int] | None = None  # when, and in which round, its last training ended

    def may_go(self) -> bool:
        """When it has handed on what it trains."""
        return self.trained or self.empty

    def _begin_round(self) -> list[Effect]:
        number = self.meeting.round
        return super()._begin_round() if self._turn(number) == number else self._rest(number)

    def _wait(self, now: float) -> list[Effect]:
        """The model is others' now; where none of them is there, or others are drawn now, this node goes on with it."""
        number, keeps = self.meeting.round + 1, self.changed is not None or not self.meeting.targets
        if self.done and self.done[1] < number:
            self.pace.observe((now - self.done[0]) / (number - self.done[1]))
        self.done = now, number
        rest = [*(self._go_by_new_network() if self.changed is not None else []), *self._rest(number)]
        self.rests = self.rests and not keeps
        return rest if self.rests else [*rest, *super()._wait(now)]

    def _turn(self, number: int) -> int:
        """The first round from this one on in which the node trains."""
        around = self.meeting.around
        return places_of(around).turn_after(around.node, number - 1)

    def _rest(self, number: int) -> list[Effect]:
        """Go to the round before the first turn from one on, and wait; if no models ever come, all must be lost."""
        turn = self._turn(number)
        self.trained, self.rests = True, turn > number
        gone = self.meeting.go_to(turn - 1) if turn - 1 != self.meeting.round else []
        usual = (turn - number + 1) * max(self.pace.mean, self.pace.expected)
        return [*gone, *([SetTimer(BEGIN, SILENCE * usual)] if self.attendance is not None else [])]

    def _is_due(self) -> bool:
        """Whether the others have come as far as this node's turn."""
        return bool(self.meeting.came or self.meeting.missed)

    def _is_idle(self) -> bool:
        return self.trained and self.rests and not self._is_due()

    def _has_all(self) -> bool:
        return super()._has_all() and not (self.attendance is not None and self._is_idle())

    def _finish(self, now: float) -> list[Effect]:
        effects = super()._finish(now)
        who = self.attendance
        waits = who is not None and self.trained and not who.is_waiting and not self._is_idle()
        return [*effects, who.wait(now)] if who is not None and waits else effects

    def _go_on(self, who: Attendance, now: float) -> list[Effect]:
        """Take the next turn with the model that is here, whatever the others do; who leaves has none."""
        if self.meeting.round >= LAST - 1:
            return []
        self.rests = False
        self._wait_for_none(who)
        return self._finish(now)

    def _happened(self, event: Event, who: Attendance, now: float) -> list[Effect]:
        if not isinstance(event, TimerFired) or self.empty:
            return super()._happened(event, who, now)
        if event.name != BEGIN:  # of a turn that is over, where nobody is awaited yet
            return super()._happened(event, who, now) if who.is_waiting else []
        begins = Note("begins_again", number=self.meeting.round + 1)
        return [begins, *self._go_on(who, now)] if self._is_idle() else []

    def _received(self, event: Received, who: Attendance, now: float) -> list[Effect]:
        message = event.message
        strays = self.meeting.around.version and self.meeting.is_of_other_network(message)
        if self.empty or not strays or not self._is_idle():
            return super()._received(event, who, now)
        adopted = self.rule.adopt(message.kind, event.slot, self._read(message))
        return [*adopted, Forget(event.slot), *self._go_on(who, now)]

    def _change(self, around: NetworkView, who: Attendance, now: float) -> list[Effect]:
        effects = super()._change(around, who, now)
        if self.changed is None or not self.trained:
            return effects
        effects += self._go_by_new_network()
        here = max([self.done[1] if self.done else 0, *(number + 1 for number in self.latest.values())])
        effects += self._rest(here)  # no further than the others are, as far as this node knows
        self.rests = True
        return effects
