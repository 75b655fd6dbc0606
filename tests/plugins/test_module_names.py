"""`module:object` wherever a name stands: runs, errors, records that outlive the module."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from tests.support.drawing import drawing
from typer.testing import CliRunner

from walktalk import report
from walktalk.cli.app import app
from walktalk.core.errors import SpecError
from walktalk.studies import load_spec, make_spec

RUNNER = CliRunner()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_strangers_study_runs_and_is_shown_with_its_own_title_and_colour(here: Path, workers: str) -> None:
    done = RUNNER.invoke(app, ["run", "spec.yaml", "--out", "out", "--workers", workers, "--device", "cpu"])
    assert done.exit_code == 0, done.output
    said = json.loads((here / "out" / "summary.json").read_text())["algorithms"]
    assert list(said) == ["islands", "islands-patience2", "multi_walk-2"]
    first, second = said["islands"], said["islands-patience2"]
    assert (first["name"], first["family"], first["settings"]) == ("islands", "islands", {"patience": 1.0})
    assert first["title"] == "islands in the sea, patience 1"
    assert (first["colour"], second["colour"]) == ("#123456", said["islands-patience2"]["colour"])
    assert len({entry["colour"] for entry in said.values()}) == 3
    assert "Islands in the sea" in (here / "out" / "report.html").read_text()
    report.draw("out", "curves")
    picture = (here / "out" / "figures" / "curves-iteration.svg").read_text()
    assert "#123456" in picture
    assert "Islands in the sea, patience 2" in picture


def test_a_folder_is_shown_where_the_module_is_gone(here: Path) -> None:
    assert RUNNER.invoke(app, ["run", "spec.yaml", "--out", "out", "--device", "cpu"]).exit_code == 0
    (here / "outside.py").unlink()
    del sys.modules["outside"]
    for command in (["report", "out"], ["plot", "out"], ["plot", "out", "--kind", "timeline"]):
        with drawing():
            done = RUNNER.invoke(app, command)
        assert done.exit_code == 0, done.output
    assert "#123456" in (here / "out" / "figures" / "curves-iteration.svg").read_text()
    assert "Islands in the sea" in (here / "out" / "report.html").read_text()
    again = RUNNER.invoke(app, ["run", "out/spec.yaml", "--out", "again"])
    assert again.exit_code == 2
    assert "there is no module 'outside'" in again.output


def test_an_old_folder_without_the_table_asks_the_specification(here: Path) -> None:
    assert RUNNER.invoke(app, ["run", "spec.yaml", "--out", "out", "--device", "cpu"]).exit_code == 0
    file = here / "out" / "summary.json"
    old = json.loads(file.read_text())
    for entry in old["algorithms"].values():
        for key in ("label", "name", "title", "family", "colour", "description", "settings"):
            entry.pop(key)
    file.write_text(json.dumps(old))
    report.draw("out", "curves")
    assert "#123456" in (here / "out" / "figures" / "curves-iteration.svg").read_text()


BAD = {
    "task.name=nowhere:line": r"task\.name: there is no module 'nowhere', neither in .* nor installed",
    "task.name=outside.inner:line": r"task\.name: there is no module 'outside\.inner'",
    "task.name=outside:lines": r"task\.name: outside has no 'lines'; it has line; did you mean 'line'\?",
    "task.name='outside:'": r"task\.name: 'outside:' is not possible; allowed: module:object",
    "task.name=outside:Islands": r"task\.name: 'outside:Islands' is the class Islands, but a task is a function",
    "task.name=outside:wheel": r"task\.name: 'outside:wheel' is the function wheel, but a task is",
    "task={name: 'outside:line'}": r"task\.slope: is missing; needed: of the line: a number",
    "task.slope=steep": r"task\.slope: 'steep' is not possible; allowed: a number",
    "task.noise=-1": r"task\.noise: -1 is not possible; allowed: a number, 0 or more",
    "task.slop=1": r"task\.slop: is an unknown key; allowed: name, slope, noise; did you mean 'slope'",
    "network.topology=outside:NOT_ONE": r"network\.topology: 'outside:NOT_ONE' is 3, but a topology is a function",
    "network.spokes=0": r"network\.spokes: 0 is not possible; allowed: a whole number, 1 or more",
    "network.p=0.5": r"network\.p: 0\.5 has no meaning for topology outside:wheel, which takes nodes, sites, spokes",
    "algorithms.0.name=outside:Island": r"algorithms\.0\.name: .* an algorithm is a class that inherits",
    "algorithms.0.patience=0": r"algorithms\.0\.patience: 0 is not possible; allowed: a number above 0",
    "algorithms.0.name=broken:Thing": r"algorithms\.0\.name: broken cannot be imported: ZeroDivisionError: .*line 1",
    "algorithms.0.name=open:Thing": r"open cannot be imported: SyntaxError: .*was never closed \(open\.py, line 1\)$",
    "algorithms.0.name=needy:Thing": r"algorithms\.0\.name: needy needs 'not_there_at_all', which is not installed",
    "algorithms.0.name=island": r"algorithms\.0\.name: 'island' is not possible; allowed: multi_walk, .*module:object",
    "faults=[{kind: kill, node: 0, at: 1}]": r"faults: islands.* knows no failures",
}


@pytest.mark.parametrize("override", BAD)
def test_errors_say_what_is_wrong_and_what_to_do(here: Path, override: str) -> None:
    (here / "broken.py").write_text("1 / 0\n")
    (here / "needy.py").write_text("import not_there_at_all\n")
    (here / "open.py").write_text("1 + (\n")
    with pytest.raises(SpecError, match=BAD[override]) as caught:
        load_spec("spec.yaml", [override])
    assert "\n" not in str(caught.value)


def test_a_function_that_makes_something_else_is_told(here: Path) -> None:
    (here / "other.py").write_text("def task(nodes):\n    return 3\n\ndef graph(nodes):\n    return []\n")
    done = RUNNER.invoke(app, ["run", "spec.yaml", "--set", "task={name: 'other:task'}", "--out", "out"])
    assert (done.exit_code, "other:task gave back int, but a walktalk.Task is needed" in done.output) == (2, True)
    done = RUNNER.invoke(app, ["run", "spec.yaml", "--set", "network={topology: 'other:graph'}", "--out", "out"])
    assert (done.exit_code, "gave back no graph" in done.output) == (2, True)


def test_an_empty_file_that_pandas_refuses_is_told_with_the_line_that_reads_it(here: Path) -> None:
    (here / "lyon.csv").write_text("")
    (here / "other.py").write_text("import pandas as pd\n\ndef task(nodes):\n    return pd.read_csv('lyon.csv')\n")
    done = RUNNER.invoke(app, ["run", "spec.yaml", "--set", "task={name: 'other:task'}", "--out", "out"])
    assert done.exit_code == 2
    assert "No columns to parse from file (other.py, line 4)" in done.output


def test_a_function_that_fails_is_one_line_with_the_line_of_its_file(here: Path) -> None:
    (here / "other.py").write_text(
        "import pandas as pd\n\ndef task(nodes):\n    return pd.read_csv('lyon.csv')\n\n"
        "def graph(nodes):\n    return {}['ring']\n"
    )
    for setting, words in (
        ("task={name: 'other:task'}", r"task\.name: other:task fails: FileNotFoundError: .*csv.*\(other\.py, line 4\)"),
        ("network={topology: 'other:graph'}", r"topology: other:graph fails: KeyError: 'ring' \(other\.py, line 7\)"),
    ):
        done = RUNNER.invoke(app, ["run", "spec.yaml", "--set", setting, "--out", "out"])
        said = done.stderr.splitlines()
        assert (done.exit_code, len(said)) == (2, 1), done.output
        assert re.search(words, said[0])


def test_what_is_written_is_read_again(here: Path) -> None:
    from walktalk.studies import dump_spec, spec_mapping

    spec = load_spec("spec.yaml")
    assert make_spec(spec_mapping(spec)) == spec
    assert "topology: 'outside:wheel', nodes: 4, spokes: 2" in dump_spec(spec)
