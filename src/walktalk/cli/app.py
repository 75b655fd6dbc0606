"""The commands, and what becomes of a mistake: one line on stderr and exit code 2, never a traceback.

Nothing heavy is imported here: a command imports what it needs when it is called, so `walktalk --help` is quick.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from walktalk import __version__
from walktalk.cli.plot import plot
from walktalk.cli.presets import presets
from walktalk.cli.report import report
from walktalk.cli.run import run
from walktalk.errors import UserError

USER_MISTAKE = 2
STOPPED = 130  # 128 + SIGINT, as shells count

app = typer.Typer(
    name="walktalk",
    help="Decentralized training with random walks and gossip: simulate it, plan it, run it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        app()
    except KeyboardInterrupt:  # outside any command, e.g. while something is imported
        sys.exit(STOPPED)


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """A command that turns a person's mistake into one line, and Ctrl-C into its exit code."""

    @functools.wraps(command)
    def call(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except UserError as error:
            typer.echo(f"error: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(USER_MISTAKE) from None
        except KeyboardInterrupt as stop:
            typer.echo(str(stop) or "stopped", err=True)
            raise typer.Exit(STOPPED) from None

    return call


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"walktalk {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Decentralized training with random walks and gossip: simulate it, plan it, run it."""


for _command in (run, plot, report, presets):
    app.command()(guarded(_command))

OPTIONAL = ("theory", "advise", "paper", "node", "status", "stop", "certs", "chaos", "data", "bench")
"""Commands with a file of their own: a function, or a group of commands named `app`, in `walktalk.cli.<name>`."""

for _name in OPTIONAL:
    if find_spec(f"walktalk.cli.{_name}") is None:
        continue
    _module = import_module(f"walktalk.cli.{_name}")
    if isinstance(getattr(_module, "app", None), typer.Typer):
        for _entry in _module.app.registered_commands:
            if _entry.callback is not None:
                _entry.callback = guarded(_entry.callback)
        app.add_typer(_module.app, name=_name)
    else:
        app.command(name=_name)(guarded(getattr(_module, _name)))
