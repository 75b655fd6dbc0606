"""`walktalk theory`: what the paper's theorems say about a graph, before anything is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walktalk.errors import SpecError
from walktalk.studies import read_study

if TYPE_CHECKING:
    from walktalk.graphs import Graph


def theory(
    topology: Annotated[
        str | None, typer.Option(help="cycle, torus, complete, … or module:object; erdos_renyi if left out.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of nodes; 20 if nothing else says it.")] = None,
    walks: Annotated[
        int | None, typer.Option(help="R, the number of walks of Multi-Walk; 4 if nothing else says it.")
    ] = None,
    p: Annotated[
        float | None, typer.Option("--p", help="Edge probability of erdos_renyi; short for --set p=P.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the topology. Repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="For random topologies.")] = 0,
    aggregator: Annotated[int, typer.Option(help="The node where walks are mixed.")] = 0,
    iterations: Annotated[int, typer.Option("--iterations", "-T", help="T, completed trainings.")] = 3000,
    failures: Annotated[int, typer.Option(help="E, how often the aggregator dies (Theorem 3).")] = 0,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC", help="A study: its graph, its model's size, and F, L, σ² and ζ² estimated from its data."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="CLUSTER",
            help="A cluster's YAML file: its graph as it is now, with those who joined and without those who left.",
        ),
    ] = None,
    F: Annotated[float | None, typer.Option("--F", help="f(x₀) − f*; 1 unless given.")] = None,
    L: Annotated[float | None, typer.Option("--L", help="Smoothness of the local losses; 1 unless given.")] = None,
    sigma2: Annotated[float | None, typer.Option(help="σ², variance of a mini-batch gradient; 1 unless given.")] = None,
    zeta2: Annotated[
        float | None, typer.Option(help="ζ², diversity of the nodes' gradients, 0 for iid data; 1 unless given.")
    ] = None,
    model_bits: Annotated[
        float | None, typer.Option(help="m, size of the model in bits; ResNet-20's unless given.")
    ] = None,
    d: Annotated[float, typer.Option("--d", help="Mean seconds of one training and one hop.")] = 1.0,
    step_size: Annotated[float | None, typer.Option(help="Your own η; tuned by Lemma 5 if left out.")] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="L,L,…", help="One weight for each node: shows where a weighted walk is in the long run."),
    ] = None,
    jump: Annotated[float, typer.Option(help="With --weights: how often the walk jumps, p_J.")] = 0.0,
    table: Annotated[int | None, typer.Option(help="Print the paper's Table 1, 2, 3 or 4, with numbers.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Spectral gaps, return times, messages and convergence bounds of a graph."""
    if study is not None:
        read_study(study)  # a mistake in the name is told before anything heavy is imported
    from walktalk.theory import Problem, Question, summary

    if step_size is not None and not 0 < step_size < float("inf"):
        raise SpecError(f"--step-size {step_size:g}, but it must be a number above 0")
    estimates: dict[str, Any] = {}
    if config is not None:
        if (topology, nodes, p, settings, study) != (None,) * 5:
            raise SpecError("--config brings its own graph; leave out --topology, --nodes, --p, --set and --study")
        graph, bits, of_cluster = _cluster(config)
        walks = of_cluster if walks is None else walks
    elif study is None:
        graph = _graph(topology, nodes, p, settings or [], seed)
        bits = Question.model_bits
    else:
        if (topology, nodes, p, settings) != (None, None, None, None):
            raise SpecError("--study brings its own graph; leave out --topology, --nodes, --p and --set")
        graph, bits, estimates = _study(study)
    given = {"F": F, "L": L, "sigma2": sigma2, "zeta2": zeta2}
    estimates = {name: estimate for name, estimate in estimates.items() if given.get(name) is None}
    constants = {
        name: value if value is not None else estimates[name]["value"] if name in estimates else 1.0
        for name, value in given.items()
    }
    bits = bits if model_bits is None else model_bits
    question = Question(
        4 if walks is None else walks, iterations, aggregator, failures, bits, d, step_size, _weights(weights), jump
    )
    found = summary(graph, Problem(**constants), question) | ({"constants": estimates} if estimates else {})
    found |= _where_they_run(found["others"], graph)
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from walktalk.cli.theory_tables import print_paper_table, print_summary

    if table is not None:
        print_paper_table(table, found)
    else:
        print_summary(found)


def _where_they_run(others: dict[str, Any], graph: Graph) -> dict[str, Any]:
    """Orders of those that can run on the graph, and of the rest why they cannot."""
    from walktalk.studies import why_not_on

    reasons = {name: why_not_on(name, graph) for name in others}
    return {
        "others": {name: entry for name, entry in others.items() if not reasons[name]},
        "others_not_here": {name: reason for name, reason in reasons.items() if reason},
    }


def _weights(given: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(one) for one in given.split(",")) if given else ()
    except ValueError:
        raise SpecError(f"--weights {given!r}, but they must be numbers with commas between them, e.g. 1,1,5") from None


def _graph(topology: str | None, nodes: int | None, p: float | None, settings: list[str], seed: int) -> Graph:
    from walktalk import graphs

    topology, parameters = topology or "erdos_renyi", _parameters(settings, p)
    if nodes is None:
        nodes = graphs.default_nodes(topology, parameters)
    return graphs.build(topology, nodes, seed, **parameters)


def _cluster(config: Path) -> tuple[Graph, float, int | None]:
    """A cluster's graph as it is now, the bits of its model, and its number of walks."""
    from walktalk.runtimes.peers import everybody, load_cluster
    from walktalk.studies import lay_foundation, load_spec, make_spec
    from walktalk.theory import Question

    cluster = load_cluster(config)
    base = lay_foundation(make_spec(cluster.study) if isinstance(cluster.study, dict) else load_spec(cluster.study))
    _, roster = everybody(cluster, base.graph)
    labels = [plan for plan in base.algorithms if cluster.algorithm in ("", plan.label)]
    walks = labels[0].protocol.settings.get("walks") if labels else None
    return roster.network.graph(roster.known), Question.model_bits, walks


def _study(name: str) -> tuple[Graph, float, dict[str, Any]]:
    """A study's graph, the bits of its model, and its constants with their errors."""
    from dataclasses import asdict

    from walktalk.advisor import estimate_constants
    from walktalk.studies import load_spec, prepare

    spec = load_spec(name, [])
    ready = prepare(spec, "cpu")
    found = estimate_constants(ready.task, batch_size=spec.training.batch_size, seed=spec.seed)
    estimates = {key: asdict(getattr(found, key)) for key in ("F", "L", "sigma2", "zeta2")}
    return ready.runs[0].setup.graph, 8.0 * ready.trainer.payload_bytes, estimates


def _parameters(settings: list[str], p: float | None) -> dict[str, Any]:
    """Graph parameters from `key=value`, each value read as YAML reads it."""
    import yaml

    found: dict[str, Any] = {} if p is None else {"p": p}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            raise SpecError(f"--set {setting!r}, but it must be KEY=VALUE, e.g. --set degree=4")
        try:
            found[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise SpecError(f"--set {setting!r}: the value cannot be read") from error
    return found
