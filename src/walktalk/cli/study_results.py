"""What can be done with studies that have run: `walktalk list`, `report`, `compare`, `table`, `plot`, `replay`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walktalk.api import getting_ready
from walktalk.core.errors import SpecError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from walktalk.report import Results


def report(folder: Annotated[Path, typer.Argument(metavar="DIR", help="A study's folder.")]) -> None:
    """Draw a study's figures again and write its page, report.html."""
    from walktalk.report import write_report

    typer.echo(write_report(folder))


# -- walktalk list ----------------------------------------------------------------------------------------------------


def list_studies(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to look, folders below it too.")] = Path("out"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """List the studies in a folder, the newest first; `walktalk compare` puts several side by side."""
    from walktalk.records import studies_below

    found = studies_below(folder)
    if as_json:
        import json
        from dataclasses import asdict

        for study in found:
            typer.echo(json.dumps({**asdict(study), "folder": str(study.folder), "runs": study.runs}))
        return
    if not found:
        typer.echo(f"no studies in {folder}; `walktalk run quickstart` makes one")
        return
    _print_columns([_row(study) for study in found])


def _row(study: Any) -> dict[str, str]:
    state = "finished" if study.finished else f"{study.done} of {study.runs} runs"
    nodes = "" if study.nodes is None else f" {study.nodes}"
    return {
        "Folder": str(study.folder),
        "Task": study.task,
        "Network": f"{study.topology}{nodes}",
        "Runs": f"{study.algorithms} × {study.repetitions}",
        "State": f"{state}{' on peers' if study.engine == 'peers' else ''}",
        "Changed": datetime.fromtimestamp(study.changed).strftime("%Y-%m-%d %H:%M"),
    }


def _print_columns(rows: Any) -> None:
    """A plain table: each column as wide as its widest cell."""
    widths = {head: max(len(head), *(len(row[head]) for row in rows)) for head in rows[0]}
    for cells in ({head: head for head in rows[0]}, *rows):
        typer.echo("  ".join(f"{cells[head]:{width}}" for head, width in widths.items()).rstrip())


# -- walktalk compare -------------------------------------------------------------------------------------------------


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR DIR...", help="The studies' folders.")],
    out: Annotated[
        Path | None, typer.Option(help="The page to write; compare.html in the folder that holds them all if left out.")
    ] = None,
) -> None:
    """Put several studies into one table and on one page, and say which of their settings differ."""
    with getting_ready("walktalk"):
        from walktalk.report import open_comparison, results_table, write_comparison

    folders = _studies_in(folders)
    comparison = open_comparison(folders)
    page = write_comparison(comparison, out if out is not None else _beside(folders) / "compare.html")
    print_table(results_table(comparison.summary, lambda label: comparison.algorithms[label].heading))
    print_differences(list(comparison.studies), comparison.differences, comparison.without_differences)
    if comparison.warning:
        typer.echo(comparison.warning)
    typer.echo(f"Page     {page}")


def _beside(folders: list[Path]) -> Path:
    """The folder that holds them all, as the person would write it."""
    return Path(os.path.relpath(os.path.commonpath([folder.resolve().parent for folder in folders])))


# -- walktalk table ---------------------------------------------------------------------------------------------------


class Form(Enum):
    """The formats that `walktalk table` can write."""

    latex = "latex"
    markdown = "markdown"
    csv = "csv"


def table(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="A study's folder, or several to put into one table.")
    ],
    form: Annotated[
        Form, typer.Option(help="latex, for the package booktabs; markdown; or csv, the bare numbers.")
    ] = Form.latex,
    columns: Annotated[
        str | None,
        typer.Option(help="Which, such as accuracy,test_loss,time; also metrics of your own; all if left out."),
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="Training loss to reach; the lowest that every run reached if left out.")
    ] = None,
    significance: Annotated[
        float | None, typer.Option(help="From which on a difference is clear, and marked; 0.95 if left out.")
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(help="A row for each algorithm of each study, in the order of a column; -COLUMN for the reverse."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="The same, but only these rows: lr<0.1, topology=cycle. Repeatable."),
    ] = None,
) -> None:
    """Print the table of results as LaTeX, Markdown or CSV, for a paper or a spreadsheet.

    Of a sweep's folder, or with --sort or --where, it has a row for each algorithm of each study, with the settings in
    which they differ.
    """
    with getting_ready("walktalk"):
        from walktalk.report import (
            as_results,
            judged_at,
            latex,
            markdown,
            numbers,
            open_comparison,
            open_study,
            results_table,
            sorted_and_filtered,
        )
        from walktalk.studies import summarize

    studies = _studies_in(folders)
    wanted = [name.strip() for name in columns.split(",")] if columns is not None else []
    if sort is not None or where or studies != folders:
        _refuse_with_many(target, significance)
        rows = sorted_and_filtered(open_comparison(studies).runs, sort, where or (), wanted)
        if form is Form.csv:
            typer.echo(rows.to_csv(index=False).rstrip("\n"))
            return
        results = as_results(rows, f"{len(rows)} algorithms in {len(studies)} studies")
    else:
        if len(studies) == 1:
            study = open_study(studies[0])
            name = None
            summary = study.summary if target is None else summarize(study.history, study.spec, target=target)
        else:
            comparison = open_comparison(studies)
            summary = comparison.summary_to(target)
            name = lambda label: comparison.algorithms[label].heading  # noqa: E731
        if form is Form.csv:
            found = numbers(summary, name)
            typer.echo(sorted_and_filtered(found, columns=wanted).to_csv().rstrip("\n"))
            return
        results = results_table(judged_at(summary, significance), name, further=True, columns=wanted or None)
    typer.echo(latex(results) if form is Form.latex else markdown(results))


def _studies_in(folders: list[Path]) -> list[Path]:
    """The folders of studies that are meant; of a folder of a sweep all that are in it, and no page beside them."""
    from walktalk.records import StudyFolder, studies_below

    found: list[Path] = []
    for folder in [one for one in folders if one.suffix != ".html" or not one.is_file()] or folders:
        below = [] if StudyFolder(folder).spec.is_file() or not folder.is_dir() else studies_below(folder)
        found += sorted(study.folder for study in below) or [folder]
    return found


def _refuse_with_many(target: float | None, significance: float | None) -> None:
    for option, given in (("--target", target), ("--significance", significance)):
        if given is not None:
            raise SpecError(f"{option} has no meaning for a table of many studies; leave it out, or --sort and --where")


# -- walktalk plot ----------------------------------------------------------------------------------------------------


class Kind(Enum):
    """The figures that `walktalk plot` can draw."""

    curves = "curves"
    timeline = "timeline"
    network = "network"
    partition = "partition"
    failures = "failures"


class Axis(Enum):
    """The horizontal axes that curves can be drawn against."""

    iteration = "iteration"
    time = "time"
    bits = "bits"


def plot(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A study's folder.")],
    kind: Annotated[
        Kind, typer.Option(metavar="KIND", help="What to draw: curves, timeline, network, partition or failures.")
    ] = Kind.curves,
    x: Annotated[
        Axis, typer.Option("--x", metavar="AXIS", help="For curves: against iteration, time or bits.")
    ] = Axis.iteration,
    algorithm: Annotated[
        str | None, typer.Option(help="For a time line: whose, by label; the first if left out.")
    ] = None,
    repetition: Annotated[int, typer.Option(min=0, help="For a time line: which repetition.")] = 0,
    start: Annotated[float, typer.Option("--from", min=0.0, help="For a time line: first second.")] = 0.0,
    end: Annotated[
        float | None, typer.Option("--to", help="For a time line: last second; a few iterations if left out.")
    ] = None,
) -> None:
    """Draw a figure of a study and write it as PNG, SVG and PDF to its folder."""
    from walktalk.report import TimelineWindow, draw

    for path in draw(folder, kind.value, x.value, TimelineWindow(algorithm, repetition, start, end)):
        typer.echo(path)


# -- walktalk replay --------------------------------------------------------------------------------------------------


def replay(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A study's folder.")],
    gif: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the film: a .gif or a .webp file.")],
    algorithm: Annotated[
        str | None, typer.Option(help="Whose run, by its label; the first with a few walks if left out.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1.0, max=60.0, help="How long the film lasts.")] = 10.0,
) -> None:
    """Make a small film of a run: the network at work, and the loss that falls. The report has the run to explore."""
    from walktalk.report import write_film

    typer.echo(write_film(folder, gif, algorithm=algorithm, seconds=seconds))


# -- Who won, as a table for the terminal -----------------------------------------------------------------------------

NAME = 12  # characters, of an algorithm: its longest word
WIDTH = 100  # where there is no terminal to say


def print_results(summary: dict[str, Any], folder: Path, page: Path) -> None:
    """The table of results, and where everything was written."""
    from walktalk.report import results_table

    console = print_table(results_table(summary))
    console.print(f"Report   {page}", highlight=False, soft_wrap=True)
    console.print(
        f"Records  {folder} (spec.yaml, history.csv, summary.json, figures/, runs/)", highlight=False, soft_wrap=True
    )


def print_table(results: Results) -> Console:
    """A table of results, the best of each column marked; where it was printed."""
    from rich.text import Text

    console = _console()
    table = _table(results.title, results.note)
    for index, head in enumerate(results.head):
        # Where it is too wide, a name takes two lines; a number only on a narrow terminal.
        keep = index > 0 and console.width >= WIDTH
        table.add_column(
            head, justify="left" if index == 0 else "right", no_wrap=keep, min_width=None if index else NAME
        )
    for row in results.rows:
        table.add_row(*(Text(cell.text, style="bold green" if cell.best else "") for cell in row))
    console.print(table)
    if results.warning:
        console.print(results.warning, style="bold red", highlight=False, soft_wrap=True)
    return console


def print_differences(studies: list[str], differences: Mapping[str, list[Any]], without: str) -> None:
    """A row for each setting in which studies differ; `without` is what to say where none does."""
    from rich.text import Text

    from walktalk.report import as_yaml

    console = _console()
    if not differences:
        console.print(without, highlight=False)
        return
    table = _table("Settings that differ")
    for head in ("Setting", *studies):
        table.add_column(head, overflow="fold")
    for key, values in differences.items():
        table.add_row(key, *(Text(as_yaml(value)) for value in values))
    console.print(table)


def _console() -> Console:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def _table(title: str, caption: str | None = None) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    looks: Any = {"title_justify": "left", "title_style": "bold", "caption_justify": "left"}
    return Table(box=SIMPLE_HEAD, title=title, caption=caption, **looks)
