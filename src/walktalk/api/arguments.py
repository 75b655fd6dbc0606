"""From a call in Python to a study: what it stands on, how it is run to its end, and how its errors are said."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from walktalk.api.callbacks import Audience, warn
from walktalk.api.progress import wanted_progress
from walktalk.api.training import RunOptions, Training
from walktalk.core.errors import SpecError, StudyError, UnavailableError
from walktalk.core.seeds import Seed
from walktalk.core.settings import misfit
from walktalk.learning import Task, tasks
from walktalk.records import folder_name
from walktalk.report import write_report
from walktalk.runtimes.semantics import Stop
from walktalk.studies import (
    AlgorithmLike,
    Execution,
    Foundation,
    Interrupted,
    NetworkLike,
    Progress,
    StudyResult,
    TaskLike,
    foundation_from_python,
    run_foundation,
)
from walktalk.studies.results import study_result
from walktalk.studies.spec import (
    evaluate_section,
    faults_section,
    optimizer_section,
    schedule_section,
    stop_section,
    timing_section,
)

OPTIONS_AS_ARGUMENTS = {
    r"another --out\b": "another folder",
    r"--engine (\w+)": r'engine="\1"',
    r"--(resume|overwrite)\b": r"\1=True",
    r"--(out|memory|workers|device)\b": r"\1",
}
CALLER = 3  # frames from `run_to_end` up to who called `train` or `compare`: that is where warnings are from
USUAL_STOP = Stop(iterations=1000)  # where nothing else is said
ENGINES = ("sim", "peers")
SECTIONS: dict[str, Callable[[Any], Any]] = {
    "optimizer": optimizer_section,
    "schedule": schedule_section,
    "timing": timing_section,
    "stop": stop_section,
    "evaluate": evaluate_section,
    "faults": faults_section,
}
"""The fields of `Training` that are sections of a study; of the others, init belongs to the task, seed to the study."""


@contextmanager
def errors_name_arguments() -> Iterator[None]:
    """Makes errors that name options of the command line name the arguments of Python that do the same."""
    try:
        yield
    except (StudyError, UnavailableError) as error:
        said = str(error)
        for option, argument in OPTIONS_AS_ARGUMENTS.items():
            said = re.sub(option, argument, said)
        if said == str(error):
            raise
        raise type(error)(said) from error


def study_from_arguments(
    task: TaskLike,
    algorithms: AlgorithmLike | Sequence[AlgorithmLike],
    graph: NetworkLike,
    training: Training,
    keys: Mapping[str, Any],
) -> Foundation:
    """The study that a call in Python asks for.

    Args:
        task: What is learned.
        algorithms: What is compared.
        graph: Who may talk to whom.
        training: How models are trained; None as the value of a field stands for what is usual.
        keys: The study's other keys, such as its name.
    """
    said = {name: value for name, value in training.settings.items() if value is not None}
    seed, init = said.pop("seed"), said.pop("init", None)
    sections = {name: make(said.pop(name)) for name, make in SECTIONS.items() if name in said}
    sections.setdefault("stop", stop_section(USUAL_STOP))
    if init is not None:
        if not isinstance(task, Task):
            raise SpecError("init: weights can be given to a task that is an object; a task that is named sets its own")
        task = tasks.starting_from(task, init)
    return foundation_from_python(
        task, algorithms, graph, {**keys, "seed": _as_integer(seed), **sections, "training": said}
    )


def _as_integer(seed: Any) -> Any:
    """A seed as a specification holds it; what is no seed stays, to be refused there."""
    if isinstance(seed, Seed):
        return seed.integer if seed.path else seed.root
    return seed


def name_from(out: str | PathLike[str] | None, otherwise: str) -> str:
    """A study's name: that of its folder, as far as one can be called so."""
    text = folder_name(Path(out).resolve().name) if out is not None else otherwise
    return re.sub(r"^[^A-Za-z0-9]+", "", text)[:100] or otherwise


def run_to_end(base: Foundation, options: RunOptions, audience: Audience) -> StudyResult:
    """Run a study to its end, write its page, and warn of what a person should know about its models."""
    result = _run(base, options, audience)
    for note in result.summary.get("notes", ()):
        warnings.warn(note, stacklevel=CALLER)
    if result.folder is not None:
        write_report(result.folder, base)
    return result


def _run(base: Foundation, options: RunOptions, audience: Audience) -> StudyResult:
    if options.engine not in ENGINES:
        raise misfit("engine", options.engine, ", ".join(ENGINES), UnavailableError)
    if (options.resume or options.overwrite) and options.out is None:
        raise UnavailableError("resume and overwrite are about a folder; say which with out='…'")
    on_peers = options.engine == "peers"
    # Who may end a run sees its rows in this process, as the runner measures them; else they come with the reports.
    here = not on_peers and audience.may_end and options.workers in (None, 1)

    with wanted_progress(options.progress, base.spec) as shown:

        def report(progress: Progress) -> None:
            if shown is not None:
                shown(progress)
            warn(progress.words)
            audience.progressed(progress, rows=not here)

        if on_peers:
            return _on_peers(base, options, report)
        how = Execution(
            resume=options.resume,
            overwrite=options.overwrite,
            device=options.device,
            workers=options.workers,
            memory=options.memory,
            progress=report,
            watch=audience.evaluated if here else None,
        )
        try:
            return run_foundation(base, options.out, how)
        except Interrupted as stop:
            return _so_far(base, options, stop)


def _so_far(base: Foundation, options: RunOptions, stop: Interrupted) -> StudyResult:
    """What a single run has come to when somebody stops it; a study of several in a folder is resumed instead."""
    several = len(base.algorithms) * base.spec.repetitions > 1
    if not stop.records or stop.trainer is None or (options.out is not None and several):
        raise KeyboardInterrupt(f"stopped{'' if options.out is None else '; go on with resume=True'}") from stop
    done = max(record.history[-1].iteration for record in stop.records)
    also = "" if options.out is None else "; resume=True goes on from there"
    warnings.warn(f"stopped at iteration {done:,}: what there is so far is given back{also}", stacklevel=CALLER + 2)
    return study_result(base.spec, stop.records, trainer=stop.trainer)


def _on_peers(base: Foundation, options: RunOptions, report: Callable[[Progress], None]) -> StudyResult:
    if base.user_task is not None:
        raise UnavailableError(
            f"engine: on peers every node is a process of its own, to which the task {base.user_task.name!r}, given as "
            "an object, cannot travel; give its name instead, task='module:function'"
        )
    if base.spec.network.topology == "given":
        raise UnavailableError(
            f"engine: on peers every node builds the graph by itself, but {base.graph.name} cannot be written down; "
            "give its name instead, graph='module:function'"
        )
    if options.out is None:
        raise UnavailableError("engine: peers write down what they do; say where with out='…'")
    if options.workers is not None or options.memory is not None:
        raise UnavailableError("workers and memory have no meaning on peers, where a node is a process; leave them out")
    from walktalk.studies.peers import run_on_peers  # needs Zenoh

    return run_on_peers(
        base.spec,
        options.out,
        resume=options.resume,
        overwrite=options.overwrite,
        device=options.device,
        progress=report,
    )
