"""Runs the studies of a figure, one folder a panel; what is there already, whole and of the same settings, is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from walktalk.records import StudyFolder
from walktalk.studies.paper.figures import Figure, Panel, Scale, panel_specs, titled
from walktalk.studies.paper.tune import tuned
from walktalk.studies.run import run_study
from walktalk.studies.runs import Progress
from walktalk.studies.spec import StudySpec
from walktalk.studies.spec_load import dump_spec

Report = Callable[[str, Progress], None]


@dataclass(frozen=True)
class PanelRun:
    """A panel, its study, and the folder with its records."""

    panel: Panel
    spec: StudySpec
    folder: Path


def run_figure(
    one: Figure,
    scale: Scale,
    out: Path,
    *,
    device: str = "auto",
    changes: Mapping[str, Any] | None = None,
    tune: bool = False,
    report: Report | None = None,
) -> list[PanelRun]:
    """All runs that a figure shows. An interrupted one goes on where it stopped.

    With `tune` each algorithm gets its own learning rate first; those runs have a folder of their own.
    """
    panels = []
    specs = panel_specs(one, scale, changes)
    for panel in one.panels:
        runs = out / (f"{one.runs}-tuned" if tune else one.runs)
        spec, folder = specs[panel.name], runs / panel.name
        panel = titled(panel, spec)
        if tune and one.runs:
            told = None if report is None else _told(report, f"{panel.title}, learning rates")
            spec = tuned(spec, runs / f"{panel.name}.rates.json", device=device, progress=told)
        panels.append(PanelRun(panel, spec, folder))
        if one.runs and not is_done(spec, folder):
            told = None if report is None else _told(report, panel.title)
            run_study(spec, folder, resume=True, device=device, progress=told)
    return panels


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
