"""What one run leaves, to look at, to keep and to go on from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from walktalk.interactive.keeping import page_of, save_study
from walktalk.interactive.tables import run_html, run_text
from walktalk.learning import Trainer
from walktalk.plots import Axis, curves
from walktalk.records import RUN_COLUMNS, TRACE_COLUMNS, StudyFolder, frame, read_trace
from walktalk.studies import Foundation, RunRecord
from walktalk.studies.results import save_model, trace_columns


@dataclass(frozen=True, repr=False)
class Run:
    """What one run leaves."""

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
        """Every event, in order; enough to recompute the run (`walktalk.records.trace` says what the columns mean)."""
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
    def by_node(self) -> pd.DataFrame:
        """The aggregated model on every node's own data: samples, loss, and, where it has any, its own test data's."""
        return pd.DataFrame(self.trainer.by_node(self.row)).set_index("node")

    @property
    def title(self) -> str:
        """What its algorithm is called."""
        return self.base.spec.described[self.record.label].heading

    def plot(self, x: Axis = "iteration") -> Any:
        """Loss and accuracy as a matplotlib figure.

        Args:
            x: Along what: "iteration", "time" or "bits".
        """
        return curves({self.title: self.history}, x)

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
        return run_text(self.title, self.base, self.record)

    def _repr_html_(self) -> str:
        return run_html(self.title, self.base, self.record)
