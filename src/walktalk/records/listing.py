"""The studies below a folder: what they are and how far they got, from their files alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from walktalk.errors import StudyError, UserError
from walktalk.records import yaml_text
from walktalk.records.folder import StudyFolder

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
