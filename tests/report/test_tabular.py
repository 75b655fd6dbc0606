"""The table of results as LaTeX, Markdown and numbers."""

from __future__ import annotations

import math

from walktalk.report import Cell, Results, latex, markdown, numbers

TABLE = Results(
    "Results of mine",
    ["Algorithm", "Final loss", "Accuracy (%)", "Data sent"],
    [
        [Cell("D²"), Cell("5.52e-04 ± 4e-05", best=True), Cell("95.1"), Cell("12 ± 1 MB")],
        [Cell("my_walk"), Cell("–"), Cell("–"), Cell("not reached")],
    ],
    "Mean ± σ over 3 repetitions.",
)


def test_latex_escapes_what_is_special_and_marks_the_best():
    lines = latex(TABLE).splitlines()
    assert lines[0] == "% Results of mine"
    assert lines[1:4] == [
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r"Algorithm & Final loss & Accuracy (\%) & Data sent \\",
    ]
    best = r"\textbf{5.52$\cdot$10$^{-4}$ $\pm$ 4$\cdot$10$^{-5}$}"
    assert lines[5] == rf"D$^2$ & {best} & 95.1 & 12 $\pm$ 1 MB \\"
    assert lines[6] == r"my\_walk & -- & -- & not reached \\"
    assert lines[7] == r"\bottomrule"
    note = r"{\footnotesize Mean $\pm$ $\sigma$ over 3 repetitions.}"  # a comment would not be printed
    assert lines[8:] == [r"\multicolumn{4}{p{0.95\linewidth}}" + note + r" \\", r"\end{tabular}"]


def test_markdown_has_a_row_for_each_algorithm():
    lines = markdown(TABLE).splitlines()
    assert lines[:2] == ["| Algorithm | Final loss | Accuracy (%) | Data sent |", "| --- | ---: | ---: | ---: |"]
    assert lines[2] == "| D² | **5.52e-04 ± 4e-05** | 95.1 | 12 ± 1 MB |"
    assert lines[-1] == TABLE.note


def test_numbers_are_means_and_spreads_by_label():
    reached = {"mean": 12.0, "std": 1.0}
    axes = ("iteration", "time", "bits")
    entry = {"repetitions": 3, "final_loss": {"mean": 0.25, "std": 0.5}, "final_accuracy": None}
    content = {
        "study": "mine",
        "target_loss": 0.3,
        "algorithms": {
            "multi_walk-4": {**entry, "to_target": dict.fromkeys(axes, reached)},
            "d2": {**entry, "to_target": dict.fromkeys(axes)},
        },
    }
    table = numbers(content)
    assert list(table.index) == ["multi_walk-4", "d2"]
    assert list(table["algorithm"]) == ["4 walks", "D²"]
    walks = table.loc["multi_walk-4"]
    assert (walks["final_loss"], walks["final_loss_std"], walks["iteration_to_target"]) == (0.25, 0.5, 12.0)
    assert math.isnan(table.loc["d2", "time_to_target"])
    assert math.isnan(walks["final_accuracy"])
    assert (table["target_loss"] == 0.3).all()
