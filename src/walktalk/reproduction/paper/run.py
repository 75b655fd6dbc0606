"""Runs the studies of a figure, one folder a panel; what is there already, whole and of the same settings, is kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from walktalk.core.errors import SpecError
from walktalk.learning import Trainer, TrainingRows
from walktalk.records import StudyFolder, check_folder
from walktalk.reproduction.paper.figures import panel_specs, titled
from walktalk.reproduction.paper.panels import TUNED, Figure, Panel, Scale, Tuning
from walktalk.reproduction.paper.tune import CHOSEN, Choice, in_words, recorded, tuned, with_choices
from walktalk.runtimes.simulator import PoissonTiming
from walktalk.studies.execution import run_studies
from walktalk.studies.planning import Progress, build_foundation, build_task, build_timing, build_trainer, pick_device
from walktalk.studies.spec import StudySpec, dump_spec, load_spec

# What is looked at before any training or tuning: data, splits and settings, and how long it will take.

TRIES = 4
UNITS = {"days": 86_400.0, "hours": 3600.0, "minutes": 60.0}


def check_study(spec: StudySpec, device: str = "auto") -> None:
    """Build what the specification names, but for the trainer: every mistake in it shows here.

    Data is read, and a split that leaves nodes without samples is refused.
    """
    pick_device(device)
    foundation = build_foundation(spec)
    spec.optimizer.build()
    foundation.task()


def warning(specs: Sequence[StudySpec], device: str) -> str | None:
    """A word for who starts the paper's scale on a CPU; None where there is nothing to warn of."""
    if not specs or pick_device(device) != "cpu":
        return None
    trainer = build_trainer(specs[0], build_task(specs[0]), "cpu")  # all panels train the same model
    count = sum(trainings(spec) for spec in specs)
    each = seconds_a_training(trainer, specs[0].optimizer.lr)
    if math.isinf(count):  # runs that end by bits alone
        return (
            f"--scale paper is made for a GPU: an iteration takes {each:.2g} s on this CPU; --scale smoke takes minutes"
        )
    return (
        f"--scale paper is made for a GPU: {count:,.0f} iterations are left, "
        f"about {rough_duration(count * each)} on this CPU; --scale smoke takes minutes"
    )


def trainings(spec: StudySpec) -> float:
    """How many local trainings a study has: exact where runs end by iterations, an estimate where they end by time."""
    foundation, total = build_foundation(spec), 0.0
    nodes = foundation.graph.nodes
    timing = build_timing(spec)
    pace = timing.d if isinstance(timing, PoissonTiming) else timing.mean_compute
    for plan in foundation.algorithms:
        by_time = math.inf if spec.stop.time is None else plan.protocol.active_models(nodes) * spec.stop.time / pace
        total += min(by_time, math.inf if spec.stop.iterations is None else spec.stop.iterations)
    return total * spec.repetitions


def seconds_a_training(trainer: Trainer, lr: float) -> float:
    """How long one local training of one model takes here: the best of a few, as the first ones set things up."""
    rows, zero = trainer.initial_row(0)[None].to(trainer.device), torch.zeros(1, dtype=torch.int64)
    took = []
    for _ in range(TRIES):
        began = time.perf_counter()
        trainer.train(TrainingRows(rows, zero, zero, torch.tensor([lr])))
        took.append(time.perf_counter() - began)
    return min(took)


def rough_duration(seconds: float) -> str:
    """A length of time that nobody should take to the minute: "3 days"."""
    unit, size = next(((unit, size) for unit, size in UNITS.items() if seconds >= 2 * size), ("minutes", 60.0))
    return f"{max(1, round(seconds / size)):,} {unit}"


Report = Callable[[str, Progress], None]
Say = Callable[[str], None]


@dataclass(frozen=True)
class PanelRun:
    """A panel, its study, and the folder with its records."""

    panel: Panel
    spec: StudySpec
    folder: Path
    tuning: Tuning | None = None  # what is chosen for every algorithm
    untuned: bool = False  # whether that is still to be found

    @property
    def rates(self) -> Path:
        """Where it is kept how that was found."""
        return self.folder.with_name(f"{self.folder.name}.rates.json")


def run_figure(
    one: Figure,
    scale: Scale,
    out: Path,
    *,
    device: str = "auto",
    changes: Mapping[str, Any] | None = None,
    tune: Tuning | None = None,
    report: Report | None = None,
    say: Say | None = None,
) -> list[PanelRun]:
    """All runs that a figure shows. An interrupted one goes on where it stopped.

    With `tune` each algorithm is first brought to its best (`paper.tune`); those runs have a folder of their own.
    `report` hears how far things are, `say` what a person should know once.
    """
    panels = check_figure(one, scale, out, device=device, changes=changes, tune=tune)
    if not one.runs:
        return panels
    say = say or (lambda line: None)
    left = [run.spec for run in panels if not is_done(run.spec, run.folder)]
    slow = warning(left, device) if scale == "paper" else None
    if slow is not None:
        say(slow)
    panels = [run if run.tuning is None else _tuned(run, run.tuning, device, report, say) for run in panels]
    titles = {run.folder: run.panel.title for run in panels}
    todo = {run.folder: run.spec for run in panels if not is_done(run.spec, run.folder)}
    told = None if report is None else partial(_told_of_several, report, titles)
    fresh, began = not any(folder.exists() for folder in todo), time.perf_counter()
    steps = run_studies(todo, device=device, report=told)
    if todo and fresh:  # else some of it was done before
        seconds = time.perf_counter() - began
        say(f"{steps:,} steps of a model in {seconds:,.0f} s, {steps / seconds:,.0f} a second, all included")
    return panels


def check_figure(
    one: Figure,
    scale: Scale,
    out: Path,
    *,
    device: str = "auto",
    changes: Mapping[str, Any] | None = None,
    tune: Tuning | None = None,
) -> list[PanelRun]:
    """The panels, with everything looked at that can be wrong, so that no mistake shows after hours of training.

    With `tune`, studies for which the choices are known have them already.
    """
    tuning = tune or ("lr" if one.tuned else None)
    runs = out / (one.runs if tuning is None or (one.tuned and tuning == "lr") else f"{one.runs}-{TUNED[tuning]}")
    specs = panel_specs(one, scale, changes)
    panels = [
        PanelRun(titled(panel, specs[panel.name]), specs[panel.name], runs / panel.name, tuning) for panel in one.panels
    ]
    if not one.runs:
        for run in panels:
            build_task(run.spec)
        return panels
    panels = [run if run.tuning is None else _with_known_choices(run, run.tuning) for run in panels]
    left = [run for run in panels if not is_done(run.spec, run.folder)]
    for run in left:  # folders first: that costs nothing
        check_folder(run.folder, dump_spec(run.spec), resume=True)
    for run in left:
        check_study(run.spec, device)
    return panels


def work_ahead(panels: Sequence[PanelRun]) -> list[tuple[PanelRun, float]]:
    """How many model-steps every panel still has to do: none where it is done, an estimate where runs end by time."""
    return [
        (run, 0.0 if is_done(run.spec, run.folder) else (run.spec.training.usual_steps or 1) * trainings(run.spec))
        for run in panels
    ]


def _with_known_choices(run: PanelRun, tuning: Tuning) -> PanelRun:
    """The study with what was found for it, or else with what it was begun with."""
    best = recorded(run.spec, run.rates, tuning)
    spec = _begun(run, tuning) if best is None else with_choices(run.spec, best)
    return replace(run, untuned=True) if spec is None else replace(run, spec=spec)


def _begun(run: PanelRun, tuning: Tuning) -> StudySpec | None:
    """This study as it lies in its folder, if it differs in nothing but what is chosen."""
    try:
        there = load_spec(StudyFolder(run.folder).spec)
        best: dict[str, Choice] = {a.title: {key: getattr(a, key) for key in CHOSEN[tuning]} for a in there.algorithms}
        begun = with_choices(run.spec, best)
    except (SpecError, KeyError):
        return None
    return begun if dump_spec(begun) == dump_spec(there) else None


def _tuned(run: PanelRun, tuning: Tuning, device: str, report: Report | None, say: Say) -> PanelRun:
    """The panel with each algorithm at its best."""
    what = "learning rates" if tuning == "lr" else "learning rates and places of the state"
    if run.untuned:
        if run.rates.is_file():
            say(f"{run.rates} is of other settings; the {what} are looked for again")
        told = None if report is None else _told(report, f"{run.panel.title}, {what}")
        spec = tuned(run.spec, run.rates, device=device, progress=told, tuning=tuning)
        run = replace(run, spec=spec, untuned=False)
    say(f"{run.panel.title}, {what}: {in_words(run.spec)}")
    return run


def _told_of_several(report: Report, titles: Mapping[Path, str], folders: Sequence[Path], progress: Progress) -> None:
    report(", ".join(titles[folder] for folder in folders), progress)


def _told(report: Report, title: str) -> Callable[[Progress], None]:
    return lambda progress: report(title, progress)


def is_done(spec: StudySpec, path: Path) -> bool:
    """Whether this very study was run here to its end: the summary is written last."""
    folder = StudyFolder(path)
    return (
        folder.summary.is_file()
        and folder.history.is_file()
        and folder.spec.is_file()
        and folder.spec.read_text(encoding="utf-8") == dump_spec(spec)
    )
