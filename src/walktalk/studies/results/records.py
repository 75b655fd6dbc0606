"""What a run has noted and measured, as rows and columns of its records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from walktalk.learning import Trainer
from walktalk.records import (
    RUN_COLUMNS,
    TRACE_COLUMNS,
    HistoryRow,
    RunFolder,
    StudyFolder,
    TraceRow,
    frame,
    save_checkpoint,
    write_history,
    write_text,
)
from walktalk.runtimes.stacked import Measurement
from walktalk.studies.planning import RunRecord
from walktalk.studies.results.sites import Site, SiteRows, measured_by_site, sites_frame, write_sites
from walktalk.studies.results.summary import summarize, summary_text
from walktalk.studies.spec import StudySpec

if TYPE_CHECKING:
    import pandas as pd


def history_row(label: str, repetition: int, m: Measurement) -> HistoryRow:
    """What was measured at one moment of a run, as a row of its history."""
    spent = {} if m.op.epsilon is None else {"epsilon": m.op.epsilon}
    return HistoryRow(
        algorithm=label,
        repetition=repetition,
        iteration=m.op.iteration,
        time=m.op.time,
        bits=int(m.op.bits),
        train_loss=m.train_loss,
        test_accuracy=m.test_accuracy,
        consensus=m.consensus,
        model_bits=int(m.op.model_bits),
        mean_train_loss=m.mean_train_loss,
        mean_test_accuracy=m.mean_test_accuracy,
        further={**m.further, **spent} or None,
    )


def write_run(here: RunFolder, record: RunRecord, trainer: Trainer) -> None:
    """A finished run's history and model. The model is the last that a run writes: it says that the run is whole."""
    assert record.output is not None
    write_history(here.history, record.history, RUN_COLUMNS)
    if record.states is not None:
        save_private(here.private, record, trainer)
    if record.best is not None:
        save_model(here.best, replace(record, output=torch.from_numpy(record.best.row)), trainer)
    save_model(here.model, record, trainer)


def save_private(path: Path, record: RunRecord, trainer: Trainer) -> None:
    """The private parts of all nodes, as `NODE/PARAMETER`."""
    assert record.states is not None
    parts = trainer.private_parts(torch.from_numpy(record.states))
    tensors = {f"{node}/{name}": tensor for node, own in parts.items() for name, tensor in own.items()}
    save_checkpoint(path, tensors, {"run": record.label})


def save_model(path: Path, record: RunRecord, trainer: Trainer) -> None:
    """The run's model, by the names of the module's own state dict."""
    assert record.output is not None
    state = trainer.module(record.output).state_dict()
    tensors = {name: tensor.detach().clone() for name, tensor in state.items()}
    save_checkpoint(path, tensors, {"run": record.label})


def trace_columns(rows: list[TraceRow]) -> dict[str, Sequence[object]]:
    """The rows as columns; what a row says in detail becomes JSON."""
    columns = zip(*rows, strict=True) if rows else [()] * len(TRACE_COLUMNS)
    table: dict[str, Sequence[object]] = dict(zip(TRACE_COLUMNS, columns, strict=True))
    # Here, not in a function: there are millions of them, and most are strings.
    table["detail"] = [d if d.__class__ is str else _TEXTS[tuple(d.items())] for d in table["detail"]]  # type: ignore[attr-defined]
    return table


class _Texts(dict[tuple[tuple[str, object], ...], str]):
    """Details as JSON: the same few combinations come again and again."""

    def __missing__(self, items: tuple[tuple[str, object], ...]) -> str:
        if len(self) >= MOST_TEXTS:
            self.clear()
        text = self[items] = json.dumps(dict(items))
        return text


MOST_TEXTS = 4096
_TEXTS = _Texts()


# What a person should know about a run's model, in words.

OLD_SHARE = 0.1  # of a run's iterations since the aggregator's copy was last brought up to date …
OLD_ROUNDS = 3  # … and as many visits of every node by one walk: then something is odd
WORSE = 0.25  # of what the mean has learned in a run, the model that is handed out has not


def word_on_aggregate(record: RunRecord) -> str | None:
    """A word when the model that is handed out, the aggregator's or server's, is old, worse, or was never trained."""
    updated = record.aggregated_at
    if updated is None or record.met_target or not record.history:
        return None
    last = record.history[-1]
    what = SERVER if record.family == "server" else AGGREGATOR
    losses = f"a loss of {last.mean_train_loss:.4g}, this one {last.train_loss:.4g}"
    ahead = last.train_loss - last.mean_train_loss
    better = "" if ahead <= 0 else ", or measure the mean (evaluate.model: mean)"
    beside = f"the mean of {what.members} has {losses}; {what.advice}{better}; the best that was measured is kept, too"
    if updated == 0 and last.iteration:
        return f"{record.label}: {what.never}; {beside}"
    missed = last.iteration - updated
    if missed > OLD_SHARE * last.iteration and missed > OLD_ROUNDS * record.nodes:
        return f"{record.label}: {what.old} in the last {missed} of {last.iteration} iterations; {beside}"
    learned = record.history[0].mean_train_loss - last.mean_train_loss
    if missed and learned > last.mean_train_loss and ahead > WORSE * learned:  # a run of a few steps is another matter
        return f"{record.label}: {what.worse}; {beside}"
    return None


class Words(NamedTuple):
    """How one speaks of the model that is handed out."""

    never: str  # it was not trained at all
    old: str  # it was not for long
    worse: str  # it has missed much of what was learned of late
    members: str  # what others there are
    advice: str


AGGREGATOR = Words(
    "no walk has come to the aggregator, so its copy was never trained",
    "the aggregator's copy is old: no walk has come there",
    "the aggregator's copy is behind the walks",
    "the walks",
    "run longer, with more walks",
)
SERVER = Words(
    "the server has taken in nothing yet, so its model was never trained",
    "the server's model is old: it has taken in nothing",
    "the server's model is behind those of the nodes",
    "the nodes' models",
    "run longer",
)


# What a study leaves: the history and the summary of all its runs.


@dataclass(frozen=True)
class StudyResult:
    """What a study leaves in memory; the rest is in its folder."""

    history: pd.DataFrame  # one row per evaluation of every run
    summary: dict[str, Any]  # what `summary.json` has: means, spreads, winners
    runs: list[RunRecord]  # each run's record, in the order of the study
    folder: Path | None  # where everything was written; None if nowhere
    trainer: Trainer | None = field(default=None, repr=False)  # what trained the models
    sites: pd.DataFrame | None = None  # how good each algorithm's model is on every site's data; None: not measured
    models: pd.DataFrame | None = None  # the same of nodes' or walks' own models

    @property
    def steps(self) -> int:
        """How many local steps all runs have made together, where this process trained them."""
        local_steps = 0 if self.trainer is None else self.trainer.local_steps
        return local_steps * sum(run.trainings for run in self.runs)

    def __repr__(self) -> str:
        algorithms = len(dict.fromkeys(run.label for run in self.runs))
        there = "in memory" if self.folder is None else f"in {self.folder}"
        name = self.summary.get("study", "study")
        return f"StudyResult({name}: {algorithms} algorithms, {len(self.runs)} runs, {there})"


def study_result(
    spec: StudySpec,
    records: list[RunRecord],
    folder: StudyFolder | None = None,
    engine: str = "sim",
    trainer: Trainer | None = None,
    further: Mapping[str, Any] | None = None,
    sites: Sequence[Site] | None = None,
) -> StudyResult:
    """History and summary of the whole study.

    Args:
        spec: The study.
        records: What its runs left, in order.
        folder: Where both are written; nowhere, if left out.
        engine: What ran it: sim, so that its time is virtual, or peers.
        trainer: What trained the models.
        further: What else the summary says.
        sites: What was measured at every site; measured here by the trainer, if left out.
    """
    rows = [row for record in records for row in record.history]
    history = frame(rows)
    summary = {**summarize(frame(rows, RUN_COLUMNS), spec), "engine": engine, **(further or {})}
    words = [word for record in records if (word := word_on_aggregate(record)) is not None]
    if words:
        summary["notes"] = words
    by_site = measured_by_site(trainer, records) if sites is None else sites
    rows_of = SiteRows.of(by_site)
    tables = [sites_frame(part) if part else None for part in rows_of]
    if folder is None:
        return StudyResult(history, summary, records, None, trainer, *tables)
    write_history(folder.history, rows)
    write_sites(folder.sites, rows_of.sites)
    write_sites(folder.models, rows_of.models)
    write_text(folder.summary, summary_text(summary))
    return StudyResult(history, summary, records, folder.home, trainer, *tables)
