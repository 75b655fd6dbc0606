"""The table of results, how sure it is who won, and the table as LaTeX, Markdown or numbers."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import pandas as pd

from walktalk.core.errors import SpecError, suggestion
from walktalk.core.settings import misfit
from walktalk.protocols import known
from walktalk.report.figures import is_share, unit_of
from walktalk.studies import algorithms_of

# -- how sure it is who won: said here once, for the sentence, the cards, the tables and what the page's script shows --

PROBABLE = 0.9  # the chance that the first is really better, from which on it is said to be probable
Verdict: TypeAlias = Literal["alone", "once", "clear", "probable", "close"]


def verdict(winner: Mapping[str, Any] | None) -> Verdict:
    """How sure it is that the best is best.

    `alone`: there is nobody else; `once`: one repetition, which may be luck; `clear`; `probable`, though not clear;
    `close`: too close to call. The verdicts of a summary are corrected together for how many they are. A summary of
    walktalk 0.1 says only whether it is clear.
    """
    if winner is None or winner["next"] is None:
        return "alone"
    if winner["clear"] is None:
        return "once"
    if winner["clear"]:
        return "clear"
    return "probable" if (winner.get("chance") or 0.0) >= PROBABLE else "close"


def is_won(winner: Mapping[str, Any] | None) -> bool:
    """Whether the best may be marked: there is somebody else, and it is not too close to call."""
    return verdict(winner) not in ("alone", "close")


def is_contest(summary: Mapping[str, Any]) -> bool:
    """Whether there are two or more that can win; what is there to compare with cannot."""
    described = known(summary["algorithms"], algorithms_of(summary))
    return sum(not one.is_reference for one in described.values()) > 1


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


def results_table(
    summary: Mapping[str, Any],
    name: Callable[[str], str] | None = None,
    further: bool = False,
    columns: Sequence[str] | None = None,
) -> Results:
    """A row per algorithm: final loss and accuracy, then what it took to reach the common target on each axis.

    The best of a column is marked, unless it is too close to call, or there is nobody to be better than.

    Args:
        summary: a study's.
        name: what an algorithm is called, from its label; as it says itself unless given.
        further: whether the test loss, and metrics of one's own, have columns too, where they were measured.
        columns: which columns, by short name (`loss`, `accuracy`, `test_loss`, `iteration`, `time`, `bits`, or a metric
            of one's own), from left to right; all of them if left out.
    """
    described = known(summary["algorithms"], algorithms_of(summary))
    name = name or (lambda label: described[label].heading)
    shown = columns_of(summary, further) if columns is None else chosen_columns(summary, columns)
    rows = [
        [Cell(name(label)), *(_cell(column, label, entry, summary["winners"]) for column in shown)]
        for label, entry in summary["algorithms"].items()
    ]
    title = f"Results of {summary['study']}" if "study" in summary else "Results"
    references = [label for label, one in described.items() if one.is_reference]
    head = ["Algorithm", *(column.title for column in shown)]
    return Results(title, head, rows, _note(summary, name, references), _diverged(summary, name))


class Column(NamedTuple):
    """A column of the table of results: what of an algorithm's entry in the summary it shows."""

    title: str
    key: str  # in the entry: "final_loss"; of a cost, its axis
    measure: str | None  # among the winners; None: nobody wins by it
    write: Callable[[dict[str, Any] | None], str]

    @property
    def short(self) -> str:
        """The name by which it is chosen: `loss`, `time`, or a metric's own."""
        return self.key.removeprefix("final_")

    def spread(self, entry: Mapping[str, Any]) -> dict[str, Any] | None:
        """Mean and σ; None where there is no such number."""
        found: dict[str, Any] | None = entry["to_target"][self.key] if self.key in AXES else entry.get(self.key)
        return found


def columns_of(summary: Mapping[str, Any], further: bool = False) -> list[Column]:
    """The columns of the table of results, from left to right; `further` as there."""
    entries = list(summary["algorithms"].values())
    columns = [Column("Final loss", "final_loss", "loss", _plain)]
    if any(entry["final_accuracy"] is not None for entry in entries):
        columns.append(Column("Accuracy (%)", "final_accuracy", "accuracy", _percent))
    if further:
        keys = dict.fromkeys(key for entry in entries for key, value in entry.items() if _is_further(key, value))
        columns += [
            Column(_titled(key), key, None, _percent if is_share(key.removeprefix("final_")) else _plain)
            for key in keys
        ]
    costs = (Column(title, axis, axis, functools.partial(_with_unit, axis)) for axis, title in AXES.items())
    return [*columns, *costs]


def chosen_columns(summary: Mapping[str, Any], names: Sequence[str]) -> list[Column]:
    """The columns of these short names, in their order; `SpecError` where there is none of a name."""
    there = [*columns_of(summary, further=True), Column("Consensus", "final_consensus", None, _plain)]
    by_name = {column.short: column for column in there}
    if isinstance(names, str) or not names:
        raise misfit("columns", names, f"a list of {', '.join(by_name)}", SpecError)
    for name in names:
        if name not in by_name:
            raise misfit("columns", name, f"{', '.join(by_name)}{suggestion(name, by_name)}", SpecError)
    return [by_name[name] for name in names]


def judged_at(summary: Mapping[str, Any], significance: float | None) -> Mapping[str, Any]:
    """A summary in which the best is clear from this significance on, in place of 0.95: what is marked follows.

    Args:
        summary: A study's.
        significance: Of an interval with two sides, from 0 to 1; as it was decided if left out.
    """
    if significance is None:
        return summary
    if not isinstance(significance, (int, float)) or not 0 < significance < 1:
        raise misfit("significance", significance, "a number above 0, below 1, such as 0.95", SpecError)
    chance = (1 + significance) / 2
    winners = {
        axis: one if one is None or one.get("chance") is None else {**one, "clear": one["chance"] >= chance}
        for axis, one in summary["winners"].items()
    }
    return {**summary, "winners": winners}


USUAL = ("final_loss", "final_accuracy", "final_consensus", *(f"final_{axis}" for axis in AXES))


def _is_further(key: str, value: Any) -> bool:
    return key.startswith("final_") and key not in USUAL and not key.startswith("final_each_") and value is not None


def _titled(key: str) -> str:
    metric = key.removeprefix("final_")
    return metric.replace("_", " ").capitalize() + (" (%)" if is_share(metric) else "")


def _cell(column: Column, label: str, entry: dict[str, Any], winners: Mapping[str, Any]) -> Cell:
    won = None if column.measure is None else winners[column.measure]
    return Cell(column.write(column.spread(entry)), is_won(won) and won is not None and won["algorithm"] == label)


def _note(summary: Mapping[str, Any], name: Callable[[str], str], references: Sequence[str]) -> str:
    """The note below the table: what the numbers are, which wins may be due to chance, and who cannot win."""
    repetitions = max((entry["repetitions"] for entry in summary["algorithms"].values()), default=0)
    alone = len(summary["algorithms"]) - len(references) < 2
    once = "One repetition." if alone else "One repetition: no telling luck from merit."
    splits = f" on {summary['splits']} splits of the data" if summary.get("splits", 1) > 1 else ""
    parts = [f"Mean ± σ over {repetitions} repetitions{splits}." if repetitions > 1 else once]
    parts += [f"The end of a run: its last {summary['window']} evaluations."] if "window" in summary else []
    if summary["target_loss"] is not None:
        parts.insert(0, f"Iterations, time and data: to training loss {summary['target_loss']:.3g}.")
    if "objective" in summary:
        parts.insert(0, f"The training loss is {summary['objective']}.")
    names = {
        "loss": "final loss",
        "accuracy": "accuracy",
        "iteration": "iterations",
        "time": "time",
        "bits": "data sent",
    }
    found: dict[Verdict, list[str]] = {"probable": [], "close": []}
    for axis, one in summary["winners"].items():
        if (said := verdict(one)) in found:
            between = " or " if said == "close" else " before "
            both = f"{name(one['algorithm'])}{between}{name(one['next'])}"
            found[said].append(f"{names[axis]} ({both}{would_tell(one)})")
    parts += [f"Probable, but not sure: {'; '.join(found['probable'])}."] if found["probable"] else []
    parts += [f"Too close to call: {'; '.join(found['close'])}."] if found["close"] else []
    parts += [f"{name(label)} is there to compare with, and cannot win." for label in references]
    return " ".join(parts)


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
    "σ": r"$\sigma$",
    "²": r"$^2$",
    "·": r"$\cdot$",
    "ε": r"$\varepsilon$",
    "β": r"$\beta$",
    "α": r"$\alpha$",
    "–": "--",
}
POWER = re.compile(r"(\d)e([+-])0*(\d+)")


def latex(results: Results) -> str:
    """A `tabular` for the package booktabs, the best of each column in bold, what the numbers are in its last lines."""
    columns = "l" + "r" * (len(results.head) - 1)
    lines = [r"\begin{tabular}{" + columns + "}", r"\toprule", _line([Cell(text) for text in results.head])]
    lines += [r"\midrule", *(_line(row) for row in results.rows), r"\bottomrule"]
    over = rf"\multicolumn{{{len(results.head)}}}{{p{{0.95\linewidth}}}}"  # as wide as the page, not as a column
    notes = [_escaped(text) for text in (results.note, results.warning) if text]
    lines += [*(rf"{over}{{\footnotesize {text}}} \\" for text in notes), r"\end{tabular}"]
    return "\n".join([f"% {results.title}", *lines])


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
    spreads |= {key: value for key, value in entry.items() if _is_further(key, value)}
    spreads |= {f"{axis}_to_target": spread for axis, spread in entry["to_target"].items()}
    row: dict[str, Any] = {"algorithm": called, "repetitions": entry["repetitions"]}
    for what, spread in spreads.items():
        mean, std = (None, None) if spread is None else (spread["mean"], spread["std"])
        row |= {what: float("nan") if mean is None else mean, f"{what}_std": float("nan") if std is None else std}
    return row
