"""How far a study is: a bar with loss, virtual time, bits and time left; plain lines where there is no terminal.

And a word to the person at the terminal while heavy things are imported, which takes seconds on a slow machine: so this
file imports none of them before they are needed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from walktalk.core.lazy import later

if TYPE_CHECKING:  # the command line says that it gets ready before it imports any of these
    from rich import console, live, progress, text

    from walktalk.report.figures import Algorithms
    from walktalk.studies import Progress as Report
    from walktalk.studies import StudySpec
else:
    console, live, progress, text = (later(f"rich.{name}") for name in ("console", "live", "progress", "text"))


ERASE_LINE = "\r\x1b[2K"


@contextmanager
def getting_ready(what: str) -> Iterator[None]:
    """Say so on the terminal's current line while the block lasts, and leave nothing there; elsewhere, nothing."""
    if os.name != "posix" or not sys.stderr.isatty():
        yield
        return
    sys.stderr.write(f"\x1b[2m{what}: getting ready …\x1b[0m\r")
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write(ERASE_LINE)
        sys.stderr.flush()


# -- How far a study is, in words --------------------------------------------------------------------------------------

NO_BREAK = "\u00a0"  # a space at which no line ends


def facts(report: Report, algorithms: Algorithms | None = None) -> str:
    """Virtual time, data sent and the loss of every algorithm, on one line."""
    losses = ", ".join(_losses(report, algorithms))
    return " · ".join([*where(report), f"loss: {losses}"] if losses else where(report))


def where(report: Report) -> list[str]:
    """What is done, up to which time, and how much was sent by then."""
    from walktalk.report.figures import with_unit

    return [report.phase, with_unit("time", report.time), f"{with_unit('bits', report.bits)} sent"]


def losses_in_words(report: Report, algorithms: Algorithms | None = None) -> str:
    """The loss of every algorithm, in few letters; a line breaks between two of them, never within one."""
    each = [text.removeprefix("MW, ").replace(" ", NO_BREAK) for text in _losses(report, algorithms)]
    return "loss: " + " · ".join(each)


def _losses(report: Report, algorithms: Algorithms | None) -> list[str]:
    from walktalk.protocols import known

    named = known(report.loss, algorithms)
    return [f"{named[label].title} {loss:.3g}" for label, loss in report.loss.items()]


# Progress in a notebook: plain HTML that is shown again and again in the same place. No widgets are needed.

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


SECONDS_BETWEEN_LINES = 10.0  # of plain output


@contextmanager
def shown_progress(name: str, algorithms: Algorithms | None = None) -> Iterator[Callable[[Report], None]]:
    """A function to report progress to, shown on stderr while the block lasts.

    Args:
        name: The study's name.
        algorithms: what they say of themselves; their labels say it if left out.
    """
    screen = console.Console(stderr=True)
    if not screen.is_terminal:
        yield Lines(name, algorithms)
        return
    bar = progress.Progress(
        progress.TextColumn("[bold]{task.description}"),
        progress.BarColumn(bar_width=None),
        progress.MofNCompleteColumn(),
        progress.TextColumn("iterations"),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
        console=screen,
        expand=True,
    )
    shown = live.Live(bar, console=screen, refresh_per_second=8)
    with ExitStack() as waiting:
        waiting.enter_context(getting_ready(name))
        try:
            yield Bar(name, bar, shown, waiting, algorithms)
        finally:
            shown.stop()  # does nothing where it never started


class Bar:
    """A bar, a line of facts below it, and the loss of every algorithm, on as many lines as that takes.

    It is drawn by a thread, which starts with the first report and not before: by then the study's processes are there,
    and they can only be forks of a process that has no other threads.
    """

    def __init__(
        self,
        name: str,
        bar: progress.Progress,
        shown: live.Live,
        waiting: ExitStack,
        algorithms: Algorithms | None = None,
    ) -> None:
        self.algorithms = algorithms
        self.bar = bar
        self.live = shown
        self.waiting = waiting  # ends when the bar begins
        self.task = bar.add_task(name, total=None)

    def __call__(self, report: Report) -> None:
        if not self.live.is_started:
            self.waiting.close()
            self.live.start()
        for words in report.words:
            self.live.console.print(words, style="bold red", highlight=False, soft_wrap=True)
        self.bar.update(self.task, completed=report.done, total=max(report.total, 1))
        below = [text.Text(" · ".join(where(report)), style="dim", overflow="ellipsis", no_wrap=True)]
        below += [text.Text(losses_in_words(report, self.algorithms), style="dim")] if report.loss else []
        self.live.update(console.Group(self.bar, *below))


class Lines:
    """A line now and then: the first, the last, and one every few seconds between."""

    def __init__(self, name: str, algorithms: Algorithms | None = None) -> None:
        self.name, self.algorithms = name, algorithms
        self.last = float("-inf")

    def __call__(self, report: Report) -> None:
        for words in report.words:
            print(f"{self.name}: {words}", file=sys.stderr)
        now = time.monotonic()
        if now - self.last < SECONDS_BETWEEN_LINES and report.done < report.total:
            return
        self.last = now
        share, told = report.done / max(report.total, 1), facts(report, self.algorithms)
        print(f"{self.name}: {report.done:,} of {report.total:,} iterations ({share:.0%}), {told}", file=sys.stderr)


@contextmanager
def wanted_progress(
    wanted: bool | Callable[[Report], None] | None, spec: StudySpec
) -> Iterator[Callable[[Report], None] | None]:
    """A function to report progress to, as a person in Python wants it.

    Args:
        wanted: True or False; None for where somebody can see it, a terminal or a notebook; or a function of one's own.
        spec: the study.
    """
    if callable(wanted):
        yield wanted
    elif wanted is False or (wanted is None and not (in_notebook() or sys.stderr.isatty())):
        yield None
    elif in_notebook():
        yield NotebookBar(spec.name, spec.described)
    else:
        with shown_progress(spec.name, spec.described) as tell:
            yield tell
