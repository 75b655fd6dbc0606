"""The commands, and what becomes of a mistake: one line on stderr and exit code 2, never a traceback.

Nothing heavy is imported here: a command imports what it needs when it is called, so `walktalk --help` is quick.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from walktalk import __version__
from walktalk.cli.plot import plot
from walktalk.cli.presets import presets
from walktalk.cli.report import report
from walktalk.cli.run import run
from walktalk.errors import UserError

USER_MISTAKE = 2
STOPPED = 130  # 128 + SIGINT, as shells count

NO_MEMORY = ("can't allocate memory", "out of memory", "not enough memory")  # as torch says it, on CPU and GPU
OF_THE_PERSON = {  # errors of the system that the person can mend: a path, a right, a full disk
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENOENT,
    errno.ENAMETOOLONG,
    errno.EMFILE,
}


def without_types(parameters: list[Any]) -> list[Any]:
    """Options of which those that take no value show none: some versions of typer call it <bool>."""
    for one in parameters:
        if getattr(one, "is_flag", False) and one.metavar is None:
            one.metavar = ""
    return parameters


class Command(TyperCommand):
    """A command whose help has flags as they are typed."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options and arguments, --help included."""
        return without_types(super().get_params(ctx))


class Commands(TyperGroup):
    """Commands whose wrong options are one line, too."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its own options, --help included."""
        return without_types(super().get_params(ctx))

    def main(self, args: Sequence[str] | None = None, *more: Any, standalone_mode: bool = True, **given: Any) -> Any:
        """Run; `standalone_mode` False gives exceptions to the caller, as in click."""
        quiet: dict[str, Any] = {**given, "standalone_mode": False}
        if not standalone_mode:
            return super().main(args, *more, **quiet)
        try:
            code = super().main(args, *more, **quiet)
        except Exception as error:
            told = wrong_option(error)
            if told is None:
                raise
            if told:
                typer.echo(told, err=True)
            sys.exit(USER_MISTAKE)
        sys.exit(code if isinstance(code, int) else 0)


def wrong_option(error: Exception) -> str | None:
    """What click says of a command line, on one line; "" where the help was shown instead, None if it is no such error.

    By name, not by class: some versions of typer bring a click of their own.
    """
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    if not hasattr(error, "format_message"):
        return None
    context = getattr(error, "ctx", None)
    said = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".")
    hint = f"; see `{context.command_path} --help`" if context is not None else ""
    return f"error: {said}{hint}"


app = typer.Typer(
    name="walktalk",
    cls=Commands,
    help="Decentralized training with random walks and gossip: simulate it, plan it, run it.",
    no_args_is_help=True,
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
        except (OSError, MemoryError, RuntimeError) as error:
            told = circumstances(error)
            if told is None:
                raise
            typer.echo(f"error: {told}", err=True)
            raise typer.Exit(USER_MISTAKE) from None

    return call


def circumstances(error: Exception) -> str | None:
    """What to say where the machine, not the program, is why it cannot go on; None for anything else."""
    if isinstance(error, OSError):
        if error.errno not in OF_THE_PERSON or error.filename is None:
            return None
        if error.errno in (errno.EACCES, errno.EPERM) and unreadable(error.filename):
            return f"{error.filename}: {error.strerror}; see that you may read it"
        return f"{error.filename}: {error.strerror}; choose another place or make room there"
    if isinstance(error, MemoryError) or any(words in str(error).lower() for words in NO_MEMORY):
        return "this does not fit in memory; take fewer nodes, a smaller model or a smaller batch"
    return None


def unreadable(path: str) -> bool:
    """Whether it is there but not to be read: then it was an input, and room has nothing to do with it."""
    return os.path.exists(path) and not os.access(path, os.R_OK)


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


PANELS = {
    "Studies": ("run", "presets", "list", "report", "compare", "table", "plot", "replay"),
    "Decide": ("advise", "algorithms", "theory"),
    "Real machines": ("node", "status", "stop", "collect", "certs", "relay", "leave", "chaos"),
    "The paper, and tables of others": ("paper", "published"),
    "This machine": ("doctor", "data", "bench"),
}
"""What `walktalk --help` puts together, under which heading."""


def panel_of(name: str) -> str | None:
    """The heading of a command."""
    return next((panel for panel, names in PANELS.items() if name in names), None)


for _command in (run, plot, report, presets):
    app.command(cls=Command, rich_help_panel=panel_of(_command.__name__))(guarded(_command))

OPTIONAL = (
    "list",
    "compare",
    "table",
    "replay",
    "algorithms",
    "theory",
    "advise",
    "paper",
    "published",
    "node",
    "relay",
    "status",
    "stop",
    "leave",
    "collect",
    "certs",
    "chaos",
    "data",
    "bench",
    "doctor",
)
"""Commands with a file of their own: a function, or a group of commands named `app`, in `walktalk.cli.<name>`."""

for _name in OPTIONAL:
    if find_spec(f"walktalk.cli.{_name}") is None:
        continue
    _module = import_module(f"walktalk.cli.{_name}")
    if isinstance(getattr(_module, "app", None), typer.Typer):
        for _entry in (*_module.app.registered_commands, _module.app.registered_callback):
            if _entry is not None and _entry.callback is not None:
                _entry.callback = guarded(_entry.callback)
        for _entry in _module.app.registered_commands:
            _entry.cls = Command
        app.add_typer(_module.app, name=_name, cls=Commands, rich_help_panel=panel_of(_name))
    else:
        app.command(name=_name, cls=Command, rich_help_panel=panel_of(_name))(guarded(getattr(_module, _name)))
