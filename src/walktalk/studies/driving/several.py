"""Several studies in one engine: those that share data and training fill each other's waves.

On a GPU a wave of one study's models is seldom wide enough. When things happen never depends on who else is computed at
the same time, so each study has the records that it would have alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from walktalk.records import opened_folder
from walktalk.studies.building import Progress, lay_foundation, pick_device, planned_runs, prepare
from walktalk.studies.driving.groups import folders_of, run_in_groups
from walktalk.studies.driving.run import run_study
from walktalk.studies.results import StudyResult, study_result
from walktalk.studies.spec import StudySpec, dump_spec

Report = Callable[[Sequence[Path], Progress], None]  # the folders of those being run, how far they are


def run_studies(studies: Mapping[Path, StudySpec], *, device: str = "auto", report: Report | None = None) -> int:
    """All runs of some studies; returns how many local steps they have together. An interrupted one goes on.

    On a GPU those that share data and training are run at once. On a CPU, where a wave need not be wide, they come one
    after another, each in as many processes as pay.

    Args:
        studies: What is to be run, each in a folder of its own.
        device: auto, cpu or cuda.
        report: Called now and then.
    """
    at_once, steps = pick_device(device) != "cpu", 0
    for group in sharing(studies) if at_once else [[folder] for folder in studies]:
        told = None if report is None else _told(report, group)
        if len(group) == 1:
            done = [run_study(studies[group[0]], group[0], resume=True, device=device, progress=told)]
        else:
            done = run_at_once({folder: studies[folder] for folder in group}, device=device, progress=told)
        local_steps = studies[group[0]].training.local_steps
        steps += local_steps * sum(run.trainings for result in done for run in result.runs)
    return steps


def sharing(studies: Mapping[Path, StudySpec]) -> list[list[Path]]:
    """The folders of studies that one trainer can serve, together."""
    groups: dict[str, list[Path]] = {}
    for folder, spec in studies.items():
        groups.setdefault(needed_of_a_trainer(spec), []).append(folder)
    return list(groups.values())


def needed_of_a_trainer(spec: StudySpec) -> str:
    """All that a trainer depends on, as text: the data, how they are split, and how a model is trained on them."""
    content = spec.model_dump(mode="json", include={"seed", "task", "training", "optimizer"})
    content["training"].pop("optimizer_state")  # each run has its own
    graph = lay_foundation(spec).graph
    content |= {"nodes": graph.nodes, "names": graph.names, "samples": spec.evaluate.samples}
    content |= {"measured": spec.evaluate.nodes}
    return json.dumps(content, sort_keys=True)


def run_at_once(
    studies: Mapping[Path, StudySpec], *, device: str = "auto", progress: Callable[[Progress], None] | None = None
) -> list[StudyResult]:
    """All runs of studies that one trainer can serve, in one engine; what each leaves."""
    trainer = prepare(next(iter(studies.values())), device).trainer
    planned = {folder: planned_runs(spec, trainer) for folder, spec in studies.items()}
    runs = [run for of_study in planned.values() for run in of_study]
    with ExitStack() as stack:
        opened = {
            folder: stack.enter_context(opened_folder(folder, dump_spec(spec), resume=True))
            for folder, spec in studies.items()
        }
        places = [place for folder in studies for place in folders_of(opened[folder], planned[folder])]
        records = iter(run_in_groups(trainer, runs, places, resume=True, report=progress))
        return [
            study_result(spec, [next(records) for _ in planned[folder]], opened[folder], trainer=trainer)
            for folder, spec in studies.items()
        ]


def _told(report: Report, folders: Sequence[Path]) -> Callable[[Progress], None]:
    return lambda progress: report(folders, progress)
