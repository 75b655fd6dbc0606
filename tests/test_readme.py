"""Every command and every Python example of the README runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from walktalk.cli.app import app
from walktalk.studies import load_spec

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SETS_UP = ("make demo", "make test")  # what these two do is what runs this test


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line and line not in SETS_UP]


def test_the_readme_has_examples():
    assert len(commands()) >= 5
    assert blocks("python")


@pytest.mark.parametrize("example", blocks("python"), ids=lambda text: text.split("\n")[0])
def test_python_examples_run(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(example, "README.md", "exec"), names)
    if "run" in names:  # what a person sees first has to learn something
        history = names["run"].history
        assert history["train_loss"].iloc[-1] < 0.5 * history["train_loss"].iloc[0]
        assert history["test_accuracy"].iloc[-1] > 0.8


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_studies_that_are_compared_differ(page):
    """Else the first comparison that a person sees has nothing in it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    changed = re.findall(r"walktalk run (\w+) --set (\S+) --out (\S+)", text)
    assert changed
    for preset, setting, folder in changed:
        assert load_spec(preset, [setting]) != load_spec(preset), f"{preset} is so already: {setting}"
        assert f"walktalk compare out/{preset} {folder}" in text


def test_commands_run_in_the_order_in_which_they_stand(tmp_path, monkeypatch):
    """One after the other in one folder: the first as a person would type it, with the `walktalk` of this environment;
    the others in this process, where torch need not be loaded for each."""
    first, *others = commands()
    bin_folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": bin_folder + os.pathsep + os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    done = subprocess.run(first, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{first}\n{done.stdout}\n{done.stderr}"
    monkeypatch.chdir(tmp_path)
    for command in others:
        program, *words = shlex.split(command)
        assert program == "walktalk"
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{command}\n{result.output}"
