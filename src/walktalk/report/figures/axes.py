"""Axes of figures: units, means over repetitions, limits and scales that show everything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    MultipleLocator,
    NullFormatter,
    StrMethodFormatter,
)

from walktalk.core.errors import StudyError, suggestion
from walktalk.core.settings import misfit

# -- units that keep the numbers on an axis short ---------------------------------------------------------------------


class Unit(NamedTuple):
    """A unit and its size in the history's own (iterations, seconds, bits)."""

    name: str
    size: float


_TIMES = (Unit("h", 3600.0 * 1.0), Unit("min", 60.0), Unit("s", 1.0), Unit("ms", 1e-3))
_DATA = (Unit("TB", 8e12), Unit("GB", 8e9), Unit("MB", 8e6), Unit("kB", 8e3), Unit("B", 8.0))
_FROM = {"h": 48.0, "min": 240.0}  # the paper's runs of 15 and 30 minutes are drawn in seconds; so are ours


def unit_of(axis: str, largest: float) -> Unit:
    """The unit in which the largest value of an axis has few digits; data is counted in bytes, as the paper does."""
    if axis == "iteration":
        return Unit("", 1.0)
    units = _TIMES if axis == "time" else _DATA
    fitting = (unit for unit in units if largest >= _FROM.get(unit.name, 1.0) * unit.size)
    return next(fitting, units[-1])


def with_unit(axis: str, value: float) -> str:
    """A value with its unit: "1,250", "36.2 s", "4.1 GB"."""
    if axis == "iteration":
        return f"{value:,.0f}"
    unit = unit_of(axis, abs(value))
    return (
        f"{value / unit.size:,.3g} {unit.name}"
        if abs(value) < 1000 * unit.size
        else f"{value / unit.size:,.0f} {unit.name}"
    )


# -- the mean over repetitions and its spread, at places that they share ----------------------------------------------

Axis = Literal["iteration", "time", "bits"]
AXES: tuple[Axis, ...] = ("iteration", "time", "bits")

MOST = 300  # points of a curve whose repetitions were measured at different places; more cannot be seen
FINE = 3  # times as many points as one repetition has: ten repetitions together have more than a file should hold

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """An algorithm's mean over repetitions, and its standard deviation."""

    x: Floats
    mean: Floats  # not a number where no repetition has one
    std: Floats  # 0 where fewer than two have


def is_share(value: str) -> bool:
    """Whether a column is a share from 0 to 1, which people read in percent."""
    return value.endswith("test_accuracy")


def mean_curve(runs: pd.DataFrame, x: Axis, value: str) -> Curve:
    """Mean and σ over repetitions, on the points that they share or, failing that, on those of all, thinned if many.

    An evaluation that is not a number is left out of both, and the others go on; between it and its neighbours nothing
    is known of that repetition. Beyond the end of the shortest repetition a mean would be over fewer runs that have
    nothing wrong with them, so the curve ends there.
    """
    parts = [run.sort_values(x, kind="stable") for _, run in runs.groupby("repetition")]
    xs = [part[x].to_numpy(float) for part in parts]
    scale = 100.0 if is_share(value) else 1.0
    ys = [part[value].to_numpy(float) * scale for part in parts]
    grid = xs[0]
    if any(len(other) != len(grid) or not np.array_equal(other, grid) for other in xs[1:]):
        first = max(float(a[0]) for a in xs)
        last = max(first, min(float(a[-1]) for a in xs))
        everywhere = np.unique(np.concatenate([*xs, [first, last]]))
        grid = everywhere[(everywhere >= first) & (everywhere <= last)]  # between these the mean is a straight line
        most = min(MOST, FINE * max(len(a) for a in xs))
        grid = grid if len(grid) <= most else np.linspace(first, last, most)
    known = [np.where(np.isfinite(b), b, np.nan) for b in ys]
    return Curve(grid, *_spread(np.stack([np.interp(grid, a, b) for a, b in zip(xs, known, strict=True)])))


def _spread(stacked: Floats) -> tuple[Floats, Floats]:
    """Mean and σ over the rows that have a number, column by column."""
    there = np.isfinite(stacked)
    count = there.sum(axis=0)
    mean = np.where(there, stacked, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = (np.where(there, stacked - mean, 0.0) ** 2).sum(axis=0)
    std = np.sqrt(squares / np.maximum(count - 1, 1))
    return np.where(count > 0, mean, np.nan), std


# -- limits around lines and bands; logarithmic where a linear axis would hide the end --------------------------------

LOG_Y = 3.0  # the loss falls that many times: on a linear axis its end is a flat line at the bottom
HIGH = 85.0  # percent; an axis from 0 to 100 hides what happens above
OPENS = 1.0  # percent short of 100 at which the axis that opens up toward 100 is half open
LONG = 24  # letters that fit below a panel
MARGIN = 0.05  # of the axis, above and below
THOUSANDS = StrMethodFormatter("{x:,g}")


def _plain(value: float, _: object = None) -> str:
    """A number as people write it; with a power of ten where that would be long."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,g}"
    power = int(np.floor(np.log10(abs(value)) + 1e-9))
    factor = value / 10.0**power
    return f"$10^{{{power}}}$" if np.isclose(factor, 1) else f"${factor:g}\\cdot10^{{{power}}}$"


PLAIN = FuncFormatter(_plain)


# -- losses -----------------------------------------------------------------------------------------------------------


def needs_logarithm(curves: Sequence[Curve]) -> bool:
    """Whether losses fall so far that their ends cannot be told apart on a linear axis."""
    means = _finite([curve.mean for curve in curves])
    return len(means) > 0 and float(means.min()) > 0 and float(means.max()) > LOG_Y * float(means.min())


def band(curve: Curve, logarithmic: bool) -> tuple[Any, Any]:
    """The lower and the upper edge of a curve's band.

    On a logarithmic axis as far down as up, mean / (1 + σ/mean) to mean · (1 + σ/mean): mean − σ may be 0 or less, and
    the band would go down to the edge of the panel and fill it, however little that says.
    """
    if not logarithmic:
        return curve.mean - curve.std, curve.mean + curve.std
    positive = np.where(curve.mean > 0, curve.mean, np.nan)
    factor = 1.0 + curve.std / positive
    return positive / factor, positive * factor


def scale_loss(panels: Sequence[Any], curves: Sequence[Curve], logarithmic: bool) -> None:
    """Scale the loss axes of all panels alike, so that every line and every band is visible."""
    if len(_finite([curve.mean for curve in curves])) == 0:
        return
    edges = [band(curve, logarithmic) for curve in curves]
    bottoms, tops = _finite([low for low, _ in edges]), _finite([high for _, high in edges])
    low, high = (np.log(bottoms.min()), np.log(tops.max())) if logarithmic else (bottoms.min(), tops.max())
    room = MARGIN * (high - low) or MARGIN * abs(high) or MARGIN
    for panel in panels:
        if logarithmic:
            log_axis(panel.yaxis, float(np.exp(low - room)), float(np.exp(high + room)))
        else:
            panel.set_ylim(max(0.0, low - room) if low >= 0 else low - room, high + room)


def log_axis(axis: Any, low: float, high: float) -> None:
    """A logarithmic axis with numbers that can be read off, also where it spans less than a power of ten."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": (low, high)})
    axis.set_major_locator(LogLocator(subs=_labelled(high / low), numticks=50))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_locator(LogLocator(subs=tuple(range(1, 10)), numticks=50))
    axis.set_minor_formatter(NullFormatter())


def _labelled(ratio: float) -> tuple[float, ...]:
    """Which multiples of powers of ten get a number: about five in all."""
    if ratio < 6:
        return (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    if ratio < 20:
        return (1.0, 2.0, 3.0, 5.0)
    return (1.0, 2.0, 5.0) if ratio < 150 else (1.0, 3.0) if ratio < 2000 else (1.0,)


def ticks_at(axis: Any, values: Sequence[float]) -> None:
    """A tick at each of these places and nowhere else: the few that were measured. Long numbers at every other one."""
    places = sorted(set(values))
    step = 1 if sum(len(_plain(value)) for value in places) <= LONG else 2
    axis.set_major_locator(FixedLocator(places[::step]))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_locator(FixedLocator(places))
    axis.set_minor_formatter(NullFormatter())


# -- accuracies -------------------------------------------------------------------------------------------------------


def scale_accuracy(panels: Sequence[Any], curves: Sequence[Curve]) -> bool:
    """Percent from 0, to 100 unless everything is far below; whether the axis opens up toward 100.

    It does where accuracies end above 85 %: the last percents are what matters then, and get as much room as the rest.
    """
    tops, ends = _finite([curve.mean + curve.std for curve in curves]), _finite([curve.mean for curve in curves])
    highest = float(tops.max()) if len(tops) else 100.0
    opens = len(ends) > 0 and float(ends.max()) > HIGH
    top = 100.0 if highest > 60 else 10.0 * np.ceil(highest / 10 + 0.2)
    for panel in panels:
        if opens:
            panel.set_yscale("function", functions=(_toward_100, _from_100))
            panel.set_ylim(0, 100)
            panel.yaxis.set_major_locator(FixedLocator([0, 50, 80, 90, 95, 98, 100]))
            panel.yaxis.set_major_formatter(PLAIN)
        else:
            panel.set_ylim(0, top)
            panel.yaxis.set_major_locator(MultipleLocator(20 if top > 50 else 10))
    return opens


def _toward_100(percent: Any) -> Any:
    return -np.log10(np.maximum(100.0 - np.asarray(percent, dtype=float), 0.0) + OPENS)


def _from_100(place: Any) -> Any:
    return 100.0 + OPENS - 10.0 ** -np.asarray(place, dtype=float)


def _finite(parts: Sequence[Any]) -> Any:
    """The finite numbers of these arrays, in one array."""
    every = np.concatenate([np.zeros(0), *parts])
    return every[np.isfinite(every)]


AXIS_TITLES = {"iteration": "Iterations", "bits": "Transmitted data"}
SHORT = 5.0  # the longest curve is that many times longer than the shortest: a linear axis would hide the short ones
BESIDE = 1.06  # times farther than the first and the last point, on a logarithmic axis


class SharedAxis(NamedTuple):
    """An axis that one or more panels share."""

    name: Axis
    unit: Unit
    first: float  # evaluation after the start, in the history's own unit
    last: float  # end of the longest curve, likewise
    logarithmic: bool
    time: str = "Wall-clock time"  # what time is called

    @property
    def title(self) -> str:
        name = self.time if self.name == "time" else AXIS_TITLES[self.name]
        return f"{name}{f' ({self.unit.name})' if self.unit.name else ''}"


def shared_axis(histories: Iterable[pd.DataFrame], name: Axis, time: str | None = None) -> SharedAxis:
    """The axis on which all of these can be drawn. An algorithm's curve ends with its shortest repetition.

    `time`: what time is called; wall-clock time, as in the paper, unless given.
    """
    if name not in AXES:
        raise misfit("x", name, f"{', '.join(AXES)}{suggestion(name, AXES)}", StudyError)
    parts = list(histories)
    ends = [
        float(end)
        for one in parts
        for end in one.groupby(["algorithm", "repetition"])[name].max().groupby(level="algorithm").min()
    ]
    longest, positive = max(ends, default=0.0), [end for end in ends if end > 0]
    later = [float(at) for one in parts for at in one.loc[one[name] > 0, name]]
    logarithmic = bool(positive) and longest > SHORT * min(positive)
    called = {} if time is None else {"time": time}
    return SharedAxis(name, unit_of(name, longest), min(later, default=1.0), longest, logarithmic, **called)


def scale_shared_axis(panels: Sequence[Any], axis: SharedAxis) -> None:
    """Scale the horizontal axes of all panels alike."""
    first, last = axis.first / axis.unit.size, axis.last / axis.unit.size
    for panel in panels:
        panel.set_xlabel(axis.title)
        if axis.logarithmic:  # from the first evaluation on: before it there is nothing but a straight line
            panel.set_xscale("log")
            panel.set_xlim(first / BESIDE, last * BESIDE)
            panel.xaxis.set_major_formatter(PLAIN)
            panel.xaxis.set_minor_formatter(NullFormatter())
        elif last > 0:
            panel.set_xlim(0, last)
            panel.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
            panel.xaxis.set_major_formatter(THOUSANDS)
