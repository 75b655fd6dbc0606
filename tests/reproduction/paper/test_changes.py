"""What may be changed in a figure's studies, and that its titles stay true."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from walktalk.cli.app import app
from walktalk.core.errors import SpecError
from walktalk.reproduction import paper
from walktalk.reproduction.paper import drawing
from walktalk.studies import build_graph, nested

SHORT = ("--repetitions", "1", "--iterations", "10", "--device", "cpu")


def refused(tmp_path, *words: str) -> str:
    """The one line of an error; no traceback, exit code 2, and nothing written."""
    result = CliRunner().invoke(app, ["paper", "run", *words, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert not (tmp_path / "out").exists()
    return line


@pytest.mark.parametrize("name", ["fig3", "fig5", "fig6", "fig7", "all"])
@pytest.mark.parametrize("value", ["0.5", "null"])
def test_what_the_panels_differ_in_cannot_be_set(name, value, tmp_path):
    line = refused(tmp_path, name, "--set", f"task.alpha={value}")
    assert "differ in (10, 1, 0.1)" in line
    assert "walktalk paper run fig4 --set task.alpha=" in line
    assert "walktalk run" in line


@pytest.mark.parametrize("name", ["fig4", "fig5", "fig8", "fig9"])
def test_topologies_cannot_be_set(name, tmp_path):
    line = refused(tmp_path, name, "--set", "network={topology: cycle}")
    assert f"the panels of {name} are named after their topologies" in line
    assert "walktalk run" in line


def test_where_panels_share_an_alpha_it_can_be_set():
    for name in ("fig4", "fig9"):
        specs = paper.panel_specs(paper.figure(name), "smoke", nested(["task.alpha=0.5"]))
        assert {spec.task.settings["alpha"] for spec in specs.values()} == {0.5}


def test_p_is_for_the_graphs_that_have_one(tmp_path):
    changes = nested(["network.p=0.5", "repetitions=1", "stop.iterations=4", "evaluate.every=4"])
    panels = paper.run_figure(paper.figure("fig4"), "smoke", tmp_path, device="cpu", changes=changes)
    assert [run.spec.network.parameters.get("p") for run in panels] == [None, None, 0.5]
    assert [run.panel.title for run in panels] == ["Cycle", "Complete graph", "Erdős–Rényi (0.5)"]
    svg = drawing.make(paper.figure("fig4"), "smoke", tmp_path, device="cpu", changes=changes)[1]
    assert "(0.3)" not in svg.read_text()
    with pytest.raises(SpecError, match=r"network\.rewire: .* has no meaning for topology cycle"):
        paper.panel_specs(paper.figure("fig4"), "smoke", nested(["network.rewire=0.5"]))


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ("3", "faults: 3 is not possible"),
        ("[3]", "faults.0: 3 is not a section"),
        ("null", "faults: has no value"),
        ("[{kind: kill, at: 10}]", "faults.0.node: is missing"),
        ("[{kind: slow, link: [0, 0], at: 60.0}]", "faults.0.link"),
    ],
)
def test_wrong_faults_are_one_line(faults, said, tmp_path):
    assert said in refused(tmp_path, "fig9", "--set", f"faults={faults}")


@pytest.mark.parametrize("kind", ["partition", "slow"])
def test_faults_that_hit_no_single_node(kind, tmp_path):
    one = paper.figure("fig9")
    (spec,) = paper.panel_specs(one, "smoke").values()
    whom = {"partition": {"nodes": [0, 1, 2]}, "slow": {"link": [0, build_graph(spec).neighbours(0)[0]]}}[kind]
    changes = {
        "faults": [{"kind": kind, "at": 60.0, "seconds": 30.0, **whom}],
        "repetitions": 1,
        "stop": {"time": 100.0},
        "algorithms": [{"name": "multi_walk", "walks": 4}],
    }
    assert drawing.make(one, "smoke", tmp_path, device="cpu", changes=changes)[0].is_file()


def test_the_first_aggregator_is_node_0():
    def dying(*faults):
        (spec,) = paper.panel_specs(paper.figure("fig9"), "smoke", {"faults": list(faults)}).values()
        return [fault.node for fault in spec.faults]

    def kill(node, at, **more):
        return {"kind": "kill", "node": node, "at": at, **more}

    first, second = dying(kill("aggregator", 300.0), kill("aggregator", 600.0))
    assert first == 0
    assert [second] == dying(kill(0, 300.0), kill("aggregator", 600.0))[1:]
    assert dying(kill("aggregator", 600.0), kill("aggregator", 300.0)) == [second, 0]  # by time, not by place
    assert dying(kill(0, 1.0, seconds=9.0), kill("aggregator", 20.0)) == [0, "aggregator"]  # nobody knows ahead
