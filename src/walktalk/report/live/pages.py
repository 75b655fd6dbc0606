"""The page of a study that runs, from what the run reports: how far it is, and its evaluations so far."""

from __future__ import annotations

import math
import threading
import time
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from walktalk.plots import in_words
from walktalk.protocols import known
from walktalk.records import RUN_COLUMNS, HistoryRow, StudyFolder, frame
from walktalk.report.page import PageParts, drawings_of, page_html, page_parts
from walktalk.report.study import Running, Study, open_study
from walktalk.studies import StudySpec

SCRIPTS = ("live/live.js",)


class StudyPage:
    """Takes reports, and builds the page of what is known so far; threads may do both at once."""

    def __init__(self, folder: Path, spec: StudySpec, engine: str) -> None:
        self.folder, self.spec, self.engine = StudyFolder(folder), spec, engine
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, int], dict[int, HistoryRow]] = {}  # a worker that is started again tells some twice
        self._progress: dict[str, Any] = {}
        self._drawings: dict[str, Any] | None = None
        self._latest: PageParts | None = None
        self._done = False
        self.changed = False

    def take(self, progress: dict[str, Any], rows: list[HistoryRow]) -> None:
        """A report of the run."""
        with self._lock:
            self._progress = progress
            for row in rows:
                self._rows.setdefault((row.algorithm, row.repetition), {})[row.iteration] = row
            self.changed = self.changed or bool(rows)

    def progress(self, stopped: bool = False) -> dict[str, Any]:
        """How far it is, as the page shows it."""
        with self._lock:
            told, passed = self._progress, time.monotonic() - self._began
        share = min(1.0, told.get("done", 0) / max(told.get("total", 1), 1)) if told else 0.0
        left = passed * (1.0 - share) / share if share > 0.02 else math.nan
        if self._done:
            words = f"Done in {in_words('time', passed)}: this is the report now."
        elif stopped:
            words = "Stopped. What is done so far is kept; --resume goes on from there."
        elif not told:
            words = "Getting ready …"
        elif share == 1.0:
            words = "All runs are done; the report is being written …"
        else:
            words = " · ".join(_words(told, left))
        named = known(told.get("loss", {}), self.spec.described)
        losses = {named[label].title: f"{loss:.3g}" for label, loss in told.get("loss", {}).items()}
        return {"share": share, "words": words, "losses": losses, "name": self.spec.name}

    def parts(self) -> dict[str, Any]:
        """The page as far as it is known."""
        with self._lock:
            self.changed = False
            rows = [run[iteration] for run in self._rows.values() for iteration in sorted(run)]
        study = Study(self.folder, self.spec, Running(frame(rows, RUN_COLUMNS), self.engine))
        return self._taken(page_parts(study, self._drawings))

    def draw(self) -> None:
        """Make the drawings that do not change; once."""
        if self._drawings is None:
            self._drawings = drawings_of(Study(self.folder, self.spec))

    def final(self) -> dict[str, Any]:
        """The page of the study that is done, from its folder."""
        self._done = True
        return self._taken(page_parts(open_study(self.folder.path)))

    def html(self) -> str:
        """The page to open: of what is known; before there is anything, one that waits."""
        if self._latest is not None:
            return page_html(self._latest, live=True, scripts=SCRIPTS)
        return waiting_page(self.spec.name)

    def _taken(self, parts: PageParts) -> dict[str, Any]:
        self._latest = parts
        return {"data": parts.data, "sections": parts.sections}


def waiting_page(name: str) -> str:
    """A page that waits for the first thing to show."""
    web = files("walktalk.report") / "web"
    text = {key: (web / path).read_text(encoding="utf-8") for key, path in _WAITING.items()}
    return Template(text.pop("page")).substitute(text, title=escape(name))


_WAITING = {
    "page": "live/waiting.html",
    "theme": "theme.js",
    "page_css": "page.css",
    "css": "live/live.css",
    "script": "live/live.js",
}


def _words(told: dict[str, Any], left: float) -> list[str]:
    share = told["done"] / max(told["total"], 1)
    facts = [f"{share:.0%}", f"{told['done']:,} of {told['total']:,} iterations", str(told["phase"])]
    return facts + ([f"about {in_words('time', left)} left"] if math.isfinite(left) and left > 1 else [])
