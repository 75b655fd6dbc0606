"""The table of who won, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from walktalk.plots import unit_of
from walktalk.protocols import known
from walktalk.report.certainty import is_probable, would_tell
from walktalk.studies import algorithms_of


class Cell(NamedTuple):
    """One entry of the table."""

    text: str
    best: bool = False  # the winner of its column


class Results(NamedTuple):
    """The whole table."""

    title: str
    head: list[str]
    rows: list[list[Cell]]
    note: str
    warning: str = ""  # which runs came to nothing


AXES = {"iteration": "Iterations", "time": "Time", "bits": "Data sent"}


def results_table(summary: Mapping[str, Any], name: Callable[[str], str] | None = None) -> Results:
    """A row per algorithm: final loss and accuracy, then what it took to reach the common target on each axis.

    `name`: what an algorithm is called, from its label; as it says itself unless given.
    """
    named = known(summary["algorithms"], algorithms_of(summary))
    name = name or (lambda label: named[label].heading)
    accuracy = any(entry["final_accuracy"] is not None for entry in summary["algorithms"].values())
    head = ["Algorithm", "Final loss", *(["Accuracy (%)"] if accuracy else []), *AXES.values()]
    rows = [
        _row(name(label), label, entry, summary["winners"], accuracy) for label, entry in summary["algorithms"].items()
    ]
    title = f"Results of {summary['study']}" if "study" in summary else "Results"
    return Results(title, head, rows, _note(summary, name), _diverged(summary, name))


def _row(name: str, label: str, entry: dict[str, Any], winners: dict[str, Any], accuracy: bool) -> list[Cell]:
    cells = [Cell(name), Cell(_plain(entry["final_loss"]), _won(winners, "loss", label))]
    if accuracy:
        cells.append(Cell(_percent(entry["final_accuracy"]), _won(winners, "accuracy", label)))
    for axis in AXES:
        cells.append(Cell(_with_unit(axis, entry["to_target"][axis]), _won(winners, axis, label)))
    return cells


def _note(summary: Mapping[str, Any], name: Callable[[str], str]) -> str:
    """What the marks mean, and which victories may be luck."""
    repetitions = max((entry["repetitions"] for entry in summary["algorithms"].values()), default=0)
    note = (
        f"Mean ± σ over {repetitions} repetitions."
        if repetitions > 1
        else "One repetition: no telling luck from merit."
    )
    if summary["target_loss"] is not None:
        note = f"Iterations, time and data: to training loss {summary['target_loss']:.3g}. {note}"
    names = {
        "loss": "final loss",
        "accuracy": "accuracy",
        "iteration": "iterations",
        "time": "time",
        "bits": "data sent",
    }
    unsure = {axis: one for axis, one in summary["winners"].items() if one is not None and one["clear"] is False}
    close, likely = (
        [
            f"{names[axis]} ({name(one['algorithm'])}{' or ' if not sure else ' before '}{name(one['next'])}"
            f"{would_tell(one)})"
            for axis, one in unsure.items()
            if is_probable(one) is sure
        ]
        for sure in (False, True)
    )
    note = f"{note} Probable, but not sure: {'; '.join(likely)}." if likely else note
    return f"{note} Too close to call: {'; '.join(close)}." if close else note


def _diverged(summary: Mapping[str, Any], name: Callable[[str], str]) -> str:
    """Which runs ended with a loss that is no number, and what helps; nothing where none did."""
    found = summary.get("diverged", {})
    if not found:
        return ""
    counts = {label: summary["algorithms"][label]["repetitions"] for label in found}
    who = "; ".join(f"{name(label)} ({len(runs)} of {counts[label]} runs)" for label, runs in found.items())
    if set(found) <= set(summary.get("never_finite", ())):
        return (
            f"The loss is not a number from the beginning: {who}. Look for NaN and infinity in the data, and at what "
            "the model and the loss make of it."
        )
    return f"Diverged, the loss is not a number: {who}. A smaller optimizer.lr may help."


def _won(winners: dict[str, Any], axis: str, label: str) -> bool:
    return winners[axis] is not None and winners[axis]["algorithm"] == label


def _plain(spread: dict[str, Any] | None) -> str:
    if spread is None:
        return "–"
    size = abs(spread["mean"])
    if size >= 1e7:  # it has diverged
        return f"{spread['mean']:.2e}" + ("" if spread["std"] is None else f" ± {spread['std']:.0e}")
    digits = 0 if size >= 1000 else 3 if size >= 0.1 else 4
    if abs(spread["mean"]) < 1e-3:  # as in a task whose optimum is known
        return f"{spread['mean']:.2e}" + ("" if spread["std"] is None else f" ± {spread['std']:.0e}")
    return f"{spread['mean']:,.{digits}f}" + ("" if spread["std"] is None else f" ± {spread['std']:,.{digits}f}")


def _percent(spread: dict[str, Any] | None) -> str:
    if spread is None:
        return "–"
    return f"{100 * spread['mean']:.1f}" + ("" if spread["std"] is None else f" ± {100 * spread['std']:.1f}")


def _with_unit(axis: str, spread: dict[str, Any] | None) -> str:
    if spread is None:
        return "not reached"
    unit = unit_of(axis, spread["mean"])
    mean, std = spread["mean"] / unit.size, spread["std"]
    digits = max(0, 3 - len(f"{mean:.0f}")) if unit.name else 0  # three figures in all; iterations are whole
    error = "" if std is None else f" ± {std / unit.size:,.{digits}f}"
    return f"{mean:,.{digits}f}{error} {unit.name}".rstrip()
