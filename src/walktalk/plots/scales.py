"""Axes that show everything: limits around lines and bands, logarithmic where a linear axis would hide the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MultipleLocator,
    NullFormatter,
    StrMethodFormatter,
)

from walktalk.plots.mean_curve import Curve

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
    """The same axis for all of these panels, with every line and every band on it."""
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
    """All numbers of these arrays."""
    every = np.concatenate([np.zeros(0), *parts])
    return every[np.isfinite(every)]
