"""Every `walktalk …` that the package prints or tells in a help names a command, and options, that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import typer

import walktalk
from walktalk.cli.app import app

SOURCE = Path(walktalk.__file__).parent
ROOT = typer.main.get_command(app)


def texts() -> list[tuple[str, str]]:
    """All strings of all modules, and where they stand; a value within an f-string is an X."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values]
                found.append((path.name, "".join(parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append((path.name, node.value))
    return found


def commands() -> list[tuple[str, str]]:
    quoted = [(name, command) for name, text in texts() for command in re.findall(r"`(walktalk [^`]+)`", text)]
    return sorted(set(quoted))


@pytest.mark.parametrize(("where", "command"), commands())
def test_what_is_printed_is_there(where: str, command: str) -> None:
    words = command.split()[1:]
    here, given = ROOT, []
    while words and words[0] in getattr(here, "commands", {}):
        here = here.commands[words.pop(0)]
    group = bool(getattr(here, "commands", None))
    assert here is not ROOT or words[0].startswith(("-", "X", "…")), f"{where}: there is no command {words[0]!r}"
    given = [word.partition("=")[0].rstrip(",.;:)]") for word in words if word.startswith("--")]
    known = {option for one in here.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
    assert group or set(given) <= known, f"{where}: `{command}` has options that there are not"
