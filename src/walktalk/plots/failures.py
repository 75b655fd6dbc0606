"""Loss and accuracy against time with the failures marked: the paper's Figure 9."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from walktalk.plots.along import along
from walktalk.plots.curves import curves
from walktalk.plots.histories import History, as_history
from walktalk.plots.style import GREY, Algorithms

EVENTS = ("kill", "revive", "pause", "resume", "partition", "heal")


class Failure(NamedTuple):
    """Something that went wrong, or was mended."""

    time: float  # seconds
    event: str  # of the trace: "kill", "revive" ...
    node: int  # −1 where it is about no node in particular


def failures(
    history: History,
    marks: Iterable[Failure],
    *,
    time: str | None = None,
    algorithms: Algorithms | None = None,
    title: str | None = None,
) -> Figure:
    """Curves against time, with a line at every failure, and its name above every panel.

    Args:
        history: A study's history.
        marks: What went wrong and when, from `marks_of(trace)`.
        time: What time is called, "Virtual time" for instance.
        algorithms: What the study's folder says of its algorithms; their labels alone say it if left out.
        title: Above the figure; none if left out.
    """
    history = as_history(history)
    figure = curves(history, "time", time=time, algorithms=algorithms, title=title)
    unit = along([history], "time").unit
    marks = list(marks)
    for panel in figure.axes:
        for at in sorted({mark.time for mark in marks}):
            failure_line(panel, at / unit.size)
            here = [mark for mark in marks if mark.time == at]
            panel.annotate(
                _words(here),
                (at / unit.size, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=7,
                color=GREY,
            )
    return figure


def failure_line(panel: Any, at: float) -> None:
    """Where something goes wrong. Solid: gossip is dashed, and the learning rate dotted."""
    panel.axvline(at, color=GREY, linewidth=1.0, zorder=1, label="_")


def marks_of(trace: pd.DataFrame) -> list[Failure]:
    """The failures in a trace."""
    rows = trace[trace["event"].isin(EVENTS)]
    return [
        Failure(float(time), str(event), int(node))
        for time, event, node in zip(rows["time"], rows["event"], rows["node"], strict=True)
    ]


def _words(marks: list[Failure]) -> str:
    nodes = " ".join(dict.fromkeys(str(mark.node) for mark in marks if mark.node >= 0))
    return f"{marks[0].event} {nodes}".strip()
