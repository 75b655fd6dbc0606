"""The family as one figure and one table: a row of panels for a few algorithms at a time, all others in grey behind.

Thirty curves in one panel say nothing; six in colour, with the rest as a backdrop, show where each stands in the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Drawing

from walktalk.protocols import Described, together
from walktalk.records import read_history, write_text
from walktalk.report import figures as plots
from walktalk.report import open_comparison, write_comparison
from walktalk.reproduction import paper
from walktalk.studies import summarize

# As far apart as seven colours can be, for all eyes (Okabe and Ito 2008; Tol): what belongs together stands in one row,
# and the colours that algorithms have of their own are alike within a family.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288")
ROW = len(COLOURS)  # algorithms in colour in one row of panels
HEADINGS = {"walks": "Walks", "gossip": "Gossip", "server": "With a server", "reference": "Reference"}
BEHIND: Any = {"color": "#d9d9d9", "linewidth": 0.7, "zorder": 1.5}
AXES: tuple[plots.Axis, ...] = ("iteration", "time", "bits")
WIDTH, TALL = 11.0, 2.15  # inches: of the figure, and of a row
HIGHEST = 3.0  # of the loss: above it a run has diverged


@dataclass(frozen=True)
class Member:
    """One algorithm of the family, with the graph that it ran on."""

    says: Described
    graph: str
    common: bool  # whether that is the graph of all that can run on it
    rate: float  # learning rate

    @property
    def title(self) -> str:
        """An algorithm's title, with its graph where that is not the common one."""
        return self.says.heading if self.common else f"{self.says.heading} ({self.graph.lower()})"


@dataclass(frozen=True)
class Family:
    """All runs, and what is known of each algorithm."""

    history: pd.DataFrame
    members: Mapping[str, Member]  # by label

    def rows(self) -> list[tuple[str, list[str]]]:
        """Labels in rows, each with a heading; a large family has several, of equal length as far as possible."""
        of: dict[str, list[str]] = {}
        for label, member in self.members.items():
            of.setdefault(member.says.family, []).append(label)
        alone = [family for family, labels in of.items() if len(labels) == 1]
        rest = [label for family in alone for label in of.pop(family)]
        found = [row for family, labels in of.items() for row in _headed(family, _parts(labels))]
        if not rest:
            return found
        if found and len(found[0][1]) + len(rest) <= ROW:  # a row of its own for one line would be a waste
            return [(f"{found[0][0]}, {_words(self, rest)}", [*found[0][1], *rest]), *found[1:]]
        return [*found, (_words(self, rest), rest)]


def _words(family: Family, labels: Sequence[str]) -> str:
    kinds = dict.fromkeys(family.members[label].says.family for label in labels)
    return ", ".join(kinds)


def _headed(family: str, parts: list[list[str]]) -> list[tuple[str, list[str]]]:
    name = HEADINGS.get(family, family.capitalize())
    if len(parts) == 1:
        return [(name, parts[0])]
    return [(f"{name} ({number} of {len(parts)})", part) for number, part in enumerate(parts, 1)]


def _parts(labels: list[str]) -> list[list[str]]:
    count = -(-len(labels) // ROW)
    size = -(-len(labels) // count)
    return [labels[start : start + size] for start in range(0, len(labels), size)]


def gathered(panels: Sequence[paper.PanelRun]) -> Family:
    """The runs of all panels together."""
    parts, members = [], {}
    for panel in panels:
        parts.append(read_history(panel.folder / "history.csv"))
        for entry, (label, says) in zip(panel.spec.algorithms, panel.spec.described.items(), strict=True):
            rate = panel.spec.optimizer.lr if entry.lr is None else entry.lr
            members[label] = Member(says, panel.panel.title, panel.panel.title == panels[0].panel.title, rate)
    named = together(member.says for member in members.values())
    told = {label: replace(member, says=named[label]) for label, member in members.items()}
    return Family(pd.concat(parts, ignore_index=True), told)


def figure(family: Family) -> Drawing:
    """Loss against iterations, time and data, a row for every few algorithms."""
    rows = family.rows()
    curves = {axis: _curves(family, axis) for axis in AXES}
    units = {axis: plots.shared_axis([family.history], axis, "Virtual time") for axis in AXES}
    with plots.styled():
        drawing = plots.new_figure(WIDTH, TALL * len(rows) + 0.6)
        grid = drawing.subplots(len(rows), len(AXES), sharey=True, sharex="col", squeeze=False)
        for place, (heading, labels) in zip(grid, rows, strict=True):
            for panel, axis in zip(place, AXES, strict=True):
                _panel(panel, curves[axis], units[axis], family, labels)
            place[0].set_title(heading, loc="left")
            place[0].set_ylabel("Training loss")
            place[-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8)
        _scale(grid, units, family)
        note = "Means over repetitions, each algorithm at its own learning rate. Grey: all others."
        plots.note_below(drawing, [note])
    return drawing


def _curves(family: Family, axis: plots.Axis) -> dict[str, plots.Curve]:
    parts = {label: family.history[family.history["algorithm"] == label] for label in family.members}
    return {label: plots.mean_curve(part, axis, "train_loss") for label, part in parts.items()}


def _panel(
    panel: Any, curves: Mapping[str, plots.Curve], along: plots.SharedAxis, family: Family, labels: Sequence[str]
) -> None:
    """Those of the row in colour, before all others."""
    shown = dict(zip(labels, COLOURS, strict=False))
    for label, curve in curves.items():
        later = curve.x > 0
        at, loss = curve.x[later] / along.unit.size, curve.mean[later]
        if label not in shown:
            panel.plot(at, loss, **BEHIND)
            continue
        member = family.members[label]
        style = plots.line_style("reference" if member.says.family == "reference" else "walks")
        panel.plot(at, loss, color=shown[label], linestyle=style, linewidth=1.4, zorder=3, label=member.title)


def _scale(grid: Any, units: Mapping[plots.Axis, plots.SharedAxis], family: Family) -> None:
    """Losses and, but for iterations, what they cost go over orders of magnitude."""
    losses = family.history["train_loss"]
    lowest = float(losses[losses > 0].min())
    for row in grid:
        row[0].set_yscale("log")
        row[0].set_ylim(lowest / 1.2, HIGHEST)
    for column, axis in enumerate(AXES):
        for row in grid:
            if axis != "iteration":
                row[column].set_xscale("log")
        grid[-1][column].set_xlabel(units[axis].title)


def table(family: Family) -> pd.DataFrame:
    """One line an algorithm: where it ended, and what it took to a loss that most have reached."""
    summary = summarize(family.history)
    lines = []
    for label, member in family.members.items():
        entry = summary["algorithms"][label]
        reached = entry.get("to_target") or {}
        lines.append(
            {
                "family": member.says.family,
                "algorithm": member.says.heading,
                "label": label,
                "graph": member.graph,
                "learning_rate": member.rate,
                "final_loss": _mean(entry.get("final_loss")),
                "final_loss_std": _mean(entry.get("final_loss"), "std"),
                "final_accuracy": _mean(entry.get("final_accuracy")),
                "target_loss": summary["target_loss"],
                **{f"{axis}_to_target": _mean(reached.get(axis)) for axis in AXES},
            }
        )
    order = {name: place for place, name in enumerate(HEADINGS)}
    made = pd.DataFrame(lines)
    key = made["family"].map(lambda name: order.get(name, len(order)))
    return made.iloc[key.sort_values(kind="stable").index].reset_index(drop=True)


def _mean(spread: Any, which: str = "mean") -> float | None:
    return spread.get(which) if isinstance(spread, Mapping) else spread


def table_text(found: pd.DataFrame) -> str:
    """The table for people."""
    head = ("algorithm", "graph", "rate", "loss", "accuracy (%)", "iterations", "time (s)", "data (MB)")
    rows = [_row(dict(line)) for _, line in found.iterrows()]
    target = found["target_loss"].iloc[0]
    words = (
        f"Iterations, time and data: to training loss {target:.3g}. – : not reached." if not _missing(target) else ""
    )
    return f"# All algorithms\n\n{paper.markdown(head, rows)}\n{words}\n"


def _row(line: Mapping[Any, Any]) -> tuple[str, ...]:
    data = None if _missing(line["bits_to_target"]) else line["bits_to_target"] / 8e6
    costs = (line["iteration_to_target"], line["time_to_target"], data)
    accuracy = "–" if _missing(line["final_accuracy"]) else f"{100 * line['final_accuracy']:.1f}"
    spread = "" if _missing(line["final_loss_std"]) else f" ± {line['final_loss_std']:.2g}"
    loss = "diverged" if _missing(line["final_loss"]) else f"{line['final_loss']:.3g}{spread}"
    return line["algorithm"], line["graph"], f"{line['learning_rate']:g}", loss, accuracy, *map(_number, costs)


def _missing(value: Any) -> bool:
    return value is None or bool(pd.isna(value))


def _number(value: Any) -> str:
    return "–" if _missing(value) else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def draw(panels: Sequence[paper.PanelRun], out: Path) -> list[Path]:
    """The figure, the table as CSV and Markdown, and a page to explore; the files written."""
    family = gathered(panels)
    found = table(family)
    write_text(out / "family.csv", found.to_csv(index=False))
    write_text(out / "family.md", table_text(found))
    written = [*plots.save(figure(family), out / "family"), out / "family.csv", out / "family.md"]
    if len(panels) > 1:
        written.append(write_comparison(open_comparison([panel.folder for panel in panels]), out / "family.html"))
    return written


# What a figure says of a specification as it is written: the setting, and where the learning rate falls.
#
# A curve that suddenly bends where the rate falls has learned nothing new.

STOPS: dict[str, plots.Axis] = {"iterations": "iteration", "time": "time", "bits": "bits"}
TASKS = {
    "cifar10": "CIFAR-10 with ResNet-20",
    "fashion_mnist": "Fashion-MNIST",
    "mnist": "MNIST",
    "digits": "Handwritten digits",
    "mnli": "MultiNLI",
}
IN_WORDS = {0.1: "to a tenth", 0.5: "to a half"}


def setting_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The task, V and α, from a specification as it is written."""
    task, nodes = spec.get("task", {}), spec.get("network", {}).get("nodes")
    name = str(task.get("name", ""))
    parts = (
        TASKS.get(name, name),
        f"V = {nodes} nodes" if nodes else "",
        f"α = {task['alpha']:g}" if task.get("alpha") is not None else "",
    )
    return tuple(part for part in parts if part)


@dataclass(frozen=True)
class RateFalls:
    """Shares of a run at which its learning rate is multiplied by a factor."""

    axis: plots.Axis  # on which a run's length is set
    length: float
    shares: tuple[float, ...]
    factor: float

    @property
    def places(self) -> list[float]:
        return [share * self.length for share in self.shares]


def rate_falls(spec: Mapping[str, Any]) -> RateFalls | None:
    """When the rate falls, by a specification as it is written; none if it does not fall, or if the run's end
    depends on the run.
    """
    schedule = spec.get("schedule") or {}
    shares = tuple(float(share) for share in schedule.get("decay_at") or ())
    ends = {name: value for name, value in (spec.get("stop") or {}).items() if value is not None}
    if not shares or len(ends) != 1 or not set(ends) <= set(STOPS):
        return None
    ((name, length),) = ends.items()
    return RateFalls(STOPS[name], float(length), shares, float(schedule.get("factor", 0.1)))


def fall_words(falls: Iterable[RateFalls], *, marked: bool) -> str:
    """A sentence for the note; nothing if no rate falls, or not everywhere alike."""
    kinds = {(one.shares, one.factor) for one in falls}
    if len(kinds) != 1:
        return "Dotted: the learning rate falls." if marked else ""
    ((shares, factor),) = kinds
    by = IN_WORDS.get(factor, f"to {factor:g} times what it was")
    at = " and ".join(f"{100 * share:g} %" for share in shares)
    return (
        f"Dotted: the learning rate falls {by}, at {at} of a run."
        if marked
        else (f"The learning rate falls {by} at {at} of a run.")
    )
