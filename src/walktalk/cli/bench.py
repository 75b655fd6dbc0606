"""`walktalk bench NAME`: how fast it is here, against a baseline measured in the same run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walktalk.errors import UserError

if TYPE_CHECKING:
    from walktalk.bench import BenchResult

MODELS = (
    "logistic, perceptron, small-cnn, lenet5, gn-lenet, tiny-vit, vit, text, adapter, lstm, gru, resnet20, "
    "resnet20-gn, resnet20-evonorm, vgg11, vgg11-plain"
)
NAMES = "simulator, gossip, executor, events, growth, theory, hop"


def bench(
    name: Annotated[str, typer.Argument(help=f"Which benchmark: {NAMES}.")],
    model: Annotated[str | None, typer.Option(help=f"Of the benchmark executor, which model: {MODELS}.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Measure speed here, beside a baseline in the same run, and print the ratio."""
    if name not in NAMES.split(", "):
        raise UserError(f"there is no benchmark {name!r}; allowed: {NAMES}")
    if model is not None and name != "executor":
        raise UserError(f"--model is for the benchmark executor, not for {name}")
    if model is not None and model not in MODELS.split(", "):
        raise UserError(f"there is no model {model!r}; allowed: {MODELS}")
    from walktalk.bench import BENCHMARKS  # imports torch, which takes a while

    given = {} if model is None else {"model": model}
    result = BENCHMARKS[name](lambda what: typer.echo(f"bench {name}: {what} …", err=True), **given)
    if as_json:
        typer.echo(json.dumps(result.as_json()))
    else:
        show(result)


def show(result: BenchResult) -> None:
    """The result as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"walktalk bench {result.name}", title_justify="left")
    for column in ("", result.unit, "what"):
        table.add_column(column, justify="right" if column == result.unit else "left")
    table.add_row("value", in_words(result.value), result.what)
    table.add_row("baseline", in_words(result.baseline), result.against)
    over = "value over baseline" if result.higher_is_better else "baseline over value"
    table.add_row("ratio", f"{result.ratio:.2f}", over)
    for key, value in result.details.items():
        table.add_row("", in_words(value), key)
    Console().print(table)


def in_words(value: Any) -> str:
    """A number as people read it."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"
