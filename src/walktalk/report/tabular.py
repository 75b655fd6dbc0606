"""The table of results for a paper or a spreadsheet: LaTeX, Markdown, or numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from walktalk.protocols import known
from walktalk.report.results import Cell, Results
from walktalk.studies import algorithms_of

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
