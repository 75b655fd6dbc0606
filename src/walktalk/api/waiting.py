"""A word to the person at the terminal while heavy things are imported, which takes seconds on a slow machine.

A file of its own, because the bar of `progress` takes heavy things itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
