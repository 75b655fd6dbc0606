"""`walktalk paper` and `walktalk published`: figures and tables of the paper and of others, run and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walktalk.cli.options import complete_figure, complete_table
from walktalk.core.errors import SpecError
from walktalk.core.settings import misfit

if TYPE_CHECKING:
    from pandas import DataFrame

    from walktalk.reproduction import paper as papers
    from walktalk.studies import Progress

OPTIONS = {  # short for keys of a study
    "--repetitions": "repetitions",
    "--iterations": "stop.iterations",
    "--optimizer-state": "training.optimizer_state",
}

paper_app = typer.Typer(help="The paper's figures and tables.", no_args_is_help=True)


@paper_app.command("list")
def list_figures() -> None:
    """Which figures and tables there are, and what their paper scale needs."""
    from rich.console import Console
    from rich.table import Table

    from walktalk.reproduction import paper

    table = Table(title="walktalk paper run ID", title_justify="left")
    for column in ("id", "what", "studies", "for --scale paper"):
        table.add_column(column)
    for one in paper.FIGURES.values():
        shared = [other.name for other in paper.FIGURES.values() if one.runs and other.runs == one.runs]
        studies = f"{len(one.panels)}, the same as {shared[0]}" if shared and shared[0] != one.name else len(one.panels)
        table.add_row(one.name, one.title, str(studies) if one.runs else "none", one.needs or "nothing more")
    table.add_row(paper.FAMILY, "All algorithms: loss against iterations, time and data", "one a graph", "nothing more")
    Console().print(table)


@paper_app.command("run")
def run_figure(
    name: Annotated[
        str,
        typer.Argument(metavar="ID", help="Which (see `walktalk paper list`), or all.", autocompletion=complete_figure),
    ],
    scale: Annotated[
        str, typer.Option(help="smoke: in small, minutes on two cores; paper: as in the paper.")
    ] = "smoke",
    out: Annotated[Path | None, typer.Option(help="Folder; out/paper-SCALE if left out. Runs in it are kept.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="Runs of each algorithm; the scale's if left out.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="Length of a run; the scale's if left out.")] = None,
    optimizer_state: Annotated[
        str | None,
        typer.Option(help="Where the optimizer's state lives: visit, walk or node; the scale's if left out."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a key of its studies, e.g. task.model=FOLDER. Repeatable."
        ),
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(
            help="lr: first find each algorithm's own learning rate; best: that, and where its optimizer's state lives."
        ),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(help="Other settings that settle a question (see `walktalk paper variants`). Repeatable."),
    ] = None,
    panel: Annotated[
        list[str] | None, typer.Option(help="Only this one of the figure's studies, by its folder's name. Repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, say how much there is to do, and train nothing.")
    ] = False,
) -> None:
    """Run what a figure shows, if it is not there yet, and draw it. Interrupted, the same command goes on."""
    from walktalk.reproduction import paper

    if scale not in paper.SCALES:
        raise misfit("--scale", scale, ", ".join(paper.SCALES), SpecError)
    tuning = next((one for one in paper.TUNED if one == tune), None)
    if tune is not None and tuning is None:
        raise misfit("--tune", tune, ", ".join(paper.TUNED), SpecError)
    folder = out if out is not None else Path("out") / f"paper-{scale}"
    short = dict(zip(OPTIONS, (repetitions, iterations, optimizer_state), strict=True))
    changes = _changes({option: value for option, value in short.items() if value is not None}, settings or [])
    if name == "all" and (variant or panel):
        raise SpecError(f"{'--variant' if variant else '--panel'} is of one figure; name it in place of all")
    if name == "all":  # options are meant for the figures that they fit; what a figure compares cannot be set anywhere
        figures = list(paper.FIGURES.values())
    else:
        figures = [paper.only_panels(paper.varied(paper.figure(name), variant or [], scale), panel or [])]
        _refuse_without_meaning(figures[0], changes, tuning)

    if dry_run:
        for one in {one.runs or one.name: one for one in figures if one.runs}.values():
            panels = paper.check_figure(one, scale, folder, device=device, changes=changes, tune=tuning)
            _tell_of_work(one, paper.work_ahead(panels))
        return

    from walktalk.reproduction.paper import drawing  # imports torch, which takes a while

    try:
        if name == "all":  # a mistake is to show before the first figure is run
            for one in {one.runs or one.name: one for one in figures}.values():  # shared runs are looked at once
                paper.check_figure(one, scale, folder, device=device, changes=changes, tune=tuning)
        for one in figures:
            made = drawing.make(
                one,
                scale,
                folder,
                device=device,
                changes=changes,
                tune=tuning if one.runs else None,
                report=_reporter(one.name),
                say=_sayer(one.name),
            )
            for path in made:
                typer.echo(path)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt("stopped; what is done is kept: the same command goes on from there") from stop


def _tell_of_work(one: papers.Figure, ahead: Sequence[tuple[papers.PanelRun, float]]) -> None:
    """What a figure has to train; what a search for learning rates adds is not known ahead."""
    for run, steps in ahead:
        spec, runs = run.spec, len(run.spec.described) * run.spec.repetitions
        ends = [
            f"{value:,g} {unit}"
            for value, unit in ((spec.stop.iterations, "iterations"), (spec.stop.time, "s"))
            if value
        ]
        about = "done" if steps == 0 else f"{runs} runs of {' or '.join(ends)}, about {steps:,.0f} model-steps"
        typer.echo(f"{one.name}, {run.panel.title}: {about}")
    typer.echo(f"{one.name}: about {sum(steps for _, steps in ahead):,.0f} model-steps, in {ahead[0][0].folder.parent}")


@paper_app.command()
def variants() -> None:
    """Other settings of figures, for `--variant`: each settles a question that the figure's own runs leave open."""
    from rich.console import Console
    from rich.table import Table

    from walktalk.reproduction import paper

    table = Table(title="walktalk paper run ID --variant NAME", title_justify="left")
    for column in ("name", "figures", "what it is for"):
        table.add_column(column)
    for one in paper.VARIANTS.values():
        small = "" if one.in_small else " (--scale paper)"
        table.add_row(one.name, ", ".join(one.figures), one.question + small)
    Console().print(table)


def _changes(short: Mapping[str, object], settings: Sequence[str]) -> dict[str, Any]:
    """What the options and --set change together; where both change the same key, nobody knows which is meant."""
    from walktalk.studies import nested

    given = nested(settings)
    for option in short:
        inner: Any = given
        *sections, key = OPTIONS[option].split(".")
        for section in sections:
            inner = inner.get(section, {})
            if not isinstance(inner, dict):
                raise SpecError(f"{option} and --set {section} contradict each other; leave one out")
        if key in inner:
            raise SpecError(f"{option} and --set {OPTIONS[option]} contradict each other; leave one out")
    return nested([*settings, *(f"{OPTIONS[option]}={value}" for option, value in short.items())])


def _refuse_without_meaning(one: papers.Figure, changes: Mapping[str, Any], tune: papers.Tuning | None) -> None:
    """Options that a figure without training does not depend on: who gives them expects something of them."""
    from walktalk.reproduction import paper

    options = {key: option for option, key in OPTIONS.items()}
    useless = [options.get(key, f"--set {key}") for key in paper.without_meaning(one, changes)]
    useless += ["--tune"] if tune and not one.runs else []
    if one.tuned and tune == "best":
        raise SpecError(f"--tune best: {one.name} has plain SGD, which keeps no state, and finds all rates as it is")
    if useless:
        raise SpecError(f"{useless[0]} has no meaning for {one.name}, for which nothing is trained; leave it out")


@paper_app.command()
def phase(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder of `walktalk paper run fig5`, or with alpha-A/TOPOLOGY.csv (paper_gpu.py)."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for what is written; DIR if left out.")] = None,
    advise: Annotated[
        bool, typer.Option("--advise", help="Ask the advisor as well: about a minute for each setting.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda: for the advisor's pilots.")] = "auto",
) -> None:
    """Who wins, by α, topology and axis: measured, and what the advisor says; phase.csv, advisor.csv and the figure."""
    import shutil

    from walktalk.records import write_text
    from walktalk.report import figures
    from walktalk.reproduction.paper.drawing import who_wins

    target = folder if out is None else out
    found = who_wins.measured(folder)
    said, there = target / "advisor.csv", folder / "advisor.csv"
    known = who_wins.words(said if said.is_file() else there)  # damage shows before anything is written
    target.mkdir(parents=True, exist_ok=True)
    if there.is_file() and not said.is_file():
        shutil.copyfile(there, said)
    write_text(target / "phase.csv", found.to_csv(index=False))
    rows = {"Measured": found}
    if advise:
        size = who_wins.model_bytes(folder)
        rows["Advisor"] = who_wins.predicted(found, said, device=device, model_bytes=size, told=typer.echo)
    elif said.is_file():
        fitting = who_wins.of_these(found, known)
        missing = len(found) - len(fitting)
        if missing:  # pilots take minutes, so they are not begun unasked
            about = f"{missing} of {len(found)} settings, each with its loss to reach, are not in {said}"
            typer.echo(f"{about}, so the advisor is left out; --advise asks it", err=True)
        else:
            rows["Advisor"] = fitting
    for path in (target / "phase.csv", *figures.save(who_wins.diagram(rows), target / "phase")):
        typer.echo(path)


def _reporter(name: str) -> Callable[[str, Progress], None]:
    """A line now and then for each panel."""
    from walktalk.api import Lines

    lines: dict[str, Lines] = {}
    return lambda title, progress: lines.setdefault(title, Lines(f"{name}, {title}"))(progress)


def _sayer(name: str) -> Callable[[str], None]:
    """What is said once goes where progress goes, so that stdout has the written files alone."""
    return lambda line: typer.echo(f"{name}: {line}", err=True)


# -- walktalk published list, walktalk published run table5 -----------------------------------------------------------

published_app = typer.Typer(
    help="Tables of others, run again: their number, ours, the difference.", no_args_is_help=True
)
ID = "Which (see `walktalk published list`)."


@published_app.command("list")
def list_tables() -> None:
    """Which tables there are, with their rows and columns."""
    from rich.console import Console
    from rich.table import Table

    from walktalk.reproduction import published

    shown = Table(title="walktalk published run ID", title_justify="left")
    for column in ("id", "what", "columns", "rows"):
        shown.add_column(column)
    for one in published.TABLES.values():
        shown.add_row(one.name, one.title, ", ".join(one.columns), ", ".join(row.name for row in one.rows))
    Console().print(shown)


@published_app.command("run")
def run_table(
    name: Annotated[str, typer.Argument(metavar="ID", help=ID, autocompletion=complete_table)],
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
    from walktalk.reproduction import published
    from walktalk.studies import nested

    table = published.find_table(name)
    folder = out if out is not None else Path("out") / f"published-{scale}"
    published.run_table(
        table,
        folder,
        published.CellSettings(published.table_scale(scale), nested(settings or []), lr, device),
        rows=_names(rows),
        columns=_names(columns),
        processes=processes,
        say=lambda line: typer.echo(line, err=True),
    )
    show_table(name, folder)


@published_app.command("show")
def show_table(
    name: Annotated[str, typer.Argument(metavar="ID", help="Which table.", autocompletion=complete_table)],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of `walktalk published run`.")],
) -> None:
    """What is there of a table, beside what was published, as Markdown; the same numbers go to a CSV file there."""
    from walktalk.records import write_text
    from walktalk.reproduction import published

    table = published.find_table(name)
    cells = published.compared(table, folder)
    path = folder / table.name / "compared.csv"
    if cells:
        write_text(path, published.as_frame(cells).to_csv(index=False))
    typer.echo(f"{table.title} ({table.source})\n{table.measured}\n")
    typer.echo(published.as_markdown(table, cells))
    if cells:
        typer.echo(path)


def _names(given: str) -> list[str]:
    return [part.strip() for part in given.split(",") if part.strip()]


# -- walktalk suite run tiny-sites ------------------------------------------------------------------------------------

suite_app = typer.Typer(help="Suites of settings in which algorithms meet, each at its best.", no_args_is_help=True)
SUITES = ("tiny-sites",)


@suite_app.command("run")
def run_suite(
    name: Annotated[str, typer.Argument(metavar="ID", help="Which: tiny-sites, many sites with few samples each.")],
    out: Annotated[Path | None, typer.Option(help="Folder; out/ID if left out; runs there are kept.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--setting", help="Only this one, such as digits-1x64-alike (samples x sites). Repeatable."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=10, help="How many seeds are counted.")] = 10,
    processes: Annotated[int, typer.Option(min=1, help="How many runs side by side.")] = 1,
) -> None:
    """Find each algorithm's best rate, run what is not there yet, and show it. Interrupted, it goes on."""
    from walktalk.reproduction import suites

    folder = out if out is not None else Path("out") / _suite(name)
    suites.run_suite(folder, settings or [], seeds, processes, say=lambda line: typer.echo(line, err=True))
    show_suite(name, folder)


@suite_app.command("show")
def show_suite(
    name: Annotated[str, typer.Argument(metavar="ID", help="Which suite.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of `walktalk suite run`.")],
) -> None:
    """A table for equal trainings, bytes and hours, as Markdown, and the phase diagram, phase.png and phase.svg."""
    from walktalk.report import figures
    from walktalk.reproduction import suites

    runs = _runs(name, folder)
    typer.echo(f"## Who is ahead\n\n{suites.in_short(runs)}")
    for budget, words in suites.BUDGETS.items():
        typer.echo(f"## {words}\n\n{suites.as_markdown(runs, budget)}")
    for path in figures.save(suites.diagram(runs), folder / "phase"):
        typer.echo(path, err=True)


@suite_app.command("advise")
def advise_suite(
    name: Annotated[str, typer.Argument(metavar="ID", help="Which suite.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of `walktalk suite run`.")],
    settings: Annotated[
        list[str] | None, typer.Option("--setting", help="Only this one, such as digits-1x64-alike. Repeatable.")
    ] = None,
) -> None:
    """Ask the advisor in every setting, and count how often it is right; answers in DIR/advice.csv are kept."""
    from walktalk.reproduction import suites

    _suite(name)
    found = suites.ask_advisor(_runs(name, folder), folder, typer.echo, settings or [])
    typer.echo(f"right in {sum(one.right for one in found)} of {len(found)}")


def _suite(name: str) -> str:
    if name not in SUITES:
        raise misfit("ID", name, ", ".join(SUITES), SpecError)
    return name


def _runs(name: str, folder: Path) -> DataFrame:
    import pandas as pd

    suite, there = _suite(name), folder / "runs.csv"
    if not there.is_file():
        raise SpecError(f"{there} is not there; `walktalk suite run {suite} --out {folder}` makes it")
    return pd.read_csv(there)
