"""Everything in docs/plugins.md works as it stands there: the file, the study and the commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from walktalk.cli.app import app
from walktalk.core.plugins import GROUP

TEXT = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_runs_as_printed(here: Path) -> None:
    (here / "mine.py").write_text(block("python"), encoding="utf-8")
    (here / "mine.yaml").write_text(block("yaml"), encoding="utf-8")
    commands = block("sh").splitlines()
    for command in commands:
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
    assert (here / "out/mine/runs/push_gossip-share0.3/0/model.safetensors").is_file()
    history = (here / "out/mine/history.csv").read_text().splitlines()
    losses = [float(row.split(",")[5]) for row in history[1:] if row.startswith("push_gossip,")]
    assert losses[-1] < 0.1 * losses[0]


def test_the_entry_points_are_those_of_the_example() -> None:
    header, *lines = block("toml").splitlines()
    assert header == f"[project.entry-points.{GROUP}]"
    for line in lines:
        thing = re.fullmatch(r'\w+ = "mine:(\w+)"', line)
        assert thing is not None
        assert re.search(rf"^(class|def) {thing[1]}\b", block("python"), re.MULTILINE)
