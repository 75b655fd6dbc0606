"""The advisor as a whole, on small studies whose answer is known."""

from __future__ import annotations

import json
from math import inf, isfinite
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from walktalk import advisor, graphs
from walktalk.advisor import Goal, advise_study, as_json, make_survey, of_study
from walktalk.advisor.finals import choose
from walktalk.advisor.learning_curve import LearningCurve
from walktalk.advisor.pilots import Tried
from walktalk.advisor.situation import World, algorithms, best_aggregator, learning_rates, walk_counts
from walktalk.cli.advise import amount_of
from walktalk.cli.app import app
from walktalk.core.errors import GraphError, SpecError
from walktalk.core.seeds import Seed
from walktalk.protocols import PROTOCOLS, AsyncGossip, MultiWalk, Tour
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import NetworkTiming, RunSetup, measured_rates
from walktalk.studies import StudySpec, make_spec


def small(**changes: Any) -> StudySpec:
    content: dict[str, Any] = {
        "name": "small",
        "network": {"topology": "complete", "nodes": 6},
        "task": {"name": "quadratic", "noise": 0.3, "heterogeneity": 0.3, "dimension": 5, "convexity": 0.3},
        "training": {"batch_size": 4, "local_steps": 1},
        "optimizer": {"lr": 0.03, "momentum": 0.0, "nesterov": False},
        "algorithms": [{"name": "async_gossip"}],
        "stop": {"iterations": 2000},
    }
    return make_spec({**content, **changes})


def test_per_iteration_one_walk_wins_and_the_answer_is_complete() -> None:
    told: list[tuple[str, float]] = []
    advice = advise_study(
        small(), Goal("iterations"), device="cpu", progress=lambda text, share: told.append((text, share))
    )
    assert isinstance(advice.best.protocol, MultiWalk)
    assert advice.best.protocol.walks <= 2
    assert advice.reached
    found = json.loads(json.dumps(as_json(advice)))
    assert found["algorithm"] == "multi_walk"
    assert found["walks"] == advice.best.protocol.walks
    assert found["learning_rate"] == advice.best.lr
    for axis in ("iterations", "time", "bits", "bytes"):
        of = found["expected"][axis]
        assert 0 < of["low"] <= of["value"] <= of["high"]
    assert found["expected"]["bytes"]["value"] == pytest.approx(found["expected"]["bits"]["value"] / 8)
    assert 2 <= len(found["why"]) <= 3
    assert 0 < found["confidence"]["within_10_percent_of_the_best"] <= 1
    assert found["constants"]["zeta2"]["value"] == pytest.approx(0.3, rel=0.05)
    assert found["trainings"] < 0.2 * len(found["candidates"]) * 3 * found["expected"]["iterations"]["value"] + 2000
    assert told[0][1] == 0.0
    assert all(0 <= share <= 1 for _, share in told)


def test_the_same_study_gets_the_same_advice() -> None:
    first, second = (as_json(advise_study(small(), Goal("bits"), device="cpu")) for _ in range(2))
    assert first == second
    assert first["algorithm"] == "multi_walk"  # gossip sends two models for each of a walk's


def test_in_time_many_at_once_average_away_the_noise_that_stops_one_walk() -> None:
    task = {"name": "quadratic", "noise": 100.0, "heterogeneity": 0.0, "dimension": 5, "convexity": 0.3}
    advice = advise_study(small(task=task), Goal("time", 92.4), device="cpu")
    assert advice.best.active > 1


def test_a_budget_asks_for_the_lowest_loss() -> None:
    advice = advise_study(small(), Goal("iterations", budget=150.0), device="cpu")
    found = as_json(advice)
    assert found["target_loss"] is None
    assert found["expected"]["iterations"]["value"] == 150
    assert found["expected"]["loss"]["low"] <= found["expected"]["loss"]["value"] <= found["expected"]["loss"]["high"]
    assert found["walks"] == 1


def test_a_target_out_of_reach_is_said_to_be() -> None:
    spec = small(stop={"iterations": 60})
    floor = make_survey(of_study(spec, "cpu"), Goal("iterations")).constants.f_best
    found = as_json(advise_study(spec, Goal("iterations", floor + 1e-4), device="cpu"))
    assert found["reached"] is False
    assert found["confidence"]["words"] == "low"
    assert any("not reached" in note for note in found["notes"])


def test_the_size_of_the_model_changes_bits_but_not_the_model() -> None:
    plain, large = (make_survey(of_study(small(), "cpu"), Goal("bits"), model_bytes=size) for size in (None, 10**6))
    assert large.candidates[0].rates.bits > 1000 * plain.candidates[0].rates.bits
    assert large.bench.trainer.width == plain.bench.trainer.width


def test_candidates() -> None:
    assert walk_counts(1) == [1]
    assert walk_counts(8) == [1, 2, 4, 8]
    assert walk_counts(20) == [1, 2, 4, 8, 16, 20]
    graph = graphs.star(7)
    hub = best_aggregator(graph).node
    assert hub == int(graph.degrees.argmax())
    spec = small(
        network={"topology": "star", "nodes": 7},
        algorithms=[
            {"name": "multi_walk", "walks": 3},
            {"name": "async_gossip", "mixing": "matrix"},
            {"name": "sync_gossip"},
        ],
    )
    labels = [protocol.label for protocol in algorithms(World(graph), hub, of_study(spec, "cpu").named)]
    assert len(labels) == len(set(labels))
    assert any(label.startswith("multi_walk-3") for label in labels)
    assert "sync_gossip" in labels
    assert "async_gossip-matrix" not in labels  # nobody could run it
    assert learning_rates(0.05, (0.3, 1, 3)) == [0.015, 0.05, 0.15]


def test_all_that_real_nodes_can_run_on_the_graph_may_be_chosen_among() -> None:
    """Every registered algorithm, Multi-Walk with every number of walks; the rest is left out, or said to be none."""
    rounds = {"fedavg", "fedopt", "fedprox", "fedtm", "scaffold", "diloco", "streaming_diloco"}
    servers = {*rounds, "fedbuff", "fedasync", "async_sgd"}
    everybody = {"epidemic_learning", "teleportation", "ceca", "push_pull"}  # links that neither has
    for graph, out in (
        (graphs.cycle(8), {"relay_sgd", *everybody, *servers}),
        (graphs.star(8), {*everybody, "ring_all_reduce"}),
        (graphs.complete(8), set()),
    ):
        found = algorithms(World(graph), 3, wanted="all")
        assert {protocol.name for protocol in found} == set(PROTOCOLS) - {"centralized"} - out
        walks = [one for one in found if isinstance(one, MultiWalk)]
        assert [(one.walks, one.aggregator) for one in walks] == [(count, 3) for count in walk_counts(8)]
        assert all("peers" in protocol.runtimes for protocol in found)
    with pytest.raises(SpecError, match="no real nodes can run centralized"):
        algorithms(World(graph), 3, wanted=["centralized"])
    assert "scaffold" not in {one.name for one in algorithms(World(graph, momentum=0.9), 3, wanted="all")}
    assert "choco_sgd" not in {one.name for one in algorithms(World(graph, failures=True), 3, wanted="all")}


def test_tours_are_asked_for_in_every_number_and_are_back_after_one_lap() -> None:
    graph = graphs.complete(6)
    found = algorithms(World(graph), 3, wanted="tour")
    assert [protocol.label for protocol in found] == ["tour", "tour-2", "tour-4", "tour-6"]
    assert algorithms(World(graph), 3, named=[Tour(2)])[-1] == Tour(2)


@pytest.mark.parametrize("topology", ["one_peer_exponential", "random_matchings"])
def test_bounds_for_walks_on_plain_graphs_say_nothing_of_other_graphs(topology: str) -> None:
    network = {"topology": topology, "nodes": 4}
    spec = small(network=network, algorithms=[{"name": "local_dsgd"}], stop={"iterations": 400})
    advice = advise_study(spec, Goal("iterations"), algorithms=["local_dsgd"], device="cpu")
    why = " ".join(as_json(advice)["why"])
    assert "ζ²" in why
    assert "walks beat gossip" not in why


def test_rates_are_those_of_theory() -> None:
    graph = graphs.cycle(12)
    for protocol, active, models in ((MultiWalk(3), 3, 2 / 3), (AsyncGossip(), 12, 2.0)):
        setup = RunSetup(protocol, graph, Seed(1), Stop(iterations=10), model_bytes=1_000_000)
        rates = measured_rates(setup)
        assert rates.seconds == pytest.approx(1 / active, rel=0.25)
        assert rates.bits == pytest.approx(models * 8e6, rel=0.25)
        assert rates.of("iterations") == 1.0
    slow = RunSetup(
        MultiWalk(1), graph, Seed(1), Stop(iterations=10), NetworkTiming(0.1, bandwidth=8e6), model_bytes=10**6
    )
    assert measured_rates(slow).seconds == pytest.approx(0.1 + (1 + 0.01) * 2 / 3, rel=0.2)


def test_finalists() -> None:
    survey = make_survey(of_study(small(), "cpu"), Goal("iterations"))
    tried = [Tried(c, LearningCurve(survey.bench.scale), 100.0 + 100 * k) for k, c in enumerate(survey.candidates)]
    assert choose(tried) == tried[:2]  # the neighbour in learning rate of a single walk
    assert (
        choose([Tried(c, LearningCurve(survey.bench.scale), inf) for c in survey.candidates])[0].candidate.active == 1
    )
    assert isfinite(survey.longest)


@pytest.mark.parametrize(
    ("text", "objective", "value"),
    [
        ("3000", "iterations", 3000),
        ("10min", "time", 600),
        ("2 h", "time", 7200),
        ("5GB", "bits", 4e10),
        ("1e9", "bits", 1e9),
    ],
)
def test_budgets(text: str, objective: str, value: float) -> None:
    assert amount_of(text, objective) == value


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["advise", *arguments])


ALONE = ["smoke", "--set", "network.nodes=1", "--set", "algorithms=[{name: multi_walk}]"]
SMALL_STUDY = """
network: {topology: complete, nodes: 5}
task: {name: quadratic, dimension: 4, noise: 0.2, heterogeneity: 0.2, convexity: 0.4}
training: {batch_size: 4, local_steps: 1}
optimizer: {name: sgd, lr: 0.05, momentum: 0.0}
algorithms: [{name: async_gossip}]
stop: {iterations: 1000}
"""


def test_the_command(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(SMALL_STUDY)
    result = call(str(study), "--objective", "bits", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["objective"] == "bits"
    text = call(str(study), "--set", "network.nodes=4", "--objective", "iterations").stdout
    for part in ("learning rate", "To a training loss of", "How sure:", "Run it: walktalk run", "data sent"):
        assert part in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["smoke", "--objective", "money"], "objective: 'money' is not possible; allowed: iterations, time, bits"),
        (["smoke", "--budget", "10min", "--objective", "bits"], "is no amount of bits"),
        (["smoke", "--budget", "-5"], "budget: -5.0 is not possible"),
        (["smoke", "--budget", "5", "--target-loss", "0.3"], "exclude each other"),
        (["smoke", "--target-loss", "9"], "target_loss: 9 is not below"),
        (["smoke", "--model-bytes", "0"], "model_bytes: 0 is not possible"),
        ([*ALONE, "--objective", "bits"], "one node"),
        (["nowhere"], "neither a file nor a preset"),
        (["smoke", "--set", "network.topology=edge_list", "--set", "network.file=DISCONNECTED"], "disconnected"),
        (["smoke", "--device", "tpu"], "device: 'tpu' is not possible"),
    ],
)
def test_mistakes_exit_with_2_and_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    edges = tmp_path / "edges.txt"
    edges.write_text("0 1\n2 3\n3 4\n4 5\n")
    result = call(*(a.replace("DISCONNECTED", str(edges)) for a in arguments))
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert len(lines) == 1
    assert message in lines[0]


def test_goals_that_make_no_sense() -> None:
    with pytest.raises(SpecError, match="target_loss"):
        Goal("time", target_loss=inf)
    with pytest.raises(SpecError, match="budget"):
        Goal("time", budget=0.0)
    with pytest.raises(SpecError, match="less than a single iteration"):
        make_survey(of_study(make_spec({"stop": {"iterations": 100}})), Goal("time", budget=1e-9))


def test_graphs_that_cannot_be_used() -> None:
    import networkx as nx

    with pytest.raises(GraphError, match="disconnected"):
        graphs.from_networkx(nx.DiGraph([(0, 1), (1, 2)]))  # no way back
    with pytest.raises(GraphError, match="disconnected"):
        graphs.from_networkx(nx.Graph([(0, 1), (2, 3)]))


def test_the_front_door() -> None:
    assert set(advisor.__all__) <= set(dir(advisor))
