"""`walktalk published list`, `walktalk published run table5`: tables of others, run again beside their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from walktalk.cli import completion

app = typer.Typer(help="Tables of others, run again: their number, ours, the difference.", no_args_is_help=True)
ID = "Which (see `walktalk published list`)."


@app.command("list")
def list_() -> None:
    """Which tables there are, with their rows and columns."""
    from rich.console import Console
    from rich.table import Table

    from walktalk import published

    shown = Table(title="walktalk published run ID", title_justify="left")
    for column in ("id", "what", "columns", "rows"):
        shown.add_column(column)
    for one in published.TABLES.values():
        shown.add_row(one.name, one.title, ", ".join(one.columns), ", ".join(row.name for row in one.rows))
    Console().print(shown)


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="ID", help=ID, autocompletion=completion.tables)],
    scale: Annotated[
        str, typer.Option(help="smoke: digits, a minute on two cores; paper: as published, with its data and a GPU.")
    ] = "smoke",
    rows: Annotated[str, typer.Option(help="Only these rows, separated by commas.")] = "",
    columns: Annotated[str, typer.Option(help="Only these columns, separated by commas.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="Folder; out/published-SCALE if left out; runs there are kept.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    processes: Annotated[
        int,
        typer.Option(min=1, help="Run this many cells side by side, each in a process, instead of all in one engine."),
    ] = 1,
    lr: Annotated[float | None, typer.Option(min=0.0, help="A learning rate for all, in place of each cell's.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a key of all its studies, e.g. task.folder=FOLDER. Repeatable."
        ),
    ] = None,
) -> None:
    """Run what is not there yet, all rows that share their data at once, and show it beside what was published."""
    from walktalk import published
    from walktalk.studies import nested

    table = published.find_table(name)
    folder = out if out is not None else Path("out") / f"published-{scale}"
    published.run_table(
        table,
        published.table_scale(scale),
        folder,
        rows=parts(rows),
        columns=parts(columns),
        changes=nested(settings or []),
        lr=lr,
        device=device,
        processes=processes,
        say=lambda line: typer.echo(line, err=True),
    )
    show(name, folder)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="Which table.", autocompletion=completion.tables)],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of `walktalk published run`.")],
) -> None:
    """What is there of a table, beside what was published, as Markdown; the same numbers go to a CSV file there."""
    from walktalk import published
    from walktalk.records import write_text

    table = published.find_table(name)
    cells = published.compared(table, folder)
    path = folder / table.name / "compared.csv"
    if cells:
        write_text(path, published.as_frame(cells).to_csv(index=False))
    typer.echo(f"{table.title} ({table.source})\n{table.measured}\n")
    typer.echo(published.as_markdown(table, cells))
    if cells:
        typer.echo(path)


def parts(given: str) -> list[str]:
    return [part.strip() for part in given.split(",") if part.strip()]
