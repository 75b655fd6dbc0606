"""What an operator says to a cluster that runs: `walktalk status`, `walktalk stop` and `walktalk leave`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from walktalk.cli.options import Without, check_live

if TYPE_CHECKING:
    from rich.console import RenderableType

    from walktalk.runtimes.peers import Cluster

Answers: TypeAlias = "dict[str, dict[str, Any] | None]"

UNWELL = 1  # exit code: a node complains or does not answer; as that of `walktalk stop` where nobody answers
SECONDS_BETWEEN_QUESTIONS = 2.0


def status(
    config: Annotated[Path, typer.Option(help="The cluster's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to wait for answers.")] = 3.0,
    watch: Annotated[
        bool, typer.Option("--watch", help="Ask again every two seconds, until Ctrl-C; with --json a line each time.")
    ] = False,
    live: Annotated[bool, typer.Option("--live", help="Show the cluster in a browser, until Ctrl-C.")] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="With --live: where to listen; a free port if left out.")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="With --live: the address to listen on, 0.0.0.0 for all; this machine alone if left out."),
    ] = None,
    without: Without = None,
) -> None:
    """Ask every node of a cluster how it is.

    The exit code says it, too: 0 where all answer and none complains, 1 where one does not answer or complains, 2 where
    the command or the cluster's file is wrong. With --watch it is that of the last answers.
    """
    from walktalk.runtimes.peers import load_cluster

    check_live(live, port, host)
    cluster = load_cluster(config).without(without or ())
    if live:
        show_live(cluster, seconds, host, port or 0)
        return
    answers = watched(cluster, seconds, as_json) if watch else asked_once(cluster, seconds, as_json)
    if answers and not any(answers.values()):
        typer.echo(f"nobody answers; {_what_to_do(cluster, config)}", err=True)
    if _complaints(answers):
        raise typer.Exit(UNWELL)


def asked_once(cluster: Cluster, seconds: float, as_json: bool) -> Answers:
    """Ask all nodes once, and print their answers."""
    from rich.console import Console

    answers = _ask(cluster, seconds)
    if as_json:
        _print_json(answers, cluster)
    else:
        Console().print(_page(answers, _sites(cluster, answers)), highlight=False)
    return answers


def watched(cluster: Cluster, seconds: float, as_json: bool) -> Answers:
    """Ask again and again until Ctrl-C; what they said last."""
    from rich.console import Console
    from rich.live import Live

    answers: Answers = {}
    console = Console()
    try:
        with Live(console=console, auto_refresh=False, screen=False) as screen:
            while True:
                began = time.monotonic()
                answers = _ask(cluster, seconds)
                if as_json:
                    _print_json(answers, cluster)
                elif console.is_terminal:
                    screen.update(_page(answers, _sites(cluster, answers)), refresh=True)
                else:
                    console.print(_page(answers, _sites(cluster, answers)), highlight=False)
                time.sleep(max(0.0, SECONDS_BETWEEN_QUESTIONS - (time.monotonic() - began)))
    except KeyboardInterrupt:
        return answers


def _ask(cluster: Cluster, seconds: float) -> Answers:
    from walktalk.runtimes.peers import STATUS, ask_everyone

    return ask_everyone(cluster, STATUS, seconds)


def _sites(cluster: Cluster, answers: Answers) -> dict[str, str]:
    """Every node's site: from the cluster's file, or as the node says itself where it joined."""
    there = {name: answer or {} for name, answer in answers.items()}
    return {
        name: cluster.nodes[name].site if name in cluster.nodes else str(answer.get("site", ""))
        for name, answer in there.items()
    }


def _print_json(answers: Answers, cluster: Cluster) -> None:
    sites = _sites(cluster, answers)
    said = {name: a if a is None else {**a, "site": sites[name]} for name, a in answers.items()}
    typer.echo(json.dumps(said, allow_nan=False))


def _complaints(answers: Answers) -> list[str]:
    from walktalk.runtimes.peers import cluster_complaints

    return cluster_complaints(answers)


def _what_to_do(cluster: Cluster, config: Path) -> str:
    """Whether they have been there, as far as can be seen from here."""
    first = next(iter(cluster.nodes))
    if any((cluster.folder / name).is_dir() for name in cluster.nodes):
        return (
            "if the run is over, collect what the nodes have left: "
            f"walktalk collect --config {config} --out out/{cluster.name}"
        )
    return (
        f"start the nodes, each on its machine: walktalk node --config {config} --name {first}; if they are running, "
        f"find out why they cannot be reached: walktalk doctor --config {config}"
    )


def show_live(cluster: Cluster, seconds: float, host: str | None, port: int) -> None:
    """Ask again and again, and show the answers in a browser; Ctrl-C ends it."""
    from walktalk.report import ClusterPage, served_cluster
    from walktalk.studies import load_spec, make_spec

    spec = make_spec(cluster.study) if isinstance(cluster.study, dict) else load_spec(cluster.study)
    sites = _sites(cluster, dict.fromkeys(cluster.nodes))
    page = ClusterPage(cluster.name, cluster.folder, sites, spec, cluster.algorithm)
    with served_cluster(page, host=host, port=port) as (url, add_answers):
        typer.echo(f"Live     {url}   (Ctrl-C ends it)", err=True)
        began = time.monotonic()
        while True:
            asked = time.monotonic()
            answers = _ask(cluster, seconds)
            add_answers(dict(answers), asked - began)
            time.sleep(max(0.0, SECONDS_BETWEEN_QUESTIONS - (time.monotonic() - asked)))


def _page(answers: Answers, sites: dict[str, str]) -> RenderableType:
    """The table, and below it what is to be said of all."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    there = {name: a for name, a in answers.items() if a is not None}
    located, dropped = any(sites.values()), any(sum(a.get("dropped", {}).values()) for a in there.values())
    # Without lines, and empty columns, it fits 80 letters; with all columns, where one space is between them.
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=located and dropped)
    for column in ("node", *(["site"] if located else []), "state", "term", "walks"):
        table.add_column(column)
    for column in ("peers", "iterations", "loss", "saved", "sent MB", *(["dropped"] if dropped else [])):
        table.add_column(column, justify="right")
    for name, answer in answers.items():
        first = (name, sites[name]) if located else (name,)
        row = _row(answer) if answer is not None else ["no answer"]
        table.add_row(*first, *(row[: len(table.columns) - len(first)]))
    return Group(table, Text(f"\n{_summary(answers, there)}"), *(Text(f"  {line}") for line in _worth_saying(answers)))


def _row(answer: dict[str, Any]) -> list[str]:
    loss, saved = answer.get("loss"), answer.get("checkpoint_age")
    return [
        str(answer.get("state", "")),
        str(answer.get("term", "")) if answer.get("aggregates") else "",  # of those that aggregate
        " ".join(map(str, answer.get("walks", ()))),
        str(len(answer.get("alive", ()))),
        f"{answer.get('iterations', 0):,}",
        "" if loss is None else f"{loss:.3f}",
        "" if saved is None else _lasting(saved),
        f"{answer.get('bytes_sent', 0) / 1e6:,.1f}",
        str(sum(answer.get("dropped", {}).values())),
    ]


def _lasting(seconds: float) -> str:
    """A length of time in its largest fitting unit."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _summary(answers: Answers, there: dict[str, dict[str, Any]]) -> str:
    from walktalk.runtimes.peers import aggregators

    names = aggregators(answers)
    trained = max((int(a.get("total_iterations", 0)) for a in there.values()), default=0)
    known = f"; {trained:,} iterations" if there else ""
    heads = ", ".join(f"{name}{_for_how_long(there[name])}" for name in names)
    silent = [name for name in answers if name not in there]
    missing = f"; MISSING: {', '.join(silent)}" if silent else ""
    return f"{len(there)} of {len(answers)} nodes answer{known}" + (f"; aggregator: {heads}" if heads else "") + missing


def _for_how_long(answer: dict[str, Any]) -> str:
    since = answer.get("aggregates_since")
    return "" if since is None else f" for {_lasting(since)}"


def _worth_saying(answers: Answers) -> list[str]:
    """Complaints, but for those that the table shows, and warnings."""
    warnings = {name: answer.get("warnings") or [] for name, answer in answers.items() if answer is not None}
    said = [line for line in _complaints(answers) if not line.endswith(": no answer")]
    return said + [f"{name}: {line}" for name, lines in warnings.items() for line in lines]


# -- walktalk stop ----------------------------------------------------------------------------------------------------

NOBODY = 1  # exit code: nothing was stopped, be it that nobody is there or that nobody can be reached


def stop(
    config: Annotated[Path, typer.Option(help="The cluster's YAML file.")],
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to wait for answers.")] = 3.0,
    without: Without = None,
) -> None:
    """Stop a cluster: every node hands its walks on and ends."""
    from walktalk.runtimes.peers import STOP, ask_everyone, load_cluster

    answers = ask_everyone(load_cluster(config).without(without or ()), STOP, seconds)
    silent = [name for name, answer in answers.items() if answer is None]
    typer.echo(f"{len(answers) - len(silent)} of {len(answers)} nodes leave")
    if silent:
        typer.echo(f"no answer from {', '.join(silent)}")
    if len(silent) == len(answers):
        raise typer.Exit(NOBODY)


# -- walktalk leave ---------------------------------------------------------------------------------------------------

REFUSED = 1  # exit code: somebody has not left


def leave(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Nodes of the cluster.")],
    config: Annotated[Path, typer.Option(help="The cluster's YAML file.")],
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to wait for answers.")] = 5.0,
    dead: Annotated[
        bool, typer.Option("--dead", help="They do not answer and will not come back: let them go without asking.")
    ] = False,
    without: Without = None,
) -> None:
    """Let nodes leave for good: their walks are handed on, and others take their places in the graph.

    `walktalk stop` and Ctrl-C are for a while: such a node can be started again.
    """
    from walktalk.runtimes.peers import ask_to_leave, load_cluster

    said = ask_to_leave(load_cluster(config).without(without or ()), names, seconds, dead)
    for name, answer in said.items():
        typer.echo(f"{name}: {answer or 'leaves for good'}", err=bool(answer))
    if any(said.values()):
        raise typer.Exit(REFUSED)
