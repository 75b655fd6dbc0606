"""Progress in a notebook: plain HTML that is shown again and again in the same place. No widgets are needed."""

from __future__ import annotations

import sys
import time
from html import escape
from importlib import import_module
from typing import Any

from walktalk.interactive.words import facts
from walktalk.plots import Algorithms
from walktalk.studies import Progress as Report

SECONDS_BETWEEN = 0.25  # two drawings


def in_notebook() -> bool:
    """Whether a kernel runs this, so that somebody sees HTML; a terminal with IPython is none."""
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


class NotebookBar:
    """A bar with the facts below it."""

    def __init__(self, name: str, algorithms: Algorithms | None = None) -> None:
        self.name, self.algorithms = name, algorithms
        self.last = float("-inf")
        self.shown: Any = None

    def __call__(self, report: Report) -> None:
        now = time.monotonic()
        if now - self.last < SECONDS_BETWEEN and report.done < report.total:
            return
        self.last = now
        shows: Any = import_module("IPython.display")  # it is there: a kernel runs this
        page = shows.HTML(bar_html(self.name, report, self.algorithms))
        if self.shown is None:
            self.shown = shows.display(page, display_id=True)
        else:
            self.shown.update(page)


def bar_html(name: str, report: Report, algorithms: Algorithms | None = None) -> str:
    """The bar as HTML."""
    total = max(report.total, 1)
    label = escape(f"{name}: {report.done:,} of {report.total:,} iterations")
    bar = f"<progress value='{report.done}' max='{total}' style='width: 24em' aria-label='{label}'></progress>"
    return f"<div>{bar} {label}<br><small>{escape(facts(report, algorithms))}</small></div>"
