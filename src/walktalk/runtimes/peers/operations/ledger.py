"""Which updates are in which model, from a trace alone: the check that no failure makes one count twice.

Every model is a sum of updates with weights; a combination of models is a combination of sums. What may happen once:

- No aggregate holds an update with more than its whole weight. And in one term an update comes in with one visit: over
  the visits that the aggregator has counted (it notes each, `counted`), the aggregate gains 1/R of an update at most; a
  copy of the walk that was accepted beside it would bring as much again. (The first visit of a walk that comes from
  another term is not counted: it is averaged with what the term began with, which may hold the same updates.)
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
from walktalk.runtimes.semantics import Contents, Encoded, Interpreter, Player, Scale, Watcher, Work, parsed, screening

Sum: TypeAlias = npt.NDArray[np.float32]  # by number of the training: its weight
Use: TypeAlias = tuple[int, str, int]  # the sender, the kind of message, and which of the sender's sums came
ROUNDING = 1e-3


class Sums(Contents[Sum]):
    """Contents of slots that are sums of updates; statistics and codecs change nothing in them."""

    def combined(
        self, here: Mapping[str, Sum], terms: Mapping[str, float], statistics: Mapping[str, float] | None
    ) -> Sum:
        """Add up a combination of sums."""
        parts = [np.float32(weight) * here[slot] for slot, weight in terms.items()]
        return np.asarray(np.sum(parts, axis=0), dtype=np.float32)

    def screened(self, own: Sum, others: Sequence[tuple[Sum, float]], rule: str, key: int) -> Sum:
        """Mix as if all models had got through."""
        left = 1.0 - sum(weight for _, weight in others)
        parts = [np.float32(weight) * each for each, weight in ((own, left), *others)]
        return np.asarray(np.sum(parts, axis=0), dtype=np.float32)

    def update(self, start: Sum, trained: Sum) -> Sum:
        """The change that a training made: its one update."""
        return trained - start

    def encoded(self, content: Sum, codec: str, key: int) -> Encoded[Sum]:
        """Encoding changes nothing in a sum."""
        return Encoded(codec, content)

    def mean(self, contents: Iterable[Sum]) -> Sum:
        """The plain average of sums."""
        return np.asarray(np.mean(list(contents), axis=0), dtype=np.float32)


class Uses:
    """Counts how often what came with a message that may be mixed in once is mixed in, node by node."""

    def __init__(self, interpreter: Interpreter[Sum], once: Iterable[str]) -> None:
        """
        - `interpreter`: has the slots of all nodes.
        - `once`: the kinds of such messages.
        """
        self.exchanges = 0  # models that came and were mixed in
        self.twice = 0  # of them more than once into the same model
        self.liars: set[int] = set()  # nodes that sent forged messages: what they offer again under a new number is new
        self._interpreter, self._once = interpreter, frozenset(once)
        self._kinds: dict[int, str] = {}  # messages under way, by number
        came = collections.defaultdict[int, dict[str, Use]]
        self._came = came(dict)  # by node: slots with what came, and from whom
        self._codes = came(dict)  # the same, for what came encoded
        self._counts = collections.defaultdict[int, collections.Counter[Use]](collections.Counter)
        self._saved: dict[tuple[int, int], collections.Counter[Use]] = {}  # by node and checkpoint
        self._kept: list[Sum] = []  # sums that ids name: while they are kept, no other takes their place

    def mixed(self, node: int, into: str, terms: Mapping[str, float]) -> None:
        """A slot is about to be set to a combination. A plain copy of what came is what came; else it is mixed in."""
        came, counts = self._came[node], self._counts[node]
        used = [came[slot] for slot in terms if slot in came]
        copied = len(terms) == 1 and 1.0 in terms.values()
        came.pop(into, None)
        if used and copied:
            came[into] = used[0]
            return
        here = self._interpreter.slots[node]
        taken_off = {id(here[slot]) for slot, weight in terms.items() if weight < 0.0 and slot in here}
        for use in used:
            if use[0] in self.liars or use[2] in taken_off:  # an answer that is the offer changes nothing
                continue
            counts[use] += 1
            self.twice += counts[use] == 2
            self.exchanges += 1

    def sent(self, row: TraceRow) -> None:
        """A model was sent: remember with which kind of message."""
        self._kinds[row.number] = parsed(row.detail)["kind"]

    def arrived(self, row: TraceRow) -> None:
        """A model has come to a node."""
        kind = self._kinds.pop(row.number, "")
        if kind not in self._once:
            return
        code = self._interpreter.encodings.get(row.node, {}).get(row.slot)
        content = self._interpreter.slots[row.node].get(row.slot) if code is None else code.content
        if content is not None:
            where = self._came if code is None else self._codes
            where[row.node][row.slot] = (row.peer, kind, id(content))
            self._kept.append(content)

    def decoded(self, row: TraceRow) -> None:
        """What came encoded is a model in a slot now."""
        if row.detail in self._codes[row.node]:
            self._came[row.node][row.slot] = self._codes[row.node].pop(row.detail)

    def saved(self, row: TraceRow) -> None:
        """A node has written a checkpoint."""
        self._saved[row.node, row.number] = self._counts[row.node].copy()

    def rejoined(self, row: TraceRow) -> None:
        """A node goes on from a checkpoint: what it mixed in since is undone.

        What it says of its own model from now on is said anew, though it is the model of before; what it keeps of an
        exchange with somebody is not.
        """
        self._counts[row.node] = self._saved.get((row.node, row.number), collections.Counter()).copy()
        here = self._interpreter.slots[row.node]
        here.update({slot: content.copy() for slot, content in here.items() if "/" not in slot})


class Ledger(Watcher[Sum]):
    """The slots of all nodes as sums of updates, and what was counted more than once in them."""

    def __init__(self, protocol: Protocol, nodes: int, trainings: int) -> None:
        """
        - `protocol`: whose run it was.
        - `nodes`, `trainings`: how many there were.
        """
        resilient_form = protocol.resilient_form()
        self.share = 1.0 / resilient_form.active_models(nodes)  # of an update in the aggregate
        self.nothing: Sum = np.zeros(trainings, dtype=np.float32)
        self.interpreter = Interpreter(Sums(), resilient_form.messages, Scale())
        self.player = Player(self.interpreter, self, nodes, self.nothing)
        once = (kind for kind, arrival in resilient_form.messages.items() if arrival.once)
        self.uses = Uses(self.interpreter, once)
        self.mixings = 0  # of aggregates
        self.worst = 0.0  # the largest weight of an update in an aggregate
        self.counted = 0.0  # the largest part of an update that ever came in within one term
        self._aggregates: dict[tuple[int, int], Sum] = {}  # by node and term: what it recorded last
        self._counts: set[int] = set()  # nodes whose next record is of a visit that counts
        self._terms: dict[tuple[int, int], Sum] = {}  # by node and term: what came in so far

    def play(self, trace: Iterable[TraceRow]) -> Self:
        """Go through a trace."""
        self.player.play(trace)
        return self

    @property
    def exchanges(self) -> int:
        """Models that came with messages that count once, and were mixed in."""
        return self.uses.exchanges

    @property
    def twice(self) -> int:
        """Models that were mixed in more than once."""
        return self.uses.twice

    @property
    def sound(self) -> bool:
        """Whether nothing was ever counted more than once."""
        return max(self.counted, self.worst) <= 1.0 + ROUNDING and not self.twice

    def trained(self, work: Work) -> Sum:
        """What a training began with, and one update more."""
        made: Sum = np.zeros_like(self.nothing) if work.gradient else work.start.copy()
        made[work.number] += 1.0
        return made

    def before(self, row: TraceRow) -> None:
        """See what is about to be mixed in."""
        if row.event == "combine":
            self.uses.mixed(row.node, row.slot, parsed(row.detail))
        elif row.event == "screen":
            terms = screening(row).terms
            self.uses.mixed(row.node, row.slot, {slot: weight for slot, weight in terms.items() if weight})
        elif row.event == "counted":
            self._counts.add(row.node)

    def after(self, row: TraceRow) -> None:
        """See what has come, and what the aggregate has become."""
        if row.event == "send" and row.slot:
            self.uses.sent(row)
        elif row.event == "receive" and row.slot:
            self.uses.arrived(row)
        elif row.event == "decode":
            self.uses.decoded(row)
        elif row.event == "saved":
            self.uses.saved(row)
        elif row.event == "rejoined":
            self.uses.rejoined(row)
        elif row.event == "record" and row.detail == AGGREGATE:
            self._weigh_aggregate(row)

    def _weigh_aggregate(self, row: TraceRow) -> None:
        self.mixings += 1
        now = self.interpreter.read(row.node, row.slot)
        self.worst = max(self.worst, float(now.max(initial=0.0)))
        term = row.node, row.walk
        before, self._aggregates[term] = self._aggregates.get(term), now
        if row.node in self._counts and before is not None:
            self._terms[term] = came_in = self._terms.get(term, self.nothing) + (now - before) / self.share
            self.counted = max(self.counted, float(came_in.max(initial=0.0)))
        self._counts.discard(row.node)
