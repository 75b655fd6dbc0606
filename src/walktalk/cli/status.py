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

    answers = ask_everyone(load_cluster(config), STATUS, seconds)
    if as_json:
        typer.echo(json.dumps(answers))
        return
    _print(answers)


def _print(answers: dict[str, dict[str, Any] | None]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{sum(a is not None for a in answers.values())} of {len(answers)} nodes answer")
    for column in ("node", "neighbours", "role", "walks", "iterations", "loss", "sent (MB)", "dropped", "state"):
        table.add_column(column, justify="left" if column in ("node", "role", "state") else "right")
    for name, a in answers.items():
        if a is None:
            table.add_row(name, "", "", "", "", "", "", "", "no answer")
            continue
        table.add_row(
            name, str(len(a["alive"])), "aggregator" if a["aggregates"] else "", " ".join(map(str, a["walks"])),
            f"{a['iterations']:,}", "" if a["loss"] is None else f"{a['loss']:.3f}",
            f"{a['bytes_sent'] / 1e6:,.1f}", str(sum(a["dropped"].values())),
            "done" if a["done"] else "training",
        )  # fmt: skip
    Console().print(table)
