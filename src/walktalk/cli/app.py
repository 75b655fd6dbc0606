"""The commands, and what becomes of a mistake: one line on stderr and exit code 2, never a traceback.

Nothing heavy is imported here: a command imports what it needs when it is called, so `walktalk --help` is quick.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Annotated, Any, Literal, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from walktalk import __version__
from walktalk.cli import (
    advise,
    certs,
    chaos,
    cluster,
    kit,
    machine,
    node,
    record,
    reproduction,
    run,
    study_results,
    theory,
)
from walktalk.core.errors import UserError

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
    said = _misfit(error) or " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".")
    hint = f"; see `{context.command_path} --help`" if context is not None else ""
    return f"error: {said}{hint}"


def _misfit(error: Any) -> str:
    """What is allowed as the value of an option, and what was given, as in every other error; "" where it is unknown.

    Typer checks values with pydantic, whose error says what was given; options of older versions say nothing of theirs.
    """
    checked: Any = getattr(error, "__context__", None)
    option = getattr(error, "param", None)
    kind = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    if option is None or kind is None or not hasattr(checked, "errors"):
        return ""
    from annotated_types import Ge, Le

    from walktalk.core.settings import Setting, misfit

    if isinstance(kind, type) and issubclass(kind, Enum):
        kind = Literal[tuple(one.value for one in kind)]
    if kind not in (int, float) and get_origin(kind) is not Literal:
        return ""  # of a file, typer knows more than what may stand there
    limits = ((Ge, option.min), (Le, option.max)) if kind in (int, float) else ()
    bounds = [bound(_number(f"{limit:g}")) for bound, limit in limits if limit is not None]
    given, name = checked.errors()[0]["input"], (option.opts or [option.name])[0]
    allowed = Setting(functools.reduce(lambda of, bound: Annotated[of, bound], bounds, kind), None).allowed
    return str(misfit(name, _number(given), allowed))


def _number(text: Any) -> Any:
    """What a person wrote, as a number where it is one, which errors show without quotes."""
    for kind in (int, float):
        with suppress(TypeError, ValueError):
            return kind(text)
    return text


app = typer.Typer(
    name="walktalk",
    cls=Commands,
    help="Decentralized training with random walks and gossip: simulate it, plan it, run it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    warnings.formatwarning = _one_line
    try:
        app()
    except KeyboardInterrupt:  # outside any command, e.g. while something is imported
        sys.exit(STOPPED)


def _one_line(message: Warning | str, *_: object, **__: object) -> str:
    """A warning as a person at a terminal reads it: without the line of our code that it came from."""
    return f"note: {message}\n"


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


COMMANDS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Studies": {
        "run": run.run,
        "presets": run.presets,
        "list": study_results.list_studies,
        "report": study_results.report,
        "compare": study_results.compare,
        "table": study_results.table,
        "plot": study_results.plot,
        "replay": study_results.replay,
    },
    "Advice and theory": {"advise": advise.advise, "algorithms": advise.algorithms, "theory": theory.theory},
    "Real machines": {
        "node": node.node,
        "status": cluster.status,
        "stop": cluster.stop,
        "collect": node.collect,
        "record": record.record_app,
        "certs": certs.certs_app,
        "kit": kit.kit_app,
        "relay": node.relay,
        "leave": cluster.leave,
        "chaos": chaos.chaos,
    },
    "The paper and published tables": {
        "paper": reproduction.paper_app,
        "published": reproduction.published_app,
        "suite": reproduction.suite_app,
    },
    "This machine": {"doctor": machine.doctor, "data": machine.data_app, "bench": machine.bench},
}
"""Every command, or group of commands, by its name, under the heading that `walktalk --help` puts it."""


def _add(name: str, command: Callable[..., None] | typer.Typer, panel: str) -> None:
    """Adds a command, or a group of commands, each of which turns a person's mistake into one line."""
    if not isinstance(command, typer.Typer):
        app.command(name=name, cls=Command, rich_help_panel=panel)(guarded(command))
        return
    for entry in (*command.registered_commands, command.registered_callback):
        if entry is not None and entry.callback is not None:
            entry.callback = guarded(entry.callback)
    for entry in command.registered_commands:
        entry.cls = Command
    app.add_typer(command, name=name, cls=Commands, rich_help_panel=panel)


for _panel, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        _add(_name, _command, _panel)
