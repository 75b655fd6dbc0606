"""`walktalk theory`: what the paper's theorems say about a graph, before anything is run, in tables and words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walktalk.core.errors import SpecError
from walktalk.core.settings import misfit

if TYPE_CHECKING:
    from rich.table import Table

    from walktalk.graphs import Graph

# -- What walktalk theory prints --------------------------------------------------------------------------------------


def print_summary(found: dict[str, Any]) -> None:
    """Print what theory says of a graph, as tables and a few sentences."""
    from rich.console import Console

    console = Console()
    for made in (
        _network(found),
        _messages(found),
        *([_constants(found)] if "constants" in found else []),
        _bounds(found),
        _others(found),
        *([_weighted(found)] if "weighted_walk" in found else []),
    ):
        console.print(made)
    for line in _sentences(found):
        console.print(line, highlight=False)


def _rich(title: str, *columns: str) -> Table:
    from rich.table import Table

    made = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return made


def _network(found: dict[str, Any]) -> Table:
    made = _rich(f"The network: {found['graph']}", "quantity", "value")
    time, degree = found["return_time"], found["degree"]
    rows = [
        ("nodes V", f"{found['nodes']:,}"),
        ("edges", f"{found['edges']:,}"),
        ("neighbours: fewest, mean, most", f"{degree['min']}, {degree['mean']:.3g}, {degree['max']}"),
        ("diameter", "not computed" if found["diameter"] is None else f"{found['diameter']}"),
        ("spectral gap of P, p'", _number(found["p_prime"])),
        ("spectral gap of PᵀP, p", _number(found["p"])),
        (f"return time to node {time['node']}: mean", _number(time["mean"])),
        ("   second moment H²", _number(time["second_moment"])),
        ("   H", _number(time["second_moment"] ** 0.5)),
        (
            "‖P‖₀ with and without the diagonal",
            f"{found['nonzeros']['with_diagonal']:,}, {found['nonzeros']['without_diagonal']:,}",
        ),
    ]
    if found["aggregators"]:
        best, worst = found["aggregators"]["best"], found["aggregators"]["worst"]
        rows.append(("best aggregator: node, H²", f"{best['node']}, {_number(best['second_moment'])}"))
        rows.append(("worst aggregator: node, H²", f"{worst['node']}, {_number(worst['second_moment'])}"))
    for row in rows:
        made.add_row(*row)
    return made


def _messages(found: dict[str, Any]) -> Table:
    made = _rich("Models sent per iteration", "algorithm", "sent", "as the paper counts")
    counted = found["paper_messages_per_iteration"]
    for name, sent in found["messages_per_iteration"].items():
        made.add_row(name, _number(sent), _number(counted[name]) if name in counted else "")
    return made


def _constants(found: dict[str, Any]) -> Table:
    made = _rich("Constants of the study's task", "constant", "estimate", "error", "from")
    made.columns[-1].justify, made.columns[-1].no_wrap = "left", False
    symbols = {"F": "F", "L": "L", "sigma2": "σ²", "zeta2": "ζ²"}
    for name, entry in found["constants"].items():
        made.add_row(symbols[name], _short(entry["value"]), _short(entry["error"]), entry["how"])
    return made


def _bounds(found: dict[str, Any]) -> Table:
    question = found["question"]
    made = _rich(
        f"Bounds on the mean of E‖∇f‖² over T = {question['iterations']:,} iterations, R = {question['walks']}",
        "theorem",
        "start",
        "mixing",
        "noise",
        "deviation",
        "total",
        "η",
    )
    names = {"theorem1": "1 Multi-Walk", "by_age": "  by age, ours"}
    names |= {"theorem2": "2 Gossip", "theorem3": "3 with E = {}"}
    for key, name in names.items():
        entry = found["bounds"][key]
        if key == "theorem3" and not entry["failures"]:
            continue
        for kind, label in (("with_constants", name.format(entry.get("failures"))), ("order", "   order")):
            if kind not in entry:
                continue
            bound = entry[kind]
            if not bound["applicable"]:
                made.add_row(label, *["n/a"] * 5, f"{bound['step_size']:.3g} > {bound['largest_step_size']:.3g}")
                continue
            parts = [_short(bound[part]) for part in ("start", "mixing", "noise", "deviation", "total")]
            made.add_row(label, *parts, _short(bound["step_size"]) if "step_size" in bound else "")
    return made


def _others(found: dict[str, Any]) -> Table:
    papers = {entry["paper"]: None for entry in found["others"].values()}
    made = _rich(f"Orders of others ({', '.join(papers)})", "algorithm", "start", "noise", "deviation", "total")
    for name, entry in found["others"].items():
        made.add_row(name, *(_short(entry[part]) for part in ("start", "noise", "deviation", "total")))
    return made


def _weighted(found: dict[str, Any]) -> Table:
    made, walk = _rich("The weighted walk, in the long run", "quantity", "value"), found["weighted_walk"]
    visits, counts = walk["stationary"], walk["counts"]
    rows = [
        ("share of its visits: least, most", f"{_number(min(visits))}, {_number(max(visits))}"),
        ("what a node counts for, 1 if all alike: least, most", f"{_number(min(counts))}, {_number(max(counts))}"),
        ("   bias", _number(walk["bias"])),
        ("spectral gap", "not computed" if walk["gap"] is None else _number(walk["gap"])),
        ("steps until it is back where it is least", _number(walk["longest_return"])),
        (f"visits in a row at node {walk['stays_at']}, which holds it longest", _number(walk["longest_stay"])),
    ]
    for row in rows:
        made.add_row(*row)
    return made


def _sentences(found: dict[str, Any]) -> list[str]:
    """What the numbers of a graph mean for walks and gossip, in sentences."""
    crossover, nodes = found["crossover_walks"], found["nodes"]
    names = {"multi_walk": "Multi-Walk", "async_gossip_matrix": "gossip"}
    lines = [f"{found['graph']}: {note}." for note in found["notes"]]
    if found["others_not_here"]:
        lines.append(
            f"Orders are known, too, of {', '.join(found['others_not_here'])}, which cannot run on this graph."
        )
    for key, data in (("iid", "With iid data"), ("this_problem", "With these σ² and ζ²")):
        limit = crossover[key]
        if limit is None or limit > nodes:
            lines.append(f"{data}, Multi-Walk has the better bound per iteration for every number of walks.")
        elif limit < 1:
            lines.append(f"{data}, gossip has the better bound per iteration, whatever the number of walks.")
        else:
            lines.append(f"{data}, Multi-Walk has the better bound per iteration below R = {limit:.3g} walks.")
    axes = ", ".join(f"{axis}: {names[entry['winner']]}" for axis, entry in found["axes"].items())
    lines.append(f"Smaller order at the same budget: {axes}.")
    lines.append("Gossip's bound is generous, not tight; theory compares orders, `walktalk advise` measures.")
    return lines


def print_paper_table(number: int, found: dict[str, Any]) -> None:
    """One of the paper's tables, and the same with this graph's numbers."""
    from rich.console import Console

    from walktalk.theory import TABLES, TORUS_H2

    if number not in TABLES:
        raise misfit("--table", number, "1, 2, 3 or 4", SpecError)
    caption, rows = TABLES[number]
    console = Console()
    console.print(f"[bold]Table {number} of the paper.[/] {caption}", highlight=False)
    for row in rows:
        where = f"{row.topology}: " if row.topology else ""
        wins = f"   {row.wins}" if row.wins else ""
        console.print(f"\n{where}{row.algorithm}{wins}", highlight=False)
        console.print(f"    O( {row.rate} )", highlight=False, soft_wrap=True)
        console.print(f"    communication {row.communication}, computation {row.computation}", highlight=False)
    numbers = _rich(f"\nThe same for {found['graph']}", "algorithm", "rate", "communication", "of it sent", "trainings")
    for line in found["tables"][str(number)]:
        values = [line[key] for key in ("rate", "communication", "communication_sent", "computation")]
        numbers.add_row(line["algorithm"], *map(_number, values))
    console.print(numbers)
    if number == 2:
        console.print(f"The paper leaves H² of the 2-D torus open. It is {TORUS_H2}.", highlight=False)
        console.print(f"Here H² = {_number(found['return_time']['second_moment'])}.", highlight=False)


def _short(value: float) -> str:
    return f"{value:.3g}"


def _number(value: float) -> str:
    """Six digits, without an exponent where it reads well."""
    if value == 0 or 1e-3 <= abs(value) < 1e9:
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return f"{value:.5e}"


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
        from walktalk.studies import read_study

        read_study(study)  # a mistake in the name is told before anything heavy is imported
    from walktalk.theory import Problem, Question, summary

    if step_size is not None and not 0 < step_size < float("inf"):
        raise misfit("--step-size", step_size, "a number above 0", SpecError)
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
        raise misfit("--weights", given, "numbers with commas between them, e.g. 1,1,5", SpecError) from None


def _graph(topology: str | None, nodes: int | None, p: float | None, settings: list[str], seed: int) -> Graph:
    from walktalk import graphs

    topology, parameters = topology or "erdos_renyi", _parameters(settings, p)
    if nodes is None:
        nodes = graphs.default_nodes(topology, parameters)
    return graphs.build(topology, nodes, seed, **parameters)


def _cluster(config: Path) -> tuple[Graph, float, int | None]:
    """A cluster's graph as it is now, the bits of its model, and its number of walks."""
    from walktalk.runtimes.peers import everybody, load_cluster
    from walktalk.studies import build_foundation, load_spec, make_spec
    from walktalk.theory import Question

    cluster = load_cluster(config)
    base = build_foundation(make_spec(cluster.study) if isinstance(cluster.study, dict) else load_spec(cluster.study))
    _, roster = everybody(cluster, base.graph)
    labels = [plan for plan in base.algorithms if cluster.algorithm in ("", plan.label)]
    walks = labels[0].protocol.settings.get("walks") if labels else None
    return roster.network.graph(roster.known), Question.model_bits, walks


def _study(name: str) -> tuple[Graph, float, dict[str, Any]]:
    """A study's graph, the bits of its model, and its constants with their errors."""
    from dataclasses import asdict

    from walktalk.advisor import constants_of
    from walktalk.studies import load_spec, prepare

    spec = load_spec(name, [])
    ready = prepare(spec, "cpu")
    found = constants_of(ready.trainer, batch_size=spec.training.usual_batch, seed=spec.seed)
    estimates = {key: asdict(getattr(found, key)) for key in ("F", "L", "sigma2", "zeta2")}
    return ready.runs[0].setup.graph, 8.0 * ready.trainer.payload_bytes, estimates


def _parameters(settings: list[str], p: float | None) -> dict[str, Any]:
    """Graph parameters from `key=value`, each value read as YAML reads it."""
    import yaml

    found: dict[str, Any] = {} if p is None else {"p": p}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            raise misfit("--set", setting, "KEY=VALUE, e.g. --set degree=4", SpecError)
        try:
            found[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise SpecError(f"--set {setting!r}: the value cannot be read") from error
    return found
