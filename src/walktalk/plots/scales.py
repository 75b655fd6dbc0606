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
LOWEST = 3.0  # a band goes down at most to that part of its mean on a logarithmic axis; 0 is infinitely far away
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


def scale_loss(panels: Sequence[Any], curves: Sequence[Curve], logarithmic: bool) -> bool:
    """The same axis for all of these panels, with every line on it, and every band unless it comes near 0 on a
    logarithmic one: whether any does."""
    means = _finite([curve.mean for curve in curves])
    if len(means) == 0:
        return False
    tops = _finite([curve.mean + curve.std for curve in curves])
    if logarithmic:
        bottoms = _finite([np.maximum(curve.mean - curve.std, curve.mean / LOWEST) for curve in curves])
        low, high = np.log(bottoms.min()), np.log(tops.max())
    else:
        low, high = _finite([curve.mean - curve.std for curve in curves]).min(), tops.max()
    room = MARGIN * (high - low) or MARGIN * abs(high) or MARGIN
    for panel in panels:
        if logarithmic:
            log_axis(panel.yaxis, float(np.exp(low - room)), float(np.exp(high + room)))
        else:
            panel.set_ylim(max(0.0, low - room) if low >= 0 else low - room, high + room)
    ends = _finite([curve.mean - curve.std for curve in curves])
    return bool(logarithmic and ends.min() < np.exp(low - room))


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


def scale_accuracy(panels: Sequence[Any], curves: Sequence[Curve]) -> None:
    """Percent from 0, to 100 unless everything is far below."""
    tops = _finite([curve.mean + curve.std for curve in curves])
    highest = float(tops.max()) if len(tops) else 100.0
    top = 100.0 if highest > 60 else 10.0 * np.ceil(highest / 10 + 0.2)
    for panel in panels:
        panel.set_ylim(0, top)
        panel.yaxis.set_major_locator(MultipleLocator(20 if top > 50 else 10))


def _finite(parts: Sequence[Any]) -> Any:
    """All numbers of these arrays."""
    every = np.concatenate([np.zeros(0), *parts])
    return every[np.isfinite(every)]
