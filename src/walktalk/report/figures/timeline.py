"""The time line of a trace (the paper's Figure 1): a row per node, solid while it computes, light while a model goes.

Bars take the colour of the walk that they belong to; where no walk is, as in gossip, of the node. A tick below marks
the end of each iteration, counted from 0 as the paper does. Any trace will do, simulated or real.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from walktalk.core.errors import StudyError
from walktalk.report.figures.axes import Unit, unit_of
from walktalk.report.figures.style import WALK_COLOURS, new_figure, note_below, styled

LANES = 4  # up to so many walks have a lane each in every row; more share what is free
LEGEND = 8  # walks that a legend can name
TICKS = 26  # iterations that can be labelled below
STARTS = ("train", "differentiate")  # what `trained` ends


@dataclass(frozen=True)
class Bar:
    """Something that took time at a node."""

    node: int
    start: float
    end: float
    owner: int  # the walk; -1 - node where it is none's
    computing: bool  # else communicating
    peer: int = -1  # whom a model goes to


class Box(NamedTuple):
    """Where a bar is drawn."""

    left: float
    low: float
    width: float
    height: float


def timeline(
    trace: pd.DataFrame,
    *,
    start: float = 0.0,
    end: float | None = None,
    nodes: int | None = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw what happened from `start` to `end` (seconds; a few iterations if left out) at the first `nodes` nodes.

    Args:
        trace: A run's trace.
        start: Seconds.
        end: Seconds; a few iterations if left out.
        nodes: Only the first so many; all if left out.
        names: Of all nodes, beside their rows in place of their numbers.
        title: Above the figure; none if left out.
    """
    if trace.empty or not trace["event"].isin(STARTS).any():
        raise StudyError("the trace has no training in it, so there is no time line to draw")
    end = end if end is not None else _default_end(trace, start)
    bars = [bar for bar in bars_of(trace, end) if bar.end >= start and bar.start <= end]
    rows = sorted({bar.node for bar in bars} | {bar.peer for bar in bars if bar.peer >= 0})
    rows = rows if nodes is None else [node for node in rows if node < nodes]
    unit = unit_of("time", end)
    with styled():
        figure = new_figure(9.0, max(2.0, 0.46 * len(rows) + 1.5))
        panel = figure.subplots()
        _Drawing(panel, rows, unit, start, end, names).draw(bars)
        _iterations(panel, trace, unit, start, end)
        _incidents(panel, trace, rows, unit, start, end)
        panel.set_title(title or "", loc="left")
        total = len(names) if names is not None else _nodes(trace)
        note_below(figure, left_out(trace, start, end, len(rows), total), legends=False)
    return figure


def left_out(trace: pd.DataFrame, start: float, end: float, rows: int, nodes: int) -> list[str]:
    """Sentences on what a time line of these rows does not show; none where it shows everything."""
    last = float(trace["time"].max())
    unit = unit_of("time", last)
    said = []
    if start > 0 or end < last:
        said.append(f"Of {last / unit.size:,.4g} {unit.name}, {_span(start, end)} are shown.")
    if rows < nodes:
        said.append(f"{nodes - rows} of {nodes} nodes are left out: nothing is trained or sent there meanwhile.")
    window = trace[(trace["event"] == "send") & (trace["time"] >= start) & (trace["time"] <= end)]
    bare = int((window["slot"].astype(str) == "").sum())
    if bare:
        said.append(f"{bare:,} messages without a model are left out.")
    return said


def _span(start: float, end: float) -> str:
    unit = unit_of("time", end)
    first, last = f"{start / unit.size:.3g}", f"{end / unit.size:.3g}"
    return f"the first {last} {unit.name}" if start == 0 else f"those from {first} to {last} {unit.name}"


def _nodes(trace: pd.DataFrame) -> int:
    """How many nodes a trace knows of."""
    return int(max(trace["node"].max(), trace["peer"].max())) + 1


def bars_of(trace: pd.DataFrame, end: float) -> list[Bar]:
    """Computations (`STARTS` to `trained`) and transfers (from `send` to `receive`), whole or up to `end`."""
    early = trace[trace["time"] <= end]
    bars = []
    for firsts, last, computing in ((STARTS, "trained", True), (("send",), "receive", False)):
        done = trace[trace["event"] == last].drop_duplicates("number").set_index("number")["time"]
        for time, node, slot, walk, number, peer in _rows(
            early, firsts, "time", "node", "slot", "walk", "number", "peer"
        ):
            if computing or slot:  # not a message without a model
                owner = walk if walk > 0 else -1 - node
                bars.append(Bar(node, time, float(done.get(number, np.inf)), owner, computing, peer))
    return bars


def _rows(trace: pd.DataFrame, events: Sequence[str], *columns: str) -> Any:
    """The rows of these kinds of events, as tuples of plain values."""
    seen = trace[trace["event"].isin(events)]
    return zip(*(seen[name].tolist() for name in columns), strict=True)


def _default_end(trace: pd.DataFrame, start: float) -> float:
    """Three iterations of every walk or node, but not more than can be read."""
    ends = np.sort(trace.loc[(trace["event"] == "trained") & (trace["time"] > start), "time"].to_numpy(float))
    if len(ends) == 0:
        return float(trace["time"].max())
    begun = trace.loc[trace["event"].isin(STARTS), ["walk", "node"]]
    at_once, walks = len(begun.head(64).drop_duplicates()), begun["walk"].max()
    wanted = 3 * (int(walks) if walks > 0 else at_once)
    return float(ends[min(max(wanted, 6), 60, len(ends)) - 1])


class _Drawing:
    """Bars in rows and lanes."""

    def __init__(
        self, panel: Any, rows: list[int], unit: Unit, start: float, end: float, names: Sequence[str] | None = None
    ) -> None:
        self.panel, self.unit, self.start, self.end = panel, unit, start, end
        self.place = {node: len(rows) - 1 - index for index, node in enumerate(rows)}
        panel.set_xlim(start / unit.size, end / unit.size)
        panel.set_ylim(-0.5, len(rows) - 0.5)
        panel.set_yticks(
            [self.place[node] for node in rows], [names[node] if names else f"Node {node}" for node in rows]
        )
        panel.tick_params(axis="y", length=0)
        panel.spines["left"].set_visible(False)
        panel.grid(False)
        for y in range(len(rows)):
            panel.axhspan(y - 0.42, y + 0.42, color="#f4f4f4", zorder=0)

    def draw(self, bars: list[Bar]) -> None:
        shown = [bar for bar in bars if bar.node in self.place]
        owners = sorted({bar.owner for bar in shown}, reverse=bool(shown) and shown[0].owner < 0)
        colour = {owner: WALK_COLOURS[index % len(WALK_COLOURS)] for index, owner in enumerate(owners)}
        boxes = [self._box(bar, lane, count) for bar, (lane, count) in zip(shown, lanes_of(shown), strict=True)]
        for bar, box in zip(shown, boxes, strict=True):
            self._bar(bar, box, colour[bar.owner])
            if not bar.computing:
                self._hop(bar, box, colour[bar.owner])
            elif len(owners) > LEGEND and bar.owner > 0:
                self._name(bar, box)
        self._legend(
            owners, colour, any(box.width > 0 for bar, box in zip(shown, boxes, strict=True) if not bar.computing)
        )

    def _box(self, bar: Bar, lane: int, count: int) -> Box:
        height = 0.84 / count
        left, right = max(bar.start, self.start) / self.unit.size, min(bar.end, self.end) / self.unit.size
        return Box(left, self.place[bar.node] + 0.42 - (lane + 0.92) * height, right - left, 0.84 * height)

    def _bar(self, bar: Bar, box: Box, colour: str) -> None:
        if box.width <= 0:
            return
        look: dict[str, Any] = {"alpha": 0.95, "zorder": 3} if bar.computing else {"alpha": 0.3, "zorder": 2}
        corner, width, height = (box.left, box.low), box.width, box.height
        self.panel.add_patch(
            Rectangle(corner, width, height, facecolor=colour, linewidth=0.5, edgecolor="white", **look)
        )

    def _hop(self, bar: Bar, box: Box, colour: str) -> None:
        """A thin line from where a model was to where it arrived."""
        if bar.peer not in self.place or not self.start <= bar.end <= self.end:
            return
        here, there = box.low + box.height / 2, float(self.place[bar.peer])
        if bar.owner > 0:  # a lane per walk is the same in every row
            there += here - self.place[bar.node]
        x = bar.end / self.unit.size
        self.panel.plot([x, x], [here, there], color=colour, linewidth=0.7, alpha=0.6, zorder=1, linestyle=(0, (3, 2)))

    def _name(self, bar: Bar, box: Box) -> None:
        """Too many walks for a legend: the number stands in the bar, where it fits."""
        if box.width > 0.02 * (self.end - self.start) / self.unit.size:
            at = (box.left + box.width / 2, box.low + box.height / 2)
            self.panel.text(
                *at, str(bar.owner), color="white", fontsize=6.5, ha="center", va="center_baseline", zorder=4
            )

    def _legend(self, owners: list[int], colour: dict[int, str], sends: bool) -> None:
        if not owners or min(owners) < 0 or len(owners) > LEGEND:
            solid = [Patch(facecolor="#555555", label="Computation")]
            light = [Patch(facecolor="#555555", alpha=0.3, label="Communication")]
        else:
            solid = [Patch(facecolor=colour[o], alpha=0.95, label=f"Computation (walk {o})") for o in owners]
            light = [Patch(facecolor=colour[o], alpha=0.3, label=f"Communication (walk {o})") for o in owners]
        handles = [patch for pair in zip(solid, light, strict=True) for patch in pair] if sends else solid
        columns = min(4, len(handles))
        self.panel.figure.legend(handles=handles, loc="outside upper center", ncols=columns, handlelength=1.4)


def lanes_of(bars: list[Bar]) -> list[tuple[int, int]]:
    """(lane, lanes in its row) of each bar: a lane per walk while they are few, else the first that is free.

    So also where nodes train models of their own beside a walk, as in DIGEST.
    """
    owners = sorted({bar.owner for bar in bars})
    if owners and owners[0] > 0 and len(owners) <= LANES:
        return [(owners.index(bar.owner), len(owners)) for bar in bars]
    computing = _packed(bars, [i for i, bar in enumerate(bars) if bar.computing])
    sending = _packed(bars, [i for i, bar in enumerate(bars) if not bar.computing and bar.end > bar.start])
    below = _most(bars, computing)
    count = {node: max(2, below.get(node, 0) + lanes) for node, lanes in _most(bars, sending).items()}
    return [
        (
            computing[i] if i in computing else below.get(bar.node, 0) + sending.get(i, 0),
            count.get(bar.node, max(2, below.get(bar.node, 0))),
        )
        for i, bar in enumerate(bars)
    ]


def _packed(bars: list[Bar], which: list[int]) -> dict[int, int]:
    """The first lane of its row that is free, for each of these bars."""
    ends: dict[int, list[float]] = {}
    lanes: dict[int, int] = {}
    for index in sorted(which, key=lambda i: (bars[i].start, i)):
        row = ends.setdefault(bars[index].node, [])
        lane = next((k for k, busy in enumerate(row) if busy <= bars[index].start), len(row))
        row[lane : lane + 1] = [bars[index].end]
        lanes[index] = lane
    return lanes


def _most(bars: list[Bar], lanes: dict[int, int]) -> dict[int, int]:
    """How many lanes each row needs."""
    most: dict[int, int] = {}
    for index, lane in lanes.items():
        most[bars[index].node] = max(most.get(bars[index].node, 0), lane + 1)
    return most


def _iterations(panel: Any, trace: pd.DataFrame, unit: Unit, start: float, end: float) -> None:
    """A tick below at the end of each iteration; the time itself above."""
    done = trace[(trace["event"] == "trained") & (trace["time"] >= start) & (trace["time"] <= end)]
    times = done["time"].to_numpy(float) / unit.size
    names = done["iteration"].to_numpy(int) - 1
    shown = _apart(times, (end - start) / unit.size / TICKS)
    panel.set_xticks(
        times[shown], [f"$t={names[index]}$" if k == 0 else f"${names[index]}$" for k, index in enumerate(shown)]
    )
    panel.set_xticks(times, minor=True)
    if len(times) <= TICKS / 2:  # more would hide the bars
        panel.vlines(
            times, -0.5, panel.get_ylim()[1], colors="#c9c9c9", linewidth=0.5, linestyles=(0, (2, 3)), zorder=0.5
        )
    panel.set_xlabel("Iteration")
    clock = panel.secondary_xaxis("top")
    clock.set_xlabel(f"Time ({unit.name})")
    clock.spines["top"].set_visible(True)


def _apart(times: Any, least: float) -> list[int]:
    """Ticks that leave room for their labels."""
    chosen: list[int] = []
    for index, time in enumerate(times):
        if not chosen or time - times[chosen[-1]] >= least:
            chosen.append(index)
    return chosen


def _incidents(panel: Any, trace: pd.DataFrame, rows: list[int], unit: Unit, start: float, end: float) -> None:
    """Deaths, returns and elections, where the trace has any."""
    marks = {"kill": ("X", "#b00020"), "revive": ("o", "#009E73"), "elected": ("*", "#E69F00")}
    for event, (marker, colour) in marks.items():
        for time, node in _rows(trace, [event], "time", "node"):
            if node in rows and start <= time <= end:
                y = len(rows) - 1 - rows.index(node)
                panel.plot(time / unit.size, y, marker, color=colour, markersize=9, markeredgecolor="white", zorder=5)
