"""Chooses the fastest stacked form of a module that gives the right gradients."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from walktalk.core.errors import ModelError
from walktalk.learning.arithmetic import Arithmetic
from walktalk.learning.kernels import is_possible
from walktalk.learning.samples import seeded
from walktalk.learning.stacked.compiled import CompiledModel
from walktalk.learning.stacked.cpu import prepared_for_images
from walktalk.learning.stacked.model import (
    ChainModel,
    LossByPart,
    RowByRowLoss,
    StackedModel,
    TracedModel,
    VmapModel,
    row_losses,
    takes_classes,
)
from walktalk.learning.stacked.sequential import DRAWN_FOR_MEASURING, SequentialModel
from walktalk.learning.stacked.shared_base import NoDropout, SharedBaseModel
from walktalk.learning.stacked.tensors import NotStackable
from walktalk.learning.stacked.traced import is_patchwise
from walktalk.learning.task import Loss, is_partly_frozen, to_training
from walktalk.learning.user_data import own_name

STACKED_UP_TO = 2**24  # parameters; a larger model fills a device by itself, and a wave of them its memory
FURTHER = 3.0  # times the error of casts before every product, up to which a base in 16 bits is taken
SIZES_DIFFER = "Using a target size"  # how torch's warning of outputs [B, 1] and targets [B] begins
ONE_OUTPUT = 'Targets need the same dimensions: target=["y"] for a column of a frame, unsqueeze(1) for a tensor.'
SEEDS_TRIED = 5  # to see whether a model is random
FORMS: tuple[type[StackedModel], ...] = (ChainModel, TracedModel, VmapModel)
ON_A_CPU: tuple[type[StackedModel], ...] = (ChainModel, CompiledModel, TracedModel)  # vmap is slower than a loop
CANNOT = (NotStackable, ModelError, RuntimeError, KeyError, TypeError, ValueError, IndexError, AttributeError)


def stack(module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, with_buffers: bool = True) -> StackedModel:
    """The fastest stacked form of a module that gives the right gradients and outputs.

    module: with the weights that rows begin from. loss: of one model's outputs and targets, a mean over the batch.
    inputs, targets: the task's samples; a few are tried. with_buffers: whether running statistics belong to a row.
    """
    if not any(p.requires_grad for p in module.parameters()):
        raise ModelError("the model has no parameter that requires a gradient, so there is nothing to train")
    trained = [own_name(module, name) for name, parameter in module.named_parameters() if parameter.requires_grad]
    outputs, names = check_that_it_runs(module, loss, inputs, targets)
    loss = LossByPart(loss, names, trained) if names else loss
    by_part = isinstance(loss, LossByPart)
    if not by_part and not targets.is_floating_point() and bool((targets < 0).any()):
        loss = OpaqueLoss(loss)  # labels that are to be ignored: the mean is over fewer samples in some rows
    forms = () if is_row_by_row(module) else forms_for(module, inputs.device.type == "cpu")
    if isinstance(loss, LossByPart):
        forms = ()
    elif draws(loss, outputs, targets[: len(outputs)]):
        loss, forms = RandomRowLoss(loss), ()
    elif not can_be_stacked(loss, outputs, targets[: len(outputs)]):
        loss = RowByRowLoss(loss)
    for kind in forms:
        try:
            model = kind(module, loss, with_buffers)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # vmap says what it is slow at, whether or not it is taken
                if agrees(model, inputs, targets):
                    return model
        except CANNOT:
            continue  # whatever it was, the next form can do without it
    model = SequentialModel(module, loss, with_buffers)
    if inputs.device.type == "cpu" and model.images is not None:
        model.images = prepared_for_images(model.worker, inputs)
    return model


def is_row_by_row(module: nn.Module) -> bool:
    """Whether a module says of itself that it has no form of many models: it reads its samples by their numbers."""
    return bool(getattr(module, "row_by_row", False))


def forms_for(module: nn.Module, on_cpu: bool) -> tuple[type[StackedModel], ...]:
    """The stacked forms to try, the fastest first; () if nothing is as fast as one model after the other."""
    trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
    shared = (SharedBaseModel,) if is_partly_frozen(module) and trained <= STACKED_UP_TO else ()
    small = sum(p.numel() for p in module.parameters()) <= STACKED_UP_TO
    if not small or (on_cpu and is_better_alone(module)):
        return shared
    return (*shared, *(ON_A_CPU if on_cpu else FORMS))


def is_better_alone(module: nn.Module) -> bool:
    """Whether a CPU is fastest with one model at a time: oneDNN's convolutions and LSTM keep it busy with one.

    Grouped, or with the activations of many models in turn in its caches, they take up to twice as long.
    """
    convolutions = [part for part in module.modules() if isinstance(part, nn.modules.conv._ConvNd)]
    return any(not is_patchwise(part) for part in convolutions) or any(isinstance(p, nn.LSTM) for p in module.modules())


def use(model: StackedModel, arithmetic: Arithmetic, inputs: Tensor, targets: Tensor) -> None:
    """Makes a model compute by this arithmetic; with the fused kernels, where they fit and give what they should."""
    model.arithmetic, model.fused = arithmetic, None
    if isinstance(model, SequentialModel):
        in_the_loss = isinstance(model.loss, (RandomRowLoss, LossByPart))  # the second is not looked into
        model.draws = in_the_loss or is_random(model.module, inputs[:2])
        model.draws_when_measured = in_the_loss or is_random(model.module, inputs[:2], measured=True)
    if isinstance(model, SharedBaseModel) and arithmetic.uses_fused(inputs.device):
        lighten(model, inputs, targets)
    fits = isinstance(model, TracedModel) and model.traced.is_fusible
    if fits and arithmetic.uses_fused(inputs.device) and is_possible():
        model.fused = torch.bfloat16 if fused_agrees(model, inputs, targets) else None


def lighten(model: SharedBaseModel, inputs: Tensor, targets: Tensor) -> dict[str, float]:
    """On a GPU in 16 bits: hold the base in them, attend by a kernel of our own, and compile its blocks, each where
    gradients are about as near to those in full precision as with casts before every product. Says how near each is,
    in relative norm."""
    arithmetic, errors = model.arithmetic, dict[str, float]()
    rows, x, y = probe(model, inputs, targets)

    def measure(way: str) -> bool:
        errors[way] = float((gradients_of(model, rows, x, y) - exact).norm() / exact.norm())
        return errors[way] <= FURTHER * errors["casts"] + 1e-3

    with without_dropout(model.module, model), Arithmetic("fp32").products(inputs.device):
        model.arithmetic = Arithmetic("fp32", channels_last=False)
        exact = gradients_of(model, rows, x, y).clone()
        model.arithmetic = arithmetic
        measure("casts")
        model.hold_base(torch.bfloat16)
        if not measure("16 bits"):
            model.hold_base(None)
        try:
            if is_possible() and model.attend(ours=True) and not measure("own attention"):
                model.attend(ours=False)
            if model.is_large and is_possible() and model.compile_blocks() and not measure("compiled"):
                model.undo_compilation()
        except Exception as error:  # whatever a compiler on somebody's machine may say
            model.attend(ours=False)
            model.undo_compilation()
            first = str(error).strip().splitlines()
            warnings.warn(f"blocks are not compiled, so they train more slowly: {first[:1]}", stacklevel=2)
    return errors


def probe(model: StackedModel, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Two rows that differ, and a batch of a few samples for each."""
    width = model.layout.parameter_width
    rows = torch.stack([model.layout.row(model.module)] * 2).to(inputs.device)
    noise = torch.randn(2, width, generator=torch.Generator().manual_seed(0)).to(inputs.device)
    rows[:, :width] += 0.02 * noise  # an adapter that is zero yet would give no gradient to its other half
    batch = min(8, len(inputs))
    x, y = (torch.stack((t[:batch], t[-batch:])) for t in (inputs, targets))
    return rows, x, y


def fused_agrees(model: StackedModel, inputs: Tensor, targets: Tensor) -> bool:
    """Whether the fused kernels' gradients are about as near to those in full precision as torch's own in 16 bits."""
    arithmetic, layout = model.arithmetic, model.layout
    rows = torch.stack([layout.row(model.module)] * 2).to(inputs.device)
    rows[1, : layout.parameter_width] *= 1.01
    batch = min(32, len(inputs))
    x, y = (t[:batch].expand(2, *t[:batch].shape) for t in (inputs, targets))
    errors = []
    try:
        with without_dropout(model.module), Arithmetic("fp32").products(inputs.device):
            model.arithmetic = Arithmetic("fp32", channels_last=False)
            exact = gradients_of(model, rows, x, y).clone()
            model.arithmetic = arithmetic
            for model.fused in (None, torch.bfloat16):
                errors.append(float((gradients_of(model, rows, x, y) - exact).norm() / exact.norm()))
    except Exception as error:  # whatever a compiler on somebody's machine may say
        warnings.warn(f"no fused kernels for this model, so it trains more slowly: {error}", stacklevel=2)
        return False
    finally:
        model.arithmetic, model.fused = arithmetic, None
    if not errors[1] <= 2 * errors[0] + 1e-3:
        warnings.warn(
            f"the fused kernels are off by {errors[1]:.1e} here (torch's own: {errors[0]:.1e}) and are not used",
            stacklevel=2,
        )
        return False
    return True


class OpaqueLoss:
    """A loss that may only be computed row by row: nothing is known about it but what it returns."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.loss(outputs, targets)


class RandomRowLoss(RowByRowLoss):
    """A loss that draws random numbers: in a training, after the row's seed; in a measurement, the same for all."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return self.loss(outputs, targets)
        with seeded(DRAWN_FOR_MEASURING, outputs.device):
            return self.loss(outputs, targets)


def draws(loss: Loss, outputs: Tensor, targets: Tensor) -> bool:
    """Whether a loss depends on torch's random numbers."""

    def outcome(seed: int) -> Tensor:
        with torch.no_grad(), seeded(seed, outputs.device):
            return loss(outputs, targets)

    return depends_on_seed(outcome)


def depends_on_seed(outcome: Callable[[int], Tensor]) -> bool:
    """Whether what comes out differs between seeds; NaN is itself."""
    first = outcome(0).nan_to_num()
    return any(not torch.equal(outcome(seed).nan_to_num(), first) for seed in range(1, SEEDS_TRIED))


def check_that_it_runs(
    module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor
) -> tuple[Tensor, tuple[str, ...]]:
    """Runs the model once, so that a mistake in it, its loss or its data shows in torch's words before any training.

    Returns the outputs for the first two samples, and the names of the parts that have losses of their own; () if none
    has.
    """
    probe = copy.deepcopy(module).eval()
    try:
        with torch.no_grad(), seeded(0, inputs.device), warnings.catch_warnings():
            # [B, 1] outputs and [B] targets: torch would compare every output with every target, and only warn.
            warnings.filterwarnings("error", SIZES_DIFFER)
            outputs: Tensor = probe(inputs[:2])
            if isinstance(outputs, Tensor):
                check_classes(loss, outputs, targets)
            value: object = loss(outputs, targets[:2])
    except ModelError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        hint = f" {ONE_OUTPUT}" if said.startswith(SIZES_DIFFER) else ""
        raise ModelError(f"the model or its loss fails on its own data: {said}{hint}") from error
    if not isinstance(outputs, Tensor):
        raise ModelError("the model must put out one tensor here; wt.tasks.torch makes a task of one with several")
    each = list(value.values()) if isinstance(value, Mapping) and value else [value]
    if any(not isinstance(one, Tensor) or one.numel() != 1 for one in each):
        raise ModelError("the loss should be one number, a tensor: the mean over the batch")
    return outputs, tuple(map(str, value)) if isinstance(value, Mapping) else ()


def check_classes(loss: Loss, outputs: Tensor, targets: Tensor) -> None:
    """Checks that no class is beyond the model's outputs, where the loss takes whole numbers for classes."""
    classes = outputs.shape[1] if outputs.dim() == 2 else 0
    if targets.is_floating_point() or targets.dim() != 1 or classes < 2 or int(targets.max()) < classes:
        return
    if takes_classes(loss, outputs, torch.zeros_like(targets[: len(outputs)]), classes):
        raise ModelError(
            f"there is a target {int(targets.max())}, but the model has {classes} outputs (0 to {classes - 1})"
        )


def can_be_stacked(loss: Loss, outputs: Tensor, targets: Tensor) -> bool:
    """Whether the losses of several rows can be had at once, and are each row's own."""
    several, wanted = torch.stack((outputs, outputs * 1.01)), targets.expand(2, *targets.shape)
    try:
        with torch.no_grad():
            together, each = (row_losses(f, several.float(), wanted) for f in (loss, RowByRowLoss(loss)))
    except CANNOT:
        return False
    return bool(torch.allclose(together, each, rtol=1e-4, equal_nan=True))


def agrees(model: StackedModel, inputs: Tensor, targets: Tensor) -> bool:
    """Whether the stacked gradients and outputs of two rows are those of plain passes.

    Outputs too: there are layers, such as an LSTM, that vmap can follow where gradients are wanted, but not without.
    """
    layout = model.layout
    rows = torch.stack([layout.row(model.module)] * 2).to(inputs.device)
    rows[1, : layout.parameter_width] *= 1.01  # so that a mix-up of rows shows
    batch = min(4, len(inputs))
    x, y = (torch.stack((t[:batch], t[-batch:])) for t in (inputs, targets))  # two, so that a mix-up of samples shows
    if isinstance(model, VmapModel) and is_random(model.module, x[0]):
        return False  # vmap's random numbers would depend on how wide a wave is
    if isinstance(model, SharedBaseModel) and model.finds_draws(rows, x):
        return False  # the same of random numbers that are not those of a dropout
    # Dropout off: its draws are others than torch's own. Products in full precision, whatever a GPU does by default:
    # tf32 alone is off by 2e-3 in a ResNet.
    with without_dropout(model.module, model), Arithmetic("fp32").products(inputs.device):
        out = layout.gather(gradients_of(model, rows, x, y), 2)
        expected = torch.stack([plain_gradient(model, rows[k], x[k], y[k]) for k in range(2)])
        outputs = model.outputs(rows, x[0])
        right = SequentialModel(model.module, model.loss, model.with_buffers).outputs(rows, x[0])
    return are_close(out, expected) and outputs.shape == right.shape and are_close(outputs, right)


def are_close(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).norm() <= 1e-4 * expected.norm() + 1e-7)


def gradients_of(model: StackedModel, rows: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    width = model.layout.parameter_width
    keys = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
    wave = model.wave(model.layout.spread_out(rows[:, :width]), rows[:, width:].clone(), keys)
    return wave(inputs, targets, 0)


def plain_gradient(model: StackedModel, row: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    module = to_training(model.layout.module(model.module, row).to(inputs.device))
    model.loss(module(inputs), targets).backward()
    named = dict(module.named_parameters())
    zeros = {e.name: torch.zeros(e.shape, device=row.device) for e in model.layout.parameters}
    gradients = [
        named[e.name].grad if named[e.name].grad is not None else zeros[e.name] for e in model.layout.parameters
    ]
    return torch.cat([g.reshape(-1) for g in gradients if g is not None])


def active_dropouts(module: nn.Module) -> list[tuple[nn.Module, str]]:
    """Layers that drop something, and the name of the share: attention and recurrent layers have it inside."""
    kinds = {nn.modules.dropout._DropoutNd: "p", nn.MultiheadAttention: "dropout", nn.RNNBase: "dropout"}
    found = [(m, name) for m in module.modules() for kind, name in kinds.items() if isinstance(m, kind)]
    return [(m, name) for m, name in found if getattr(m, name) > 0]


class without_dropout:
    """A context in which dropout layers let everything through."""

    def __init__(self, module: nn.Module, model: StackedModel | None = None) -> None:
        workers = [model.worker] if isinstance(model, SharedBaseModel) else []  # whose layers are copies
        dropouts = [found for part in (module, *workers) for found in active_dropouts(part)]
        self.kept = [(layer, name, getattr(layer, name)) for layer, name in dropouts]
        self.joined = model if isinstance(model, SharedBaseModel) and model.drops else None
        self.functions = NoDropout()

    def __enter__(self) -> None:
        for layer, name, _ in self.kept:
            setattr(layer, name, 0.0)
        if self.joined is not None:  # its base may call functions, and not layers
            self.joined.drops = False
            self.functions.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: object) -> None:
        if self.joined is not None:
            self.joined.drops = True
            self.functions.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        for layer, name, p in self.kept:
            setattr(layer, name, p)


def is_random(module: nn.Module, inputs: Tensor, measured: bool = False) -> bool:
    """Whether a forward pass in training mode, or as it is measured, depends on torch's random numbers.

    A dropout layer says so itself. Others are found by trying: two seeds may happen to drop the same of few units.
    """
    if not measured and active_dropouts(module):
        return True
    probe = copy.deepcopy(module).train(not measured)

    def outcome(seed: int) -> Tensor:
        with torch.no_grad(), seeded(seed, inputs.device):
            result: Tensor = copy.deepcopy(probe)(inputs)
        return result

    return depends_on_seed(outcome)
