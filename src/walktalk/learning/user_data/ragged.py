"""Data that no tensor holds: texts padded batch by batch, graphs, boxes; read and put together for every batch anew.

What trains and travels sees the numbers of samples alone; behind them the person's `collate` makes a batch, and the
person's model and loss are called with it as in a loop of one's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, default_collate

from walktalk.core.errors import DataError, ModelError
from walktalk.learning.samples import all_seeded
from walktalk.learning.user_data.adapter import Behind, Call, Form, accepted_by, main_output, way_to_call
from walktalk.learning.user_data.part import SEEDS_TRIED, TARGETS, Choice, checked, split_up

LOOKED_AT = 16  # samples of a node, to see whether they have one shape
READ_AT_ONCE = 64  # samples, where targets are read
EDGE = 16  # samples from either end that a digest reads


class RawSamples(NamedTuple):
    """Samples of a node as its data set gives them, and what makes a batch of some."""

    where: str
    data: Any  # with `__getitem__` and `__len__`
    collate: Callable[[list[Any]], Any]

    def batch(self, numbers: Sequence[int]) -> Any:
        """A batch of the samples of these numbers."""
        return self.collate([self.data[number] for number in numbers])


def raw_samples(data: Any, where: str, choice: Choice) -> RawSamples | None:
    """Samples one by one and the person's own collate; None where there is no such thing."""
    collate = choice.collate
    if isinstance(data, DataLoader):
        if isinstance(data.dataset, IterableDataset):
            return None
        collate = collate or (None if data.collate_fn is default_collate else data.collate_fn)
        data = data.dataset
    single = hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, (str, bytes, Mapping))
    if collate is None or not single or isinstance(data, Tensor) or len(data) == 0:
        return None
    return RawSamples(where, data, collate)


def is_ragged(samples: RawSamples, choice: Choice) -> bool:
    """Whether samples, each put together alone, have no shape in common, or are no tensors of a row for each at all."""
    shapes = set()
    places = torch.linspace(0, len(samples.data) - 1, min(LOOKED_AT, len(samples.data))).round().long().tolist()
    with all_seeded(0):
        for place in places:
            batch = samples.batch([place])
            try:
                content = checked(split_up(batch, samples.where, choice), samples.where)
            except (DataError, TypeError, ValueError, IndexError):
                return True
            shapes.add(tuple((name, tuple(column.shape[1:])) for side in content for name, column in side.items()))
    return len(shapes) > 1


class Batch(NamedTuple):
    """A batch as a model and a loss take it."""

    arguments: tuple[Any, ...]
    named: dict[str, Any]
    targets: Any


class RaggedSamples:
    """The samples of all nodes, by one number each; never copied, however often a model is."""

    def __init__(self, parts: Sequence[RawSamples], choice: Choice) -> None:
        self.parts, self.choice = list(parts), choice
        self.starts = [0]
        for part in self.parts:
            self.starts.append(self.starts[-1] + len(part.data))
        self.draws = len({self.digest(seed) for seed in range(SEEDS_TRIED)}) > 1  # changed at random as they are read

    def __len__(self) -> int:
        return self.starts[-1]

    def __deepcopy__(self, memo: dict[int, Any]) -> RaggedSamples:
        return self

    def raw(self, numbers: Sequence[int]) -> Any:
        """The person's batch of samples of any nodes, put together as the first one's node does."""
        places = torch.bucketize(torch.tensor(numbers), torch.tensor(self.starts[1:]), right=True).tolist()
        parts = [self.parts[place] for place in places]
        samples = [
            part.data[number - self.starts[place]] for part, number, place in zip(parts, numbers, places, strict=True)
        ]
        return parts[0].collate(samples)

    def batch(self, numbers: Sequence[int], module: nn.Module, own_loss: bool) -> Batch:
        """A batch of samples, as this module takes it.

        own_loss: whether the module computes its loss, and so is given everything.
        """
        return arranged(self.raw(numbers), module, self.choice, self.parts[0].where, own_loss)

    def digest(self, seed: int = 0) -> str:
        """A few letters that differ where data does: what the first and the last samples say of themselves."""
        found, count = hashlib.blake2b(digest_size=8), len(self)
        with all_seeded(seed):
            for number in sorted({*range(min(EDGE, count)), *range(max(0, count - EDGE), count)}):
                add(found, self.raw([number]))
        return found.hexdigest()


def add(found: Any, thing: Any) -> None:
    """Add what a thing has of numbers to a digest."""
    if isinstance(thing, Tensor):
        found.update(f"{tuple(thing.shape)} {thing.dtype}".encode())
        found.update(thing.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(thing, Mapping):
        for name, value in thing.items():
            found.update(str(name).encode())
            add(found, value)
    elif isinstance(thing, (tuple, list)):
        for value in thing:
            add(found, value)
    elif isinstance(thing, (int, float, str)):
        found.update(repr(thing).encode())
    elif callable(getattr(thing, "to_dict", None)):  # a graph
        add(found, thing.to_dict())


def arranged(batch: Any, module: nn.Module, choice: Choice, where: str, own_loss: bool) -> Batch:
    """A person's batch, whatever its form: what the module is called with, and what its loss is."""
    if isinstance(batch, Mapping):
        names = [str(name) for name in batch]
        if own_loss:
            return Batch((), dict(batch), None)
        wanted = choice.target_among(names, where)
        targets = batch[wanted[0]] if len(wanted) == 1 else {name: batch[name] for name in wanted}
        return called_with({name: batch[name] for name in choice.inputs_among(names, wanted, where)}, module, targets)
    if isinstance(batch, (tuple, list)):
        if own_loss:
            return Batch(tuple(batch), {}, None)
        if len(batch) < 2:
            raise DataError(f"{where}: a batch should be (inputs, targets), a dictionary, or something with a target")
        *inputs, targets = batch
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            return called_with(dict(inputs[0]), module, targets)
        several = len(inputs) == 1 and isinstance(inputs[0], tuple) and len(accepted_by(module)) == len(inputs[0]) > 1
        return Batch(tuple(inputs[0]) if several else tuple(inputs), {}, targets)
    wanted = [choice.target] if isinstance(choice.target, str) else list(choice.target or TARGETS)
    found = next((name for name in wanted if hasattr(batch, name)), None)
    if found is None and not own_loss:
        raise DataError(
            f"{where}: a batch is a {type(batch).__name__} without {' or '.join(wanted)}; name its targets (target=…), "
            "or let collate give (inputs, targets)"
        )
    return Batch((batch,), {}, None if own_loss or found is None else getattr(batch, found))


def called_with(columns: dict[str, Any], module: nn.Module, targets: Any) -> Batch:
    """A module's inputs by name, as it takes them."""
    call: Call = way_to_call(module, list(columns))
    if call == "by name":
        return Batch((), columns, targets)
    return Batch((columns,) if call == "as a dictionary" else tuple(columns.values()), {}, targets)


def on_device(thing: Any, device: torch.device) -> Any:
    """Everything in a batch that can be brought to a device, there."""
    if isinstance(thing, Mapping):
        return {name: on_device(value, device) for name, value in thing.items()}
    if isinstance(thing, (tuple, list)):
        values = [on_device(value, device) for value in thing]
        return type(thing)(*values) if hasattr(thing, "_fields") else type(thing)(values)
    return thing.to(device) if callable(getattr(thing, "to", None)) else thing


def in_full(outputs: Any) -> Any:
    """Outputs with their numbers in 32 bits, as losses want them."""
    if isinstance(outputs, Tensor):
        return outputs.float() if outputs.is_floating_point() else outputs
    if isinstance(outputs, tuple) and not hasattr(outputs, "_fields"):
        return tuple(in_full(value) for value in outputs)
    return [in_full(value) for value in outputs] if isinstance(outputs, list) else outputs


class RaggedModel(Behind):
    """A person's model and loss behind the numbers of samples: puts out the loss of their batch, once for each sample.

    In a measurement what the model puts out comes behind, where it has one shape for every sample, or else the
    person's metrics of the batch.
    """

    row_by_row = True  # what it reads has no form of many models

    def __init__(self, inner: nn.Module, samples: RaggedSamples, loss: Callable[[Any, Any], Any] | None) -> None:
        super().__init__()
        self.inner, self.samples, self.loss = inner, samples, loss
        self.form: Form | None = None  # of what is put out, where every sample has the same
        self.metrics: dict[str, Callable[[Any, Any], Any]] = {}  # of batches, where it has not
        self.has_classes = False  # whether the targets are classes, of which there is an accuracy
        self.digest = samples.digest()

    def extra_repr(self) -> str:
        return f"{len(self.samples)} samples, {self.digest}"

    def like(self, inner: nn.Module) -> RaggedModel:
        """Another module on the same samples."""
        other = RaggedModel(inner, self.samples, self.loss)
        other.form, other.metrics, other.has_classes = self.form, self.metrics, self.has_classes
        return other

    def forward(self, numbers: Tensor) -> Tensor:
        seed = int(torch.randint(2**31, ())) if self.training and self.samples.draws else 0
        with all_seeded(seed):
            batch = self.samples.batch(numbers.tolist(), self.inner, self.loss is None)
        batch = Batch(*(on_device(part, numbers.device) for part in batch))
        outputs = in_full(self.inner(*batch.arguments, **batch.named))
        if self.loss is None:
            if not isinstance(outputs, Mapping) or not isinstance(outputs.get("loss"), Tensor):
                raise ModelError("the model computes no loss of its own (its outputs have no 'loss'); give one: loss=…")
            value = outputs["loss"]
        else:
            value = self.loss_of(outputs, batch.targets)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ModelError("the loss should be one number, a tensor: the mean over the batch")
        lines = value.float().reshape(1, 1).expand(len(numbers), 1)
        if self.training:
            return lines
        if self.form is not None:
            return torch.cat((lines, self.form.pack(main(outputs), len(numbers)).float()), 1)
        beside = [
            torch.as_tensor(float(metric(outputs, batch.targets)), device=lines.device).reshape(1, 1).expand_as(lines)
            for metric in self.metrics.values()
        ]
        return torch.cat([lines, *beside], 1)

    def loss_of(self, outputs: Any, targets: Any) -> Any:
        """The person's loss; a dictionary's one tensor, unless it takes the whole dictionary."""
        assert self.loss is not None
        first = main(outputs)
        if first is outputs:
            return self.loss(outputs, targets)
        try:
            return self.loss(first, targets)
        except (TypeError, AttributeError, KeyError):
            return self.loss(outputs, targets)

    def predictions(self, outputs: Tensor) -> Tensor:
        """What the model puts out beside its loss."""
        packed = outputs[..., 1:]
        return self.form.unpack(packed) if self.form is not None and self.form.is_one else packed


def main(outputs: Any) -> Any:
    return main_output(outputs) if isinstance(outputs, Mapping) else outputs


class BatchLoss:
    """The loss that a `RaggedModel` has put out; sites compare it by the name of the person's."""

    def __init__(self, loss: Callable[[Any, Any], Any] | None) -> None:
        self.__qualname__ = getattr(loss, "__qualname__", type(loss).__qualname__)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[..., 0].mean()


class BatchMetric:
    """A metric that a `RaggedModel` has put out: computed batch by batch, and averaged over samples."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __call__(self, outputs: Tensor, targets: Tensor) -> float:
        return float(outputs[..., self.place].mean())


def fixed_form(model: RaggedModel) -> Form | None:
    """The form of what the model puts out; None where samples differ in it."""

    def put_out(count: int, first: int) -> Any:
        numbers = [(first + k) % len(model.samples) for k in range(count)]
        batch = model.samples.batch(numbers, model.inner, model.loss is None)
        outputs = in_full(model.inner(*batch.arguments, **batch.named))
        if model.loss is None and isinstance(outputs, Mapping):
            outputs = {name: value for name, value in outputs.items() if name != "loss"}
        return main(outputs)

    training = model.inner.training
    try:
        model.inner.eval()
        with torch.no_grad(), all_seeded(0):
            found = Form(put_out(1, 0), put_out(2, 0))
            far = [Form(put_out(1, k), put_out(2, k)) for k in range(1, min(LOOKED_AT, len(model.samples)))]
    except Exception:  # whatever a person's model does; a batch of no such form
        return None
    finally:
        model.inner.train(training)
    same = all(each.leaves == found.leaves for each in far)
    return found if same and all(leaf is None or leaf.of_samples for leaf in found.leaves) else None


def targets_of(samples: RaggedSamples, module: nn.Module) -> Tensor | None:
    """The targets of all samples as one tensor; None where they have no shape in common."""
    found = []
    for start in range(0, len(samples), READ_AT_ONCE):
        numbers = range(start, min(start + READ_AT_ONCE, len(samples)))
        with all_seeded(0):
            targets = samples.batch(list(numbers), module, False).targets
        if not isinstance(targets, Tensor) or targets.dim() == 0 or len(targets) != len(numbers):
            return None
        found.append(targets)
    try:
        whole = torch.cat(found)
    except RuntimeError:
        return None
    return whole if whole.is_floating_point() else whole.long()
