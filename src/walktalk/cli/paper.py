"""`walktalk paper list`, `walktalk paper run fig4`: the paper's figures and tables, run and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from walktalk.errors import SpecError

app = typer.Typer(help="The paper's figures and tables.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """Which figures and tables there are, and what their paper scale needs."""
    from rich.console import Console
    from rich.table import Table

    from walktalk.studies import paper  # imports torch, which takes a while

    table = Table(title="walktalk paper run ID", title_justify="left")
    for column in ("id", "what", "studies", "for --scale paper"):
        table.add_column(column)
    for one in paper.FIGURES.values():
        shared = [other.name for other in paper.FIGURES.values() if one.runs and other.runs == one.runs]
        studies = f"{len(one.panels)}, the same as {shared[0]}" if shared and shared[0] != one.name else len(one.panels)
        table.add_row(one.name, one.title, str(studies) if one.runs else "none", one.needs or "nothing more")
    Console().print(table)


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="ID", help="Which (see `walktalk paper list`), or all.")],
    scale: Annotated[
        str, typer.Option(help="smoke: in small, minutes on two cores; paper: as in the paper.")
    ] = "smoke",
    out: Annotated[Path | None, typer.Option(help="Folder; out/paper-SCALE if left out. Runs in it are kept.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    repetitions: Annotated[int | None, typer.Option(min=1, help="In place of the scale's own.")] = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="In place of the scale's own.")] = None,
    optimizer_state: Annotated[
        str | None, typer.Option(help="visit, walk or node, in place of the scale's own.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a key of its studies, e.g. task.model=FOLDER. Repeatable."
        ),
    ] = None,
    tune: Annotated[str | None, typer.Option(help="lr: first find each algorithm's own learning rate.")] = None,
) -> None:
    """Run what a figure shows, if it is not there yet, and draw it."""
    from walktalk.report import paper as drawing
    from walktalk.studies import nested, paper

    if scale not in paper.SCALES:
        raise SpecError(f"--scale {scale} is unknown; allowed: {', '.join(paper.SCALES)}")
    if tune not in (None, "lr"):
        raise SpecError(f"--tune {tune} is unknown; allowed: lr")
    folder = out if out is not None else Path("out") / f"paper-{scale}"
    short = {"repetitions": repetitions, "stop.iterations": iterations, "training.optimizer_state": optimizer_state}
    changes = nested([*(f"{key}={value}" for key, value in short.items() if value is not None), *(settings or [])])
    for one in paper.FIGURES.values() if name == "all" else [paper.figure(name)]:
        made = drawing.make(
            one, scale, folder, device=device, changes=changes, tune=tune is not None, report=_reporter(one.name)
        )
        for path in made:
            typer.echo(path)


@app.command()
def phase(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with alpha-A/TOPOLOGY.csv, from benchmarks/paper_gpu.py.")
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for what is written; DIR if left out.")] = None,
    advise: Annotated[
        bool, typer.Option("--advise", help="Ask the advisor, too: a minute or so for each of its words.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda: for the advisor's pilots.")] = "auto",
) -> None:
    """Who wins, by α, topology and axis: measured, and what the advisor says; phase.csv, advisor.csv and the figure."""
    from walktalk import plots
    from walktalk.report import who_wins

    target = folder if out is None else out
    found = who_wins.measured(folder)
    target.mkdir(parents=True, exist_ok=True)
    found.to_csv(target / "phase.csv", index=False)
    rows = {"Measured": found}
    said = target / "advisor.csv"
    if advise or said.is_file():
        rows["Advisor"] = who_wins.predicted(found, said, device=device, told=typer.echo)
    for path in (target / "phase.csv", *plots.save(who_wins.diagram(rows), target / "phase")):
        typer.echo(path)


def _reporter(name: str):  # type: ignore[no-untyped-def]
    """A line now and then for each panel."""
    from walktalk.cli.progress import Lines

    lines: dict[str, Lines] = {}
    return lambda title, progress: lines.setdefault(title, Lines(f"{name}, {title}"))(progress)
