"""The page a person reads: one HTML file with everything in it, to explore, to mail or to keep; it needs no network."""

from __future__ import annotations

import json
import math
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from walktalk.core.errors import UserError
from walktalk.protocols import known
from walktalk.records import write_text
from walktalk.report.figures import Algorithms, line_style
from walktalk.report.page import sections
from walktalk.report.page.conclusions import conclusion_of, incidents_of
from walktalk.report.page.data import (
    RUNS,
    means,
    metrics_of,
    names_of,
    network_data,
    numbers,
    on_dark,
    on_light,
    partition_data,
    single_runs,
)
from walktalk.report.page.sections import Html, participants_html, results_html, tag
from walktalk.report.replay import runs_data
from walktalk.report.settings import repeat_command
from walktalk.report.study import Study, draw_all, open_study
from walktalk.studies import Foundation

# -- what a study's page holds: data for its script, and sections that need none --------------------------------------


class PageParts(NamedTuple):
    """The data and sections of a page, before they become HTML; an open live page takes new ones."""

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
        "story": sections.conclusion_html(conclusion_of(summary, names, study.time), names),
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
    """The data of the page's chart and target line."""
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


STYLES = ("uplot/uPlot.min.css", "page.css", "replay/replay.css", "live/live.css")
SCRIPTS = (  # in the order in which they build on each other
    "uplot/uPlot.iife.min.js",
    "format.js",
    "scales.js",
    "series.js",
    "dom.js",
    "marks.js",
    "address.js",
    "saving.js",
    "curves.js",
    "target.js",
    "table.js",
    "network.js",
    *(f"replay/{name}.js" for name in ("decode", "timeline", "words", "scene", "strip", "panel", "player")),
    "page.js",
)


def write_report(folder: str | PathLike[str], base: Foundation | None = None) -> Path:
    """Draw the study's figures and write `report.html`; its path. `base`: what it stands on, where that is at hand."""
    study = open_study(folder, base)
    draw_all(study)
    return write_page(study)


def write_page(study: Study) -> Path:
    """Write `report.html` alone, with links to the figures that are there; its path."""
    write_text(study.folder.report, page_html(page_parts(study)))
    return study.folder.report


def page_html(parts: PageParts, *, live: bool = False, scripts: tuple[str, ...] = ()) -> str:
    """The page as one self-contained HTML file. `live` lets it ask its server; `scripts` of web/ are added last."""
    return Template(_asset("page.html")).substitute(
        title=escape(parts.name),
        connect="'self'" if live else "'none'",
        css="\n".join(_asset(name) for name in STYLES),
        theme=_asset("theme.js"),
        lead=parts.sections["lead"],
        story=parts.sections["story"],
        circumstances=parts.sections.get("circumstances", ""),
        body="\n".join(_body(parts)),
        data=json_text(parts.data),
        script="\n".join(_asset(name) for name in (*SCRIPTS, *scripts)),
    )


def json_text(data: Any) -> str:
    """JSON that can stand within a script element: nothing in it ends the element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _asset(name: str) -> str:
    """A file of `web/`; nothing where there is none."""
    file = files("walktalk.report") / "web" / name
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _body(parts: PageParts) -> list[Html]:
    """The sections in their order; what this page has nothing for stands hidden, and may come while it is open."""
    given = parts.sections
    explore = tag("div", tag("div", "", id="curves"), tag("div", "", id="target-panel"), class_="panel")
    drawings = [tag("div", tag("div", "", id=f"{name}-drawing"), class_="panel") for name in ("network", "partition")]
    differs = parts.intros.get("settings", "What differs from the defaults comes first.")
    participants = tag("div", _filled("participants", given), class_="panel")
    invitation = "Choose what to show and against what; drag the dashed line to set a target."
    return [
        _section("algorithms", "What was compared", "", _filled("algorithms", given)),
        _section("explore", "Explore", invitation, explore),
        _section("results", "Results", "", tag("div", _filled("results", given), class_="panel")),
        _section("participants", "Who took part", "", participants, hidden=not given.get("participants")),
        _section("replay", "Replay", "", tag("div", tag("div", "", id="replay-mount"), class_="panel"), hidden=True),
        _section("failures", "What went wrong", "", _filled("incidents", given), hidden=not given.get("incidents")),
        _section("network", "Network and data", "", tag("div", *drawings, class_="pair"), hidden=True),
        _section("settings", "Settings", differs, _filled("settings", given)),
        _section("repeat", "Run it again", "", _filled("repeat", given), hidden=not given.get("repeat")),
        _section("records", "Records", "", _filled("records", given), hidden=not given.get("records")),
    ]  # fmt: skip


def _section(name: str, title: str, intro: str, content: Html, hidden: bool = False) -> Html:
    words = [tag("p", intro, class_="intro")] if intro else []
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *words, content, id=name, aria_labelledby=f"{name}-title", hidden=hidden)


def _filled(name: str, sections: dict[str, Html]) -> Html:
    return tag("div", sections.get(name, Html("")), data_section=name)
