"""Which updates are in which model, from a trace alone: the check that no failure makes one count twice.

Every model is a sum of updates with weights; a combination of models is a combination of sums. What may happen once:

- No aggregate holds an update with more than its whole weight. And in one reign an update comes in with one visit: over
  the visits that the aggregator has counted (it notes each, `counted`), the aggregate gains 1/R of an update at most; a
  copy of the walk that was accepted beside it would bring as much again. (The first visit of a walk that comes from
  another reign is not counted: it is averaged with what the reign began with, which may hold the same updates.)
- What comes with a message whose kind says so (`Arrival.once`) is mixed in once: a model that is sent is a sum of its
  own, so one that came twice is recognized by being the same sum.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from walktalk.protocols import AGGREGATE, Protocol
from walktalk.records import TraceRow
from walktalk.runtimes.meaning import Contents, Encoded, Interpreter, Player, Scale, Watcher, Work, parsed, screening

Sum: TypeAlias = npt.NDArray[np.float32]  # by number of the training: its weight
Use: TypeAlias = tuple[int, str, int]  # the sender, the kind of message, and which of the sender's sums came
Uses: TypeAlias = collections.Counter[Use]  # how often it was mixed in
ROUNDING = 1e-3


class Sums(Contents[Sum]):
    """Contents of slots that are sums of updates; statistics and codecs change nothing in them."""

    def combined(
        self, here: Mapping[str, Sum], terms: Mapping[str, float], statistics: Mapping[str, float] | None
    ) -> Sum:
        """The combination, added up."""
        parts = [np.float32(weight) * here[slot] for slot, weight in terms.items()]
        return np.asarray(np.sum(parts, axis=0), dtype=np.float32)

    def screened(self, own: Sum, others: Sequence[tuple[Sum, float]], rule: str, key: int) -> Sum:
        """As if all had got through."""
        left = 1.0 - sum(weight for _, weight in others)
        parts = [np.float32(weight) * each for each, weight in ((own, left), *others)]
        return np.asarray(np.sum(parts, axis=0), dtype=np.float32)

    def update(self, start: Sum, trained: Sum) -> Sum:
        """The one update."""
        return trained - start

    def encoded(self, content: Sum, codec: str, key: int) -> Encoded[Sum]:
        """The same sum."""
        return Encoded(codec, content)

    def mean(self, contents: Iterable[Sum]) -> Sum:
        """The plain average."""
        return np.asarray(np.mean(list(contents), axis=0), dtype=np.float32)


class Ledger(Watcher[Sum]):
    """The slots of all nodes as sums of updates."""

    def __init__(self, protocol: Protocol, nodes: int, trainings: int) -> None:
        """
        - `protocol`: whose run it was.
        - `nodes`, `trainings`: how many there were.
        """
        hardened = protocol.hardened()
        self.share = 1.0 / hardened.active_models(nodes)  # of an update in the aggregate
        self.once = {kind for kind, arrival in hardened.messages.items() if arrival.once}
        self.nothing: Sum = np.zeros(trainings, dtype=np.float32)
        self.interpreter = Interpreter(Sums(), hardened.messages, Scale())
        self.player = Player(self.interpreter, self, nodes, self.nothing)
        self.mixings = 0  # of aggregates
        self.exchanges = 0  # models that came and were mixed in
        self.twice = 0  # of them more than once into the same model
        self.worst = 0.0  # the largest weight of an update in an aggregate
        self.counted = 0.0  # the largest part of an update that ever came in within one reign
        self._aggregates: dict[tuple[int, int], Sum] = {}  # by node and term: what it recorded last
        self._counts: set[int] = set()  # nodes whose next record is of a visit that counts
        self._reigns: dict[tuple[int, int], Sum] = {}  # by node and term: what came in so far
        self._kinds: dict[int, str] = {}  # messages under way, by number
        came = collections.defaultdict[int, dict[str, Use]]
        self._came = came(dict)  # by node: slots with what came, and from whom
        self._codes = came(dict)  # the same, for what came encoded
        self._uses = collections.defaultdict[int, Uses](collections.Counter)
        self._uses_saved: dict[tuple[int, int], Uses] = {}
        self._kept: list[Sum] = []  # sums that ids name: while they are kept, no other takes their place

    def play(self, trace: Iterable[TraceRow]) -> Self:
        """Go through a trace."""
        self.player.play(trace)
        return self

    @property
    def sound(self) -> bool:
        """Whether nothing was ever counted more than once."""
        return max(self.counted, self.worst) <= 1.0 + ROUNDING and not self.twice

    def trained(self, work: Work) -> Sum:
        """What it began with, and one update more."""
        made: Sum = np.zeros_like(self.nothing) if work.gradient else work.start.copy()
        made[work.number] += 1.0
        return made

    def before(self, row: TraceRow) -> None:
        """See what is about to be mixed in."""
        if row.event == "combine":
            self._note_uses(row.node, row.slot, parsed(row.detail))
        elif row.event == "screen":
            terms = screening(row).terms
            self._note_uses(row.node, row.slot, {slot: weight for slot, weight in terms.items() if weight})
        elif row.event == "counted":
            self._counts.add(row.node)

    def after(self, row: TraceRow) -> None:
        """See what has come, and what the aggregate has become."""
        if row.event == "send" and row.slot:
            self._kinds[row.number] = parsed(row.detail)["kind"]
        elif row.event == "receive" and row.slot:
            self._note_arrival(row)
        elif row.event == "decode" and row.detail in self._codes[row.node]:
            self._came[row.node][row.slot] = self._codes[row.node].pop(row.detail)
        elif row.event == "saved":
            self._uses_saved[row.node, row.number] = self._uses[row.node].copy()
        elif row.event == "rejoined":
            self._uses[row.node] = self._uses_saved.get((row.node, row.number), collections.Counter()).copy()
        elif row.event == "record" and row.detail == AGGREGATE:
            self._note_aggregate(row)

    def _note_arrival(self, row: TraceRow) -> None:
        kind = self._kinds.pop(row.number, "")
        if kind not in self.once:
            return
        code = self.interpreter.encodings.get(row.node, {}).get(row.slot)
        content = self.interpreter.slots[row.node].get(row.slot) if code is None else code.content
        if content is not None:
            where = self._came if code is None else self._codes
            where[row.node][row.slot] = (row.peer, kind, id(content))
            self._kept.append(content)

    def _note_uses(self, node: int, into: str, terms: Mapping[str, float]) -> None:
        """A plain copy of what came is what came; in everything else it is mixed in."""
        came, uses = self._came[node], self._uses[node]
        used = [came[slot] for slot in terms if slot in came]
        copied = len(terms) == 1 and 1.0 in terms.values()
        came.pop(into, None)
        if used and copied:
            came[into] = used[0]
            return
        for use in used:
            uses[use] += 1
            self.twice += uses[use] == 2
            self.exchanges += 1

    def _note_aggregate(self, row: TraceRow) -> None:
        self.mixings += 1
        now = self.interpreter.read(row.node, row.slot)
        self.worst = max(self.worst, float(now.max(initial=0.0)))
        reign = row.node, row.walk
        before, self._aggregates[reign] = self._aggregates.get(reign), now
        if row.node in self._counts and before is not None:
            self._reigns[reign] = came_in = self._reigns.get(reign, self.nothing) + (now - before) / self.share
            self.counted = max(self.counted, float(came_in.max(initial=0.0)))
        self._counts.discard(row.node)
