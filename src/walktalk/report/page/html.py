"""The page a person reads: one HTML file with everything in it, to explore, to mail or to keep; it needs no network."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from walktalk.core.errors import UserError
from walktalk.protocols import known
from walktalk.records import write_text
from walktalk.report.figures import Algorithms, line_style
from walktalk.report.page import sections
from walktalk.report.page.conclusions import AXES, conclusion_of, incidents_of
from walktalk.report.page.data import (
    RUNS,
    means,
    metrics_of,
    names_of,
    network_data,
    numbers,
    page_colours,
    partition_data,
    single_runs,
)
from walktalk.report.page.sections import Html, participants_html, results_html, sites_html, tag
from walktalk.report.replay import runs_data
from walktalk.report.results import PROBABLE, is_contest, verdict
from walktalk.report.settings import repeat_command
from walktalk.report.study import Study, draw_all, open_study
from walktalk.studies import COST_RULE

if TYPE_CHECKING:
    from walktalk.studies import Foundation

# -- what a study's page holds: data for its script, and sections that need none --------------------------------------


Kind: TypeAlias = Literal["comparison", "single", "cluster"]
"""A page of results, of several algorithms or of one; or of the state of a cluster, its nodes first."""


class PageParts(NamedTuple):
    """The data and sections of a page, before they become HTML; an open live page takes new ones."""

    name: str  # of the study
    data: dict[str, Any]  # for the script, as JSON
    sections: dict[str, Html]  # by the id of where they go; an empty one is not shown
    intros: dict[str, str] = {}  # noqa: RUF012  what stands below a section's heading, in place of the usual words

    @property
    def kind(self) -> Kind:
        """Which kind of page it is, as its data says."""
        kind: Kind = self.data.get("kind", "comparison")
        return kind


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
    kind: Kind = "cluster" if study.cluster is not None else "comparison" if is_contest(summary) else "single"
    told = conclusion_of(summary, names, study.time)
    content = {
        "lead": tag("p", sections.lead(study), class_="lead"),
        "story": sections.conclusion_html(told._replace(cards=[]) if kind == "cluster" else told, names),
        "algorithms": sections.algorithms_html(names),
        "results": results_html(summary, finished, study.time),
        "sites": sections.together(
            sites_html(study.sites, names, study.cluster is not None),
            sections.models_html(study.models, names, study.cluster is not None),
        ),
        "participants": participants_html(study.cluster),
        "incidents": sections.incidents_html(incidents, names, study.time),
        "settings": sections.settings_html(study),
        "repeat": _repeat(study),
        "records": Html("") if running else sections.records_html(study.folder, labels, names, study.spec.repetitions),
        "circumstances": tag("p", sections.circumstances(summary), class_="note"),
    }
    data = {
        "kind": kind,
        "name": study.spec.name,
        "finished": study.finished,
        "incidents": {label: [one._asdict() for one in told] for label, told in incidents.items()},
        "replay": None if running else runs_data(study),
        **drawn,
        **curve_data(study.history, study.algorithms, summary, study.time),
    }
    return PageParts(_title(study), data, content)


def _title(study: Study) -> str:
    """What the page is headed with: of a cluster whose study has no name of its own, that of the cluster."""
    unnamed = study.spec.name == type(study.spec).model_fields["name"].default
    return str(study.cluster["name"]) if study.cluster is not None and unnamed else study.spec.name


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


def curve_data(history: Any, algorithms: Algorithms, summary: Mapping[str, Any] | None, time: str) -> dict[str, Any]:
    """The data of the page's chart and target line; `summary` says who won, None: nobody is compared."""
    target = None if summary is None else summary["target_loss"]
    winners = {} if summary is None else {axis: summary["winners"].get(axis) for axis in AXES}
    read = {} if summary is None else {kind: summary["winners"].get(kind) for kind in ("loss", "accuracy")}
    also = [one["chance_alone"] for one in read.values() if one is not None and "chance_alone" in one]
    metrics = metrics_of(history)
    keys = [metric["key"] for metric in metrics]
    runs, thinned = single_runs(history, keys)
    shown = known((str(label) for label in history["algorithm"]), algorithms)
    names, seen = names_of(shown), page_colours(shown)
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
                "colour": seen[label][0],
                "colour_dark": seen[label][1],
                "dash": _dash(one.family),
                "reference": one.is_reference,
            }
            for label, one in shown.items()
        ],
        "means": means(history, shown, keys),
        "runs": runs,
        "most_runs": RUNS,
        "thinned": thinned,
        "target": numbers([math.nan if target is None else target])[0],  # rounded as the curves, so that they meet it
        "winners": {  # at that target; at others, the script decides by the same rule
            axis: {"best": one["algorithm"], "next": one["next"], "verdict": verdict(one)}
            for axis, one in winners.items()
            if one is not None
        },
        "decision": {**COST_RULE, "probable": PROBABLE, "also": also},
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
    "deciding.js",
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
        body="\n".join(_body(parts, live)),
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


TITLES: dict[str, dict[Kind, str]] = {  # of sections that have another title on other pages
    "algorithms": {"comparison": "What was compared", "single": "What ran", "cluster": "What runs"},
    "explore": {"comparison": "Explore", "single": "Explore", "cluster": "How training goes"},
    "results": {"comparison": "Results", "single": "Results", "cluster": "In figures"},
    "participants": {"comparison": "Who took part", "single": "Who took part", "cluster": "Nodes"},
}
ORDER: dict[Kind, tuple[str, ...]] = {  # an operator looks for the nodes first
    "comparison": (
        "algorithms",
        "explore",
        "results",
        "runs",
        "sites",
        "participants",
        "replay",
        "failures",
        "network",
    ),
    "single": ("explore", "results", "sites", "participants", "replay", "failures", "network", "algorithms"),
    "cluster": ("participants", "explore", "sites", "failures", "replay", "network", "results", "algorithms"),
}
RUNNING = (  # of a cluster that runs: how its machines are, then how its model does
    "participants",
    "network",
    "walks",
    "by_site",
    "explore",
    "replay",
    "algorithms",
)
LAST = ("settings", "repeat", "records")


def _body(parts: PageParts, live: bool) -> list[Html]:
    """The sections in the order of this kind of page; what there is nothing for stands hidden, and may come later."""
    given, runs = parts.sections, live and parts.kind == "cluster"
    explore = tag("div", tag("div", "", id="curves"), tag("div", "", id="target-panel"), class_="panel")
    drawings = [tag("div", tag("div", "", id=f"{name}-drawing"), class_="panel") for name in ("network", "partition")]
    differs = parts.intros.get("settings", "What differs from the defaults comes first.")
    invitation = "Choose what to show and against what"
    invitation += "." if parts.kind == "cluster" else "; drag the dashed line to set a target."
    contents = {  # title, introduction, content, whether it stays hidden until a script or the server fills it
        "algorithms": ("", "", _filled("algorithms", given), False),
        "explore": ("", invitation, explore, False),
        "results": ("", "", _panel("results", given), not given.get("results")),
        "runs": ("All runs", "", _panel("runs", given), not given.get("runs")),
        "sites": ("Site by site", "", _panel("sites", given), not given.get("sites")),
        "participants": ("", "", _panel("participants", given, controls=runs), not given.get("participants")),
        "replay": ("Replay", "", tag("div", tag("div", "", id="replay-mount"), class_="panel"), True),
        "failures": ("What went wrong", "", _filled("incidents", given), not given.get("incidents")),
        "network": (
            "The network as it is" if runs else "Network and data",
            "",
            tag("div", *drawings, class_="pair"),
            True,
        ),
        "walks": ("Walks", "", _panel("walks", given), not given.get("walks")),
        "by_site": ("Progress by site", "", _panel("by_site", given), not given.get("by_site")),
        "settings": ("Settings", differs, _filled("settings", given), False),
        "repeat": ("Run it again", "", _filled("repeat", given), not given.get("repeat")),
        "records": ("Records", "", _filled("records", given), not given.get("records")),
    }
    titled = {name: TITLES[name][parts.kind] if name in TITLES else title for name, (title, *_) in contents.items()}
    return [
        _section(name, titled[name], *contents[name][1:]) for name in (*(RUNNING if runs else ORDER[parts.kind]), *LAST)
    ]


def _panel(name: str, given: dict[str, Html], controls: bool = False) -> Html:
    above = [tag("div", "", id="nodes-controls", class_="controls")] if controls else []
    return tag("div", *above, _filled(name, given), class_="panel")


def _section(name: str, title: str, intro: str, content: Html, hidden: bool = False) -> Html:
    words = [tag("p", intro, class_="intro")] if intro else []
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *words, content, id=name, aria_labelledby=f"{name}-title", hidden=hidden)


def _filled(name: str, sections: dict[str, Html]) -> Html:
    return tag("div", sections.get(name, Html("")), data_section=name)
