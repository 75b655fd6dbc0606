"""`walktalk chaos`: real nodes on this machine that meet with every kind of failure while they train; does all hold?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from walktalk.testing.chaos import Verdict

BROKEN = 1  # exit code where a round failed
FAULTS = "kill,hang,stall,deaf,cut,disk,clock,hostile,counts,mislead,restart,power,script,leave,join,return"


def chaos(
    nodes: Annotated[int, typer.Option(min=4, help="Nodes, each a process.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds, each with a seed of its own.")] = 30,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the first round; each later round takes the next number.")
    ] = 0,
    algorithm: Annotated[str, typer.Option(help="What the nodes run, any that survives failures.")] = "multi_walk",
    walks: Annotated[int, typer.Option(min=1, help="Number of walks (R).")] = 4,
    pace: Annotated[
        float | None,
        typer.Option(min=0.0, help="Least seconds of a training; 0.05 for walks, 0.25 for others if left out."),
    ] = None,
    faults: Annotated[
        str,
        typer.Option(
            help="What happens in every round, in an order that the seed decides. kill: kill -9 of the aggregator, who "
            "comes back, and of a random node for good. hang: SIGSTOP. stall: a training that hangs. deaf: a node that "
            "acknowledges nothing. cut: two halves for 10 s. disk: a full disk (as root a file system of its own, else "
            "a limit on files). clock: a jump of an hour to a month. hostile: a node that sends forged messages. "
            "counts: one that counts falsely. mislead: one that answers operators with nonsense. restart: of all, "
            "planned or by kill -9. power: a disk loses what was not forced to it. script: with --outside, kill -9 of "
            "two scripts, which come back. leave: a node goes for good. join: "
            "one comes that was not there. return: one that was let go as dead comes back. swallow (not of the usual "
            "ones): a node that keeps walks. For algorithms whose nodes stay: none of leave, join and return."
        ),
    ] = FAULTS,
    blows: Annotated[str | None, typer.Option(hidden=True)] = None,
    outside: Annotated[
        bool, typer.Option("--outside", help="Nodes are trained by scripts, as with wt.site, which are killed, too.")
    ] = False,
    real_cuts: Annotated[
        bool,
        typer.Option(
            "--real-cuts", help="Put nodes into network namespaces and cut their links for real; needs root and `ip`."
        ),
    ] = False,
    at_once: Annotated[int, typer.Option(min=1, help="Rounds at the same time; each needs about one processor.")] = 1,
    no_faults: Annotated[
        bool, typer.Option("--no-faults", help="Nothing goes wrong: shows what the checks say of undisturbed nodes.")
    ] = False,
    calm: Annotated[bool, typer.Option("--calm", hidden=True)] = False,
    out: Annotated[
        Path, typer.Option(help="Folder for rounds.csv and rounds.json, and the nodes' folders of failed rounds.")
    ] = Path("out/chaos"),
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with the rounds that the folder lacks; a series that was interrupted does anyway."
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the rounds in the folder, once all new ones are done.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Let everything go wrong while nodes train; check that nothing is lost, stuck, not finite or counted twice."""
    import signal

    from walktalk.core.errors import SpecError
    from walktalk.records import replacing_files
    from walktalk.testing.chaos import (
        FAILED,
        ROUNDS,
        ChaosPlan,
        faults_of,
        interrupted_rounds,
        known_rounds,
        run_rounds,
        summary,
        write_rounds,
    )

    if resume and overwrite:
        raise SpecError("--resume goes on with what is there, --overwrite begins anew; leave one of them out")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the nodes are stopped before this ends
    renamed = {"--blows": ("--faults", blows is not None), "--calm": ("--no-faults", calm)}
    for old, (new, used) in renamed.items():
        if used:
            typer.echo(f"{old} is now {new}; the old name goes with the next release", err=True)
    words = "" if no_faults or calm else blows if blows is not None else faults
    happens = faults_of([word.strip() for word in words.split(",") if word.strip()])
    plan = ChaosPlan(
        nodes=nodes, algorithm=algorithm, walks=walks, pace=pace, faults=happens, outside=outside, real_cuts=real_cuts
    )
    plan.spec(seed)  # a mistake is said before any process is started
    if not (resume or overwrite) and len(unfinished := interrupted_rounds(out, plan)) < rounds and unfinished:
        typer.echo(
            f"goes on with the series in {out}, of which {len(unfinished)} of {rounds} rounds are done", err=True
        )
        resume = True
    verdicts = known_rounds(out, plan) if resume else []
    done = {verdict.seed for verdict in verdicts}
    seeds = [number for number in range(seed, seed + rounds) if number not in done]
    place = nullcontext(out) if resume else replacing_files(out, ROUNDS, overwrite=overwrite)
    with place as records, _progress(rounds, len(done), quiet=as_json) as (say, step):
        for verdict in run_rounds(plan, seeds, out / FAILED, at_once, say):
            verdicts.append(verdict)
            write_rounds(records, plan, verdicts)  # after every round: what is known is not lost with the rest
            say(verdict.seed, in_words(verdict))
            step(all(verdict.passed for verdict in verdicts))
    if as_json:
        import json

        typer.echo(json.dumps(summary(verdicts)))
    else:
        show(verdicts, out)
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(BROKEN)


@contextmanager
def _progress(
    rounds: int, done: int, quiet: bool
) -> Iterator[tuple[Callable[[int, str], None], Callable[[bool], None]]]:
    """A bar under the lines that say what is done; both nothing where they are not wanted."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), disable=quiet) as bar:
        task = bar.add_task("rounds", total=rounds, completed=done)

        def say(seed: int, line: str) -> None:
            if not quiet:
                bar.console.print(f"  seed {seed}: {line}", highlight=False, markup=False, soft_wrap=True)

        def step(held: bool) -> None:
            bar.update(task, advance=1, description="rounds" if held else "rounds (not all held)")

        yield say, step


def in_words(verdict: Verdict) -> str:
    """What a chaos round found, on one line."""
    failed = verdict.failures()
    held = "held" if not failed else f"FAILED: {'; '.join(failed)}"
    walks = f"{verdict.walks} walks, " if verdict.walks_wanted else ""
    halves = f"halves kept {' '.join(f'{half.share:.0%}' for half in verdict.halves)}, " if verdict.halves else ""
    loss = verdict.loss
    return (
        f"{held} ({walks}{halves}{verdict.iterations:,} iterations, loss {loss.disturbed:.3f}, undisturbed "
        f"{loss.undisturbed:.3f} ± {loss.spread:.3f}, ratio {loss.ratio:.3f}, {verdict.seconds:.0f} s)"
    )


def show(verdicts: list[Verdict], out: Path) -> None:
    """All rounds as a table, and what they say together."""
    from rich.console import Console
    from rich.table import Table

    from walktalk.testing.chaos import FAILED, summary

    table = Table(title="walktalk chaos", title_justify="left")
    columns = ("seed", "faults", "gone", "iterations", "walks", "counted", "halves", "loss ratio", "held")
    for column in columns:
        table.add_column(column, justify="left" if column == "held" else "right")
    for v in sorted(verdicts, key=lambda verdict: verdict.seed):
        table.add_row(
            str(v.seed),
            str(len(v.faults)),
            str(len(v.gone)),
            f"{v.iterations:,}",
            f"{v.walks}/{v.walks_wanted}" if v.walks_wanted else "",
            f"{v.counted:.2f}" if v.walks_wanted else f"{v.twice} twice",
            " ".join(f"{half.share:.0%}" for half in v.halves),
            f"{v.loss.ratio:.3f}",
            "yes" if v.passed else "; ".join(v.failures()),
        )
    console = Console()
    console.print(table)
    found = summary(verdicts)
    line = f"{found['value']} of {found['baseline']} rounds held"
    if found["loss_ratio_mean"] is not None:
        line += f"; loss ratio {found['loss_ratio_mean']:.3f} on average, {found['loss_ratio_worst']:.3f} at worst"
    if found["half_kept_mean"] is not None:
        line += f"; of halves' updates {found['half_kept_mean']:.1%} kept, {found['half_kept_worst']:.1%} at worst"
    console.print(line)
    for name, unit in (("detection", "heartbeats"), ("recovery", "heartbeats"), ("replacement", "mean return times")):
        if found[f"{name}_median"] is not None:
            console.print(
                f"{name}: {found[f'{name}_median']:.1f} {unit} in the median, {found[f'{name}_worst']:.1f} "
                f"at worst, of {found[f'{name}_count']}"
            )
    console.print(f"every round: {out / 'rounds.csv'}")
    if found["value"] < found["baseline"]:
        console.print(f"what failed: logs and traces of its nodes are in {out / FAILED}, a folder for each seed")
