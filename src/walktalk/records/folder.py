"""A study's folder: what lies where.

spec.yaml      the whole specification; the same text means the same study
history.csv    every evaluation of every run
summary.json   who won, and under which circumstances
figures/       PNG, SVG and PDF
report.html    all of it on one page, to explore
runs/<algorithm>/<repetition>/   the trace and the last checkpoint of each run
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from walktalk.errors import StudyError
from walktalk.records.atomic import is_unfinished


@dataclass(frozen=True)
class StudyFolder:
    """The paths of a study's folder."""

    path: Path
    home_path: Path | None = None  # where it will be, once it is whole; None: where it is

    @property
    def home(self) -> Path:
        """The folder that a person knows."""
        return self.home_path or self.path

    @property
    def spec(self) -> Path:
        """The specification, complete."""
        return self.path / "spec.yaml"

    @property
    def history(self) -> Path:
        """Every evaluation of every run."""
        return self.path / "history.csv"

    @property
    def summary(self) -> Path:
        """Who won on each axis, settings and versions."""
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        """The page a person reads."""
        return self.path / "report.html"

    @property
    def figures(self) -> Path:
        """The folder of the figures."""
        return self.path / "figures"

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return self.path / "runs"

    def records(self) -> tuple[Path, ...]:
        """All that a study's runs write; figures and page are drawn from it."""
        return self.runs, self.history, self.summary, self.spec

    def begun(self) -> bool:
        """Whether anything lies here that took time to make."""
        return self.summary.exists() or self.history.exists() or self.engine() is not None

    def engine(self) -> str | None:
        """Whose runs lie here: sim's or peers'; None where there are none."""
        runs = [RunFolder(path) for path in self.runs.glob("*/*")]
        if any(run.nodes.is_dir() for run in runs):
            return "peers"
        return "sim" if any(not is_unfinished(file) for run in runs for file in run.path.glob("*")) else None

    def run(self, algorithm: str, repetition: int) -> RunFolder:
        """The folder of one run; it need not exist yet."""
        return RunFolder(self.runs / folder_name(algorithm) / str(repetition))


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run's folder."""

    path: Path

    @property
    def trace(self) -> Path:
        """Every event; there when the run has ended."""
        return self.path / "trace.parquet"

    @property
    def history(self) -> Path:
        """This run's evaluations, with the columns that only a run has."""
        return self.path / "history.csv"

    @property
    def checkpoint(self) -> Path:
        """The last checkpoint."""
        return self.path / "checkpoint.safetensors"

    @property
    def nodes(self) -> Path:
        """Of a run on real peers: the folders of its nodes."""
        return self.path / "nodes"

    @property
    def model(self) -> Path:
        """The aggregated model at the end."""
        return self.path / "model.safetensors"


def folder_name(label: str) -> str:
    """An algorithm's label as a folder's name on any system."""
    return re.sub(r"[^A-Za-z0-9_.=+-]+", "_", label).strip("._") or "_"


def existing_folder(path: str | PathLike[str]) -> StudyFolder:
    """The folder of a study that was run, for reading; a `StudyError` if this is none.

    Args:
        path: as a person gave it.
    """
    folder = StudyFolder(Path(path))
    if not folder.path.is_dir():
        raise StudyError(f"{path}: there is no such folder; name the folder that `walktalk run` wrote to")
    if not folder.spec.is_file():
        raise StudyError(f"{path} is not a study's folder: it has no spec.yaml; name one that `walktalk run` wrote to")
    return folder
