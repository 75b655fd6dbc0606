"""A study's folder: what lies where, and who may write to it.

spec.yaml      the whole specification; the same text means the same study
history.csv    every evaluation of every run
sites.csv      how good each algorithm's model is on every site's data
models.csv     the same of the own model of every node or walk
summary.json   who won, and under which circumstances
figures/       PNG, SVG and PDF
report.html    all of it on one page, to explore
runs/<algorithm>/<repetition>/   the trace and the last checkpoint of each run

One process at a time writes to it, and nothing that is there is lost unasked. Where results are to be replaced, the new
ones are made beside them, in a folder within the folder, and take their place when they are whole. Killed before that,
the old ones stand, and the new ones can be gone on with; killed while they are moved, whoever opens the folder next
moves the rest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from walktalk.core.errors import StudyError, UserError
from walktalk.records import yaml_text
from walktalk.records.atomic import PART, is_unfinished, remove_unfinished, write_text


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
    def sites(self) -> Path:
        """How good each algorithm's model is on every site's data; there where that was measured."""
        return self.path / "sites.csv"

    @property
    def models(self) -> Path:
        """How good the own model of every node or walk is on every site's data; there where that was measured."""
        return self.path / "models.csv"

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
        return self.runs, self.history, self.sites, self.models, self.summary, self.spec

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
    def private(self) -> Path:
        """The private parts of all nodes at the end, where models have some."""
        return self.path / "private.safetensors"

    @property
    def best(self) -> Path:
        """The best model that was measured, where it was asked for."""
        return self.path / "best.safetensors"

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


# -- Taking it to write to it -----------------------------------------------------------------------------------------

LOCK = ".lock"
NEW = ".new"  # the folder of results that are to replace those beside it
WHOLE = "whole"  # a file in it: they are whole, and wait only to be moved


@contextmanager
def opened_folder(
    path: str | PathLike[str], spec: str, *, resume: bool = False, overwrite: bool = False, engine: str = "sim"
) -> Iterator[StudyFolder]:
    """The folder to write a study to, locked for this process, holding exactly this specification.

    Args:
        path: The study's folder; it need not exist yet. One with anything else in it is refused.
        spec: The specification's complete text.
        resume: What an earlier run of the same study left stays, to go on from there.
        overwrite: What is there is replaced at the end, when what is written to the folder that is given is whole.
        engine: What runs the study; it can only go on with runs of its own.
    """
    folder = StudyFolder(Path(path))
    _refuse_foreign(folder)
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(f"{path} cannot be made: {error.strerror}; choose another --out") from error
    with _locked(folder):
        here = _place(folder, spec, resume, overwrite, engine)
        if resume:
            remove_unfinished(here.path)  # nobody else writes here now: the folder is locked
        elif here.path != folder.path:
            shutil.rmtree(here.path, ignore_errors=True)
            here.path.mkdir()
        new = not here.spec.exists()
        write_text(here.spec, spec)
        try:
            yield here
        except UserError:
            if new and not here.begun():  # a mistake that showed before anything was done: the folder is nobody's yet
                here.spec.unlink(missing_ok=True)
            raise
        if here.path != folder.path:
            write_text(here.path / WHOLE, "")
            _move(folder)


def check_folder(
    path: str | PathLike[str], spec: str, *, resume: bool = False, overwrite: bool = False, engine: str = "sim"
) -> None:
    """Raise the `StudyError` that `opened_folder` would raise for this study, before any work; nothing is made.

    Args:
        path: the study's folder.
        spec: its specification, as the text that would be written there.
        resume: whether to go on with what is there.
        overwrite: whether to replace what is there, once the new results are whole.
        engine: sim or peers: the two do not mix in one folder.
    """
    folder = StudyFolder(Path(path))
    _refuse_foreign(folder)
    if folder.path.is_dir():
        with _locked(folder):
            _place(folder, spec, resume, overwrite, engine)
        return
    parent = next(parent for parent in folder.path.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise StudyError(f"{path} cannot be made: {parent} is a file; choose another --out")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StudyError(f"{path} cannot be made: {parent} cannot be written to; choose another --out")


@contextmanager
def replacing_files(folder: Path, names: Sequence[str], *, overwrite: bool) -> Iterator[Path]:
    """The folder to write these files to, one by one or again and again.

    Args:
        folder: Where they belong; it need not exist yet.
        names: Their names.
        overwrite: Replace files that are there, at the end; without it they are refused.
    """
    there = [name for name in names if (folder / name).exists()]
    if not there:
        yield folder
        return
    if not overwrite:
        raise StudyError(
            f"{folder / there[0]} is there already; choose another --out, or --overwrite replaces it when the new one "
            "is whole"
        )
    new = folder / NEW
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    yield new
    for name in names:
        if (new / name).exists():
            os.replace(new / name, folder / name)
    shutil.rmtree(new)


def _place(folder: StudyFolder, spec: str, resume: bool, overwrite: bool, engine: str) -> StudyFolder:
    """Where to write: the folder itself, or beside the results that are to be replaced. What may not be is refused."""
    if resume and overwrite:
        raise StudyError("--resume goes on with what is there, --overwrite begins anew; leave one of them out")
    _move(folder)
    new = StudyFolder(folder.path / NEW, folder.path)
    if resume:
        here = new if new.spec.is_file() and _text(new.spec) == spec else folder
        _refuse_another(here, spec)
        there = here.engine()
        if there not in (None, engine):
            raise StudyError(
                f"{folder.path} holds runs of --engine {there}, which --engine {engine} cannot go on with; choose "
                "another --out, or begin anew with --overwrite"
            )
        return here
    if overwrite:
        return new if folder.begun() else folder
    _refuse_another(folder, spec)
    if folder.summary.exists():
        raise StudyError(
            f"{folder.path} holds the finished results of this study; choose another --out, or --overwrite replaces "
            "them when the new ones are whole"
        )
    if folder.begun():
        raise StudyError(
            f"{folder.path} holds an interrupted run of this study; go on with --resume, or begin anew with --overwrite"
        )
    return folder


def _move(folder: StudyFolder) -> None:
    """Whole new results take the place of the old ones; figures and page, drawn from the old ones, go."""
    new = StudyFolder(folder.path / NEW)
    if not (new.path / WHOLE).exists():
        return
    shutil.rmtree(folder.figures, ignore_errors=True)
    folder.report.unlink(missing_ok=True)
    for made, old in zip(new.records(), folder.records(), strict=True):
        if made.exists():
            if old.is_dir():
                shutil.rmtree(old)
            os.replace(made, old)
        elif old in (folder.sites, folder.models):
            old.unlink(missing_ok=True)  # of the old models
    (new.path / WHOLE).unlink()
    shutil.rmtree(new.path)


def _refuse_foreign(folder: StudyFolder) -> None:
    if folder.path.exists() and not folder.path.is_dir():
        raise StudyError(f"{folder.path} is a file, not a folder; choose another --out")
    if not folder.path.is_dir() or folder.spec.exists():
        return
    foreign = sorted(p.name for p in folder.path.iterdir() if p.name not in (LOCK, NEW) and not p.name.endswith(PART))
    if foreign and not (folder.path / NEW / WHOLE).exists():
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
    there = _text(folder.spec)
    if there != spec:
        raise StudyError(_another(folder, there, spec))


def _text(spec: Path) -> str:
    try:
        return spec.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{spec} cannot be read; choose another --out") from error


def _another(folder: StudyFolder, there: str, here: str) -> str:
    """Where the two specifications part, so that the person sees at once which is which."""
    mine, theirs = here.splitlines(), there.splitlines()
    pairs = [(a, b) for a, b in zip(theirs, mine, strict=False) if a != b]
    difference = f" (there {pairs[0][0].strip()!r}, here {pairs[0][1].strip()!r})" if pairs else ""
    return f"{folder.path} is the output folder of another study{difference}; choose another --out or delete it"
