"""This machine: `walktalk doctor` (does everything work?), `bench` (how fast is it?), `data` (data sets)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walktalk.core.errors import DataError, UserError
from walktalk.testing.bench import BENCHMARKS, find_benchmark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walktalk.learning import data
    from walktalk.testing.bench import BenchResult
    from walktalk.testing.doctor import Finding

SIGNS = {"good": ("✓", "green"), "absent": ("–", "yellow"), "bad": ("✗", "bold red")}
SOMETHING_IS_BAD = 1


def doctor(
    config: Annotated[
        Path | None, typer.Option(metavar="CLUSTER.yaml", help="Look at this cluster's ports and certificates, too.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="With --config: look whether this node can take part: its task, one training, memory, folders, the "
            "form of its data, the ways to its neighbours and the relay, clocks, versions."
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="With --name: stay so long, answer doctors of other sites, and ask those again that are not there.",
        ),
    ] = 0.0,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --name: write the form of this site's data, without a value, for --compare."
        ),
    ] = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Compare what sites have written with --schema. Repeatable."),
    ] = None,
    device: Annotated[str, typer.Option(help="With --name: auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Look whether everything works; exit code 1 where something will not, each with what to do.

    Without options: Python, torch, device, extras, data sets. With a cluster's file: its ports and certificates. With
    the name of a node in it: a preflight of that site, before a run. What is merely absent, such as an extra, a data
    set, or a neighbour that does not run yet, is no reason for exit code 1.
    """
    from dataclasses import asdict

    if (name is None) and (wait or schema is not None):
        raise UserError("--wait and --schema are for one node of a cluster: add --config CLUSTER.yaml --name NAME")
    if name is not None and config is None:
        raise UserError("--name is a node of a cluster: add --config CLUSTER.yaml")
    findings = []
    for finding in _looked_at(config, name, wait, device, schema, compare):
        findings.append(finding)
        if not as_json:
            _show_finding(finding)
    bad = [finding for finding in findings if finding.state == "bad"]
    if as_json:
        content = {"ok": not bad, "findings": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        typer.echo(f"\n{len(bad)} will not work" if bad else f"\n{_ready(config, name, compare)}")
    if bad:
        raise typer.Exit(SOMETHING_IS_BAD)


def _looked_at(
    config: Path | None, name: str | None, wait: float, device: str, schema: Path | None, compare: list[Path] | None
) -> Iterator[Finding]:
    from walktalk.testing.doctor import checkup

    if compare:
        from walktalk.testing.preflight import compared_schemas

        yield from compared_schemas(compare)
        return
    yield from checkup(Path.cwd(), config, name or "")
    if name is None or config is None:
        return
    from walktalk.runtimes.peers import load_cluster
    from walktalk.testing.doctor import Finding
    from walktalk.testing.preflight import preflight, write_schema

    cluster = load_cluster(config)
    cluster.number(name)
    if schema is not None:
        write_schema(cluster, name, schema)
        yield Finding("schema", "good", f"{schema}: send it to the operator, who compares those of all sites")
    yield from preflight(cluster, name, device, wait)


def _ready(config: Path | None, name: str | None, compare: list[Path] | None) -> str:
    """What comes next where nothing is wrong."""
    if compare:
        return "All sites' data has one form"
    if name is not None:
        return f"Ready: walktalk node --config {config} --name {name}"
    return "Ready: walktalk run smoke"


def _show_finding(finding: Finding) -> None:
    from rich.console import Console
    from rich.text import Text

    sign, style = SIGNS[finding.state]
    line = Text.assemble((sign, style), " ", (f"{finding.about:18}", "bold"), " ", finding.said)
    console = Console()
    console.print(line, soft_wrap=True)
    if finding.remedy:
        console.print(Text(f"{'':21}→ {finding.remedy}", style="dim"), soft_wrap=True)


# -- walktalk bench NAME ----------------------------------------------------------------------------------------------


def bench(
    name: Annotated[str, typer.Argument(help=f"Which benchmark: {', '.join(BENCHMARKS)}.")],
    model: Annotated[
        str | None,
        typer.Option(help="Of the benchmark executor, which model: lenet5, vit, lstm …; an unknown one lists all."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Measure speed here, beside a baseline in the same run, and print the ratio."""
    if model is not None and name in BENCHMARKS and name != "executor":
        raise UserError(f"--model is for the benchmark executor, not for {name}")
    measure = find_benchmark(name)  # imports torch, which takes a while
    given = {} if model is None else {"model": model}
    result = measure(lambda what: typer.echo(f"bench {name}: {what} …", err=True), **given)
    if as_json:
        typer.echo(json.dumps(result.as_json()))
    else:
        _show_result(result)


def _show_result(result: BenchResult) -> None:
    """Print the value, the baseline, their ratio and the details as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"walktalk bench {result.name}", title_justify="left")
    for column in ("", result.unit, "what"):
        table.add_column(column, justify="right" if column == result.unit else "left")
    table.add_row("value", _readable(result.value), result.what)
    table.add_row("baseline", _readable(result.baseline), result.against)
    over = "value over baseline" if result.higher_is_better else "baseline over value"
    table.add_row("ratio", f"{result.ratio:.2f}", over)
    for key, value in result.details.items():
        table.add_row("", _readable(value), key)
    Console().print(table)


def _readable(value: Any) -> str:
    """A number of a benchmark with thousands separated and few digits."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


# -- walktalk data get NAME, walktalk data check NAME -----------------------------------------------------------------

data_app = typer.Typer(help="Get data sets and check them.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Which data set: cifar10, fashion_mnist, mnist.")]


@data_app.command()
def get(
    name: Name,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FOLDER", help="Take a folder's files or archive, or an archive; fetch nothing."
        ),
    ] = None,
) -> None:
    """Fetch a data set, check it, and put it where tasks look for it."""
    from walktalk.learning import data  # imports torch, which takes a while

    data.fetch(_known(name), None if source is None else str(source), typer.echo)


@data_app.command()
def check(
    name: Name, folder: Annotated[Path | None, typer.Option(help="Where it is, if not in the usual place.")] = None
) -> None:
    """Check that every file of a data set is there and is the published one, to the byte."""
    from walktalk.learning import data

    dataset = _known(name)
    here = data.locate(dataset, None if folder is None else str(folder))
    typer.echo(f"{dataset.name} is in {here}, complete and unchanged ({len(dataset.files)} files)")


def _known(name: str) -> data.Dataset:
    from walktalk.learning import data as known

    dataset = known.DATASETS.get(name.replace("-", "_"))
    if dataset is None:
        raise DataError(f"there is no data set {name!r} to fetch; allowed: {', '.join(known.DATASETS)}")
    return dataset
