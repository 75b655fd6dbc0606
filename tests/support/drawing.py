"""Whether reports of studies have figures, which take most of the time of a small one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from walktalk.report import study as report_study

PLACE = "walktalk.report.page.html.draw_all"
UNDRAWN = (
    "from walktalk.report.page import html; html.draw_all = lambda study: None; from walktalk.cli import main; main()"
)
"""The command line, in a process of its own."""


@contextmanager
def drawing(wanted: bool = True) -> Iterator[None]:
    """A context in which they have, or have not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PLACE, report_study.draw_all if wanted else lambda study: None)
        yield
