"""What one run leaves, to look at, to keep and to go on from."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from walktalk.api.training import errors_name_arguments
from walktalk.core.errors import StudyError, suggestion
from walktalk.core.lazy import later
from walktalk.learning import Trainer
from walktalk.records import (
    RUN_COLUMNS,
    TRACE_COLUMNS,
    StudyFolder,
    TraceWriter,
    frame,
    opened_folder,
    read_trace,
    write_text,
)
from walktalk.studies import Foundation, RunRecord, StudyResult, summarize
from walktalk.studies.results import save_model, study_result, trace_columns, write_run
from walktalk.studies.spec import dump_spec

if TYPE_CHECKING:
    import pandas as pd

    from walktalk import report
    from walktalk.report import figures
    from walktalk.report.figures import Axis
else:  # half a second each, after the run, for those who look at it
    pd, report, figures = later("pandas"), later("walktalk.report"), later("walktalk.report.figures")

# From runs in memory to a study's folder and to a page.


def save_study(
    base: Foundation, runs: Sequence[Run], folder: str | PathLike[str], *, overwrite: bool = False, figures: bool = True
) -> Path:
    """Write everything that a study leaves; the folder.

    Args:
        base: The study.
        runs: All its runs, in order.
        folder: Where; it need not exist yet, and another study's is refused.
        overwrite: Replace a study that is there.
        figures: Whether figures and page are made, too.
    """
    with errors_name_arguments(), opened_folder(folder, dump_spec(base.spec), overwrite=overwrite) as place:
        for run in runs:
            here = place.run(run.record.label, run.record.repetition)
            here.path.mkdir(parents=True, exist_ok=True)
            with TraceWriter(here.trace) as writer:
                writer.write(trace_columns(run.record.trace) if run.record.trace else _columns(run))
            write_run(here, run.record, run.trainer)
        study_result(base.spec, [run.record for run in runs], place, runs[0].engine, runs[0].trainer)
    if figures:
        report.write_report(folder, base)
    return Path(folder)


def _columns(run: Run) -> dict[str, Sequence[object]]:
    """The columns of a trace that was written to a file."""
    return {str(name): list(values) for name, values in run.trace.items()}


def page_of(base: Foundation, runs: Sequence[Run], path: str | PathLike[str]) -> Path:
    """Write the page alone; what it would link to is not there, so it has no such links."""
    with tempfile.TemporaryDirectory() as folder:
        save_study(base, runs, Path(folder) / base.spec.name, figures=False)
        parts = report.page_parts(report.open_study(Path(folder) / base.spec.name, base))
        sections = {name: html for name, html in parts.sections.items() if name not in ("records", "repeat")}
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, report.page_html(parts._replace(sections=sections)))
    return target


# Results in few words and as small tables, for a prompt and for a notebook.

CELL = "style='text-align: left'"


def run_text(title: str, base: Foundation, record: RunRecord, which: str) -> str:
    """A run on one line, for a prompt; `which`: what its model is."""
    facts = facts_of(base, record) | {"model": which}
    return f"Run({title}: {', '.join(f'{name} {value}' for name, value in facts.items())})"


def run_html(title: str, base: Foundation, record: RunRecord, which: str) -> str:
    """A run as an HTML table with a row for each fact; `which`: what its model is."""
    rows = "".join(
        f"<tr><th {CELL}>{escape(name)}</th><td {CELL}>{escape(value)}</td></tr>"
        for name, value in (facts_of(base, record) | {"model": which}).items()
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>"


def facts_of(base: Foundation, record: RunRecord) -> dict[str, str]:
    """What a person wants to know first of a run."""
    last = record.history[-1]
    found = {"task": base.spec.task.title, "graph": base.graph.name, "iterations": f"{last.iteration:,}"}
    found |= {"time": figures.with_unit("time", last.time), "sent": figures.with_unit("bits", last.bits)}
    found["loss"] = f"{last.train_loss:.4g}"
    return found if math.isnan(last.test_accuracy) else {**found, "accuracy": f"{100 * last.test_accuracy:.1f} %"}


def summary_text(summary: Mapping[str, Any]) -> str:
    """A summary with a line for each algorithm, for a prompt."""
    table = report.results_table(summary)
    cells = [table.head, *([cell.text for cell in row] for row in table.rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(table.head))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([table.title, *lines, *(text for text in (table.note, table.warning) if text)])


def summary_html(summary: Mapping[str, Any]) -> str:
    """A summary as an HTML table, the best of each column in bold."""
    table = report.results_table(summary)
    head = "".join(f"<th {CELL}>{escape(name)}</th>" for name in table.head)
    rows = "".join(
        "<tr>" + "".join(f"<td {CELL}>{_cell(cell.text, cell.best)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    notes = "".join(f"<p><small>{escape(text)}</small></p>" for text in (table.note, table.warning) if text)
    caption = f"<caption>{escape(table.title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"


def _cell(text: str, best: bool) -> str:
    return f"<b>{escape(text)}</b>" if best else escape(text)


class BestModel(NamedTuple):
    """The best model that was measured in a run."""

    model: nn.Module  # with its weights
    iteration: int  # when it was measured
    measure: str  # by which it is the best, such as "valid_loss"
    value: float  # of that measure
    which: str  # of the algorithm's models: the aggregator's copy, the server's model, the mean of all


@dataclass(frozen=True, repr=False)
class Run:
    """What one run leaves: its history, its trace and its model, to look at, to keep and to go on from."""

    record: RunRecord  # history, trace and models as they were recorded
    trainer: Trainer  # what trained the models
    base: Foundation  # the study that it is a run of, or that it is alone
    folder: Path | None = None  # where its study was written; None if nowhere
    engine: str = "sim"  # what ran it

    @cached_property
    def history(self) -> pd.DataFrame:
        """One row per evaluation: iteration, time, bits, train_loss, test_accuracy, consensus and more."""
        return frame(self.record.history, RUN_COLUMNS).drop(columns=["algorithm", "repetition"])

    @cached_property
    def trace(self) -> pd.DataFrame:
        """Every event, in order; enough to recompute the run (`walktalk.records.history` says what columns mean)."""
        if self.record.trace or self.folder is None:
            return pd.DataFrame(trace_columns(self.record.trace), columns=list(TRACE_COLUMNS))
        return read_trace(StudyFolder(self.folder).run(self.record.label, self.record.repetition).trace)

    @property
    def row(self) -> Tensor:
        """The aggregated model as one flat vector."""
        assert self.record.output is not None
        return self.record.output

    @cached_property
    def model(self) -> nn.Module:
        """The aggregated model, as a torch module with its weights."""
        return self.trainer.module(self.row)

    @cached_property
    def best(self) -> BestModel:
        """The best model that was measured, with its iteration: by samples that every node holds out, with
        `evaluate=wt.Evaluate(validation=0.1)`, else by the training loss, or by what `best=` says.
        """
        found = self.record.best
        if found is None:
            raise StudyError(
                "best: there is none: no loss that was measured is finite; a smaller learning rate may help"
            )
        which = f"the mean of all {self._members}" if found.is_mean else self.model_is
        model = self.trainer.module(torch.from_numpy(found.row))
        return BestModel(model, found.iteration, found.measure, found.value, which)

    @property
    def model_is(self) -> str:
        """Which of the algorithm's models `model` is, in words."""
        protocol = self.base.spec.algorithms[self._place].protocol()
        if self.base.spec.evaluate.model == "mean":
            return f"the mean of all {self._members}"
        if self.base.spec.evaluate.model == "node":
            return "the model of node 0"
        return {"walks": "the aggregator's copy", "server": "the server's model"}.get(
            protocol.family, f"the mean of all {self._members}"
        )

    @property
    def _members(self) -> str:
        family = self.base.spec.algorithms[self._place].protocol().family
        return "walks" if family == "walks" else "nodes"

    @property
    def _place(self) -> int:
        return [one.title for one in self.base.spec.algorithms].index(self.record.label)

    @cached_property
    def by_node(self) -> pd.DataFrame:
        """The aggregated model on every node's own data: samples, loss, and, where it has any, its own test data's.

        Where parts of models are private, each node's with its own.
        """
        return pd.DataFrame(self.trainer.by_node(self.row, self._states)).set_index("node")

    @cached_property
    def private(self) -> dict[str | int, dict[str, Tensor]]:
        """The private part of every node, by the node's name and by parameter; {} where nothing is private.

        `run.model.load_state_dict(run.private["lyon"], strict=False)` makes the model that lyon has.
        """
        return {} if self._states is None else self.trainer.private_parts(self._states)

    @property
    def _states(self) -> Tensor | None:
        return None if self.record.states is None else torch.from_numpy(self.record.states)

    @property
    def title(self) -> str:
        """What its algorithm is called."""
        return self.base.spec.described[self.record.label].heading

    def plot(self, x: Axis = "iteration") -> Any:
        """Loss and accuracy as a matplotlib figure.

        Args:
            x: Along what: "iteration", "time" or "bits".
        """
        return figures.curves({self.title: self.history}, x)

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write `model.safetensors`, whose tensors are those of the module's own state dict, history and trace.

        The folder is a study's, with one run: `walktalk report`, `plot` and `list` take it, and so does `init`.

        Args:
            folder: Where; it need not exist yet.
            overwrite: Replace a study that is there.
        """
        place = save_study(self.base, [self], folder, overwrite=overwrite)
        save_model(place / "model.safetensors", self.record, self.trainer)
        return place

    def report(self, path: str | PathLike[str] = "report.html") -> Path:
        """Write the page of this run, one file that needs no network; its path.

        Args:
            path: The page's file.
        """
        return page_of(self.base, [self], path)

    def __repr__(self) -> str:
        return run_text(self.title, self.base, self.record, self.model_is)

    def _repr_html_(self) -> str:
        return run_html(self.title, self.base, self.record, self.model_is)


# What `compare` leaves: the study's history and summary, its runs, and its page.


@dataclass(frozen=True, repr=False)
class Compared:
    """What a comparison leaves: history and summary of all runs, each run, and the page."""

    result: StudyResult  # as `run_study` gives it
    base: Foundation  # the study: its specification, graph and algorithms

    @property
    def history(self) -> pd.DataFrame:
        """One row per evaluation of every run."""
        return self.result.history

    @property
    def summary(self) -> dict[str, Any]:
        """Means and spreads of every algorithm, and the winner on every axis: what `summary.json` has."""
        return self.result.summary

    @property
    def models(self) -> pd.DataFrame | None:
        """How good the own model of every node or walk is on every site's data, with `evaluate.members`; or None."""
        return self.result.models

    @property
    def sites(self) -> pd.DataFrame | None:
        """How good each algorithm's model is on every site's data: what `sites.csv` has; None: not measured."""
        return self.result.sites

    @property
    def folder(self) -> Path | None:
        """Where everything was written; None if nowhere."""
        return self.result.folder

    @cached_property
    def runs(self) -> list[Run]:
        """Every run: all repetitions of the first algorithm, then those of the next."""
        trainer, engine = self.result.trainer, str(self.summary.get("engine", "sim"))
        assert trainer is not None
        return [Run(record, trainer, self.base, self.folder, engine) for record in self.result.runs]

    def run(self, algorithm: str, repetition: int = 0) -> Run:
        """One run of the comparison, by algorithm and repetition.

        Args:
            algorithm: Its label, as in `history`.
            repetition: Counted from 0.
        """
        for run in self.runs:
            if (run.record.label, run.record.repetition) == (algorithm, repetition):
                return run
        labels = list(dict.fromkeys(run.record.label for run in self.runs))
        raise StudyError(
            f"there is no run {repetition} of {algorithm!r}; algorithms: {', '.join(labels)}, repetitions: 0 to "
            f"{self.base.spec.repetitions - 1}{suggestion(algorithm, labels)}"
        )

    @property
    def table(self) -> pd.DataFrame:
        """The numbers of the printed table: a row for each algorithm, means and σ; `.to_csv("table.csv")` keeps it."""
        return report.numbers(self.summary)

    def latex(
        self, columns: Sequence[str] | None = None, *, target: float | None = None, significance: float | None = None
    ) -> str:
        """The table as a LaTeX `tabular` for the package booktabs, the best of each column in bold where it is clear.

        Args:
            columns: Which, such as `["accuracy", "test_loss", "time"]`, also metrics of your own; all if left out.
            target: The training loss that iterations, time and data lead to; the lowest that all reached, if left out.
            significance: From which on a difference is called clear; 0.95 if left out.
        """
        summary = self.summary if target is None else summarize(self.history, self.base.spec, target=target)
        table = report.results_table(report.judged_at(summary, significance), further=True, columns=columns)
        return report.latex(table)

    def plot(self, x: Axis = "iteration") -> Any:
        """Loss and accuracy of all algorithms as a matplotlib figure, mean ± σ over repetitions.

        Args:
            x: Along what: "iteration", "time" or "bits".
        """
        return figures.curves(self.history, x, algorithms=self.base.spec.described)

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the whole study: specification, history, summary, every run, figures and page; the folder.

        Args:
            folder: Where; it need not exist yet.
            overwrite: Replace a study that is there.
        """
        return save_study(self.base, self.runs, folder, overwrite=overwrite)

    def report(self, path: str | PathLike[str] | None = None) -> Path:
        """Write the page that a person reads; its path.

        Args:
            path: The page's file; `report.html` in the study's folder, with all figures, if left out.
        """
        if path is not None:
            return page_of(self.base, self.runs, path)
        if self.folder is None:
            raise StudyError("report: this comparison has no folder; say where its page goes, report('mine.html')")
        return report.write_report(self.folder, self.base)

    def __repr__(self) -> str:
        return summary_text(self.summary)

    def _repr_html_(self) -> str:
        return summary_html(self.summary)
