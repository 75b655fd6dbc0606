"""Everything in docs/first-changes.md works: blocks are put into a copy of the sources, and the commands run there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import walktalk
from tests.support.mechanisms import slow_unless

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "first-changes.md").read_text(encoding="utf-8")
EDIT = re.compile(
    r"In `([^`]+)`, (a new file|at the end|above|below|in place of)(?: `([^`]+)`)?:\n\n```python\n(.*?)```", re.S
)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with all changes of the page in it."""
    copy = tmp_path_factory.mktemp("first_changes")
    shutil.copytree(
        Path(walktalk.__file__).parent, copy / "src" / "walktalk", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, where, line, code in EDIT.findall(TEXT):
        file = copy / name
        if where == "a new file":
            file.write_text(code, encoding="utf-8")
            continue
        text = file.read_text(encoding="utf-8")
        if where == "at the end":
            file.write_text(text + code, encoding="utf-8")
            continue
        assert text.count(f"\n{line}\n") == 1, f"{name} has {line!r} {text.count(line)} times, but one is needed"
        put = {"above": f"{code}{line}\n", "below": f"{line}\n{code}", "in place of": code}[where]
        file.write_text(text.replace(f"\n{line}\n", f"\n{put}"), encoding="utf-8")
    return copy


def test_the_page_has_its_changes():
    assert [where for _, where, _, _ in EDIT.findall(TEXT)].count("a new file") == 1
    assert len(EDIT.findall(TEXT)) == TEXT.count("```python")


def test_an_algorithm_is_found_though_only_the_registry_has_it(changed):
    code = "from walktalk.protocols import LazyRounds; print(LazyRounds().label)"
    env = {**os.environ, "PYTHONPATH": str(changed / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "lazy_rounds\n", done.stderr


COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize(
    "command", [pytest.param(one, marks=slow_unless(k in (0, 1, 3))) for k, one in enumerate(COMMANDS)]
)
def test_the_commands_run_as_printed(command, changed, tmp_path):
    words = [sys.executable, "-m", *shlex.split(command)]
    env = {**os.environ, "PYTHONPATH": str(changed / "src"), "COLUMNS": "200"}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
