"""Plays a trace: every line back to the effect that it tells of, given to an interpreter.

The replay of a real run and the ledger are this, with contents of their own.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Generic

from walktalk.protocols import AGGREGATE, INITIAL, MEMBER, Apply, Combine, Decode, Differentiate, Encode, Record, Train
from walktalk.records import TraceRow
from walktalk.runtimes.semantics.contents import Content, Encoded, Work
from walktalk.runtimes.semantics.interpreter import FACTOR, STATISTICS, WITH, Interpreter, Packed


class Watcher(ABC, Generic[Content]):
    """Who follows a player: says what trainings make, and may look before and after every line."""

    @abstractmethod
    def trained(self, work: Work) -> Content:
        """What a training that has begun will make."""

    @abstractmethod
    def before(self, row: TraceRow) -> None:
        """A line is about to be played."""

    @abstractmethod
    def after(self, row: TraceRow) -> None:
        """A line was played."""


class Player(Generic[Content]):
    """The nodes of a run, moved on line by line."""

    def __init__(
        self, interpreter: Interpreter[Content], watcher: Watcher[Content], nodes: int, initial: Content
    ) -> None:
        """
        - `interpreter`: has the slots; keeps no trace.
        - `watcher`: see there.
        - `nodes`: how many there are.
        - `initial`: the initial model.
        """
        self.interpreter, self.watcher, self._initial = interpreter, watcher, initial
        self.works: dict[int, tuple[Work, Content]] = {}  # trainings under way, by number
        self.messages: dict[int, Packed] = {}  # under way, by number
        self.spoiled: dict[tuple[int, str], Packed] = {}  # by node and slot: what a bad node sends in place of it
        self.saved: dict[tuple[int, int], dict[str, Content]] = {}  # checkpoints: node, number -> its slots
        self.gaps = 0  # models that were received and whose sending nobody wrote down
        for node in range(nodes):
            interpreter.add_node(node, initial)

    def play(self, trace: Iterable[TraceRow]) -> None:
        """All lines, in order; a line that says nothing about models is only watched."""
        for row in trace:
            if row.node >= 0 and row.node not in self.interpreter.slots:
                self.interpreter.add_node(row.node, self._initial)  # it has joined
            self.watcher.before(row)
            take = _PLAYED.get(row.event)
            if take is not None:
                take(self, row)
            self.watcher.after(row)

    def _train(self, row: TraceRow) -> None:
        kind = Differentiate if row.event == "differentiate" else Train
        asked = dict(parsed(row.detail)) if row.detail else {}
        factor = asked.pop(FACTOR, 1.0)
        work = self.interpreter.begin_training(
            row.node, kind(row.slot, row.walk, **asked), row.number, int(row.key), float(row.lr), factor
        )
        self.works[row.number] = (work, self.watcher.trained(work))

    def _trained(self, row: TraceRow) -> None:
        self.interpreter.forget_result(row.node)
        self.interpreter.end_training(*self.works.pop(row.number))

    def _handed_on(self, row: TraceRow) -> None:
        self.interpreter.hand_on(row.node, row.slot, row.walk)

    def _combine(self, row: TraceRow) -> None:
        weights: dict[str, float] = {}
        statistics: dict[str, float] = {}
        for slot, weight in parsed(row.detail).items():
            where = statistics if slot.startswith(STATISTICS) else weights
            where[slot.removeprefix(STATISTICS)] = weight
        self.interpreter.combine(row.node, Combine(row.slot, weights, statistics or None))

    def _screen(self, row: TraceRow) -> None:
        self.interpreter.apply(row.node, screening(row), int(row.key))

    def _withheld(self, row: TraceRow) -> None:
        self.interpreter.withhold(row.node, row.slot)

    def _encode(self, row: TraceRow) -> None:
        detail = parsed(row.detail)
        self.interpreter.encode(row.node, Encode(detail["slot"], row.slot, detail["codec"]), int(row.key))

    def _decode(self, row: TraceRow) -> None:
        interpreter = self.interpreter
        if row.detail not in interpreter.encodings.get(row.node, {}):  # it came in a gap: see `_last_known`
            interpreter.combine(row.node, Combine(row.slot, {row.detail: 1.0}))
            return
        interpreter.decode(row.node, Decode(row.detail, row.slot))

    def _send(self, row: TraceRow) -> None:
        """What a message holds is what its slot holds now; its bytes are those that were written down."""
        interpreter = self.interpreter
        if not row.slot:
            interpreter.traffic.add(int(row.bytes), 0)
            return
        content, detail = self._held(row), parsed(row.detail)
        state = interpreter.states.get((row.node, row.slot)) if row.walk > 0 else None
        payload = interpreter.payload_of(detail["kind"], row.walk)
        interpreter.traffic.add(int(row.bytes), payload)
        packed = Packed(detail["into"], content, state, payload)
        self.messages[row.number] = self.spoiled.pop((row.node, row.slot), packed)._replace(into=packed.into)

    def _held(self, row: TraceRow) -> Content | Encoded[Content]:
        here = self.interpreter.slots[row.node]
        return here[row.slot] if row.slot in here else self.interpreter.encodings[row.node][row.slot]

    def _corrupted(self, row: TraceRow) -> None:
        """A bad node is about to send something else than what its slot holds."""
        packed = Packed("", self._held(row), None, 0)
        spoiled = self.interpreter.corrupted(row.node, row.slot, packed, row.detail, int(row.key))
        self.spoiled[row.node, row.slot] = spoiled

    def _receive(self, row: TraceRow) -> None:
        packed = self.messages.pop(row.number, None)
        if packed is None and row.slot:
            packed = Packed(row.slot, self._last_known(row), None, 0)
        if packed is not None:
            self.interpreter.receive(row.node, row.peer, row.walk, packed, row.number)

    def _superseded(self, row: TraceRow) -> None:
        """A message that was overtaken by a later one before it left."""
        packed = self.messages.pop(row.number, None)
        self.interpreter.traffic.withdraw(int(row.bytes), packed.payload if packed is not None else 0)

    def _last_known(self, row: TraceRow) -> Content | Encoded[Content]:
        """The sender died before it wrote down what it sent: the last that is known of the walk, or of the sender."""
        self.gaps += 1
        members, owners = self.interpreter.output.members, self.interpreter.output.owners
        known = [row.walk] if row.walk > 0 else [key for key, owner in owners.items() if owner == row.peer]
        models = [members[key] for key in known if key in members]
        return models[-1] if models else self.interpreter.read(row.peer, INITIAL)

    def _saved(self, row: TraceRow) -> None:
        self.saved[row.node, row.number] = dict(self.interpreter.slots[row.node])

    def _rejoined(self, row: TraceRow) -> None:
        self.interpreter.slots[row.node].update(self.saved.get((row.node, row.number), {}))

    def _record(self, row: TraceRow) -> None:
        role = AGGREGATE if row.detail == AGGREGATE else MEMBER
        self.interpreter.record(row.node, Record(role, row.walk, row.slot))

    def _kill(self, row: TraceRow) -> None:
        self.interpreter.output.node_dies(row.node)

    def _left_for_good(self, row: TraceRow) -> None:
        """Whoever writes it down, it is about its peer."""
        self.interpreter.output.node_dies(row.peer)


_PLAYED: Mapping[str, Any] = {
    "train": Player._train,
    "differentiate": Player._train,
    "trained": Player._trained,
    "handed_on": Player._handed_on,
    "combine": Player._combine,
    "screen": Player._screen,
    "withheld": Player._withheld,
    "encode": Player._encode,
    "decode": Player._decode,
    "corrupted": Player._corrupted,
    "send": Player._send,
    "superseded": Player._superseded,
    "receive": Player._receive,
    "saved": Player._saved,
    "rejoined": Player._rejoined,
    "record": Player._record,
    "kill": Player._kill,
    "left_for_good": Player._left_for_good,
}


def screening(row: TraceRow) -> Apply:
    """The effect that a line tells of."""
    detail = parsed(row.detail)
    terms = {slot.removeprefix(WITH): weight for slot, weight in detail.items() if slot.startswith(WITH)}
    return Apply(row.slot, detail["own"], terms, detail["rule"])


def parsed(detail: Any) -> dict[str, Any]:
    """A row's detail, from JSON where it was read from a file."""
    found: dict[str, Any] = detail if isinstance(detail, dict) else json.loads(detail)
    return found
