"""The page a person reads: one HTML file with everything in it, to explore, to mail or to keep; it needs no network."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any

from walktalk.records import write_text
from walktalk.report.figures import draw_all
from walktalk.report.page.markup import Html, tag
from walktalk.report.page.parts import PageParts, page_parts
from walktalk.report.study import Study, open_study
from walktalk.studies import Foundation

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
    *(f"replay/{name}.js" for name in ("decode", "course", "words", "scene", "strip", "panel", "player")),
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
    """One self-contained file. `live`: it may ask the server that it came from; `scripts` of web/ come last."""
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
