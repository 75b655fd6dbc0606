"""A study's folder: what lies where, who may write to it, and whose it is.

spec.yaml      the whole specification; the same text means the same study
history.csv    every evaluation of every run
summary.json   who won, and under which circumstances
figures/       PNG, SVG and PDF
report.html    all of it on one page, to explore
runs/<algorithm>/<repetition>/   the trace and the last checkpoint of each run
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from filelock import FileLock, Timeout

from walktalk.errors import StudyError
from walktalk.records.atomic import PART, remove_unfinished, write_text

LOCK = ".lock"


@dataclass(frozen=True)
class StudyFolder:
    """The paths of a study's folder."""

    path: Path

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
    def model(self) -> Path:
        """The aggregated model at the end."""
        return self.path / "model.safetensors"


def folder_name(label: str) -> str:
    """An algorithm's label as a folder's name on any system."""
    return re.sub(r"[^A-Za-z0-9_.=+-]+", "_", label).strip("._") or "_"


def existing_folder(path: str | PathLike[str]) -> StudyFolder:
    """The folder of a study that was run, for reading; a `StudyError` if this is none."""
    folder = StudyFolder(Path(path))
    if not folder.path.is_dir():
        raise StudyError(f"{path}: there is no such folder; name the folder that `walktalk run` wrote to")
    if not folder.spec.is_file():
        raise StudyError(f"{path} is not a study's folder: it has no spec.yaml; name one that `walktalk run` wrote to")
    return folder


@contextmanager
def opened_folder(path: str | PathLike[str], spec: str, *, resume: bool = False) -> Iterator[StudyFolder]:
    """The folder, locked for this process, holding exactly this specification (its complete text).

    With `resume` what earlier runs left stays; without, the records of an earlier run of the same study are removed
    first: the same specification gives the same bytes, so nothing is lost but time. The records of another study, or a
    folder with anything else in it, are never touched.
    """
    folder = StudyFolder(Path(path))
    _refuse_foreign(folder)
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(f"{path} cannot be made: {error.strerror}; choose another --out") from error
    with _locked(folder):
        _take(folder, spec, resume)
        yield folder


def check_folder(path: str | PathLike[str], spec: str) -> None:
    """Raise the `StudyError` that `opened_folder` would raise for this study, before any work; nothing is made."""
    folder = StudyFolder(Path(path))
    _refuse_foreign(folder)
    if folder.path.is_dir():
        with _locked(folder):
            _refuse_another(folder, spec)
        return
    parent = next(parent for parent in folder.path.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise StudyError(f"{path} cannot be made: {parent} is a file; choose another --out")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StudyError(f"{path} cannot be made: {parent} cannot be written to; choose another --out")


def _refuse_foreign(folder: StudyFolder) -> None:
    if folder.path.exists() and not folder.path.is_dir():
        raise StudyError(f"{folder.path} is a file, not a folder; choose another --out")
    if not folder.path.is_dir() or folder.spec.exists():
        return
    foreign = sorted(p.name for p in folder.path.iterdir() if p.name != LOCK and not p.name.endswith(PART))
    if foreign:
        raise StudyError(f"{folder.path} is not a study's folder: it holds {foreign[0]!r}; choose another --out")


@contextmanager
def _locked(folder: StudyFolder) -> Iterator[None]:
    """The system holds the lock for the process and drops it when the process ends, even by kill -9."""
    lock = FileLock(folder.path / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise StudyError(f"{folder.path} is in use by another process; wait for it or choose another --out") from error
    except OSError as error:
        raise StudyError(f"{folder.path} cannot be written to: {error.strerror}; choose another --out") from error
    try:
        yield
    finally:
        lock.release()


def _refuse_another(folder: StudyFolder, spec: str) -> None:
    if not folder.spec.exists():
        return
    try:
        there = folder.spec.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{folder.spec} cannot be read; choose another --out") from error
    if there != spec:
        raise StudyError(_another(folder, there, spec))


def _take(folder: StudyFolder, spec: str, resume: bool) -> None:
    _refuse_another(folder, spec)
    if folder.spec.exists():
        if resume:
            remove_unfinished(folder.path)  # nobody else writes here now: the folder is locked
        else:
            _clear(folder)
    write_text(folder.spec, spec)


def _clear(folder: StudyFolder) -> None:
    for part in (folder.runs, folder.figures):
        shutil.rmtree(part, ignore_errors=True)
    for file in (folder.history, folder.summary, folder.report):
        file.unlink(missing_ok=True)


def _another(folder: StudyFolder, there: str, here: str) -> str:
    """Where the two specifications part, so that the person sees at once which is which."""
    mine, theirs = here.splitlines(), there.splitlines()
    pairs = [(a, b) for a, b in zip(theirs, mine, strict=False) if a != b]
    difference = f" (there {pairs[0][0].strip()!r}, here {pairs[0][1].strip()!r})" if pairs else ""
    return f"{folder.path} is the output folder of another study{difference}; choose another --out or delete it"
