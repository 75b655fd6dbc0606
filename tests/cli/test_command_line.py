"""What a person types, and what comes back: exit codes, one-line errors, files."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from tests.support.drawing import drawing
from typer.testing import CliRunner

from walktalk import __version__
from walktalk.cli import app
from walktalk.cli.app import COMMANDS

TINY = """
name: tiny
repetitions: 2
network: {topology: cycle, nodes: 4}
task: {name: digits, alpha: 1.0}
training: {batch_size: 8, local_steps: 1}
algorithms: [{name: multi_walk, walks: 2}, {name: async_gossip}]
stop: {iterations: 24}
evaluate: {every: 6}
"""


def walktalk(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def refused(*words: object) -> str:
    """The one line of an error; no traceback, exit code 2."""
    code, _, errors = walktalk(*words)
    lines = [line for line in errors.splitlines() if " of " not in line or line.startswith("error:")]
    assert code == 2, errors
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study's folder."""
    folder = tmp_path_factory.mktemp("studies")
    (folder / "tiny.yaml").write_text(TINY)
    with drawing():
        code, output, errors = walktalk("run", folder / "tiny.yaml", "--out", folder / "out")
    assert code == 0, errors
    assert "Results of tiny" in output
    assert "2 walks" in output
    assert "report.html" in output
    return folder / "out"


def test_a_study_leaves_the_files_of_the_design(tiny: Path) -> None:
    names = {p.name for p in tiny.iterdir()} - {".lock"}
    assert names == {"spec.yaml", "history.csv", "sites.csv", "summary.json", "figures", "report.html", "runs"}
    assert {p.name for p in (tiny / "runs").iterdir()} == {"multi_walk-2", "async_gossip-pairwise"}
    assert (tiny / "runs" / "multi_walk-2" / "1" / "trace.parquet").is_file()
    expected = {f"curves-{x}" for x in ("iteration", "time", "bits")} | {
        "network",
        "partition",
        "timeline-multi_walk-2-0",
    }
    assert {p.stem for p in (tiny / "figures").iterdir()} == expected
    summary = json.loads((tiny / "summary.json").read_text())
    assert set(summary["algorithms"]) == {"multi_walk-2", "async_gossip-pairwise"}
    assert summary["versions"]["walktalk"] == __version__


def test_a_study_that_diverges_says_so(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    code, output, errors = walktalk(
        "run", tmp_path / "tiny.yaml", "--set", "optimizer.lr=1e20", "--out", tmp_path / "out"
    )
    assert code == 0, errors
    assert "Diverged, the loss is not a number: 2 walks (2 of 2 runs); Gossip in pairs (2 of 2 runs)." in output
    told = "Diverged, the loss is not a number: 2 walks (2 of 2 runs); Gossip in pairs (2 of 2 runs)."
    assert told in (tmp_path / "out" / "report.html").read_text()
    assert "Accuracy" not in output
    code, _, errors = walktalk("advise", tmp_path / "tiny.yaml", "--set", "optimizer.lr=1e20")
    assert code == 2
    assert "error: optimizer.lr: 1e+20 is too large; every pilot diverged" in errors.splitlines()[-1]


def test_the_written_spec_gives_the_same_bytes(tiny: Path, tmp_path: Path) -> None:
    assert walktalk("run", tiny / "spec.yaml", "--out", tmp_path / "again")[0] == 0
    for name in ("spec.yaml", "history.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (tiny / name).read_bytes()


def test_running_again_in_the_same_folder_is_asked_for(tiny: Path) -> None:
    before = (tiny / "history.csv").read_bytes()
    code, _, errors = walktalk("run", tiny / "spec.yaml", "--out", tiny)
    assert (code, len(errors.splitlines())) == (2, 1)
    assert "--overwrite" in errors
    assert walktalk("run", tiny / "spec.yaml", "--out", tiny, "--overwrite")[0] == 0
    assert walktalk("run", tiny / "spec.yaml", "--out", tiny, "--resume")[0] == 0
    assert (tiny / "history.csv").read_bytes() == before


def test_the_report_is_one_file_with_everything_in_it(tiny: Path) -> None:
    assert walktalk("plot", tiny, "--kind", "network")[0] == 0
    assert walktalk("report", tiny) == (0, f"{tiny / 'report.html'}\n", "")
    page = (tiny / "report.html").read_text()
    assert not re.search(r"(src|href)=[\"'](https?:)?//", page)
    for text in ("2 walks", "Gossip in pairs", "network.topology", f"walktalk run {tiny}/spec.yaml --out {tiny}-again"):
        assert text in page
    links = re.findall(r'<a href="([^"#]+)"', page)
    assert {"spec.yaml", "history.csv", "runs/multi_walk-2/0/trace.parquet", "figures/network.pdf"} <= set(links)
    assert all((tiny / link).is_file() for link in links)


@pytest.mark.usefixtures("drawn")
def test_the_page_of_a_study_with_failures_marks_them(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY + "faults: [{kind: kill, node: aggregator, at: 2.0}]\n")
    assert walktalk("run", tmp_path / "tiny.yaml", "--out", tmp_path / "out")[0] == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<span>node 0 dies</span>" in page
    assert (tmp_path / "out" / "figures" / "failures.pdf").is_file()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--x", "bits"), "curves-bits"),
        (
            ("--kind", "timeline", "--algorithm", "async_gossip-pairwise", "--to", "3"),
            "timeline-async_gossip-pairwise-0",
        ),
        (("--kind", "network"), "network"),
        (("--kind", "partition"), "partition"),
    ],
)
def test_plot_writes_png_svg_and_pdf(tiny: Path, words: tuple[str, ...], name: str) -> None:
    code, output, _ = walktalk("plot", tiny, *words)
    assert code == 0
    assert output.splitlines() == [str(tiny / "figures" / f"{name}.{kind}") for kind in ("png", "svg", "pdf")]
    assert (tiny / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_mistakes_in_a_plot_are_named(tiny: Path, tmp_path: Path) -> None:
    assert "is not in this study; allowed: multi_walk-2, " in refused(
        "plot", tiny, "--kind", "timeline", "--algorithm", "x"
    )
    assert "allowed: 0 to 1" in refused("plot", tiny, "--kind", "timeline", "--repetition", 7)
    assert "after --from 5" in refused("plot", tiny, "--kind", "timeline", "--from", 5, "--to", 4)
    assert "--to nan" in refused("plot", tiny, "--kind", "timeline", "--to", "nan")
    assert "over by then" in refused("plot", tiny, "--kind", "timeline", "--from", 1e9)
    assert "--kind: 'pie' is not possible; allowed: curves" in refused("plot", tiny, "--kind", "pie")
    assert "Missing argument 'DIR'; see `walktalk plot --help`" in refused("plot")
    assert "no spec.yaml" in refused("plot", tmp_path)
    assert "no such folder" in refused("report", tmp_path / "nowhere")


BAD = {
    "unknown key": (("--set", "optimizer.speed=3"), "optimizer.speed: is an unknown key"),
    "R > V": (("--set", "algorithms.0.walks=5"), "algorithms.0.walks: 5 is not possible on 4 nodes"),
    "R = 0": (("--set", "algorithms.0.walks=0"), "algorithms.0.walks: 0 is not possible"),
    "alpha = 0": (("--set", "task.alpha=0"), "task.alpha: 0"),
    "negative lr": (("--set", "optimizer.lr=-1"), "optimizer.lr: -1"),
    "more nodes than samples": (("--set", "network.nodes=5000"), "more than the 1437 samples"),
    "negative seed": (("--seed", "-3"), "seed: -3 is not possible"),
    "unknown device": (("--device", "tpu"), "tpu"),
    "unknown engine": (("--engine", "moon"), "--engine: 'moon'"),
    "more nodes than any machine holds": (("--set", "network.nodes=1000000000"), "a whole number from 1 to 16,777,216"),
    "a model that fits nowhere": (("--set", "task.hidden=100000000000"), "does not fit in memory"),
    "too many repetitions": (("--set", "repetitions=99999999999"), "repetitions: 99999999999"),
    "evaluations without end": (("--set", "evaluate={seconds: 1e-300}"), "evaluate.seconds: 1e-300"),
    "more evaluations than rows fit": (
        ("--set", "evaluate={seconds: 1e-6}", "--set", "stop={time: 50}"),
        "evaluate.seconds: 1e-06 is not possible; allowed: 5e-05 or more",
    ),
    "a fault at no node": (("--set", "faults=[{kind: kill, at: 1, node: 9}]"), "faults.0.node: there is no node 9"),
    "a link to itself": (("--set", "faults=[{kind: slow, at: 1, link: [1, 1]}]"), "faults.0.link: [1, 1]"),
    "a link that is not there": (
        ("--set", "faults=[{kind: slow, at: 1, link: [0, 2]}]", "--set", "timing={model: network}"),
        "faults.0.link: nodes 0 and 2 are not neighbours; neighbours of 0: 1, 3",
    ),
    "workers that are no number": (("--workers", "²"), "--workers: '²'"),
    "a seed that is no number": (("--seed", "abc"), "--seed: 'abc' is not possible; allowed: a whole number"),
    "wrong topology for nodes": (
        ("--set", "network.topology=hypercube", "--set", "network.nodes=6"),
        "allowed: a power of two",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(case: str, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    words, says = BAD[case]
    assert says in refused("run", tmp_path / "tiny.yaml", "--out", tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()


def test_bad_files_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("name: x\nstop: {iterations: [}\n")
    (tmp_path / "graph.txt").write_text("0 1\n2 3\n")
    (tmp_path / "apart.yaml").write_text(f"network: {{topology: edge_list, file: {tmp_path / 'graph.txt'}}}\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    assert "broken.yaml, line 2" in refused("run", tmp_path / "broken.yaml")
    assert "cannot be read" in refused("run", tmp_path / "nowhere.yaml")
    assert "disconnected" in refused("run", tmp_path / "apart.yaml", "--out", tmp_path / "out")
    assert "presets: " in refused("run", "quikstart")
    assert "holds 'thesis.tex'" in refused("run", "smoke", "--out", tmp_path / "full")


def test_a_place_that_cannot_be_written_to_is_one_line(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "study")
    shutil.rmtree(tmp_path / "study" / "figures")
    (tmp_path / "study" / "figures").touch()
    assert "figures: File exists" in refused("plot", tmp_path / "study")
    assert "File exists" in refused("paper", "run", "tables", "--out", tmp_path / "study" / "spec.yaml")


def test_a_summary_of_something_else_is_one_line(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "study")
    (tmp_path / "study" / "summary.json").write_text('{"algorithms": 3}')
    assert "summary.json is damaged" in refused("report", tmp_path / "study")


def test_a_phase_diagram_of_something_else_is_one_line(tiny: Path, tmp_path: Path) -> None:
    for name in ("alpha-x", "alpha-1"):
        (tmp_path / name / name).mkdir(parents=True)
    shutil.copy(tiny / "history.csv", tmp_path / "alpha-x" / "alpha-x" / "cycle.csv")
    walks = [row for row in (tiny / "history.csv").read_text().splitlines(True) if "gossip" not in row]
    (tmp_path / "alpha-1" / "alpha-1" / "cycle.csv").write_text("".join(walks))
    assert "is not named after an α" in refused("paper", "phase", tmp_path / "alpha-x")
    assert "has no runs of gossip" in refused("paper", "phase", tmp_path / "alpha-1")
    assert "has no runs" in refused("paper", "phase", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_wrong_values_of_options_are_told_as_in_a_study():
    given = "error: --nodes: 1 is not possible; allowed: a whole number, 4 or more; see `walktalk chaos --help`"
    assert refused("chaos", "--nodes", "1").strip() == given


def test_an_algorithm_that_there_is_not_is_told_those_to_begin_with_and_the_nearest_name():
    said = refused("run", "smoke", "--set", "algorithms.0.name=d_psg")
    assert "allowed: multi_walk, async_gossip, sync_gossip, local_dsgd, gradient_tracking, fedavg, diloco, " in said
    assert said.strip().endswith("did you mean 'd_psgd'?")


def test_theory_refuses_what_fits_in_no_memory() -> None:
    assert "edges or fewer, not some 2e+09" in refused("theory", "--nodes", 100_000)
    assert "--step-size: -1.0" in refused("theory", "--step-size", -1)


def test_another_study_s_folder_is_refused(tiny: Path) -> None:
    assert "output folder of another study" in refused("run", tiny / "spec.yaml", "--out", tiny, "--seed", 9)


def test_a_truncated_checkpoint_is_one_line(tiny: Path, tmp_path: Path) -> None:
    assert walktalk("run", tiny / "spec.yaml", "--out", tmp_path / "cut")[0] == 0
    checkpoint = tmp_path / "cut" / "runs" / "multi_walk-2" / "0" / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    assert str(checkpoint) in refused("run", tiny / "spec.yaml", "--out", tmp_path / "cut", "--resume")


def test_presets_are_listed_and_printed() -> None:
    code, output, _ = walktalk("presets")
    assert code == 0
    assert {line.split()[0] for line in output.splitlines()} >= {"quickstart", "smoke", "us-five-sites", "quadratic"}
    assert walktalk("presets", "smoke")[1].splitlines()[1] == "name: smoke"
    assert "did you mean 'smoke'" in refused("presets", "smoka")


def test_an_unknown_option_or_command_is_one_line() -> None:
    assert "--sett" in refused("run", "--sett", "x")
    assert "No such command 'ran'" in refused("ran")
    assert "Usage: " in walktalk("paper")[1]  # a group alone shows its help


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from walktalk.cli import main; main()", *words]


def test_help_and_version_are_quick_because_nothing_heavy_is_imported() -> None:
    heavy = "torch scipy pandas matplotlib pydantic"
    probe = f"import sys; import walktalk.cli.app; print([m for m in '{heavy}'.split() if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout == "[]\n"
    began = time.monotonic()
    shown = subprocess.run(command("--version"), capture_output=True, text=True, check=True)
    assert shown.stdout == f"walktalk {__version__}\n"
    assert time.monotonic() - began < 5.0  # a tenth of that on a quiet machine; the probe above is the real test


def interrupted(words: list[str]) -> tuple[int, str]:
    """Exit code and stderr of a study that gets Ctrl-C when training has begun."""
    process = subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"})
    assert process.stderr is not None
    for line in process.stderr:
        if "iterations" in line:
            process.send_signal(signal.SIGINT)
            break
    errors = process.stderr.read()
    return process.wait(), errors


@pytest.mark.slow  # `test_terminal` asks the same of a shorter one
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    for iterations in (3000, 30000):  # on a busy machine the shorter may be over before the signal gets there
        length, out = f"stop.iterations={iterations}", tmp_path / f"study-{iterations}"
        code, errors = interrupted(["run", "smoke", "--set", length, "--out", str(out)])
        if code != 0:
            break
    assert code == 130, errors
    assert "Traceback" not in errors
    told = errors.splitlines()[-1]
    assert told == f"stopped; go on with: walktalk run smoke --set {length} --out {out} --resume"
    assert not (out / "history.csv").exists()
    assert walktalk(*told.split("walktalk ")[1].split())[0] == 0
    assert walktalk("run", "smoke", "--set", length, "--out", tmp_path / "unbroken")[0] == 0
    assert (out / "history.csv").read_bytes() == (tmp_path / "unbroken" / "history.csv").read_bytes()


def test_a_study_that_was_refused_leaves_its_folder_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(TINY.replace("{name: async_gossip}", "{name: fedavg}"))
    assert "take star" in refused("run", tmp_path / "one.yaml", "--out", tmp_path / "out")
    (tmp_path / "one.yaml").write_text(TINY.replace("iterations: 24", "iterations: 6"))
    assert walktalk("run", tmp_path / "one.yaml", "--out", tmp_path / "out")[0] == 0


def test_every_command_has_a_heading_in_the_help() -> None:
    listed = {name for names in COMMANDS.values() for name in names}
    assert listed == set(typer.main.get_command(app).commands)


@pytest.mark.parametrize("words", ["", "run", "certs", "certs request", "paper run"])
def test_flags_are_shown_as_they_are_typed(words: str) -> None:
    """Without a value: `--json`, and not `--json <bool>`, which nobody can type."""
    shown = walktalk(*words.split(), "--help")[1]
    assert "--help" in shown
    assert "bool" not in shown.lower()


def test_a_table_is_printed_for_a_paper_or_a_spreadsheet(tiny: Path) -> None:
    code, latex, _ = walktalk("table", tiny)
    assert code == 0
    assert r"\begin{tabular}" in latex
    rows = walktalk("table", tiny, "--form", "csv")[1].splitlines()
    assert rows[0].startswith("label,algorithm,repetitions,final_loss,final_loss_std")
    assert len(rows) > 1
    assert walktalk("table", tiny, "--form", "markdown")[1].startswith("| Algorithm |")


@pytest.mark.parametrize("columns", [40, 72, 100, 200])
def test_the_listing_of_algorithms_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, said, _ = walktalk("algorithms")
    assert code == 0
    assert max(map(len, said.splitlines())) <= min(columns, 100)
    assert re.search(r"^To begin with\nmulti_walk  One model wanders", said, re.MULTILINE)


def test_the_paper_and_published_tables_are_one_group_of_the_help() -> None:
    panels = [panel for panel, commands in COMMANDS.items() if {"paper", "published"} & set(commands)]
    assert len(panels) == 1
    assert set(COMMANDS[panels[0]]) == {"paper", "published", "suite"}
