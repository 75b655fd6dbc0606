"""`walktalk status`: who is alive, who aggregates, where the walks are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def status(
    config: Annotated[Path, typer.Option(help="The cluster's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to wait for answers.")] = 3.0,
) -> None:
    """Ask every node of a cluster how it is."""
    from walktalk.runtimes.peers import STATUS, ask_everyone, load_cluster

    cluster = load_cluster(config)
    answers = ask_everyone(cluster, STATUS, seconds)
    sites = {name: place.site for name, place in cluster.nodes.items()}
    if as_json:
        typer.echo(json.dumps({name: a if a is None else {**a, "site": sites[name]} for name, a in answers.items()}))
        return
    _print(answers, sites)


def _print(answers: dict[str, dict[str, Any] | None], sites: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    there = {name: a for name, a in answers.items() if a is not None}
    located, dropped = any(sites.values()), any(any(a["dropped"].values()) for a in there.values())
    table = Table(box=None, pad_edge=False, header_style="bold")  # without lines, and empty columns, it fits 80 letters
    for column in ("node", *(["site"] if located else []), "state", "aggregates", "walks"):
        table.add_column(column)
    for column in ("peers", "iterations", "loss", "sent MB", *(["dropped"] if dropped else [])):
        table.add_column(column, justify="right")
    for name, answer in answers.items():
        first = (name, sites[name]) if located else (name,)
        row = _row(answer) if answer is not None else ["no answer"]
        table.add_row(*first, *(row[: len(table.columns) - len(first)]))
    console = Console()
    console.print(table)
    console.print(f"\n{len(there)} of {len(answers)} nodes answer{_aggregators(there)}", highlight=False)


def _row(answer: dict[str, Any]) -> list[str]:
    return [
        "done" if answer["done"] else "training",
        f"term {answer['term']}" if answer["aggregates"] else "",
        " ".join(map(str, answer["walks"])),
        str(len(answer["alive"])),
        f"{answer['iterations']:,}",
        "" if answer["loss"] is None else f"{answer['loss']:.3f}",
        f"{answer['bytes_sent'] / 1e6:,.1f}",
        str(sum(answer["dropped"].values())),
    ]


def _aggregators(there: dict[str, dict[str, Any]]) -> str:
    """Who aggregates; more than one while the network is split, or an election is not known to all yet."""
    names = [name for name, answer in there.items() if answer["aggregates"]]
    return f"; aggregator: {', '.join(names)}" if names else ""
