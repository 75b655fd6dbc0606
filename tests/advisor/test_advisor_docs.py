"""Every command and the Python of docs/advisor.md runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.support.mechanisms import slow_unless
from typer.testing import CliRunner

from walktalk.cli.app import app

TEXT = (Path(__file__).parents[2] / "docs" / "advisor.md").read_text(encoding="utf-8")
COMMANDS = [line for line in TEXT.splitlines() if line.startswith("walktalk advise")]


@pytest.mark.parametrize(
    "command", [pytest.param(one, marks=slow_unless(k in (1, 4))) for k, one in enumerate(COMMANDS)]
)
def test_commands(command: str) -> None:
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
def test_python(code: str) -> None:
    exec(code, {})
