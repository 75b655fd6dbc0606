"""What effects mean, written once: for virtual time, for real peers, for the replay of a real run and for the ledger.

An interpreter has the slots of one or more nodes. It carries out what concerns them at once (`combine`, `apply`,
`encode`, `decode`, `forget`, `record`, `note`); of what takes time it says how it begins and how it ends:
`begin_training` and `end_training`, `pack`, `sent` and `receive`. When these things happen is the runtime's: the
simulator's agenda, a peer's network and threads, or the order of the lines in a trace. What the contents of slots are,
`Contents` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple

from walktalk.core.errors import ProtocolError
from walktalk.protocols import (
    GRADIENT,
    INITIAL,
    UPDATE,
    Apply,
    Arrival,
    Combine,
    Decode,
    Differentiate,
    Encode,
    Forget,
    Message,
    Note,
    Record,
    Send,
    Train,
    control_bytes,
)
from walktalk.records import TraceRow
from walktalk.runtimes.semantics.contents import (
    Content,
    Contents,
    Encoded,
    OptimizerState,
    Output,
    Releases,
    Traffic,
    Work,
)
from walktalk.transforms.codecs import model_size
from walktalk.transforms.rules import rule_named

# Makes a named tuple from its fields without the detour through its own `__new__`, which takes as long again.
made = tuple.__new__
FLOAT_BYTES = 4
STATISTICS = "statistics:"  # before a slot's name, in the trace of a combination
FACTOR = "factor"  # in the trace of a training: times which its node's gradients count, where that is not 1
WITH = "with:"  # the same in that of a screening
MOST_NAMES = 2**14  # of slots that are remembered


class Packed(NamedTuple):
    """What goes along with a message."""

    into: str  # the slot in which it arrives; "": nothing goes along
    content: Any  # a model's content, or an `Encoded`
    state: Any  # the optimizer state that travels with it; None: none does
    payload: int  # bytes


NOTHING = Packed("", None, None, 0)


class Scale(NamedTuple):
    """The sizes in a study."""

    model_bytes: int = 0  # of one model on the wire
    state_bytes: int = 0  # of one optimizer state on the wire
    local_steps: int = 1  # of a training, where the protocol does not say
    optimizer_state: OptimizerState = "visit"  # where the optimizer's state lives between two visits
    statistics: bool = True  # whether models carry any beside their parameters
    statistics_bytes: int = 0  # of them on the wire, among those of a model
    steps_of: tuple[int, ...] = ()  # by node: local steps, where nodes have numbers of their own

    def steps(self, node: int) -> int:
        """Local steps of a training at a node, where the protocol does not say."""
        return self.steps_of[node] if self.steps_of else self.local_steps


class Interpreter(Generic[Content]):
    """The slots of some nodes, and all that effects do to them."""

    def __init__(
        self,
        contents: Contents[Content],
        messages: Mapping[str, Arrival],
        scale: Scale,
        write: Callable[[TraceRow], None] | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        releases: Releases | None = None,
    ) -> None:
        """
        - `contents`: what stands in slots.
        - `messages`: the protocol's own declaration of how messages arrive.
        - `scale`: the sizes in the study.
        - `write`: takes every line of the trace; None: no trace is kept.
        - `clock`: the time of those lines.
        - `releases`: keeps account of what nodes let out of their data; None: nothing is private.
        """
        self.contents, self.messages, self.scale = contents, messages, scale
        self.write, self.clock = write, clock
        self.slots: dict[int, dict[str, Content]] = {}  # node -> slot -> what it is
        self.encodings: dict[int, dict[str, Encoded[Content]]] = {}  # node -> slot -> encoded message
        self.states: dict[tuple[int, str], Any] = {}  # of optimizers, by node and slot; slot "": the node's own
        self.output = Output(contents)
        self.iteration = 0
        self.traffic = Traffic()
        self.releases = releases or Releases()
        self._names: dict[tuple[str, int, int, int], str] = {}  # of slots that messages arrive in

    def add_node(self, node: int, initial: Content) -> None:
        """A node begins, with the initial model."""
        self.slots[node] = {INITIAL: initial}

    def read(self, node: int, slot: str) -> Content:
        """The model in a slot."""
        try:
            return self.slots[node][slot]
        except KeyError:
            raise ProtocolError(f"node {node} has no model in slot {slot!r}") from None

    # -- at once --------------------------------------------------------------------------------------------------

    def combine(self, node: int, effect: Combine) -> None:
        """Set a slot to a combination. A plain copy is the same content, and its optimizer state comes along."""
        into, terms, statistics = effect
        here = self.slots[node]
        copied = None
        if len(terms) == 1:
            ((slot, weight),) = terms.items()
            copied = slot if weight == 1.0 else None
        if not self.scale.statistics:
            statistics = None
        try:
            here[into] = here[copied] if copied is not None else self.contents.combined(here, terms, statistics)
        except KeyError as error:
            raise ProtocolError(f"node {node} combines slot {error}, which is not there") from None
        if copied is not None:
            self._copy_state(node, copied, into)
        if self.write is not None:
            detail: Mapping[str, float] = terms
            if statistics is not None and copied is None:
                detail = {**terms, **{f"{STATISTICS}{slot}": weight for slot, weight in statistics.items()}}
            self.write(made(TraceRow, (self.clock(), node, "combine", into, -1, -1, -1, -1, 0, 0, 0.0, detail)))

    def apply(self, node: int, effect: Apply, key: int) -> None:
        """Set a slot to what a number rule makes of this node's model and others."""
        into, own, terms, rule = effect
        if rule_named(rule).releases and not self.releases.allow(node):
            self.withhold(node, into)
            return
        others = [(self.read(node, slot), weight) for slot, weight in terms.items()]
        self.slots[node][into] = self.contents.screened(self.read(node, own), others, rule, key)
        if self.write is not None:
            told = {"own": own, "rule": rule, **{f"{WITH}{slot}": weight for slot, weight in terms.items()}}
            hidden = self.releases.secret and rule_named(rule).releases
            self.note_down(node, "screen", into, key=0 if hidden else key, detail=told)

    def withhold(self, node: int, slot: str) -> None:
        """An update or a gradient of a node that may let out no more is as if it had brought nothing."""
        learned = self.read(node, slot)
        self.slots[node][slot] = self.contents.update(learned, learned)
        self.note_down(node, "withheld", slot)

    def encode(self, node: int, effect: Encode, key: int) -> None:
        """Put a model's encoded form into a slot of its own kind; its optimizer state comes along."""
        packed = self.contents.encoded(self.read(node, effect.slot), effect.codec, key)
        self.encodings.setdefault(node, {})[effect.into] = packed
        self._copy_state(node, effect.slot, effect.into)
        self.note_down(node, "encode", effect.into, key=key, detail={"slot": effect.slot, "codec": effect.codec})

    def decode(self, node: int, effect: Decode) -> None:
        """Set a slot to what an encoded message stands for."""
        try:
            self.slots[node][effect.into] = self.encodings[node][effect.slot].content
        except KeyError:
            raise ProtocolError(f"node {node} has no encoded message in slot {effect.slot!r}") from None
        self._copy_state(node, effect.slot, effect.into)
        self.note_down(node, "decode", effect.into, detail=effect.slot)

    def _copy_state(self, node: int, slot: str, into: str) -> None:
        """A model's optimizer state, if it has any, is its copy's, too."""
        if self.states and (node, slot) in self.states:
            self.states[node, into] = self.states[node, slot]

    def forget(self, node: int, effect: Forget) -> None:
        """Drop a slot; nothing happens if there is none."""
        self.slots[node].pop(effect.slot, None)
        if self.encodings:
            self.encodings.get(node, {}).pop(effect.slot, None)
        if self.states:
            self.states.pop((node, effect.slot), None)

    def record(self, node: int, effect: Record) -> None:
        """Remember what is one of the members, or the model that the algorithm puts out."""
        self.output.record(node, effect, self.read(node, effect.slot), self.iteration)
        if self.write is not None:
            row = (self.clock(), node, "record", effect.slot, -1, effect.key, -1, -1, 0, 0, 0.0, effect.role)
            self.write(made(TraceRow, row))

    def note(self, node: int, effect: Note) -> None:
        """Writes a protocol's note into the trace."""
        self.note_down(node, effect.event, peer=effect.peer, walk=effect.walk, number=effect.number)

    def note_down(self, node: int, event: str, slot: str = "", **columns: Any) -> None:
        """A line of the trace, where one is kept."""
        if self.write is not None:
            self.write(TraceRow(self.clock(), node, event, slot, **columns))

    # -- training -------------------------------------------------------------------------------------------------

    def begin_training(
        self, node: int, effect: Train | Differentiate, number: int, key: int, lr: float, factor: float = 1.0
    ) -> Work:
        """What a training begins with: slots are read now.

        `factor`: times which this node's gradients count (`objective`).
        """
        gradient = isinstance(effect, Differentiate)
        slot, walk, steps = effect[0], effect[1], effect[2] or self.scale.steps(node)
        start, state = self.read(node, slot), self.states.get(self.state_owner(node, slot)) if self.states else None
        plain = gradient or (not effect.correction and not effect.anchor and effect.rate == 1.0)  # type: ignore[union-attr]
        if plain:
            work = made(
                Work, (node, slot, walk, number, gradient, start, key, lr, factor, steps, None, None, 0.0, state)
            )
        else:
            assert isinstance(effect, Train)
            work = Work(
                node, slot, walk, number, False, start, key, lr, effect.rate * factor, steps,
                self._by(1.0 / factor, self.read(node, effect.correction)) if effect.correction else None,
                self.read(node, effect.anchor) if effect.anchor else None,
                effect.pull / factor, state,
            )  # fmt: skip
        if self.write is not None:
            event = "differentiate" if gradient else "train"
            detail: Any = "" if plain and not effect[2] else _asked(effect)
            if factor != 1.0:
                detail = {**(detail or {}), FACTOR: factor}
            row = (self.clock(), node, event, slot, -1, walk, -1, number, 0, key, lr, detail)
            self.write(made(TraceRow, row))
        return work

    def state_owner(self, node: int, slot: str) -> tuple[int, str]:
        """Whom an optimizer state belongs to: the model in a slot, which it travels with, or the node."""
        return node, slot if self.scale.optimizer_state == "walk" else ""

    @property
    def keeps_states(self) -> bool:
        """Whether optimizer states outlive a training."""
        return self.scale.optimizer_state != "visit" and self.scale.state_bytes > 0

    def end_training(self, work: Work, result: Content) -> None:
        """An iteration is done: its result is in `UPDATE` or `GRADIENT` until `forget_result`."""
        self.iteration += 1
        node = work.node
        if self.write is not None:
            row = (self.clock(), node, "trained", work.slot, -1, work.walk, self.iteration, work.number, 0, 0, 0.0, "")
            self.write(made(TraceRow, row))
        if work.gradient:
            self.slots[node][GRADIENT] = self._by(work.rate, result)
        else:
            self.slots[node][UPDATE] = self.contents.update(work.start, result)

    def _by(self, factor: float, content: Content) -> Content:
        """A gradient or a correction times a factor."""
        return content if factor == 1.0 else self.contents.combined({"": content}, {"": factor}, None)

    def hand_on(self, node: int, slot: str, walk: int) -> None:
        """A walk leaves as if its training here had brought nothing."""
        start = self.read(node, slot)
        self.slots[node][UPDATE] = self.contents.update(start, start)
        self.note_down(node, "handed_on", slot, walk=walk)

    def forget_result(self, node: int) -> None:
        """The machine has seen the end of its training."""
        here = self.slots[node]
        here.pop(UPDATE, None)
        here.pop(GRADIENT, None)

    # -- messages -------------------------------------------------------------------------------------------------

    def size(self, effect: Send) -> int:
        """Bytes of what goes along with a message."""
        return self.payload_of(effect.message.kind, effect.message.walk) if effect.slot else 0

    def payload_of(self, kind: str, walk: int) -> int:
        """Bytes of what messages of a kind bring: a model or its code, with its optimizer state where that travels."""
        arrival, scale = self.messages.get(kind), self.scale
        travels = scale.optimizer_state == "walk" and walk > 0
        beside = scale.state_bytes if travels else 0
        if arrival is None or not arrival.codec:
            return scale.model_bytes + beside
        width, statistics = scale.model_bytes // FLOAT_BYTES, scale.statistics_bytes // FLOAT_BYTES
        return model_size(arrival.codec, width - statistics, width) + beside

    def pack(self, node: int, effect: Send) -> Packed:
        """What goes along, as it is now."""
        slot, arrival = effect.slot, self.arrival(effect.message)
        if not slot:
            if arrival.slot:
                raise ProtocolError(f"a message {effect.message.kind!r} without the model that is declared for it")
            return NOTHING
        into, payload = self.arrives_in(node, effect.message), self.size(effect)
        if not into:
            raise ProtocolError(f"a model goes with a message {effect.message.kind!r}, for which no slot is declared")
        state = self.states.get((node, slot)) if self.states and effect.message.walk > 0 else None
        if not arrival.codec:
            return made(Packed, (into, self.read(node, slot), state, payload))
        packed = self.encodings.get(node, {}).get(slot)
        if packed is None or packed.codec != arrival.codec:
            raise ProtocolError(
                f"a message {effect.message.kind!r} is declared to be encoded by {arrival.codec}, but slot {slot!r} "
                f"holds {'no encoded message' if packed is None else packed.codec}"
            )
        return Packed(into, packed, state, payload)

    def corrupted(self, node: int, slot: str, packed: Packed, how: str, key: int) -> Packed:
        """What a bad node sends in place of what it should; `how`: flip, scale(C) or noise(S)."""
        there = packed.content
        if there is None:
            return packed
        good = there.content if isinstance(there, Encoded) else there
        if how.startswith("noise"):
            bad = self.contents.screened(good, (), how, key)
        else:
            factor = -1.0 if how == "flip" else float(how.removeprefix("scale(").removesuffix(")"))
            bad = self.contents.combined({"": good}, {"": factor}, {"": 1.0} if self.scale.statistics else None)
        self.note_down(node, "corrupted", slot, key=key, detail=how)
        return packed._replace(
            content=self.contents.encoded(bad, there.codec, key) if isinstance(there, Encoded) else bad
        )

    def sent(self, node: int, effect: Send, packed: Packed, number: int, key: int = 0) -> int:
        """A message goes out; counts its bytes and says how many."""
        size = control_bytes(effect.message) + packed.payload
        self.traffic.add(size, packed.payload)
        if self.write is not None:
            message = effect.message
            detail = {"kind": message.kind, "into": packed.into}
            row = (
                self.clock(), node, "send", effect.slot, effect.to, message.walk, -1, number, size, key, 0.0, detail,
            )  # fmt: skip
            self.write(made(TraceRow, row))
        return size

    def superseded(self, node: int, to: int, slot: str, size: int, payload: int, number: int, key: int) -> None:
        """A message was overtaken by a later one before it left: it is not counted any more."""
        self.traffic.withdraw(size, payload)
        self.note_down(node, "superseded", slot, peer=to, number=number, bytes=size, key=key)

    def receive(self, node: int, sender: int, walk: int, packed: Packed, number: int, key: int = 0) -> None:
        """A message that the machine has taken: what came with it is put into its slot."""
        into = packed.into
        if into:
            if isinstance(packed.content, Encoded):
                self.encodings.setdefault(node, {})[into] = packed.content
            else:
                self.slots[node][into] = packed.content
            if packed.state is not None:
                self.states[node, into] = packed.state
        if self.write is not None:
            row = (self.clock(), node, "receive", into, sender, walk, -1, number, 0, key, 0.0, "")
            self.write(made(TraceRow, row))

    def arrival(self, message: Message) -> Arrival:
        """How messages of this kind arrive."""
        try:
            return self.messages[message.kind]
        except KeyError:
            known = ", ".join(self.messages) or "none"
            raise ProtocolError(f"messages of kind {message.kind!r} are not declared; declared are: {known}") from None

    def arrives_in(self, sender: int, message: Message) -> str:
        """The slot in which what comes with a message is put; the same few come again and again."""
        name = (message.kind, sender, message.walk, message.round)
        slot = self._names.get(name)
        if slot is None:
            if len(self._names) >= MOST_NAMES:
                self._names.clear()
            slot = self._names[name] = self.arrival(message).slot_of(sender, message)
        return slot


def _asked(effect: Train | Differentiate) -> dict[str, Any]:
    """What is asked for beside the slot and the walk, where it is not what is always meant."""
    usual, given = type(effect)("")._asdict(), effect._asdict().items()
    return {name: value for name, value in given if name not in ("slot", "walk") and value != usual[name]}
