"""What `--live` is about, for the commands that have it: options that belong together, and how a live page ends."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import typer

from walktalk.errors import UnavailableError


def check_live(live: bool, port: int | None, host: str | None) -> None:
    """`--port` and `--host` say where the live page is, so there must be one."""
    named = "--port" if port is not None else "--host" if host is not None else None
    if named is not None and not live:
        raise UnavailableError(f"{named} says where the live page listens; add --live, or leave it out")


def both(first: Callable[[Any], None], second: Callable[[Any], None]) -> Callable[[Any], None]:
    """Reports go to two."""

    def tell(report: Any) -> None:
        first(report)
        second(report)

    return tell


def stay(url: str) -> None:
    """Keep the page up for a person at a terminal, who may only now open it; a script goes on at once."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    typer.echo(f"The page stays at {url} until Ctrl-C.", err=True)
    with suppress(KeyboardInterrupt):
        while not threading.Event().wait(3600):  # so that Ctrl-C is heard on every system
            pass
    typer.echo("", err=True)
