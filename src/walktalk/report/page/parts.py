"""What a study's page holds: data for its script, and the sections that need none."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from walktalk.errors import UserError
from walktalk.plots import Algorithms, line_style
from walktalk.protocols import known
from walktalk.report.page import sections
from walktalk.report.page.curves import RUNS, means, metrics_of, numbers, single_runs
from walktalk.report.page.incidents import incidents_of
from walktalk.report.page.markup import Html, tag
from walktalk.report.page.names import names_of
from walktalk.report.page.network import network_data, partition_data
from walktalk.report.page.participants import participants_html
from walktalk.report.page.repeat import repeat_command
from walktalk.report.page.shades import on_dark, on_light
from walktalk.report.page.story import story
from walktalk.report.page.table import results_html
from walktalk.report.replay import runs_data
from walktalk.report.study import Study


class PageParts(NamedTuple):
    """A page before it is put together; a page that is open takes a new one in place of the old."""

    name: str  # of the study
    data: dict[str, Any]  # for the script, as JSON
    sections: dict[str, Html]  # by the id of where they go; an empty one is not shown
    intros: dict[str, str] = {}  # noqa: RUF012  what stands below a section's heading, in place of the usual words


def page_parts(study: Study, drawings: dict[str, Any] | None = None) -> PageParts:
    """The page of a study, finished or still running; of one that runs there are no events and records to show yet.

    `drawings`: of the network and the data, where they were made before.
    """
    names, summary = names_of(study.algorithms), study.summary
    finished = {label: name for label, name in names.items() if label in summary["algorithms"]}
    running = study.running is not None
    drawn = drawings_of(study) if drawings is None else drawings
    incidents = {} if running else incidents_of(study, (drawn["network"] or {}).get("names"))
    labels = [algorithm.title for algorithm in study.spec.algorithms]
    content = {
        "lead": tag("p", sections.lead(study), class_="lead"),
        "story": sections.story_html(story(summary, names, study.time), names),
        "algorithms": sections.algorithms_html(names),
        "results": results_html(summary, finished, study.time),
        "participants": participants_html(study.cluster),
        "incidents": sections.incidents_html(incidents, names, study.time),
        "settings": sections.settings_html(study),
        "repeat": _repeat(study),
        "records": Html("") if running else sections.records_html(study.folder, labels, names, study.spec.repetitions),
        "circumstances": tag("p", sections.circumstances(summary), class_="note"),
    }
    data = {
        "name": study.spec.name,
        "finished": study.finished,
        "incidents": {label: [one._asdict() for one in told] for label, told in incidents.items()},
        "replay": None if running else runs_data(study),
        **drawn,
        **curve_data(study.history, study.algorithms, summary["target_loss"], study.time),
    }
    return PageParts(study.spec.name, data, content)


def drawings_of(study: Study) -> dict[str, Any]:
    """The network, and who holds which data: what does not change while a study runs."""
    task = _task(study)
    samples = None if task is None else [len(part) for part in task.parts]
    if study.cluster is not None:
        samples = [node["samples"] for node in study.cluster["nodes"]]
    return {
        "network": network_data(study, samples, None if task is None else task.names),
        "partition": None if task is None else partition_data(task, study.spec.task.settings.get("alpha")),
    }


def curve_data(history: Any, algorithms: Algorithms, target: float | None, time: str) -> dict[str, Any]:
    """Everything that the curves and the target line need."""
    metrics = metrics_of(history)
    keys = [metric["key"] for metric in metrics]
    runs, thinned = single_runs(history, keys)
    shown = known((str(label) for label in history["algorithm"]), algorithms)
    names = names_of(shown)
    return {
        "axes": [
            {"key": "iteration", "name": "Iterations"},
            {"key": "time", "name": time.capitalize()},
            {"key": "bits", "name": "Data sent"},
        ],
        "metrics": metrics,
        "algorithms": [
            {
                **names[label]._asdict(),
                "colour": on_light(one.colour),
                "colour_dark": on_dark(one.colour),
                "dash": _dash(one.family),
            }
            for label, one in shown.items()
        ],
        "means": means(history, shown, keys),
        "runs": runs,
        "most_runs": RUNS,
        "thinned": thinned,
        "target": numbers([math.nan if target is None else target])[0],  # rounded as the curves, so that they meet it
    }


def _repeat(study: Study) -> Html:
    """The command that does it again; none where the specification alone does not say what it is about, or where."""
    if study.cluster is not None or "given" in (study.spec.task.name, study.spec.network.topology):
        return Html("")
    return sections.repeat_html(repeat_command(study.spec, study.folder.path, study.engine))


def _dash(family: str) -> list[float]:
    """Lengths of dashes and gaps in pixels: the same families as in the figures."""
    style = line_style(family)
    return [] if isinstance(style, str) else [2.0 * length for length in style[1]]


def _task(study: Study) -> Any:
    """The task with its data; none where that is not on this machine."""
    try:
        return study.task
    except UserError:
        return None
