"""Every command and the Python of docs/theory.md runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from walktalk.cli.theory import theory

TEXT = (Path(__file__).parents[2] / "docs" / "theory.md").read_text(encoding="utf-8")
COMMANDS = [line for line in TEXT.splitlines() if line.startswith("walktalk theory")]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command: str) -> None:
    app = typer.Typer()
    app.command()(theory)
    assert CliRunner().invoke(app, shlex.split(command)[2:]).exit_code == 0


def test_python() -> None:
    code = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert code is not None
    exec(code[1], {})
