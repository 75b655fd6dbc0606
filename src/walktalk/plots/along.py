"""The axis along which curves go: its unit, where it begins and ends, and whether it is logarithmic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.ticker import MaxNLocator, NullFormatter

from walktalk.errors import StudyError, suggestion
from walktalk.plots.mean_curve import AXES, Axis
from walktalk.plots.scales import PLAIN, THOUSANDS
from walktalk.plots.units import Unit, unit_of

AXIS_TITLES = {"iteration": "Iterations", "bits": "Transmitted data"}
SHORT = 5.0  # the longest curve is that many times longer than the shortest: a linear axis would hide the short ones
BESIDE = 1.06  # times farther than the first and the last point, on a logarithmic axis


class Along(NamedTuple):
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


def along(histories: Iterable[pd.DataFrame], name: Axis, time: str | None = None) -> Along:
    """The axis on which all of these can be drawn. An algorithm's curve ends with its shortest repetition.

    `time`: what time is called; wall-clock time, as in the paper, unless given.
    """
    if name not in AXES:
        raise StudyError(f"x: {name!r} is not possible; allowed: {', '.join(AXES)}{suggestion(name, AXES)}")
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
    return Along(name, unit_of(name, longest), min(later, default=1.0), longest, logarithmic, **called)


def scale_along(panels: Sequence[Any], axis: Along) -> None:
    """The same axis for all of these panels."""
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
