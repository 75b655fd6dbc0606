"""From runs in memory to a study's folder and to a page."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from walktalk.interactive.arguments import as_arguments
from walktalk.records import TraceWriter, opened_folder, write_text
from walktalk.report import open_study, page_html, page_parts, write_report
from walktalk.studies import Foundation
from walktalk.studies.results import study_result, trace_columns, write_run
from walktalk.studies.spec import dump_spec

if TYPE_CHECKING:
    from walktalk.interactive.run import Run


def save_study(
    base: Foundation, runs: Sequence[Run], folder: str | PathLike[str], *, overwrite: bool = False, figures: bool = True
) -> Path:
    """Write everything that a study leaves; the folder.

    Args:
        base: The study.
        runs: All its runs, in order.
        folder: Where; it need not exist yet, and another study's is refused.
        overwrite: Replace a study that is there.
        figures: Whether figures and page are made, too.
    """
    with as_arguments(), opened_folder(folder, dump_spec(base.spec), overwrite=overwrite) as place:
        for run in runs:
            here = place.run(run.record.label, run.record.repetition)
            here.path.mkdir(parents=True, exist_ok=True)
            with TraceWriter(here.trace) as writer:
                writer.write(trace_columns(run.record.trace) if run.record.trace else _columns(run))
            write_run(here, run.record, run.trainer)
        study_result(base.spec, [run.record for run in runs], place, runs[0].engine)
    if figures:
        write_report(folder, base)
    return Path(folder)


def _columns(run: Run) -> dict[str, Sequence[object]]:
    """The columns of a trace that was written to a file."""
    return {str(name): list(values) for name, values in run.trace.items()}


def page_of(base: Foundation, runs: Sequence[Run], path: str | PathLike[str]) -> Path:
    """Write the page alone; what it would link to is not there, so it has no such links."""
    with tempfile.TemporaryDirectory() as folder:
        save_study(base, runs, Path(folder) / base.spec.name, figures=False)
        parts = page_parts(open_study(Path(folder) / base.spec.name, base))
        sections = {name: html for name, html in parts.sections.items() if name not in ("records", "repeat")}
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, page_html(parts._replace(sections=sections)))
    return target
