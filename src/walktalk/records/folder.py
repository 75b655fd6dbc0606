"""A study's folder: what lies where.

spec.yaml      the whole specification; the same text means the same study
history.csv    every evaluation of every run
summary.json   who won, and under which circumstances
figures/       PNG, SVG and PDF
report.html    all of it on one page, to explore
runs/<algorithm>/<repetition>/   the trace and the last checkpoint of each run
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from walktalk.core.errors import StudyError, UserError
from walktalk.records import yaml_text
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
        """The path of the complete specification, with every default written out."""
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
        """The path of the last checkpoint."""
        return self.path / "checkpoint.safetensors"

    @property
    def nodes(self) -> Path:
        """The folders of the nodes, where the run was on real peers."""
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


# The studies below a folder: what they are and how far they got, from their files alone.

DEEPEST = 4  # folders below the first in which studies are looked for


@dataclass(frozen=True)
class ListedStudy:
    """One study's folder, as far as it can be told without reading its numbers."""

    folder: Path
    name: str
    engine: str  # "sim" or "peers"; "" while it is not known
    task: str
    topology: str
    nodes: int | None  # none where a file of edges says how many
    algorithms: int
    repetitions: int
    done: int  # runs that have ended
    finished: bool
    changed: float  # when it was last written to, in seconds since 1970

    @property
    def runs(self) -> int:
        """How many runs it has when it is finished."""
        return self.algorithms * self.repetitions


def studies_below(path: str | PathLike[str]) -> list[ListedStudy]:
    """The studies in this folder and in those below it, the one last written to first; other folders are skipped.

    A `StudyError` if there is no such folder.
    """
    root = Path(path)
    if not root.is_dir():
        raise StudyError(f"{root}: there is no such folder; name one in which `walktalk run` wrote its studies")
    found = [study for folder in _folders(root, DEEPEST) if (study := _listed(StudyFolder(folder))) is not None]
    return sorted(found, key=lambda study: (-study.changed, study.folder))


def _folders(root: Path, deep: int) -> Iterator[Path]:
    """Folders with a specification; nothing below one of them is looked at, which would be its runs."""
    if (root / "spec.yaml").is_file():
        yield root
    elif deep > 0:
        for inner in sorted(root.iterdir()):
            if inner.is_dir() and not inner.is_symlink() and not inner.name.startswith("."):
                yield from _folders(inner, deep - 1)


def _listed(folder: StudyFolder) -> ListedStudy | None:
    try:
        spec = yaml_text.read(folder.spec)
        network, task, algorithms = spec["network"], spec["task"], spec["algorithms"]
        return ListedStudy(
            folder=folder.path,
            name=str(spec["name"]),
            engine=_engine(folder),
            task=str(task["called"] if task["name"] == "given" else task["name"]),
            topology=str(network["topology"]),
            nodes=network.get("nodes"),
            algorithms=len(algorithms),
            repetitions=int(spec["repetitions"]),
            done=sum(1 for _ in folder.runs.glob("*/*/model.safetensors")),
            finished=folder.history.is_file() and folder.summary.is_file(),
            changed=max(p.stat().st_mtime for p in (folder.spec, folder.history, folder.summary) if p.is_file()),
        )
    except (UserError, KeyError, TypeError, ValueError, OSError):  # some other spec.yaml
        return None


def _engine(folder: StudyFolder) -> str:
    try:
        content: Any = json.loads(folder.summary.read_text(encoding="utf-8"))
        return str(content.get("engine", ""))
    except (OSError, ValueError, AttributeError):
        return ""
