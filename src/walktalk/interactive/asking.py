"""The arguments that `train` and `compare` share, as a study: what it stands on, and how it is driven to its end."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from walktalk.errors import SpecError, UnavailableError
from walktalk.interactive.callbacks import Audience, warn
from walktalk.interactive.progress import wanted_progress
from walktalk.learning import Task, tasks
from walktalk.records import folder_name
from walktalk.report import write_report
from walktalk.runtimes.meaning import Stop
from walktalk.seeds import Seed
from walktalk.studies import (
    Foundation,
    GivenAlgorithm,
    GivenGraph,
    GivenTask,
    Interrupted,
    Progress,
    StudyResult,
    given_foundation,
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

CALLER = 3  # of `train` or `compare`, as `driven` sees it: that is where warnings are from
STOP = Stop(iterations=1000)  # where nothing else is said
ENGINES = ("sim", "peers")
TRAINING = ("batch_size", "local_steps", "optimizer_state", "buffers", "precision", "clip_norm")
SECTIONS: dict[str, Callable[[Any], Any]] = {
    "optimizer": optimizer_section,
    "schedule": schedule_section,
    "timing": timing_section,
    "stop": stop_section,
    "evaluate": evaluate_section,
    "faults": faults_section,
}


@dataclass(frozen=True)
class Driving:
    """How a study is driven to its end."""

    out: str | PathLike[str] | None
    engine: str
    device: str
    workers: int | Literal["ray"] | None
    memory: float | None
    resume: bool
    overwrite: bool
    progress: bool | Callable[[Progress], None] | None
    audience: Audience


def asked(
    task: GivenTask,
    algorithms: GivenAlgorithm | Sequence[GivenAlgorithm],
    graph: GivenGraph,
    init: Any,
    keys: Mapping[str, Any],
) -> Foundation:
    """The study that was asked for.

    Args:
        task: What is learned.
        algorithms: What is compared.
        graph: Who may talk to whom.
        init: The weights to start from; those that the task says, if None.
        keys: All else, by the name of the argument; None stands for what is usual.
    """
    given = {name: value for name, value in keys.items() if value is not None}
    sections = {name: SECTIONS[name](value) for name, value in given.items() if name in SECTIONS}
    training = {name: value for name, value in given.items() if name in TRAINING}
    plain = {name: value for name, value in given.items() if name not in (*SECTIONS, *TRAINING)}
    plain["seed"] = _seed(plain.get("seed", 0))
    sections.setdefault("stop", stop_section(STOP))
    if init is not None:
        if not isinstance(task, Task):
            raise SpecError("init: weights can be given to a task that is an object; a task that is named sets its own")
        task = tasks.starting_from(task, init)
    return given_foundation(task, algorithms, graph, {**plain, **sections, "training": training})


def _seed(seed: Any) -> Any:
    if isinstance(seed, Seed):
        return seed.integer if seed.path else seed.root
    return seed


def name_from(out: str | PathLike[str] | None, otherwise: str) -> str:
    """The study's name: its folder's, as far as one can be called so."""
    text = folder_name(Path(out).resolve().name) if out is not None else otherwise
    return re.sub(r"^[^A-Za-z0-9]+", "", text)[:100] or otherwise


def driven(base: Foundation, how: Driving) -> StudyResult:
    """The study to its end, its page, and a word of what a person should know about its models."""
    result = _run(base, how)
    for note in result.summary.get("notes", ()):
        warnings.warn(note, stacklevel=CALLER)
    if result.folder is not None:
        write_report(result.folder, base)
    return result


def _run(base: Foundation, how: Driving) -> StudyResult:
    if how.engine not in ENGINES:
        raise UnavailableError(f"engine: {how.engine!r} is unknown; allowed: {', '.join(ENGINES)}")
    taking: dict[str, Any] = {"resume": how.resume, "overwrite": how.overwrite}
    if (how.resume or how.overwrite) and how.out is None:
        raise UnavailableError("resume and overwrite are about a folder; say which with out='…'")
    here = how.engine == "sim" and how.audience.may_end and how.workers in (None, 1)  # rows are shown by the runner

    with wanted_progress(how.progress, base.spec) as shown:

        def tell(progress: Progress) -> None:
            if shown is not None:
                shown(progress)
            warn(progress.words)
            how.audience.told(progress, rows=not here)

        if how.engine == "peers":
            return _on_peers(base, how, tell, taking)
        more: dict[str, Any] = {"device": how.device, "workers": how.workers, "memory": how.memory, "progress": tell}
        watch = how.audience.evaluated if here else None
        try:
            return run_foundation(base, how.out, **taking, **more, watch=watch)
        except Interrupted as stop:
            return _so_far(base, how, stop)


def _so_far(base: Foundation, how: Driving, stop: Interrupted) -> StudyResult:
    """What there is when somebody stops it; of a whole study in a folder that is not said, it can be gone on with."""
    several = len(base.algorithms) * base.spec.repetitions > 1
    if not stop.records or stop.trainer is None or (how.out is not None and several):
        raise KeyboardInterrupt(f"stopped{'' if how.out is None else '; go on with resume=True'}") from stop
    done = max(record.history[-1].iteration for record in stop.records)
    also = "" if how.out is None else "; resume=True goes on from there"
    warnings.warn(f"stopped at iteration {done:,}: what there is so far is given back{also}", stacklevel=CALLER + 2)
    return study_result(base.spec, stop.records, trainer=stop.trainer)


def _on_peers(base: Foundation, how: Driving, tell: Any, taking: dict[str, Any]) -> StudyResult:
    if base.given is not None:
        raise UnavailableError(
            f"engine: on peers every node is a process of its own, to which the task {base.given.name!r}, given as an "
            "object, cannot travel; give its name instead, task='module:function'"
        )
    if base.spec.network.topology == "given":
        raise UnavailableError(
            f"engine: on peers every node builds the graph by itself, but {base.graph.name} cannot be written down; "
            "give its name instead, graph='module:function'"
        )
    if how.out is None:
        raise UnavailableError("engine: peers write down what they do; say where with out='…'")
    if how.workers is not None or how.memory is not None:
        raise UnavailableError("workers and memory have no meaning on peers, where a node is a process; leave them out")
    from walktalk.studies.peers import run_on_peers  # needs Zenoh

    return run_on_peers(base.spec, how.out, **taking, device=how.device, progress=tell)
