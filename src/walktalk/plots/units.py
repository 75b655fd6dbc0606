"""Units that keep the numbers on an axis short."""

from __future__ import annotations

from typing import NamedTuple


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


def in_words(axis: str, value: float) -> str:
    """A value with its unit: "1,250", "36.2 s", "4.1 GB"."""
    if axis == "iteration":
        return f"{value:,.0f}"
    unit = unit_of(axis, abs(value))
    return (
        f"{value / unit.size:,.3g} {unit.name}"
        if abs(value) < 1000 * unit.size
        else f"{value / unit.size:,.0f} {unit.name}"
    )
