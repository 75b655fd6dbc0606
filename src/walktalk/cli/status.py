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

    table = Table(title=f"{sum(a is not None for a in answers.values())} of {len(answers)} nodes answer")
    located = any(sites.values())
    numbers = ("neighbours", "walks", "iterations", "loss", "sent (MB)", "dropped")
    columns = ("node", *(("site",) if located else ()), "neighbours", "role", *numbers[1:], "state")
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left")
    for name, a in answers.items():
        first = (name, sites[name]) if located else (name,)
        if a is None:
            table.add_row(*first, *[""] * 7, "no answer")
            continue
        table.add_row(
            *first, str(len(a["alive"])), "aggregator" if a["aggregates"] else "", " ".join(map(str, a["walks"])),
            f"{a['iterations']:,}", "" if a["loss"] is None else f"{a['loss']:.3f}",
            f"{a['bytes_sent'] / 1e6:,.1f}", str(sum(a["dropped"].values())),
            "done" if a["done"] else "training",
        )  # fmt: skip
    Console().print(table)
