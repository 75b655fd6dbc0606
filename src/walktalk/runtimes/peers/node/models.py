"""The models of one node: flat float32 tensors in slots, the bytes that travel, and whether what comes is plausible.

A tensor in a slot never changes, so what is sent needs no copy of it.
"""

from __future__ import annotations

import json
import logging
import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from walktalk.core.errors import StudyError
from walktalk.protocols import AGGREGATE, Message, Record
from walktalk.records import TraceRow, write_text
from walktalk.runtimes.peers.node.event_log import Copy
from walktalk.runtimes.peers.node.state import Clock, NodeSetup
from walktalk.runtimes.peers.wire.session import LARGEST_NORM
from walktalk.runtimes.semantics import FLOAT_BYTES, Contents, Encoded, Interpreter, Packed, Releases, Scale, is_mean
from walktalk.runtimes.stacked import Averaging, RowTrainer, averaging_of, parameters_of, steps_of
from walktalk.transforms.codecs import Bytes, decode_model, encode_model, model_size
from walktalk.transforms.rules import Privacy, Spent, rule_named

# -- What a node has spent of its privacy: counted before anything is let out, in a file that outlives every restart --
# A few releases are written down as spent before the first of them is made. So a node that dies loses what it had taken
# out and not used, and never makes one that it forgets. The file stays when a run begins anew (`--fresh`): the data are
# the same, and what was told of them is told. Who has other data there removes it.

log = logging.getLogger(__name__)

NAME = "spent.json"  # in the node's folder
AT_ONCE = 16  # releases that are written down together


class PrivacyBudget:
    """Counts what a node lets out of what its data have taught it, and stops it where the budget is spent."""

    def __init__(self, folder: Path, privacy: Privacy) -> None:
        """
        - `folder`: the node's own.
        - `privacy`: how much noise there is, and how much may be spent.
        """
        self._path, self._privacy = folder / NAME, privacy
        self._before = read_spent(self._path)
        self._most = privacy.most(self._before)
        self._used = 0  # in this life
        self._written = 0  # of it, what the file knows
        self._told = False

    @property
    def empty(self) -> bool:
        """Whether nothing more may be let out."""
        return self._used >= self._most

    @property
    def epsilon(self) -> float:
        """What was spent in this life and in earlier ones, as an ε."""
        return self._privacy.epsilon(self._used, self._before)

    def spend(self) -> bool:
        """Whether one more release may be made; if so, it is spent."""
        if self._used < self._most and (self._used < self._written or self._write(self._used + AT_ONCE)):
            self._used += 1
            return True
        if self.empty and not self._told:
            self._told = True
            log.warning(
                "the privacy budget is spent: ε = %.3g at δ = %g; nothing more is learned from this node's data",
                self.epsilon,
                self._privacy.delta,
            )
        return False

    def close(self) -> None:
        """Put back what was taken out and not used."""
        if self._written > self._used:
            self._write(self._used)

    def _write(self, count: int) -> bool:
        count = min(count, self._most)
        spent = [*self._before, (self._privacy.noise, count)]
        try:
            write_text(self._path, json.dumps({"spent": spent}) + "\n")
        except (OSError, StudyError) as error:
            log.warning("%s cannot be written, so nothing is let out: %s", self._path, error)
            return False
        self._written = count
        return True


def read_spent(path: Path) -> Spent:
    """Read what was spent in earlier lives, releases by their noise; a `StudyError` where the file makes no sense."""
    if not path.exists():
        return ()
    try:
        found = json.loads(path.read_text())["spent"]
        spent: dict[float, int] = {}
        for noise, count in found:
            if not noise > 0 or count < 0:
                raise ValueError(f"{count} releases with noise {noise}")
            spent[float(noise)] = spent.get(float(noise), 0) + int(count)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyError(
            f"{path} does not say what was spent of this node's privacy ({error}); mend it, or remove it where the "
            "data are new"
        ) from error
    return tuple(sorted(spent.items()))


# -- The models of one node: flat float32 tensors in slots, the bytes that travel, and whether what comes is plausible


class Tensors(Contents[Tensor]):
    """Operations on the contents of slots, which are flat tensors on the CPU."""

    def __init__(self, width: int, parameters: int, averaging: Averaging | None = None) -> None:
        self.width = width  # numbers of a model
        self.parameters = parameters  # what comes behind that many are statistics
        self.averaging = averaging  # how means of models are made; None: number by number

    def combined(
        self, here: Mapping[str, Tensor], terms: Mapping[str, float], statistics: Mapping[str, float] | None
    ) -> Tensor:
        """Add up a combination in the order given, as the stacked executor does."""
        made = self.averaged(here, terms) if self.averaging is not None and is_mean(terms) else added_up(here, terms)
        if statistics is not None and self.parameters < self.width:
            made[self.parameters :] = added_up(here, statistics)[self.parameters :]
        return made

    def averaged(self, here: Mapping[str, Tensor], terms: Mapping[str, float]) -> Tensor:
        """Average models, in the way that their kind asks for."""
        assert self.averaging is not None
        return self.averaging.combined(torch.stack([here[slot] for slot in terms]), torch.tensor([*terms.values()]))

    def screened(self, own: Tensor, others: Sequence[tuple[Tensor, float]], rule: str, key: int) -> Tensor:
        """Apply a number rule, as the stacked executor does, for one node."""
        around = torch.stack([other for other, _ in others]) if others else own.new_empty(0, len(own))
        weights = torch.tensor([[weight for _, weight in others]], dtype=own.dtype)
        keys = torch.tensor([key])
        return rule_named(rule).mixed(own[None], around[None], weights, keys, self.parameters)[0]

    def update(self, start: Tensor, trained: Tensor) -> Tensor:
        """Trained minus start; behind the parameters the trained numbers themselves."""
        change = trained - start
        change[self.parameters :] = trained[self.parameters :]
        return change

    def encoded(self, content: Tensor, codec: str, key: int) -> Encoded[Tensor]:
        """Encode a model: the bytes, and what they stand for."""
        data = encode_model(codec, content, self.parameters, key)
        return Encoded(codec, self.decoded(data, codec), data)

    def decoded(self, data: Bytes, codec: str) -> Tensor:
        """Decode a model and the statistics behind it; `ValueError` where no codec writes such bytes."""
        return decode_model(codec, data, self.parameters, self.width)

    def mean(self, contents: Iterable[Tensor]) -> Tensor:
        """The plain average of models."""
        rows = torch.stack(list(contents))
        if self.averaging is None or len(rows) == 1:
            return rows.mean(0)
        return self.averaging.combined(rows, torch.full((len(rows),), 1.0 / len(rows)))

    def from_wire(self, data: Bytes, into: str, codec: str) -> Packed:
        """Read what came with a message from its bytes; `ValueError` where no codec writes such."""
        if codec:
            size = model_size(codec, self.parameters, self.width)
            code, rest = data[:size], data[size:]
            state = torch.from_numpy(rest.view("<f4").astype(np.float32)) if rest.size else None
            return Packed(into, Encoded(codec, self.decoded(code, codec), code), state, len(data))
        numbers = torch.from_numpy(data.view("<f4"))
        state = numbers[self.width :] if len(numbers) > self.width else None
        return Packed(into, numbers[: self.width], state, len(data))


def added_up(here: Mapping[str, Tensor], terms: Mapping[str, float]) -> Tensor:
    """Add up a combination of models, as a new tensor."""
    total: Tensor | None = None
    for slot, weight in terms.items():
        total = here[slot] * weight if total is None else total.add_(here[slot], alpha=weight)
    if total is None:
        raise ValueError("a combination of nothing")
    return total


def to_wire(packed: Packed, state_width: int) -> Bytes | None:
    """What goes along with a message as bytes, a single model without a copy; None for nothing.

    `state_width`: of the optimizer state that goes behind the model; one that is not there yet is all zeros.
    """
    content = packed.content
    if content is None:
        return None
    coded = isinstance(content, Encoded)
    model: Bytes = content.data if coded else as_bytes(content.contiguous().numpy())
    if not state_width:
        return model
    state = np.zeros(state_width, "<f4") if packed.state is None else packed.state.numpy()
    return np.concatenate((model, as_bytes(state)))


def as_bytes(numbers: npt.NDArray[np.float32]) -> Bytes:
    """Numbers as they stand on the wire, without a copy where they stand the same way here."""
    return np.ascontiguousarray(numbers, dtype="<f4").view(np.uint8)


HELD = 16  # models of one neighbour that wait to be used: it is a round or two ahead at most


class Implausible(ValueError):
    """What came is no model of this study; says why."""


class Plausibility:
    """Refuses models from neighbours that are not finite, of unusual norm, or too many.

    A model must be finite, and its norm at most `largest` times the usual one: the median over what each neighbour sent
    last, what this node trained last, and the initial model (or one whose numbers are of size 1, if that is larger),
    and never less than that of the last: differences begin with zeros. Each neighbour has one voice in it, so that a
    few of them cannot move it, however much they send. The right width is seen to before, by the number of bytes
    (`assembly`).

    And no neighbour may fill this node's memory: what came from it and was not used yet is at most `HELD` models.
    """

    def __init__(self, initial: Tensor, largest: float = LARGEST_NORM) -> None:
        """
        - `initial`: the initial model.
        - `largest`: times the usual norm that a model may have.
        """
        self.largest = largest
        self._least = max(norm_of(initial), math.sqrt(initial.numel()))
        self._own: float | None = None
        self._norms: dict[str, dict[int, float]] = {}  # by kind of message and sender
        self._came: dict[int, set[str]] = {}  # by sender: slots that it filled

    def check(self, sender: int, kind: str, packed: Packed) -> None:
        """Raise `Implausible` where what came with a message is not to be used."""
        content: Any = packed.content
        encoded = isinstance(content, Encoded)
        model: Tensor = content.content if encoded else content
        norms = self._norms.setdefault(kind, {})
        own = [] if encoded or self._own is None else [self._own]
        usual = max(self._least, median_low([self._least, *own, *norms.values()]))
        norm = norm_of(model)
        if not math.isfinite(norm):
            raise Implausible("its numbers are not finite, or enormous")
        if norm > self.largest * usual:
            raise Implausible(
                f"its norm is {norm:.3g}, and {usual:.3g} is usual; at most {self.largest:g} times that is taken"
            )
        if packed.state is not None and not math.isfinite(norm_of(packed.state)):
            raise Implausible("the optimizer state that came with it is not finite")
        norms[sender] = norm

    def check_room(self, sender: int, into: str, slots: Collection[str]) -> None:
        """Raise `Implausible` where too much that came from a neighbour waits to be used already."""
        waiting = self._came.setdefault(sender, set())
        if into not in waiting and len(waiting) >= HELD:
            waiting.intersection_update(slots)
            if len(waiting) >= HELD:
                raise Implausible(f"{HELD} models of this neighbour wait to be used already")
        waiting.add(into)

    def accept_own(self, model: Tensor) -> bool:
        """Whether the model that this node's training has made is finite; if so, it is one of those that are usual."""
        norm = norm_of(model)
        if math.isfinite(norm):
            self._own = norm
        return math.isfinite(norm)


def norm_of(numbers: Tensor) -> float:
    """The Euclidean norm, in one pass; not finite where a number is not, or is beyond 1e19."""
    flat = numbers.reshape(-1)
    return math.sqrt(square) if (square := float(torch.dot(flat, flat))) >= 0 else math.nan


class Models:
    """The slots of one node, and everything that the rest of the node does with them."""

    def __init__(
        self,
        setup: NodeSetup,
        trainer: RowTrainer,
        write: Callable[[TraceRow], None],
        clock: Clock,
        keys: random.Random,
    ) -> None:
        """
        - `setup`: the node's.
        - `trainer`: what it trains with, for the sizes of models and optimizer states.
        - `write`: takes every line of the trace.
        - `clock`: has the time of those lines.
        - `keys`: where the numbers come from by which trainings and codecs draw.
        """
        protocol = setup.protocol.resilient_form()
        self.me = setup.around.node
        self.tensors = Tensors(trainer.width, parameters_of(trainer), averaging_of(trainer, setup.protocol))
        self.budget = PrivacyBudget(setup.folder, protocol.privacy) if protocol.privacy is not None else None
        ask = None if self.budget is None else self.budget.spend
        releases = Releases(protocol.privacy, ask=ask, secret=setup.secret)
        scale = _scale(setup, trainer)
        self.interpreter = Interpreter(self.tensors, protocol.messages, scale, write, lambda: clock.wall, releases)
        self.interpreter.add_node(self.me, setup.initial)
        self.plausibility = Plausibility(setup.initial, setup.largest)
        self.recorded: Record | None = None  # the last that the protocol showed
        self.state_width = trainer.state_width
        self._travels = setup.optimizer_state == "walk"  # whether a walk takes the optimizer's state along
        self._keys = keys

    @property
    def slots(self) -> dict[str, Tensor]:
        """The model in every slot, by the slot's name."""
        return self.interpreter.slots[self.me]

    @property
    def aggregates(self) -> bool:
        """Whether this node has an aggregate of its own."""
        return self.interpreter.output.aggregate_slot in self.slots

    @property
    def budget_spent(self) -> bool:
        """Whether nothing more may be learned from this node's data, because its privacy budget is spent."""
        return self.budget is not None and self.budget.empty

    def draw_key(self) -> int:
        """Another number by which a training or a codec draws."""
        return self._keys.getrandbits(63)

    def payloads(self) -> dict[str, frozenset[int]]:
        """How many bytes may come with which kind of message: no other size is a model of this study."""
        kinds, size = self.interpreter.messages, self.interpreter.payload_of
        return {kind: frozenset((size(kind, 0), size(kind, 1))) for kind, arrival in kinds.items() if arrival.slot}

    def bytes_of(self, packed: Packed, message: Message) -> Bytes | None:
        """What goes along with a message, as bytes; None for nothing."""
        return to_wire(packed, self.state_width if self._travels and message.walk > 0 else 0)

    def unpacked(self, sender: int, message: Message, into: str, payload: Bytes) -> Packed:
        """The model in the bytes that came with a message; `Implausible` where it is none that may be used."""
        packed = self.tensors.from_wire(payload, into, self.interpreter.arrival(message).codec)
        self.plausibility.check(sender, message.kind, packed)
        self.plausibility.check_room(sender, into, self.slots)
        return packed

    def newest_copy(self) -> Copy | None:
        """The aggregate, where this node aggregates, else the model that it showed last; callable from any thread."""
        output, recorded = self.interpreter.output, self.recorded
        if output.aggregate is not None and self.aggregates:
            return Copy(output.aggregate, AGGREGATE, output.aggregate_term)
        if recorded is None or recorded.role == AGGREGATE:
            return None
        return Copy(output.members[recorded.key], recorded.role, recorded.key)


def _scale(setup: NodeSetup, trainer: RowTrainer) -> Scale:
    sizes = (FLOAT_BYTES * trainer.width, FLOAT_BYTES * trainer.state_width)
    beside = trainer.width - parameters_of(trainer)
    steps, part = steps_of(trainer), setup.around.node if setup.part is None else setup.part
    own = steps[part] if steps else trainer.local_steps
    return Scale(*sizes, own, setup.optimizer_state, beside > 0, FLOAT_BYTES * beside)
