"""Taking a study's folder to write to it: one process at a time, and nothing that is there is lost unasked.

Where results are to be replaced, the new ones are made beside them, in a folder within the folder, and take their place
when they are whole. Killed before that, the old ones stand, and the new ones can be gone on with; killed while they are
moved, whoever opens the folder next moves the rest.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from filelock import FileLock, Timeout

from walktalk.core.errors import StudyError, UserError
from walktalk.records.atomic import PART, remove_unfinished, write_text
from walktalk.records.folder import StudyFolder

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
