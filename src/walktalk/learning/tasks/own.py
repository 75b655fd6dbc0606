"""Bring your own: any torch module and loss, any data, one part per node."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, arange, manual_seed, nn, no_grad
from torch.random import fork_rng

from walktalk.core.errors import ModelError
from walktalk.learning.arithmetic import machine_memory
from walktalk.learning.optimizers import Optimizers, check_optimizers
from walktalk.learning.samples import Column, Reader, Samples
from walktalk.learning.stacked.model import takes_classes
from walktalk.learning.task import Loss, Metric, Task, with_trainable
from walktalk.learning.tasks.own_model import Fitted, Unpacked, check_numbers, check_types, fit
from walktalk.learning.user_data import (
    BatchLoss,
    BatchMetric,
    Choice,
    Form,
    InMemory,
    OnDemand,
    Part,
    RaggedModel,
    RaggedSamples,
    RawSamples,
    accepted_by,
    chosen,
    fixed_form,
    is_ragged,
    part_of,
    persons_module,
    raw_samples,
    sources_of,
    targets_of,
)

# Where training starts: the weights that a module has, those of a file, or fresh ones for every repetition.

Weights: TypeAlias = str | PathLike[str] | Mapping[str, Tensor] | nn.Module
MODEL_FILE = "model.safetensors"  # in the folder of a run


def with_weights(module: nn.Module, weights: Weights, where: str = "init") -> nn.Module:
    """A copy of the module with these weights: a safetensors file, a state dict, or a module such as `run.model`."""
    state = state_of(weights, where)
    started = copy.deepcopy(module)
    try:
        missing, unexpected = started.load_state_dict(dict(state), strict=False)
    except RuntimeError as error:
        raise ModelError(f"{where}: these weights do not fit the model: {' '.join(str(error).split())}") from error
    if missing or unexpected:
        words = [f"{len(missing)} are missing ({missing[0]}…)"] if missing else []
        words += [f"{len(unexpected)} are not the model's ({unexpected[0]}…)"] if unexpected else []
        raise ModelError(f"{where}: these weights are another model's: of its tensors {' and '.join(words)}")
    return started


def state_of(weights: Any, where: str) -> Mapping[str, Tensor]:
    if isinstance(weights, nn.Module):
        return weights.state_dict()
    if isinstance(weights, Mapping):
        return weights
    if isinstance(weights, (str, PathLike)):
        return from_file(Path(weights), where)
    raise ModelError(f"{where}: a safetensors file, a state dict or a module is needed, not {type(weights).__name__}")


def from_file(path: Path, where: str) -> Mapping[str, Tensor]:
    """The tensors in a file; nothing is ever unpickled."""
    path = path / MODEL_FILE if path.is_dir() else path
    try:
        state: Mapping[str, Tensor] = load_file(path)
        return state
    except OSError as error:
        reason = error.strerror or "not there"
        raise ModelError(f"{where}: {path} cannot be read: {reason}") from error
    except SafetensorError as error:
        raise ModelError(
            f"{where}: {path} is no safetensors file; of a .pt file, give the state dict itself: "
            "torch.load(file, weights_only=True)"
        ) from error


def check_that_all_start_afresh(module: nn.Module) -> None:
    """Checks that every parameter belongs to a part that can draw it anew."""
    for name, part in module.named_modules():
        own = [key for key, _ in part.named_parameters(recurse=False)]
        if own and not callable(getattr(part, "reset_parameters", None)):
            place = f"{name}.{own[0]}" if name else own[0]
            raise ModelError(
                f"fresh: {place} cannot start afresh, since {type(part).__name__} has no reset_parameters(); give a "
                "function that makes the model in place of the model"
            )


def seeded_module(make: Any, seed: int = 0) -> nn.Module:
    """A module from the function that makes it; torch's own random state is left alone."""
    with fork_rng(devices=[]):
        manual_seed(seed)
        module = make()
    if not isinstance(module, nn.Module):
        raise ModelError(f"module: the function should make a torch.nn.Module, not {type(module).__name__}")
    return module


def starting_from(task: Task, weights: Weights) -> Task:
    """The task, every run of which starts from these weights."""
    started = copy.deepcopy(task.model)
    own = persons_module(started)
    own.load_state_dict(with_weights(own, weights).state_dict())
    return replace(task, model=started, pretrained=True, make=None)


MEASURED = ("train_loss", "test_loss", "test_accuracy", "consensus", "iteration", "time", "bits")  # always, so taken
SHARE_OF_MEMORY = 0.5  # of what is free may go into data; what is larger is read batch by batch


def torch(
    module: nn.Module | Callable[[], nn.Module],
    loss: Loss | None = None,
    partitions: Any = (),
    test: Any = None,
    *,
    name: str = "own",
    part: str | int | None = None,
    names: Sequence[str] | None = None,
    target: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    in_memory: bool | None = None,
    init: Weights | None = None,
    fresh: bool = False,
    metrics: Mapping[str, Metric] | None = None,
    trainable: str | Sequence[str] | None = None,
    optimizers: Optimizers | None = None,
    private: str | Sequence[str] | None = None,
) -> Task:
    """A task of one's own: any module, any data.

    Args:
        module: Where training starts, with the weights that it has; or a function that makes the module anew
            for every repetition.
        loss: `loss(outputs, targets)` is the mean over a batch; outputs are those of the module, in tuples or
            dictionaries too, and a dictionary's `logits` alone where the loss takes a tensor. It may be left out
            where the module is given the labels and puts out its own `loss`, as those of Hugging Face.
        partitions: The data of every node: a list, a dictionary by node name, a function of the name (with
            `names`), or what has `load_partition`. One node's data is a pair (inputs, targets) of arrays or
            tensors, a torch `Dataset`, a `DataLoader`, a pandas frame, a Hugging Face `Dataset`, a dictionary
            of columns, or a function that gives one of these when it is called. Targets may be several: a
            dictionary of arrays, or a tuple.
        test: Data as above, or a dictionary by node name, each node's own. Loss is measured on it, accuracy
            where targets are classes, and `metrics`.
        name: How the task is called in tables and folders.
        part: A node's name or number: only that node's data is asked for.
        names: The nodes' names, where `partitions` is a function.
        target: Of named columns, which are the targets; else labels, label, targets, target or y. A list gives
            targets of two dimensions, also of one column if it is measured: as `Linear(…, 1)` puts out. Columns
            of several dimensions go to the loss by name.
        columns: Of named columns, which are the inputs; else those that the module takes, or all.
        collate: Makes a batch of single samples, as a `DataLoader`'s does.
        in_memory: Whether data is read into memory at once; if left out, what does not fit into half of the
            free memory is read batch by batch, and so are data sets that change samples at random.
        init: Other weights to start from: a safetensors file, a state dict, or a module such as `run.model`.
        fresh: Draw the module's weights anew for every repetition.
        metrics: Names with functions of (outputs, targets) of all test samples, as the loss has them.
        trainable: Names of the parameters, or of the parts, that train and travel, `*` for anything: `"head"`,
            `["layers.11.*", "*.bias"]`. All others are frozen: held once, in the module's own memory, and never
            sent. If left out, what requires a gradient trains.
        optimizers: For some parameters, by names as in `trainable`, another optimizer than the study's: a number,
            times which the learning rate is the study's; `wt.SGD(…)` and the like; a class with the interface of
            torch.optim, one's own too, or `functools.partial` of one with its settings. The first name that fits
            counts. All rates follow the study's schedule.
        private: Names of parameters or parts, as in `trainable`, that stay at every node and are never sent: they
            train there, and are put to whatever shared part is there. Running statistics in them stay, too.
    """
    check_optimizers(optimizers or {})
    model, make = started(module, init, fresh)
    if trainable is not None:
        model, made_anew = with_trainable(model, trainable), make
        make = None if made_anew is None else (lambda: with_trainable(made_anew(), trainable))
    if loss is not None and not callable(loss):
        raise ModelError("loss: a function of (outputs, targets) is needed, such as torch.nn.functional.cross_entropy")
    if isinstance(loss, type):  # called, it would make a loss and compute none
        raise ModelError(f"loss: {loss.__name__} is a class; give one of it, {loss.__name__}()")
    check_metrics(metrics or {})
    choice = Choice(target, columns, accepted_by(model), loss is None, collate)
    most = SHARE_OF_MEMORY * machine_memory()
    sources = chosen(sources_of(partitions, names), part)
    loaded = [(source.where, source.load()) for source in sources]
    tests, by_node = test_data(test, [source.name for source in sources])
    known = tuple(source.name for source in sources if source.name is not None)
    by_name = known if len(known) == len(sources) else None
    raw = [raw_samples(data, where, choice) for where, data in (*loaded, *tests)]
    together_by_hand = [one for one in raw if one is not None]
    if len(together_by_hand) == len(raw) and any(is_ragged(one, choice) for one in together_by_hand):
        check_types(model)
        found = ragged(model, loss, together_by_hand, len(loaded), choice, metrics or {})
        return replace(
            found,
            name=name,
            pretrained=not fresh and make is None,
            names=by_name,
            optimizers=dict(optimizers or {}),
            private=names_of_parts(private),
            test_parts=found.test_parts if by_node else None,
            make=None if make is None else (lambda: made_like(found.model, make())),
        )
    parts, held = ([part_of(data, where, choice, most) for where, data in side] for side in (loaded, tests))
    everything = [*parts, *held]
    if kept_in_memory(everything, in_memory, most):
        everything = [one.whole() for one in everything]
    fitted = fit(model, loss, everything)
    check_numbers(fitted, everything)
    check_types(model)
    data = together(everything[: len(parts)], fitted)
    held_out = together(everything[len(parts) :], fitted) if held else None
    return Task(
        name,
        fitted.module,
        fitted.loss,
        data.inputs,
        data.targets,
        data.parts,
        None if held_out is None else (held_out.inputs, held_out.targets),
        labels=classes_of(data.targets),
        pretrained=not fresh and make is None,
        names=by_name,
        test_parts=held_out.parts if held_out is not None and by_node else None,
        metrics=fitted.metrics(metrics or {}),
        predictions=fitted.predictions,
        make=None if make is None else (lambda: fitted.like(make())),
        optimizers=dict(optimizers or {}),
        private=names_of_parts(private),
        columns=everything[0].columns,
        target_columns=everything[0].target_columns,
    )


def names_of_parts(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def check_metrics(metrics: Mapping[str, Metric]) -> None:
    """Checks that metrics are functions, by names that can be columns of a history."""
    for name, function in metrics.items():
        if not re.fullmatch(r"\w[\w.@ -]*", str(name)) or name in MEASURED:
            raise ModelError(f"metrics: {name!r} cannot be a metric's name; use other letters, digits and _")
        if not callable(function):
            raise ModelError(f"metrics: {name} should be a function of (outputs, targets)")


def started(module: Any, init: Weights | None, fresh: bool) -> tuple[nn.Module, Callable[[], nn.Module] | None]:
    """The module as training finds it, and what makes it anew, where that is asked for."""
    make = None
    if not isinstance(module, nn.Module):
        if not callable(module):
            raise ModelError(f"module: a torch.nn.Module is needed, not {type(module).__name__}")
        check_that_it_needs_no_arguments(module)
        module, make = seeded_module(module), module
    if init is not None:
        if fresh:
            raise ModelError("init and fresh exclude each other; leave one out")
        return with_weights(module, init), None
    if fresh and make is None:
        check_that_all_start_afresh(module)
    return module, make


def check_that_it_needs_no_arguments(make: Callable[..., Any]) -> None:
    """Checks that what makes the module can be called with none; a class that needs some was meant to be one of it."""
    try:
        found = inspect.signature(make)
    except (TypeError, ValueError):  # nothing is known of it, as of some that are written in C
        return
    try:
        found.bind()
    except TypeError as error:
        called = getattr(make, "__name__", type(make).__name__)
        raise ModelError(
            f"module: {called} cannot be called without arguments ({error}); give a module, or a function that makes "
            "one, such as lambda: Linear(3, 2)"
        ) from error


def test_data(test: Any, nodes: Sequence[str | None]) -> tuple[list[tuple[str, Any]], bool]:
    """The data that is kept for testing, with what a person calls it, and whether every node has its own by name."""
    if test is None:
        return [], False
    by_name = isinstance(test, Mapping) and all(name is not None and name in test for name in nodes)
    entries = [(f"test[{name!r}]", test[name]) for name in nodes] if by_name else [("test", test)]
    return [
        (where, data() if callable(data) and not hasattr(data, "__len__") else data) for where, data in entries
    ], by_name


def ragged(
    module: nn.Module,
    loss: Loss | None,
    raw: Sequence[RawSamples],
    nodes: int,
    choice: Choice,
    metrics: Mapping[str, Metric],
) -> Task:
    """A task whose samples are put together batch by batch; training samples of the nodes first, then tests."""
    samples = RaggedSamples(raw, choice)
    model = RaggedModel(module, samples, loss)
    targets = None if loss is None else targets_of(samples, module)
    model.form = fixed_form(model)
    whole = model.form is not None and (targets is not None or not metrics)
    if not whole:
        model.form, model.metrics = None, dict(metrics)
    numbers = arange(len(samples))
    known = numbers if targets is None or not whole else targets
    alone = model.form is not None and model.form.is_one
    model.has_classes = alone and known is targets and has_classes(model, known)
    ends, trained = samples.starts[1:], samples.starts[nodes]
    places = [np.arange(end - len(part.data), end) for part, end in zip(raw, ends, strict=True)]
    measured = fixed_metrics(metrics, model.form) if whole else {n: BatchMetric(k) for k, n in enumerate(metrics)}
    return Task(
        "own",
        model,
        BatchLoss(loss),
        numbers[:trained],
        known[:trained],
        places[:nodes],
        (numbers[trained:], known[trained:]) if trained < len(samples) else None,
        labels=classes_of(known[:trained]) if model.has_classes else None,
        test_parts=[place - trained for place in places[nodes:]],
        metrics=measured,
        predictions=model.predictions,
    )


def fixed_metrics(metrics: Mapping[str, Metric], form: Form | None) -> dict[str, Metric]:
    """A person's metrics of outputs that have one form, which several of them lie in."""
    alone = form is None or form.is_one
    return dict(metrics) if alone else {name: Unpacked(metric, form, None) for name, metric in metrics.items()}


def has_classes(model: RaggedModel, targets: Tensor) -> bool:
    """Whether the targets of samples that are put together batch by batch are classes: their loss says so."""
    if targets.is_floating_point() or model.loss is None:
        return False
    training = model.training
    with no_grad():
        outputs = model.predictions(model.eval()(arange(min(2, len(targets)))))
    model.train(training)
    return outputs.dim() > 1 and takes_classes(model.loss, outputs, targets[: len(outputs)], outputs.shape[1])


def made_like(model: nn.Module, made: nn.Module) -> nn.Module:
    """Another module in the place of the person's."""
    assert isinstance(model, RaggedModel)
    check_types(made)
    return model.like(made)


def kept_in_memory(parts: Sequence[Part], wanted: bool | None, most: float) -> bool:
    """Whether all samples are put into memory once, which the fastest ways of training need.

    Not where they are changed at random as they are read: an augmentation is to be drawn anew every time.
    """
    if wanted is not None:
        return wanted
    return sum(p.bytes for p in parts if isinstance(p, OnDemand)) <= most and not draws(parts)


def draws(parts: Sequence[Part]) -> bool:
    """Whether samples are changed at random as they are read: the first data set that is read on demand is tried."""
    first = next((part for part in parts if isinstance(part, OnDemand)), None)
    return first is not None and first.draws


class Data(NamedTuple):
    """All nodes' samples, one node after another."""

    inputs: Samples
    targets: Samples
    parts: list[np.ndarray]


def together(parts: Sequence[Part], fitted: Fitted) -> Data:
    ends = np.cumsum([len(part) for part in parts])
    places = [np.arange(end - len(part), end) for part, end in zip(parts, ends, strict=True)]
    if all(isinstance(part, InMemory) for part in parts):
        return Data(*fitted.joined([part.read(range(len(part))) for part in parts]), places)

    def read(numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Samples of several nodes, in the order asked for."""
        asked = np.asarray(numbers)
        owners = np.searchsorted(ends, asked, side="right")
        order = np.argsort(owners, kind="stable")
        found = [
            parts[owner].read((asked[owners == owner] - (ends[owner] - len(parts[owner]))).tolist())
            for owner in np.unique(owners)
        ]
        inputs, targets = fitted.joined(found)
        back = np.argsort(order, kind="stable")
        return inputs[back], targets[back]

    return Data(*Reader(read, int(ends[-1]), lambda: draws(parts)).columns(), places)


def classes_of(targets: Samples) -> np.ndarray | None:
    if isinstance(targets, Column) or targets.dim() != 1 or targets.is_floating_point():
        return None
    return np.asarray(targets.numpy())
