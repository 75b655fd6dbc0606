"""A person's module and loss, fitted to the columns of their data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from walktalk.errors import DataError
from walktalk.learning.given import Adapter, Gap, Given, Packing, Part, gap_in, name_of_labels, way_to_call
from walktalk.learning.stacked import seeded
from walktalk.learning.task import Loss

TRIED_AT_ONCE = 32  # samples with NaN or infinity, and as many others


class Fitted(NamedTuple):
    """What a task is made of, from a module and the form of the data."""

    module: nn.Module
    loss: Loss
    predictions: Callable[[Tensor], Tensor] | None
    packing: Packing | None  # of several columns into one tensor
    labels: str | None  # by which name the module is given the targets too, to compute its own loss

    def joined(self, given: Sequence[Given]) -> tuple[Tensor, Tensor]:
        """Inputs and targets as one tensor each."""
        columns = [self.columns(one) for one in given]
        if self.packing is None:
            inputs = torch.cat([next(iter(one.values())) for one in columns])
        else:
            inputs = torch.cat([self.packing.pack(one) for one in columns])
        return inputs, torch.cat([one.targets for one in given])

    def columns(self, given: Given) -> dict[str, Tensor]:
        return given.inputs if self.labels is None else {**given.inputs, self.labels: given.targets}

    def like(self, module: nn.Module) -> nn.Module:
        """Another module, called in the same way."""
        if not isinstance(self.module, Adapter):
            return module
        mine = self.module
        return Adapter(module, mine.call, mine.packing, mine.name, mine.own_loss)


def fit(module: nn.Module, loss: Loss | None, parts: Sequence[Part]) -> Fitted:
    """How the module is called with this data; parts must be alike."""
    first = parts[0].read(range(min(2, len(parts[0]))))
    for part in parts[1:]:
        check_alike(part, parts[0], first)
    labels = None if loss is not None else name_of_labels(module, "labels")
    columns = first.inputs if labels is None else {**first.inputs, labels: first.targets}
    call = way_to_call(module, list(columns))
    packing = Packing(columns) if len(columns) > 1 else None
    adapter = Adapter(module, call, packing, next(iter(columns)), loss is None)
    inputs = packing.pack(columns) if packing is not None else next(iter(columns.values()))
    if call == "one" and loss is not None and not puts_out_a_dictionary(module, inputs):
        return Fitted(module, loss, None, packing, labels)
    if loss is not None:
        return Fitted(adapter, loss, None, packing, labels)
    tried(adapter, inputs)  # to learn the shape of what is put out beside the loss
    return Fitted(adapter, adapter.loss, None if adapter.shape is None else adapter.predictions, packing, labels)


def puts_out_a_dictionary(module: nn.Module, inputs: Tensor) -> bool:
    return isinstance(tried(module, inputs), dict)


def tried(module: nn.Module, inputs: Tensor) -> Any:
    """What the module puts out; None where it fails, which is told, with the reason, before any training."""
    training = module.training
    try:
        with torch.no_grad(), seeded(0, torch.device("cpu")):
            return module.eval()(inputs)
    except Exception:  # whatever a person's forward does
        return None
    finally:
        module.train(training)


def check_alike(part: Part, first_part: Part, first: Given) -> None:
    """Every node's samples have the shape and type of the first one's."""
    check_columns(part, first_part)
    given = part.read([0])
    if given.inputs.keys() != first.inputs.keys():
        names = [", ".join(one.inputs) for one in (given, first)]
        raise DataError(f"{part.where}: its columns are {names[0]}, but {first_part.where} has {names[1]}")
    pairs = [(name or "inputs", given.inputs[name], first.inputs[name]) for name in first.inputs]
    for what, mine, other in (*pairs, ("targets", given.targets, first.targets)):
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
    """That no data in memory has NaN or infinity, unless model and loss know what to do with it, as with a mask."""
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
    """Of some samples; None where model or loss fails."""
    inputs, targets = fitted.joined([part.read(samples)])
    outputs = tried(fitted.module, inputs)
    if outputs is None:
        return None
    try:
        with torch.no_grad():
            return fitted.loss(outputs, targets)
    except Exception:  # whatever a person's loss does
        return None
