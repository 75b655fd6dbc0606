"""`walktalk run`: a study, from its specification to figures and a page; `walktalk presets`: studies to begin with."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from walktalk.api import getting_ready
from walktalk.cli.options import (
    Board,
    MlflowUri,
    WandbProject,
    check_live,
    complete_study,
    keep_open,
    report_to_both,
    trackers,
)
from walktalk.cli.study_results import print_results, print_table
from walktalk.core.errors import UnavailableError
from walktalk.core.settings import misfit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from walktalk.api import Audience
    from walktalk.studies import StudySpec

# -- walktalk presets -------------------------------------------------------------------------------------------------


def presets(
    name: Annotated[
        str | None, typer.Argument(help="A preset, to print it as YAML.", autocompletion=complete_study)
    ] = None,
) -> None:
    """List the presets, or print one as YAML to start your own from."""
    from walktalk.studies import preset_names, preset_text

    if name is not None:
        typer.echo(preset_text(name), nl=False)
        return
    names = preset_names()
    for each in names:
        typer.echo(f"{each:{max(map(len, names))}}  {_first_sentence(preset_text(each))}")


def _first_sentence(text: str) -> str:
    """The comment at the head of a preset, up to its first full stop."""
    head = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    return head.split(". ")[0].rstrip(".")


# -- What a study cost ------------------------------------------------------------------------------------------------


class Took:
    """Measures how long a command takes, from the moment when it is made."""

    def __init__(self) -> None:
        self.began = time.perf_counter()

    def words(self, steps: int) -> str:
        """So many steps of models since then, and the most memory that one process here had."""
        seconds = time.perf_counter() - self.began
        speed = f"{steps:,} steps of models in {seconds:,.1f} s, {steps / seconds:,.0f} a second"
        return ", ".join((speed, *memory()))


def memory() -> list[str]:
    """The most at a time: of this process or of one that it started and that has ended; and of this one's GPU."""
    import torch

    said = []
    with suppress(ImportError):  # Windows has none
        import resource

        unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
        most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        said.append(f"{most * unit / 1e9:.2f} GB of memory in a process")
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        said.append(f"{torch.cuda.max_memory_allocated() / 1e9:.2f} GB of the GPU's")
    return said


ENGINES = ("sim", "peers")


def run(
    study: Annotated[
        str, typer.Argument(help="A YAML file, or a preset (see `walktalk presets`).", autocompletion=complete_study)
    ] = "quickstart",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key, e.g. optimizer.lr=0.1. Repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the records; out/NAME if left out.")] = None,
    seed: Annotated[int | None, typer.Option(help="The root of all randomness; short for --set seed=N.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted run of this study stopped.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is in the folder, once the new results are whole.")
    ] = False,
    engine: Annotated[
        str, typer.Option(help="What runs it: sim, in virtual time, or peers, one real process a node.")
    ] = "sim",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|ray", help="Local processes that share the runs, as many as pay if left out; or a Ray cluster."
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Use at most this much, e.g. 8GB; what is free if left out.")
    ] = None,
    tensorboard: Board = None,
    mlflow: MlflowUri = None,
    wandb: WandbProject = None,
    live: Annotated[bool, typer.Option("--live", help="Show the report in a browser while the study runs.")] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="With --live: where to listen; a free port if left out.")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="With --live: the address to listen on, e.g. 0.0.0.0 for all; this machine alone if left out."
        ),
    ] = None,
) -> None:
    """Run a study and write its records, figures and report.

    A list where one value belongs (--set optimizer.lr=[0.02,0.1]) makes a sweep: several studies and one table.
    """
    if engine not in ENGINES:
        raise misfit("--engine", engine, ", ".join(ENGINES), UnavailableError)
    if engine == "peers" and (workers is not None or memory is not None):
        named = "--workers" if workers is not None else "--memory"
        raise UnavailableError(f"{named} has no meaning for --engine peers, where a node is a process; leave it out")
    check_live(live, port, host)
    crew = _crew(workers)
    from walktalk.studies import read_study

    read_study(study)  # a mistake in the name or in the YAML is told before anything heavy is imported
    with getting_ready("walktalk"):
        from walktalk.api import Audience, shown_progress  # imports torch, which takes a while
        from walktalk.report import live_page, write_report
        from walktalk.studies import load_specs, parse_memory, run_study

    most = None if memory is None else parse_memory(memory)
    overrides = [*(changes or []), *([] if seed is None else [f"seed={seed}"])]
    specs = load_specs(study, overrides)
    taking = {"resume": resume, "overwrite": overwrite}
    if len(specs) > 1:
        for option, given in (("--engine peers", engine == "peers"), ("--live", live)):
            if given:
                raise UnavailableError(f"{option} is for one study, but a list makes a sweep of {len(specs)}; run one")
        watching = Audience(trackers(tensorboard, mlflow, wandb))
        folder = out if out is not None else Path("out") / str(read_study(study).get("name", "study"))
        again = _again(study, overrides, folder, engine)
        _sweep(specs, folder, watching, {**taking, "device": device, "workers": crew, "memory": most}, again)
        return
    spec = next(iter(specs.values()))
    folder = out if out is not None else Path("out") / spec.name
    audience = Audience(trackers(tensorboard, mlflow, wandb))
    with ExitStack() as shown:
        shown.enter_context(audience.attending(spec))
        page = shown.enter_context(live_page(folder, spec, engine, host=host, port=port or 0)) if live else None
        if page is not None:
            typer.echo(f"Live     {page.url}", err=True)
        try:
            with shown_progress(spec.name, spec.described) as told:
                progress = report_to_both(
                    told if page is None else report_to_both(told, page), partial(audience.progressed, rows=True)
                )
                if engine == "peers":
                    from walktalk.studies.peers import run_on_peers  # needs Zenoh

                    result = run_on_peers(spec, folder, **taking, device=device, progress=progress)
                else:
                    took = Took()
                    result = run_study(
                        spec, folder, **taking, device=device, workers=crew, memory=most, progress=progress
                    )
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(f"stopped; go on with: {_again(study, overrides, folder, engine)}") from stop
        audience.ended(result, result)
        report = write_report(folder)
        print_results(result.summary, folder, report)
        if engine == "sim" and not resume:  # else some of it was done before
            typer.echo(f"Took     {took.words(result.steps)}", err=True)
        if page is not None:
            page.finish()
            keep_open(page.url)


def _sweep(specs: Mapping[str, StudySpec], folder: Path, audience: Audience, how: Any, again: str) -> None:
    """Run the studies of a sweep, each in a folder of its own, and print one table of all."""
    from walktalk.api import shown_progress
    from walktalk.report import as_results, open_comparison, runs_table, write_comparison, write_report
    from walktalk.studies import run_study

    summaries = []
    for name, spec in specs.items():
        with audience.attending(spec):
            try:
                with shown_progress(name, spec.described) as told:
                    progress = report_to_both(told, partial(audience.progressed, rows=True))
                    result = run_study(spec, folder / spec.name, progress=progress, **how)
            except KeyboardInterrupt as stop:
                raise KeyboardInterrupt(f"stopped; go on with: {again}") from stop
            audience.ended(result, result)
        write_report(folder / spec.name)
        summaries.append(result.summary)
    page = write_comparison(open_comparison([folder / spec.name for spec in specs.values()]), folder / "report.html")
    table = runs_table(list(specs.values()), summaries)
    print_table(as_results(table, f"{len(specs)} studies", "Mean ± σ over repetitions."))
    typer.echo(f"Records  {folder} (a study's folder for each)")
    typer.echo(f"Report   {page} (all runs, to sort and filter)")
    typer.echo(f"Sort and filter them with: walktalk table {folder} --form markdown --sort loss --where KEY=VALUE")


def _crew(workers: str | None) -> int | Literal["ray"] | None:
    """The number of worker processes, or "ray", from the text of `--workers`."""
    if workers is None or workers == "ray":
        return workers  # type: ignore[return-value]
    if not (workers.isascii() and workers.isdigit()) or int(workers) < 1:
        raise misfit("--workers", workers, "1 or more, or ray", UnavailableError)
    return int(workers)


def _again(study: str, overrides: list[str], folder: Path, engine: str) -> str:
    """The command that takes up an interrupted study."""
    import shlex

    changes = [part for change in overrides for part in ("--set", change)]
    on = ["--engine", engine] if engine != "sim" else []
    return shlex.join(["walktalk", "run", study, *changes, *on, "--out", str(folder), "--resume"])
