"""`walktalk theory`: the JSON that other programs read, the tables that people read, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from walktalk.cli.theory import theory
from walktalk.core.errors import UserError

app = typer.Typer()
app.command()(theory)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def answer(*arguments: str) -> dict[str, Any]:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_json_has_what_is_promised() -> None:
    found = answer("--topology", "cycle", "--nodes", "20")
    assert (found["nodes"], found["edges"], found["diameter"]) == (20, 20, 10)
    assert found["p"] == pytest.approx(0.0641933, rel=1e-5)
    assert found["p_prime"] == pytest.approx(0.0326290, rel=1e-5)
    assert found["return_time"]["mean"] == 20
    assert found["return_time"]["second_moment"] == pytest.approx(4010)
    assert found["messages_per_iteration"]["multi_walk"] == pytest.approx(2 / 3)
    assert found["nonzeros"] == {"with_diagonal": 60, "without_diagonal": 40}
    assert set(found["bounds"]) == {"theorem1", "by_age", "theorem2", "theorem3"}
    assert found["bounds"].pop("by_age")["with_constants"]["total"] > 0
    for entry in found["bounds"].values():
        assert entry["with_constants"]["total"] > entry["order"]["total"] > 0
    assert set(found["tables"]) == {"1", "2", "3", "4"}
    assert found["crossover_walks"]["iid"] == pytest.approx((20 / 0.0641933) ** 0.5, rel=1e-5)
    assert found["aggregators"]["best"]["node"] == found["aggregators"]["worst"]["node"] == 0  # all alike


def test_options_reach_the_graph_and_the_bounds() -> None:
    found = answer("--topology", "erdos_renyi", "--nodes", "24", "--p", "0.5", "--seed", "3", "--walks", "1")
    assert found["graph"] == "erdos_renyi(24, p=0.5)"
    found = answer(
        "--topology", "small_world", "--set", "degree=6", "--set", "rewire=0.5", "--zeta2", "0", "--sigma2", "0"
    )
    assert found["graph"] == "small_world(20, degree=6, rewire=0.5)"
    assert found["crossover_walks"]["this_problem"] is None
    assert found["speed_up"]["long_run"] == {"multi_walk": 4, "async_gossip_matrix": 20}
    assert answer("--topology", "hypercube", "--set", "dimension=3")["nodes"] == 8
    assert answer("--topology", "us-five-sites")["nodes"] == 20
    assert answer("--topology", "cycle", "--nodes", "1", "--walks", "1")["return_time"]["second_moment"] == 1
    failed = answer("--topology", "complete", "--nodes", "12", "--failures", "2")
    assert failed["bounds"]["theorem3"]["failures"] == 2
    large = answer("--topology", "cycle", "--nodes", "4000")
    assert large["diameter"] is None
    assert large["aggregators"] is None


def test_a_step_size_that_is_too_large_is_not_applicable() -> None:
    found = answer("--topology", "cycle", "--step-size", "0.05")["bounds"]["theorem1"]["with_constants"]
    assert found["applicable"] is False
    assert found["note"].startswith("not applicable")
    assert "n/a" in call("--topology", "cycle", "--step-size", "0.05").output


def test_orders_are_of_those_that_can_run_on_the_graph() -> None:
    """A server needs a star, or a tree; BTPP the links of its tree, CECA and Teleportation more than a cycle has."""
    found = answer("--topology", "cycle", "--nodes", "12")
    assert {"fedavg", "scaffold", "push_pull", "ceca", "teleportation"} <= set(found["others_not_here"])
    assert {"sync_gossip", "d2", "extra", "k_gt"} <= set(found["others"])
    assert "take star" in found["others_not_here"]["fedavg"]
    assert not set(found["others"]) & set(found["others_not_here"])
    for server in ("star", "binary_tree"):
        assert {"fedavg", "fedprox"} <= set(answer("--topology", server, "--nodes", "12")["others"])
    assert "push_pull" in answer("--topology", "binary_tree", "--nodes", "12")["others"]
    output = " ".join(call("--topology", "cycle", "--nodes", "12").output.split())
    assert "Orders are known, too, of" in output
    assert "which cannot run on this graph" in output


def test_the_table_that_people_read() -> None:
    output = call("--topology", "cycle", "--nodes", "20", "--failures", "1").output
    for expected in ("0.0326290", "4,010", "60, 40", "1 Multi-Walk", "2 Gossip", "3 with E = 1", "below R ="):
        assert expected.rstrip("0") in output
    assert max(map(len, output.splitlines())) <= 80


def test_a_study_brings_its_graph_and_its_constants(tmp_path: Path) -> None:
    spec = tmp_path / "mine.yaml"
    spec.write_text(
        "network: {topology: cycle, nodes: 6}\n"
        "task: {name: digits, alpha: 1.0}\n"
        "algorithms: [{name: multi_walk, walks: 2}]\n"
        "stop: {iterations: 10}\n"
    )
    found = answer("--study", str(spec), "--walks", "2", "--sigma2", "0.5")
    assert (found["nodes"], found["edges"]) == (6, 6)
    assert set(found["constants"]) == {"F", "L", "zeta2"}  # what was given is not estimated
    for name, entry in found["constants"].items():
        assert entry["value"] > 0, name
    assert found["question"]["model_bits"] == 32 * (64 * 64 + 64 + 64 * 10 + 10)
    output = call("--study", str(spec), "--walks", "2").output
    assert "Constants of the study's task" in output
    assert max(map(len, output.splitlines())) <= 80


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_papers_tables(number: int) -> None:
    output = call("--topology", "torus", "--nodes", "25", "--table", str(number)).output
    assert f"Table {number} of the paper" in output
    assert "The same for torus(5, 5)" in output
    if number == 2:
        assert "V² log V" in output
        assert "Here H² = 1,925." in output


def test_of_a_graph_that_changes_by_round_it_is_told_what_the_numbers_are_of() -> None:
    arguments = ("--topology", "random_matchings", "--nodes", "8")
    (note,) = answer(*arguments)["notes"]
    assert note.startswith("who meets whom changes by round; this is of the graph with all links at all times")
    assert f"random_matchings(8): {note[:30]}" in call(*arguments).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--study", "quickstart", "--nodes", "5"], "brings its own graph"),
        (["--topology", "moebius"], "topology: 'moebius' is not possible"),
        (["--set", "p"], "allowed: KEY=VALUE"),
        (["--set", "q=1"], "q: is an unknown key; allowed: p"),
        (["--set", "p=[1"], "cannot be read"),
        (["--walks", "30"], "walks: 30"),
        (["--walks", "0"], "walks: 0"),
        (["--aggregator", "99"], "node 99 is not there"),
        (["--sigma2", "-1"], "sigma2: -1"),
        (["--table", "7"], "allowed: 1, 2, 3 or 4"),
        (["-T", "0"], "iterations: 0"),
        (["--d", "0"], "d: 0"),
        (["--model-bits", "-1"], "model_bits: "),
        (
            ["--topology", "one_peer_exponential", "--nodes", "8"],
            "has one-way links, of which these bounds know nothing",
        ),
    ],
)
def test_mistakes_are_user_errors(arguments: list[str], message: str) -> None:
    result = call(*arguments)
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
