"""`walktalk advise`: walks or gossip, how many walks, where, how fast to learn, at what cost; `walktalk algorithms`."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walktalk.api import getting_ready
from walktalk.cli.options import complete_study
from walktalk.core.errors import SpecError

if TYPE_CHECKING:
    from walktalk.advisor import Advice
    from walktalk.graphs import Graph
    from walktalk.studies import Entry


UNITS = {
    "time": {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0},
    "bits": {"": 1.0, "bit": 1.0, "bits": 1.0, "B": 8.0, "kB": 8e3, "MB": 8e6, "GB": 8e9, "TB": 8e12},
    "iterations": {"": 1.0},
}


def advise(
    study: Annotated[
        str, typer.Argument(help="A YAML file, or a preset (see `walktalk presets`).", autocompletion=complete_study)
    ] = "quickstart",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key, e.g. network.topology=cycle. Repeatable."),
    ] = None,
    objective: Annotated[str, typer.Option(help="What to save: iterations, time or bits.")] = "time",
    target_loss: Annotated[
        float | None,
        typer.Option(
            help="Training loss to reach; if left out, the study's `stop.target_loss`, else where a tenth of the "
            "excess over the lowest possible loss is left."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Instead of a target: the lowest loss for this much of the objective: 3000, 10min, 5GB."),
    ] = None,
    algorithms: Annotated[
        str | None,
        typer.Option(
            help="What to choose among: all, or names such as multi_walk,d2,sgp (see `walktalk algorithms`); walks, "
            "gossip and what the study names if left out."
        ),
    ] = None,
    model_bytes: Annotated[
        int | None, typer.Option(help="Size of the real model on the wire, if the study trains a smaller stand-in.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Advise an algorithm and its settings for a study, from theory and short pilot runs."""
    from walktalk.studies import read_study

    read_study(study)  # a mistake in the name or in the YAML is told before anything heavy is imported
    with getting_ready("walktalk"):
        from walktalk.advisor import Goal, advise_study  # imports torch, which takes a while
        from walktalk.advisor import as_json as plain
        from walktalk.advisor import command as carried_out
        from walktalk.studies import load_spec

    spec = load_spec(study, changes or [])
    if budget is not None and target_loss is not None:
        raise SpecError("--budget and --target-loss exclude each other: the cheapest way to a loss, or the lowest loss")
    wanted = target_loss if target_loss is not None or budget is not None else spec.stop.target_loss
    goal = Goal(objective, wanted, amount_of(budget, objective))  # type: ignore[arg-type]  # checked by Goal
    among = None if algorithms is None else [name.strip() for name in algorithms.split(",")]
    with shown(as_json) as told:
        advice = advise_study(spec, goal, algorithms=among, device=device, model_bytes=model_bytes, progress=told)
    command = carried_out(advice, study, changes or [])
    if as_json:
        typer.echo(json.dumps({**plain(advice), "command": command}, indent=2, ensure_ascii=False))
    else:
        show(advice, command)


def amount_of(text: str | None, objective: str) -> float | None:
    """A budget such as 3000, 10min or 5GB, in iterations, seconds or bits."""
    if text is None:
        return None
    units = UNITS.get(objective, UNITS["iterations"])
    match = re.fullmatch(r"\s*([0-9.eE+-]+?)\s*([A-Za-z]*)\s*", text)
    names = ", ".join(f"100{unit}" for unit in units if unit) or "3000"
    try:
        if match is None or match[2] not in units:
            raise ValueError
        return float(match[1]) * units[match[2]]
    except ValueError:
        raise SpecError(f"--budget {text}: is no amount of {objective}; allowed: a number, such as {names}") from None


@contextmanager
def shown(quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """How far the pilots are: a bar on a terminal, a line now and then elsewhere, nothing beside JSON."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        last: list[str] = []

        def line(text: str, share: float) -> None:
            phase = text.partition(",")[0].partition(":")[0]
            if not quiet and last[-1:] != [phase] and len(last) < 12:
                last.append(phase)
                print(f"advise: {text}", file=sys.stderr)

        yield line
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("pilots", total=1.0)
        yield lambda text, share: bar.update(task, description=text, completed=share)


def show(advice: Advice, command: str) -> None:
    """Print the advice on the terminal."""
    from rich.console import Console
    from rich.table import Table

    from walktalk.advisor import as_json as plain
    from walktalk.advisor import begun, how_sure

    console = Console()
    found = plain(advice)
    console.print(
        f"[bold green]{begun(advice.best.protocol.title)}[/], learning rate {advice.best.lr:g}", highlight=False
    )
    if found["walks"] is not None and found["walks"] > 1:
        console.print(f"Mix the walks at node {found['aggregator']}.", highlight=False)
    table = Table(title=heading(found), title_justify="left", title_style="bold")
    for index, head in enumerate(("expected", "value", "95 % of runs")):
        table.add_column(head, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows_of(found):
        table.add_row(*row)
    console.print(table)
    for line in found["why"]:
        console.print(line, highlight=False)
    console.print(
        f"How sure: {how_sure(advice)} ({advice.sure:.0%} that it is within 10 % of the best of "
        f"{len(advice.prospects)} candidates; the pilots took {advice.trainings:,} trainings).",
        highlight=False,
    )
    for note in found["notes"]:
        console.print(f"Note: {note}.", highlight=False)
    console.print(f"Run it: {command}", highlight=False, soft_wrap=True, markup=False)


def heading(found: dict[str, Any]) -> str:
    from walktalk.advisor import amount

    if found["budget"] is not None:
        spent = amount(found["objective"], found["budget"])
        missed = found["target_loss"]
        return f"For a budget of {spent}" if missed is None else f"{missed:.4g} is out of reach; for {spent}"
    return f"To a training loss of {found['target_loss']:.4g}, least {found['objective']}"


def rows_of(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    from walktalk.advisor import amount, interval

    rows = []
    for axis, name in (("iterations", "iterations"), ("time", "time"), ("bits", "data sent")):
        of = found["expected"][axis]
        value, low, high = (inf if of[key] is None else of[key] for key in ("value", "low", "high"))
        span = "" if low == high else interval(axis, low, high).replace(" iterations", "")
        rows.append((name, amount(axis, value).removesuffix(" iterations"), span))
    loss = found["expected"]["loss"]
    if "low" in loss:
        rows.append(("training loss", f"{loss['value']:.3g}", f"{loss['low']:.3g} – {loss['high']:.3g}"))
    return rows


# -- What there is, what each keeps, sends and guarantees, and where it runs ------------------------------------------

WIDEST = 100  # characters of a line, where the terminal has as many
NARROW = 60  # characters of a terminal on which columns leave too little room


def _width() -> int:
    """How many characters a line of the listing has: as many as the terminal, but no more than one reads easily."""
    return min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)


def algorithms(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these, in full; or module:object.")
    ] = None,
    graph: Annotated[
        str | None, typer.Option(help="Count what an iteration sends on this topology: cycle, star, complete …")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes of that graph; 20 if nothing else says it.")] = None,
    parameters: Annotated[int, typer.Option(min=1, help="Parameters of the model, 32 bits each.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="For random topologies.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list and nothing else.")] = False,
) -> None:
    """List all algorithms, those that people begin with first: what each does, keeps, sends and guarantees."""
    if graph is None and nodes is not None:
        raise SpecError("--nodes says how large a graph is; say which one, too, as in --graph cycle")
    from walktalk.protocols import BEGIN_WITH
    from walktalk.studies import algorithm_entries, beginners  # nothing that other commands need

    found = algorithm_entries(names or None, _graph(graph, nodes, seed), parameters)
    if as_json:
        typer.echo(json.dumps([entry.plain() for entry in found], indent=2, ensure_ascii=False, default=str))
        return
    if names:
        for entry in found:
            _show(entry, full=True)
        return
    typer.secho("\nTo begin with", bold=True)
    for entry in beginners(found):
        _show(entry, full=False, when=BEGIN_WITH[entry.protocol.name])
    family = ""
    for entry in found:
        if entry.protocol.name in BEGIN_WITH:
            continue
        if entry.family != family:
            family = entry.family
            typer.secho(f"\n{family}", bold=True)
        _line(entry)
    more = "`walktalk algorithms NAME` shows one in full; `--graph cycle --nodes 20` counts what is sent."
    typer.echo("\n" + textwrap.fill(more, _width(), break_on_hyphens=False))


def _graph(topology: str | None, nodes: int | None, seed: int) -> Graph | None:
    if topology is None:
        return None
    from walktalk.graphs import build, default_nodes

    return build(topology, nodes if nodes is not None else default_nodes(topology, {}), seed)


def _line(entry: Entry) -> None:
    """One algorithm on a line or two: its name, what it does, and what it sends where that was counted."""
    counted = f" ({entry.bits / 8e3:,.1f} kB an iteration)" if entry.bits is not None else ""
    words = f"{entry.protocol.name:18} {entry.protocol.description}{counted or (entry.not_here and ' (not here)')}"
    _titled(words, entry.protocol.name, 4 if _width() < NARROW else 19)


def _titled(words: str, name: str, indent: int) -> None:
    """Print words that begin with an algorithm's name, the name in colour, further lines indented."""
    lines = textwrap.fill(words, _width(), subsequent_indent=" " * indent)
    typer.echo(typer.style(name, fg="green", bold=True) + lines.removeprefix(name))


def _show(entry: Entry, full: bool, when: str = "") -> None:
    protocol = entry.protocol
    _titled(f"{protocol.name}  {protocol.description}", protocol.name, 4)
    told = [("take it when", when), ("keeps", protocol.keeps), ("sends", protocol.sends)]
    told += [("guarantees", protocol.guarantees), ("graphs", entry.graphs), ("runs in", entry.where)]
    if entry.bits is not None:
        told.append(("an iteration", f"{entry.bits:,.0f} bits, {entry.bits / 8e3:,.1f} kB, on average"))
    elif entry.not_here:
        told.append(("not here", entry.not_here))
    if full:
        told = [("also called", ", ".join(entry.also_called)), ("from", protocol.paper), *told]
        told.append(("theory", entry.theory))
    for name, text in told:
        if text:
            typer.echo(textwrap.fill(text, _width(), initial_indent=f"  {name:13}", subsequent_indent=" " * 15))
    if full:
        _rule_and_keys(entry)


def _rule_and_keys(entry: Entry) -> None:
    if entry.protocol.update_rule:
        typer.echo(textwrap.indent(f"\n{entry.protocol.update_rule}\n", "    "))
    for name, setting in entry.keys.items():
        usual = f" (usually {setting.default})" if setting.default not in (None, "") else ""
        words = f"{setting.meaning}: {setting.allowed}{usual}"
        typer.echo(textwrap.fill(words, _width(), initial_indent=f"  {name:12} ", subsequent_indent=" " * 15))
    typer.echo(f"\n  In a study: algorithms: [{{name: {entry.protocol.name}}}]")
