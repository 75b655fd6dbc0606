"""A person's module and loss, fitted to the columns of their data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from walktalk.core.errors import DataError, ModelError
from walktalk.learning.samples import seeded
from walktalk.learning.task import Loss, Metric
from walktalk.learning.user_data import (
    Adapter,
    Form,
    Gap,
    NamedColumns,
    Packing,
    Part,
    gap_in,
    loss_and_rest,
    named_output,
    named_target,
    names_of_labels,
    way_to_call,
)

TRIED_AT_ONCE = 32  # samples with NaN or infinity, and as many others
TRAINED_IN = (torch.float32, torch.complex64)  # rows of models have 32 bits


class Unpacked:
    """A person's loss or metric, which sees outputs and targets in the person's own form."""

    def __init__(self, function: Callable[[Any, Any], Any], form: Form | None, targets: Packing | None) -> None:
        """
        - `function`: of (outputs, targets).
        - `form`: of the outputs; None: one tensor.
        - `targets`: how several lie in one tensor; None: they are one.
        """
        self.function, self.form, self.targets = function, form, targets
        self.several_outputs = form is not None and len(form.leaves) > 1
        self.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)  # by which sites compare it

    def __call__(self, outputs: Tensor, targets: Tensor) -> Any:
        return self.function(
            outputs if self.form is None else self.form.unpack(outputs),
            targets if self.targets is None else several(self.targets.unpack(targets)),
        )


def several(columns: dict[str, Tensor]) -> dict[str, Tensor] | tuple[Tensor, ...]:
    """Targets as the data has them: by name, or those of a tuple in their order."""
    return tuple(columns.values()) if all(name.isdecimal() for name in columns) else columns


class Fitted(NamedTuple):
    """The parts that a task is made of, from a module and the form of the data."""

    module: nn.Module
    loss: Loss
    predictions: Callable[[Tensor], Tensor] | None
    packing: Packing | None  # of several columns of inputs into one tensor
    targets: Packing | None  # the same of targets
    labels: Mapping[str, str]  # targets that the module is given too, to compute its own loss: name -> its name there
    form: Form | None  # of several outputs

    def joined(self, batches: Sequence[NamedColumns]) -> tuple[Tensor, Tensor]:
        """Inputs and targets as one tensor each."""
        inputs = [with_labels(one, self.labels) for one in batches]
        return together(inputs, self.packing), together([one.targets for one in batches], self.targets)

    def metrics(self, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
        """A person's metrics, as they are called here."""
        if self.form is None and self.targets is None:
            return dict(metrics)
        return {name: Unpacked(metric, self.form, self.targets) for name, metric in metrics.items()}

    def like(self, module: nn.Module) -> nn.Module:
        """Another module, called in the same way."""
        check_types(module)
        return self.module.like(module) if isinstance(self.module, Adapter) else module


def together(columns: Sequence[dict[str, Tensor]], packing: Packing | None) -> Tensor:
    """The columns of several batches as one tensor."""
    if packing is None:
        return torch.cat([next(iter(one.values())) for one in columns])
    return torch.cat([packing.pack(one) for one in columns])


def with_labels(samples: NamedColumns, labels: Mapping[str, str]) -> dict[str, Tensor]:
    """The inputs of a module that computes its loss: its inputs, and the targets that it takes by these names."""
    return {**samples.inputs, **{name: samples.targets[mine] for mine, name in labels.items()}}


def fit(module: nn.Module, loss: Loss | None, parts: Sequence[Part]) -> Fitted:
    """Finds out how the module is called with this data; parts must be alike."""
    first = parts[0].read(range(min(2, len(parts[0]))))
    for part in parts[1:]:
        check_alike(part, parts[0], first)
    labels = names_of_labels(module, list(first.targets)) if loss is None else {}
    columns = with_labels(first, labels)
    call = way_to_call(module, list(columns))
    packing = Packing(columns) if len(columns) > 1 else None
    targets = None if list(first.targets) == [""] else Packing(first.targets)
    adapter = Adapter(module, call, packing, next(iter(columns)), loss is None)
    inputs, wanted = together([columns], packing), together([first.targets], targets)
    if loss is None:
        adapter.form = form_beside_loss(adapter, inputs)
        predictions = None if adapter.form is None else adapter.predictions
        form = None if adapter.form is None or adapter.form.is_one else adapter.form
        return Fitted(adapter, adapter.loss, predictions, packing, targets, labels, form)
    adapter.form = form_for(Unpacked(loss, None, targets), adapter, inputs, wanted)
    whole = loss if adapter.form is None and targets is None else Unpacked(loss, adapter.form, targets)
    plain = call == "one" and adapter.form is None and not isinstance(tried(module, inputs), Mapping)
    return Fitted(module if plain else adapter, whole, None, packing, targets, labels, adapter.form)


def check_types(module: nn.Module) -> None:
    """Checks that what trains has 32 bits, as everything that is mixed and sent."""
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and parameter.dtype not in TRAINED_IN:
            kind = str(parameter.dtype).removeprefix("torch.")
            raise ModelError(
                f"the model's {name} is {kind}, and models train in 32 bits here: give module.float(), or load it with "
                'dtype=torch.float32; precision "bf16" computes its products in 16 bits'
            )


def form_for(loss: Unpacked, adapter: Adapter, inputs: Tensor, targets: Tensor) -> Form | None:
    """The form of what the module puts out, where its loss wants all of it; None where it wants one tensor.

    A dictionary with `logits`, or with one tensor alone, is that tensor, unless the loss fails of it and does not fail
    of the whole dictionary.
    """
    outputs = tried(adapter, inputs, whole=True)
    main = named_output(outputs)
    if outputs is None or isinstance(outputs, Tensor):
        return None
    if main is not None and (bears_outputs(loss, main, targets) or not bears_outputs(loss, outputs, targets)):
        return None
    return Form(outputs, tried(adapter, torch.cat((inputs, inputs)), whole=True))


def bears_outputs(loss: Unpacked, outputs: Any, targets: Tensor) -> bool:
    """Whether the loss of these is computed without an error."""
    try:
        with torch.no_grad():
            loss(outputs, targets)
    except Exception:  # whatever a person's loss does
        return False
    return True


def form_beside_loss(adapter: Adapter, inputs: Tensor) -> Form | None:
    """The form of what a module puts out beside its own loss; None: nothing."""
    found = [tried(adapter, each, whole=True) for each in (inputs, torch.cat((inputs, inputs)))]
    if any(outputs is None for outputs in found):
        return None
    few, many = (loss_and_rest(outputs)[1] for outputs in found)
    return None if few is None else Form(few, many)


def tried(module: nn.Module, inputs: Tensor, whole: bool = False) -> Any:
    """Tries what the module puts out; None where it fails, which is told, with the reason, before any training.

    whole: of an adapter, all that the person's module puts out.
    """
    training = module.training
    call = module.put_out if whole and isinstance(module, Adapter) else module
    try:
        with torch.no_grad(), seeded(0, torch.device("cpu")):
            module.eval()
            return call(inputs)
    except Exception:  # whatever a person's forward does
        return None
    finally:
        module.train(training)


def check_alike(part: Part, first_part: Part, first: NamedColumns) -> None:
    """Checks that every node's samples have the shape and type of the first one's."""
    check_columns(part, first_part)
    samples = part.read([0])
    if samples.inputs.keys() != first.inputs.keys():
        names = [", ".join(one.inputs) for one in (samples, first)]
        raise DataError(f"{part.where}: its columns are {names[0]}, but {first_part.where} has {names[1]}")
    if samples.targets.keys() != first.targets.keys():
        names = [", ".join(one.targets) or "one" for one in (samples, first)]
        raise DataError(f"{part.where}: its targets are {names[0]}, but {first_part.where} has {names[1]}")
    pairs = [(name or "inputs", samples.inputs[name], first.inputs[name]) for name in first.inputs]
    targets = [(named_target(name), samples.targets[name], first.targets[name]) for name in first.targets]
    for what, mine, other in (*pairs, *targets):
        if mine.shape[1:] != other.shape[1:]:
            shapes = [tuple(t.shape[1:]) for t in (mine, other)]
            raise DataError(f"{part.where}: {what} of shape {shapes[0]}, but {first_part.where} has {shapes[1]}")
        if mine.dtype != other.dtype:
            kinds = [str(t.dtype).removeprefix("torch.") for t in (mine, other)]
            raise DataError(f"{part.where}: {what} are {kinds[0]}, but {first_part.where} has {kinds[1]}")


def check_columns(part: Part, first_part: Part) -> None:
    """Columns of frames become numbers side by side: the same ones in the same order, or a model would mix them up."""
    if not part.columns or not first_part.columns or part.columns == first_part.columns:
        return
    remedy = "or say for all which, in which order: columns=[…]"
    for name in first_part.columns:
        if name not in part.columns:
            raise DataError(
                f"{part.where}: there is no column {name!r}, which {first_part.where} has; add it, {remedy}"
            )
    for name in part.columns:
        if name not in first_part.columns:
            raise DataError(f"{part.where}: {first_part.where} has no column {name!r}; leave it out, {remedy}")
    raise DataError(
        f"{part.where}: its columns are in another order than those of {first_part.where}; sort them, {remedy}"
    )


def check_numbers(fitted: Fitted, parts: Sequence[Part]) -> None:
    """Checks that no data in memory has NaN or infinity, unless model and loss know what to do with it."""
    for part in parts:
        gap = gap_in(part)
        if gap is not None and not bears(fitted, part, gap):
            remedy = "fill it in, leave such samples out, or let model and loss take care of it"
            raise DataError(f"{part.where}: {gap.words(part)}; {remedy}")


def bears(fitted: Fitted, part: Part, gap: Gap) -> bool:
    """Whether the loss of such samples among others is a number all the same; of nothing known alone it may be none.

    A model or a loss that fails of them, and not of the others alone, does not know what to do with them. One that
    fails of those as well has another mistake, of which the trial before a training tells.
    """
    others = torch.ones(len(part), dtype=torch.bool).index_fill(0, gap.samples.cpu(), False).nonzero()[:, 0]
    usual = others[:TRIED_AT_ONCE].tolist()
    loss = _loss_of(fitted, part, [*gap.samples[:TRIED_AT_ONCE].tolist(), *usual])
    if loss is None:
        return not usual or _loss_of(fitted, part, usual) is None
    return bool(torch.isfinite(loss).all())


def _loss_of(fitted: Fitted, part: Part, samples: list[int]) -> Tensor | None:
    """The loss of some samples; None where model or loss fails."""
    inputs, targets = fitted.joined([part.read(samples)])
    outputs = tried(fitted.module, inputs)
    if outputs is None:
        return None
    try:
        with torch.no_grad():
            return fitted.loss(outputs, targets)
    except Exception:  # whatever a person's loss does
        return None
