"""The table of results, how sure it is who won, and the table as LaTeX, Markdown or numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from walktalk.protocols import known
from walktalk.report.figures import unit_of
from walktalk.studies import algorithms_of

# -- how sure it is who won; an old summary says only whether it is clear ---------------------------------------------

PROBABLE = 0.9  # the chance that the first is really better, from which on it is said to be probable


def is_probable(winner: Mapping[str, Any]) -> bool:
    """Whether the best is probably, though not clearly, better than the second."""
    return winner["clear"] is False and (winner.get("chance") or 0.0) >= PROBABLE


def would_tell(winner: Mapping[str, Any]) -> str:
    """How many repetitions would decide it; empty where it is decided, or where the number is unreasonable."""
    needed = winner.get("repetitions_needed")
    return f"; about {needed:,} repetitions would tell" if winner["clear"] is False and needed else ""


class Cell(NamedTuple):
    """One entry of the table of results, and whether it is the best of its column."""

    text: str
    best: bool = False  # the winner of its column


class Results(NamedTuple):
    """The table of results, ready to be printed, with its notes and warning."""

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
    """The note below the table: what the marks mean, and which wins may be due to chance."""
    repetitions = max((entry["repetitions"] for entry in summary["algorithms"].values()), default=0)
    note = (
        f"Mean ± σ over {repetitions} repetitions."
        if repetitions > 1
        else "One repetition: no telling luck from merit."
    )
    if summary["target_loss"] is not None:
        note = f"Iterations, time and data: to training loss {summary['target_loss']:.3g}. {note}"
    note = f"The training loss is {summary['objective']}. {note}" if "objective" in summary else note
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


# -- the table for a paper or a spreadsheet: LaTeX, Markdown, or numbers ----------------------------------------------

SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "²": r"$^2$",
    "·": r"$\cdot$",
    "ε": r"$\varepsilon$",
    "β": r"$\beta$",
    "α": r"$\alpha$",
    "–": "--",
}
POWER = re.compile(r"(\d)e([+-])0*(\d+)")


def latex(results: Results) -> str:
    """A `tabular` for the package booktabs, the best of each column in bold, what the numbers are in comments."""
    columns = "l" + "r" * (len(results.head) - 1)
    lines = [r"\begin{tabular}{" + columns + "}", r"\toprule", _line([Cell(text) for text in results.head])]
    lines += [r"\midrule", *(_line(row) for row in results.rows), r"\bottomrule", r"\end{tabular}"]
    notes = [f"% {text}" for text in (results.title, results.note, results.warning) if text]
    return "\n".join([*notes, *lines])


def _line(cells: list[Cell]) -> str:
    texts = [_escaped(cell.text) for cell in cells]
    marked = [rf"\textbf{{{text}}}" if cell.best else text for text, cell in zip(texts, cells, strict=True)]
    return " & ".join(marked) + r" \\"


def _escaped(text: str) -> str:
    plain = "".join(SPECIAL.get(character, character) for character in text)
    return POWER.sub(lambda found: rf"{found[1]}$\cdot$10$^{{{found[2].strip('+')}{found[3]}}}$", plain)


def markdown(results: Results) -> str:
    """A table as README files have it, the best of each column in bold."""
    rule = ["---", *("---:" for _ in results.head[1:])]
    body = [[f"**{cell.text}**" if cell.best else cell.text for cell in row] for row in results.rows]
    lines = ["| " + " | ".join(row) + " |" for row in (results.head, rule, *body)]
    return "\n".join([*lines, "", *(text for text in (results.note, results.warning) if text)])


def numbers(summary: Mapping[str, Any], name: Callable[[str], str] | None = None) -> pd.DataFrame:
    """A row for each algorithm, by its label: means, and σ over repetitions, of what the table of results shows.

    What was not reached, and σ of one repetition, is NaN.

    Args:
        summary: A study's.
        name: What an algorithm is called, from its label; as it says itself unless given.
    """
    named = known(summary["algorithms"], algorithms_of(summary))
    name = name or (lambda label: named[label].heading)
    rows = {label: _numbers(name(label), entry) for label, entry in summary["algorithms"].items()}
    found = pd.DataFrame.from_dict(rows, orient="index").rename_axis("label")
    return found.assign(target_loss=summary["target_loss"])


def _numbers(called: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    spreads = {"final_loss": entry["final_loss"], "final_accuracy": entry["final_accuracy"]}
    spreads |= {f"{axis}_to_target": spread for axis, spread in entry["to_target"].items()}
    row: dict[str, Any] = {"algorithm": called, "repetitions": entry["repetitions"]}
    for what, spread in spreads.items():
        mean, std = (None, None) if spread is None else (spread["mean"], spread["std"])
        row |= {what: float("nan") if mean is None else mean, f"{what}_std": float("nan") if std is None else std}
    return row
