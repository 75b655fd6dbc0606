"""`walktalk bench NAME`: how fast it is here, against a baseline measured in the same run."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from walktalk.errors import UserError


def bench(
    name: Annotated[str, typer.Argument(help="Which benchmark: simulator, events.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Measure speed here, beside a baseline in the same run, and print the ratio."""
    from walktalk.bench import BENCHMARKS  # imports torch, which takes a while

    if name not in BENCHMARKS:
        raise UserError(f"there is no benchmark {name!r}; allowed: {', '.join(BENCHMARKS)}")
    result = BENCHMARKS[name]()
    if as_json:
        typer.echo(json.dumps(result.as_json()))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"walktalk bench {name}", title_justify="left")
    for column in ("", result.unit, "what"):
        table.add_column(column, justify="right" if column == result.unit else "left")
    table.add_row("value", f"{result.value:,.0f}", result.what)
    table.add_row("baseline", f"{result.baseline:,.0f}", result.against)
    table.add_row(
        "ratio", f"{result.ratio:.2f}", "value over baseline" if result.higher_is_better else "baseline over value"
    )
    for key, value in result.details.items():
        table.add_row("", f"{value:,.1f}" if isinstance(value, float) else f"{value:,}", key)
    Console().print(table)
