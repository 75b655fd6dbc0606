"""`walktalk algorithms`: what there is, what each keeps, sends and guarantees, and where it runs."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from walktalk.core.errors import SpecError

if TYPE_CHECKING:
    from walktalk.graphs import Graph
    from walktalk.studies import Entry

WIDTH = 100  # of a line


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
    typer.echo("\n`walktalk algorithms NAME` shows one in full; `--graph cycle --nodes 20` counts what is sent.")


def _graph(topology: str | None, nodes: int | None, seed: int) -> Graph | None:
    if topology is None:
        return None
    from walktalk.graphs import build, default_nodes

    return build(topology, nodes if nodes is not None else default_nodes(topology, {}), seed)


def _line(entry: Entry) -> None:
    """One algorithm on a line or two: its name, what it does, and what it sends where that was counted."""
    counted = f" ({entry.bits / 8e3:,.1f} kB an iteration)" if entry.bits is not None else ""
    words = f"{entry.protocol.name:18} {entry.protocol.description}{counted or (entry.not_here and ' (not here)')}"
    first, *others = textwrap.wrap(words, WIDTH, subsequent_indent=" " * 19)
    name = typer.style(entry.protocol.name, fg="green", bold=True)
    typer.echo("\n".join([name + first[len(entry.protocol.name) :], *others]))


def _show(entry: Entry, full: bool, when: str = "") -> None:
    protocol = entry.protocol
    typer.echo(f"{typer.style(protocol.name, fg='green', bold=True)}  {protocol.description}")
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
            typer.echo(textwrap.fill(text, WIDTH, initial_indent=f"  {name:13}", subsequent_indent=" " * 15))
    if full:
        _rule_and_keys(entry)


def _rule_and_keys(entry: Entry) -> None:
    if entry.protocol.update_rule:
        typer.echo(textwrap.indent(f"\n{entry.protocol.update_rule}\n", "    "))
    for name, setting in entry.keys.items():
        usual = f" (usually {setting.default})" if setting.default not in (None, "") else ""
        words = f"{setting.meaning}: {setting.allowed}{usual}"
        typer.echo(textwrap.fill(words, WIDTH, initial_indent=f"  {name:12} ", subsequent_indent=" " * 15))
    typer.echo(f"\n  In a study: algorithms: [{{name: {entry.protocol.name}}}]")
