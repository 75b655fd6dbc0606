"""`walktalk chaos`: real nodes on this machine, killed, hung and cut off while they train; does all hold?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from walktalk.studies.chaos import Verdict

FAILED = 1


def chaos(
    nodes: Annotated[int, typer.Option(min=4, help="Processes.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Storms, each with a seed of its own.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Of the first round; the next has the next.")] = 0,
    algorithm: Annotated[str, typer.Option(help="What the nodes run: multi_walk, async_gossip, …")] = "multi_walk",
    walks: Annotated[int, typer.Option(min=1, help="R, of walks.")] = 4,
    pace: Annotated[
        float | None, typer.Option(min=0.0, help="Seconds that a training takes at least, so that nodes take turns.")
    ] = None,
    real_cuts: Annotated[
        bool,
        typer.Option(
            "--real-cuts", help="Nodes in network namespaces, cables that are pulled, a stop of all; needs root."
        ),
    ] = False,
    calm: Annotated[bool, typer.Option("--calm", help="No blows: what the measure says of undisturbed nodes.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for rounds.csv and rounds.json.")] = Path("out/chaos"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the rounds in the folder, once all new ones are done.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Kill -9, hang and cut off nodes while they train; check that nothing is lost, stuck or counted twice."""
    import signal
    import tempfile

    from walktalk.records import replacing_files
    from walktalk.studies.chaos import ROUNDS, Storm, chaos_round, summary, write_rounds

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the nodes are stopped before this ends
    storm = Storm(nodes=nodes, algorithm=algorithm, walks=walks, pace=pace)
    if real_cuts:
        storm = storm.with_real_cuts()
    if calm:
        storm = storm.without_blows()
    verdicts: list[Verdict] = []

    def say(line: str) -> None:
        if not as_json:
            typer.echo(f"  {line}")

    with replacing_files(out, ROUNDS, overwrite=overwrite) as records:
        for number in range(seed, seed + rounds):
            say(f"round {len(verdicts) + 1} of {rounds}, seed {number}")
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                verdicts.append(chaos_round(storm, number, Path(folder), say))
            write_rounds(records, storm, verdicts)  # after every round: what is known is not lost with the rest
            say(in_words(verdicts[-1]))
    if as_json:
        import json

        typer.echo(json.dumps(summary(verdicts)))
    else:
        show(verdicts, out)
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(FAILED)


def in_words(verdict: Verdict) -> str:
    """One round on one line."""
    failed = verdict.failures()
    held = "held" if not failed else f"FAILED: {'; '.join(failed)}"
    walks = f"{verdict.walks} walks, " if verdict.walks_wanted else ""
    loss = verdict.loss
    return (
        f"{held} ({walks}{verdict.iterations:,} iterations, loss {loss.disturbed:.3f}, undisturbed "
        f"{loss.undisturbed:.3f} ± {loss.spread:.3f}, ratio {loss.ratio:.3f}, {verdict.seconds:.0f} s)"
    )


def show(verdicts: list[Verdict], out: Path) -> None:
    """All rounds as a table, and what they say together."""
    from rich.console import Console
    from rich.table import Table

    from walktalk.studies.chaos import summary

    table = Table(title="walktalk chaos", title_justify="left")
    columns = ("seed", "killed", "aggregators", "gone", "iterations", "walks", "counted", "loss ratio", "held")
    for column in columns:
        table.add_column(column, justify="left" if column == "held" else "right")
    for v in verdicts:
        table.add_row(
            str(v.seed),
            str(sum(line.startswith("kill") for line in v.blows)),
            str(v.aggregators_killed),
            str(len(v.gone)),
            f"{v.iterations:,}",
            f"{v.walks}/{v.walks_wanted}" if v.walks_wanted else "",
            f"{v.counted:.2f}" if v.walks_wanted else f"{v.twice} twice",
            f"{v.loss.ratio:.3f}",
            "yes" if v.passed else "; ".join(v.failures()),
        )
    console = Console()
    console.print(table)
    found = summary(verdicts)
    console.print(
        f"{found['value']} of {found['baseline']} rounds held; loss ratio {found['loss_ratio_mean']:.3f} on "
        f"average, {found['loss_ratio_worst']:.3f} at worst"
    )
    for name, unit in (("detection", "heartbeats"), ("recovery", "heartbeats"), ("replacement", "mean return times")):
        if found[f"{name}_median"] is not None:
            console.print(
                f"{name}: {found[f'{name}_median']:.1f} {unit} in the median, {found[f'{name}_worst']:.1f} "
                f"at worst, of {found[f'{name}_count']}"
            )
    console.print(f"every round: {out / 'rounds.csv'}")
