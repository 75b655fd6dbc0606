"""Several optimizers in one model, each of some of its parameters; and optimizers that a person has written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from walktalk.core.errors import ModelError
from walktalk.learning.optimizers.by_torch import Clipped, OptimizerSpec, row_optimizer
from walktalk.learning.optimizers.sgd_and_adam import OptimizerWave, RowOptimizer, Spread

Optimizers: TypeAlias = Mapping[str, Any]  # name of parameters, or a pattern -> a factor, an OptimizerSpec, a class …
TAKEN = (
    "a number (times the study's learning rate), wt.SGD(…), wt.Adam(…), a class of optimizers, or functools.partial of "
    "one with its settings"
)


def check_optimizers(optimizers: Optimizers) -> None:
    """Checks that each can be an optimizer; its settings are tried once it is known what it is to train."""
    for name, given in optimizers.items():
        if isinstance(given, torch.optim.Optimizer):
            kind = type(given).__name__
            raise ModelError(
                f"optimizers: {name}: this {kind} belongs to one model, and many are trained here; give its class and "
                f"its settings, functools.partial({kind}, lr=…)"
            )
        number = isinstance(given, (int, float)) and not isinstance(given, bool)
        if (number and not given > 0) or not (number or isinstance(given, OptimizerSpec) or callable(given)):
            raise ModelError(f"optimizers: {name}: {given!r} is not possible; allowed: {TAKEN}")


def described(optimizers: Optimizers) -> str:
    """Describes optimizers by name and settings, in the same letters in every process."""
    return ", ".join(f"{name}: {_described(given)}" for name, given in optimizers.items())


def _described(given: Any) -> str:
    if isinstance(given, partial):
        return f"{_described(given.func)}{given.args}{sorted(given.keywords.items())}"
    return getattr(given, "__qualname__", None) or repr(given)


class Part(NamedTuple):
    """The parameters of one optimizer."""

    name: str  # as the person has it
    places: tuple[int, ...]  # of these parameters among all
    optimizer: RowOptimizer
    factor: float  # times which its learning rate is the study's

    def of(self, all_of_them: Sequence[Any]) -> list[Any]:
        """Its entries of a sequence with one for each parameter."""
        return [all_of_them[place] for place in self.places]


class RowParts(RowOptimizer):
    """Several optimizers, each of some of a model's parameters. Its state holds theirs, one after another."""

    def __init__(self, parts: Sequence[Part], sizes: tuple[int, ...]) -> None:
        self.parts, self.sizes = list(parts), sizes
        self.waits = any(part.optimizer.waits for part in parts)
        widths = [part.optimizer.state_width(sum(part.of(sizes))) for part in parts]
        self.ends = [sum(widths[:k]) for k in range(len(widths) + 1)]

    def state_width(self, parameters: int) -> int:
        return self.ends[-1]

    def begin(self, lr: Tensor, state: Tensor | None, spread: Spread) -> OptimizerWave:
        pieces = [None if state is None else state[:, start:end] for start, end in pairwise(self.ends)]
        spreads = [Spread(spread.rows, tuple(part.of(self.sizes))) for part in self.parts]
        waves = [
            part.optimizer.begin(lr * part.factor, piece, own)
            for part, piece, own in zip(self.parts, pieces, spreads, strict=True)
        ]
        return PartsWave(self, waves, spreads, Spread(spread.rows, self.sizes))


class PartsWave(OptimizerWave):
    def __init__(self, settings: RowParts, waves: list[OptimizerWave], spreads: list[Spread], whole: Spread) -> None:
        self.parts, self.waves, self.spreads, self.whole = settings.parts, waves, spreads, whole

    def step(self, weights: Tensor, gradients: Tensor) -> None:
        into, found = self.whole.views(weights), self.whole.views(gradients)
        for part, wave, spread in zip(self.parts, self.waves, self.spreads, strict=True):
            (own, own_views), (slope, slope_views) = spread.empty(weights), spread.empty(weights)
            torch._foreach_copy_([*own_views, *slope_views], [*part.of(into), *part.of(found)])
            wave.step(own, slope)
            torch._foreach_copy_(part.of(into), list(own_views))

    def state(self) -> Tensor:
        return torch.cat([wave.state() for wave in self.waves], 1)


# An optimizer that a person has written: it sees parameters in their own shapes, as of one model.


class Kept(NamedTuple):
    """A number or a tensor that an optimizer remembers."""

    parameter: int  # of which it remembers it; -1: of all
    name: str
    shape: tuple[int, ...] | None  # None: a plain number
    dtype: torch.dtype | None
    on_cpu: bool = False

    @property
    def size(self) -> int:
        return 1 if self.shape is None else torch.Size(self.shape).numel()


class RowOwn(RowOptimizer):
    """Any optimizer with the interface of torch.optim, row after row, on parameters in their own shapes.

    State: a flag that says whether the row has one at all, then what the optimizer remembers of each parameter, and
    the numbers that it changes in its settings.
    """

    waits = True

    def __init__(self, make: Callable[..., Any], shapes: Sequence[tuple[int, ...]], name: str) -> None:
        self.make, self.shapes, self.name = make, list(shapes), name
        self.keeps = self._tried()

    def optimizer(self, parameters: list[Tensor], lr: float) -> Any:
        """The person's optimizer of a row's parameters."""
        return self.make(parameters, lr=lr)

    def _tried(self) -> list[Kept]:
        """What the optimizer remembers after a step on parameters of these shapes."""
        generator = torch.Generator().manual_seed(0)
        probes = [torch.randn(shape, generator=generator).requires_grad_() for shape in self.shapes]
        try:
            optimizer = self.optimizer(probes, 1e-3)
            before = dict(optimizer.param_groups[0])
            for probe in probes:
                probe.grad = torch.randn(probe.shape, generator=generator)
            optimizer.step()
            found = [
                kept(k, name, thing) for k, one in enumerate(probes) for name, thing in optimizer.state[one].items()
            ]
            changed = {
                name: now
                for name, now in optimizer.param_groups[0].items()
                if name not in ("params", "lr") and is_number(now) and now is not before.get(name)
            }
            found += [kept(-1, name, now) for name, now in changed.items() if not same(now, before.get(name))]
        except Exception as error:  # whatever a person's optimizer does
            said = " ".join(str(error).split())
            raise ModelError(
                f"optimizers: {self.name}: it fails on parameters of shapes {self._shapes()}: {said}"
            ) from error
        return sorted((one for one in found if one is not None), key=lambda one: (one.parameter, one.name))

    def _shapes(self) -> str:
        listed = list(dict.fromkeys(self.shapes))
        return ", ".join(map(str, listed[:4])) + (" …" if len(listed) > 4 else "")

    def state_width(self, parameters: int) -> int:
        return 1 + sum(one.size for one in self.keeps)

    def begin(self, lr: Tensor, state: Tensor | None, spread: Spread) -> OptimizerWave:
        if state is None:
            state = lr.new_zeros(spread.rows, self.state_width(0))
        return OwnWave(self, lr.tolist(), state, spread)


def is_number(thing: Any) -> bool:
    return isinstance(thing, (int, float, Tensor)) and not isinstance(thing, bool)


def same(one: Any, other: Any) -> bool:
    return bool(torch.equal(torch.as_tensor(one), torch.as_tensor(other))) if is_number(other) else False


def kept(parameter: int, name: str, thing: Any) -> Kept | None:
    """How a thing is remembered; None where there is nothing in it."""
    if isinstance(thing, Tensor):
        return Kept(parameter, name, tuple(thing.shape), thing.dtype, thing.dim() == 0)
    if isinstance(thing, (int, float)):
        return Kept(parameter, name, None, None)
    if thing is None:
        return None
    raise ModelError(f"it remembers a {type(thing).__name__} as {name!r}, and only numbers and tensors can be kept")


class OwnWave(OptimizerWave):
    def __init__(self, settings: RowOwn, rates: list[float], state: Tensor, spread: Spread) -> None:
        self.settings, self.spread, self.device = settings, spread, state.device
        self.rows = [[torch.zeros(s, device=state.device).requires_grad_() for s in settings.shapes] for _ in rates]
        self.optimizers = [settings.optimizer(row, rate) for row, rate in zip(self.rows, rates, strict=True)]
        for row, optimizer, packed in zip(self.rows, self.optimizers, state, strict=True):
            if bool(packed[0]):
                self._unpack(row, optimizer, packed[1:])

    def step(self, weights: Tensor, gradients: Tensor) -> None:
        values, slopes = self.spread.views(weights), self.spread.views(gradients)
        for place, (row, optimizer) in enumerate(zip(self.rows, self.optimizers, strict=True)):
            for parameter, value, slope in zip(row, values, slopes, strict=True):
                parameter.data = value[place].view(parameter.shape).clone()
                parameter.grad = slope[place].view(parameter.shape).clone()
            with torch.enable_grad():
                optimizer.step()
            for parameter, value in zip(row, values, strict=True):
                value[place].copy_(parameter.detach().reshape(-1))

    def state(self) -> Tensor:
        return torch.stack([self._pack(row, one) for row, one in zip(self.rows, self.optimizers, strict=True)])

    def _where(self, row: list[Tensor], optimizer: Any, one: Kept) -> Any:
        return optimizer.param_groups[0] if one.parameter < 0 else optimizer.state[row[one.parameter]]

    def _unpack(self, row: list[Tensor], optimizer: Any, packed: Tensor) -> None:
        at = 0
        for one in self.settings.keeps:
            numbers = packed[at : at + one.size]
            at += one.size
            if one.shape is None:
                number = float(numbers[0])
                thing: Any = int(number) if number == int(number) else number
            else:
                thing = numbers.reshape(one.shape).to(one.dtype).clone()
                thing = thing.cpu() if one.on_cpu else thing
            self._where(row, optimizer, one)[one.name] = thing

    def _pack(self, row: list[Tensor], optimizer: Any) -> Tensor:
        parts = [torch.ones(1, device=self.device)]
        for one in self.settings.keeps:
            thing = self._where(row, optimizer, one)[one.name]
            parts.append(torch.as_tensor(thing, dtype=torch.float32).to(self.device).reshape(-1))
        return torch.cat(parts)


def optimizer_by_part(
    optimizers: Optimizers,
    usual: RowOptimizer,
    parameters: Sequence[tuple[str, tuple[int, ...]]],
    matches: Callable[[str, str], bool],
    lr: float | None,
) -> RowOptimizer:
    """An optimizer of whole models that has others for some of their parameters.

    Args:
        optimizers: by names of parameters; the first that fits a parameter is its own.
        usual: of all parameters that none of the names fits.
        parameters: names and shapes, in their order.
        matches: whether a name fits a parameter's.
        lr: the study's learning rate; None: rates of their own are not known as shares of it.
    """
    if isinstance(usual, Clipped):
        inner = optimizer_by_part(optimizers, usual.inner, parameters, matches, lr)
        return replace(usual, inner=inner)
    owned: dict[str, list[int]] = {}
    for place, (name, _) in enumerate(parameters):
        pattern = next((pattern for pattern in optimizers if matches(name, pattern)), "")
        owned.setdefault(pattern, []).append(place)
    unused = [name for name in optimizers if name not in owned]
    if unused:
        raise ModelError(
            f"optimizers: no parameter is called {unused[0]!r}; there are {listed(n for n, _ in parameters)}"
        )
    parts = []
    for pattern, places in owned.items():
        shapes = [parameters[place][1] for place in places]
        found, factor = (usual, 1.0) if not pattern else made(pattern, optimizers[pattern], usual, shapes, lr)
        parts.append(Part(pattern, tuple(places), found, factor))
    sizes = tuple(torch.Size(shape).numel() for _, shape in parameters)
    return RowParts(parts, sizes)


def made(
    name: str, given: Any, usual: RowOptimizer, shapes: Sequence[tuple[int, ...]], lr: float | None
) -> tuple[RowOptimizer, float]:
    """The optimizer that stands behind a name, and times which its learning rate is the study's."""
    if isinstance(given, (int, float)):
        return usual, float(given)
    if isinstance(given, OptimizerSpec):
        return row_optimizer(given), share(given.lr, lr)
    settings = dict(given.keywords) if isinstance(given, partial) else {}
    rate = settings.pop("lr", None)
    make = partial(given.func, *given.args, **settings) if isinstance(given, partial) else given
    if rate is None:
        function = given.func if isinstance(given, partial) else given
        usual_rate = inspect.signature(function).parameters.get("lr")
        rate = usual_rate.default if usual_rate is not None and is_number(usual_rate.default) else lr
    return RowOwn(make, shapes, name), share(rate, lr)


def share(own: float | None, lr: float | None) -> float:
    return 1.0 if own is None or lr is None else float(own) / lr


def listed(names: Iterable[str]) -> str:
    there = list(names)
    return ", ".join(there[:5]) + (", …" if len(there) > 5 else "")
