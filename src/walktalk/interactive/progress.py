"""How far a study is: a bar with loss, virtual time, bits and time left; plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from walktalk.interactive.notebook import NotebookBar, in_notebook
from walktalk.interactive.waiting import getting_ready
from walktalk.interactive.words import facts, losses_in_words, where
from walktalk.plots import Algorithms
from walktalk.studies import Progress as Report
from walktalk.studies import StudySpec

SECONDS_BETWEEN_LINES = 10.0  # of plain output


@contextmanager
def shown_progress(name: str, algorithms: Algorithms | None = None) -> Iterator[Callable[[Report], None]]:
    """A function to report progress to, shown on stderr while the block lasts.

    Args:
        name: of the study.
        algorithms: what they say of themselves; their labels say it if left out.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(name, algorithms)
        return
    bar = Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("iterations"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        expand=True,
    )
    live = Live(bar, console=console, refresh_per_second=8)
    with ExitStack() as waiting:
        waiting.enter_context(getting_ready(name))
        try:
            yield Bar(name, bar, live, waiting, algorithms)
        finally:
            live.stop()  # does nothing where it never started


class Bar:
    """A bar, a line of facts below it, and the loss of every algorithm, on as many lines as that takes.

    It is drawn by a thread, which starts with the first report and not before: by then the study's processes are there,
    and they can only be forks of a process that has no other threads.
    """

    def __init__(
        self, name: str, bar: Progress, live: Live, waiting: ExitStack, algorithms: Algorithms | None = None
    ) -> None:
        self.algorithms = algorithms
        self.bar = bar
        self.live = live
        self.waiting = waiting  # ends when the bar begins
        self.task = bar.add_task(name, total=None)

    def __call__(self, report: Report) -> None:
        if not self.live.is_started:
            self.waiting.close()
            self.live.start()
        for words in report.words:
            self.live.console.print(words, style="bold red", highlight=False, soft_wrap=True)
        self.bar.update(self.task, completed=report.done, total=max(report.total, 1))
        below = [Text(" · ".join(where(report)), style="dim", overflow="ellipsis", no_wrap=True)]
        below += [Text(losses_in_words(report, self.algorithms), style="dim")] if report.loss else []
        self.live.update(Group(self.bar, *below))


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
