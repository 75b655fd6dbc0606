"""The page a person reads: one HTML file with everything in it, to mail or to keep."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from walktalk.errors import StudyError, UserError
from walktalk.plots import title_of
from walktalk.records import StudyFolder, existing_folder, read_history, write_text
from walktalk.report.figures import Window, draw_curves, draw_failures, draw_network, draw_partition, draw_timeline
from walktalk.report.results import results_table
from walktalk.studies import StudySpec, load_spec, summarize

CAPTIONS = {
    "curves-iteration": "Per iteration: one local training at one node.",
    "curves-time": "Per second of wall-clock time: virtual in a simulation, real on peers.",
    "curves-bits": "Per byte sent between nodes, models and protocol messages alike.",
    "failures": "Per second of wall-clock time, with what went wrong in the first repetition and at which node.",
    "network": "The network.",
    "partition": "The data: the area of a bubble is the number of samples of a class at a node.",
    "timeline": "The beginning of one run. Solid: computation; light: communication; a tick below ends an iteration.",
}


GIVEN = ("network", "partition", "timeline")  # figures of what was run, not of what came out
AXIS_NAMES = {"iteration": "iterations", "time": "time", "bits": "data sent"}


def write_report(folder: str | PathLike[str]) -> Path:
    """Draw the study's figures and write `report.html`; its path."""
    study = existing_folder(folder)
    spec = load_spec(study.spec)
    history = read_history(study.history)
    summary = _summary(study) or summarize(history, spec)
    figures = _figures(study, spec)
    write_text(study.report, page(spec, summary, figures, study.path.name))
    return study.report


def page(spec: StudySpec, summary: dict[str, Any], figures: dict[str, Path], name: str) -> str:
    """The HTML, with the figures in it."""
    parts = [
        f"<h1>{escape(spec.name)}</h1>",
        f"<p class='lead'>{escape(_lead(spec, summary))}</p>",
        f"<p class='verdict'>{escape(verdict(summary))}</p>",
        "<h2>Results</h2>",
        _results(summary),
        *(_figure(kind, path) for kind, path in figures.items() if kind not in GIVEN),
        "<h2>Network, data and course</h2>",
        *(_figure(kind, path) for kind, path in figures.items() if kind in GIVEN),
        "<h2>Settings</h2>",
        _settings(summary.get("settings", {})),
        "<h2>Run it again</h2>",
        f"<pre>walktalk run {escape(name)}/spec.yaml --out {escape(name)}-again</pre>",
        f"<p class='note'>{escape(_circumstances(summary))}</p>",
    ]
    return (
        f"<!doctype html>\n<html lang='en'>\n<head>{_head(spec.name)}</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _figures(study: StudyFolder, spec: StudySpec) -> dict[str, Path]:
    """Every figure that this study can have, by kind; the SVG of each."""
    found = {f"curves-{x}": draw_curves(study, x)[1] for x in ("iteration", "time", "bits")}
    drawings: dict[str, Callable[[], list[Path]]] = {
        "failures": lambda: draw_failures(study, spec),
        "network": lambda: draw_network(study, spec),
        "partition": lambda: draw_partition(study, spec),
        "timeline": lambda: draw_timeline(study, spec, Window(_telling(spec))),
    }
    for kind, drawing in drawings.items():
        try:
            found[kind] = drawing()[1]
        except UserError:  # nothing went wrong, no classes, no trace, a graph too large to see: it does without
            continue
    if "failures" in found:  # the curves against time, and more
        del found["curves-time"]
    return found


def _telling(spec: StudySpec) -> str:
    """The algorithm whose time line shows most: the first with a few walks at once."""
    walks = {a.title: int((a.model_extra or {}).get("walks", 0)) for a in spec.algorithms}
    return next((title for title, count in walks.items() if 2 <= count <= 4), next(iter(walks)))


def _summary(study: StudyFolder) -> dict[str, Any] | None:
    """The summary that the run wrote, with the machine it ran on."""
    if not study.summary.is_file():
        return None
    damaged = f"{study.summary} is damaged; delete it and call `walktalk report` again"
    try:
        content: dict[str, Any] = json.loads(study.summary.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StudyError(damaged) from error
    if not isinstance(content, dict) or not {"algorithms", "winners", "target_loss"} <= set(content):
        raise StudyError(damaged)
    return content


def _lead(spec: StudySpec, summary: dict[str, Any]) -> str:
    network = spec.network
    nodes = f"{network.nodes} nodes, " if network.nodes is not None else ""
    runs = len(spec.algorithms) * spec.repetitions
    count = f"{len(spec.algorithms)} algorithms × {spec.repetitions} repetitions = {runs} runs"
    return f"Task {spec.task.name} on {nodes}topology {network.topology}; {count}, seed {spec.seed}."


def verdict(summary: dict[str, Any]) -> str:
    """Who needed least of what, in a sentence; "or" where the gap to the next may be luck."""
    if summary["target_loss"] is None:
        return "No training loss was reached by all algorithms, so nobody can be said to have needed less."
    least: dict[str, list[str]] = {}
    for axis, name in AXIS_NAMES.items():
        winner = summary["winners"].get(axis)
        if winner is not None:
            close = f" or {title_of(winner['next'])}" if winner["clear"] is False and winner["next"] else ""
            least.setdefault(f"{title_of(winner['algorithm'])}{close}", []).append(name)
    if not least:
        return ""
    parts = [f"{' and '.join(names)}: {who}" for who, names in least.items()]
    return f"To training loss {summary['target_loss']:.3g}, least {'; least '.join(parts)}."


def _results(summary: dict[str, Any]) -> str:
    table = results_table(summary)
    head = "".join(f"<th>{escape(text)}</th>" for text in table.head)
    rows = "".join(
        "<tr>" + "".join(f"<td{' class=best' if cell.best else ''}>{escape(cell.text)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    note = f"{table.note} The best of each column is marked."
    table_html = f"<table class='results'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    warning = f"<p class='warning'>{escape(table.warning)}</p>" if table.warning else ""
    return f"{table_html}{warning}<p class='note'>{escape(note)}</p>"


def _figure(kind: str, path: Path) -> str:
    image = base64.b64encode(path.read_bytes()).decode()
    caption = escape(CAPTIONS[kind])
    picture = f"<img alt='{caption}' src='data:image/svg+xml;base64,{image}'>"
    return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"


def _settings(settings: dict[str, Any]) -> str:
    rows = []
    for section, content in settings.items():
        inner = content if isinstance(content, dict) else {"": content}
        if section == "algorithms":
            inner = {str(place): entry for place, entry in enumerate(content)}
        for key, value in inner.items():
            name = f"{section}.{key}" if key else section
            rows.append(f"<tr><td><code>{escape(name)}</code></td><td>{escape(_value(value))}</td></tr>")
    return f"<table class='settings'>{''.join(rows)}</table>"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_value(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(_value(inner) for inner in value) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _circumstances(summary: dict[str, Any]) -> str:
    versions, machine = summary.get("versions", {}), summary.get("machine", {})
    told = [f"{name} {version}" for name, version in versions.items() if version]
    told += [f"{name} {value}" for name, value in machine.items()]
    return f"Ran with {', '.join(told)}." if told else ""


def _head(name: str) -> str:
    meta = "<meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
    return f"{meta}<title>{escape(name)}</title><style>{CSS}</style>"


CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.2rem; border-bottom: 1px solid #ddd; padding-bottom: .2rem; }
.lead { color: #555; margin-top: .3rem; } .verdict { font-size: 1.1rem; } .note { color: #666; font-size: .87rem; }
.warning { color: #a00; font-weight: 600; }
table { border-collapse: collapse; font-size: .93rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #eee; vertical-align: top; }
.results { width: 100%; } .results th, .results td { text-align: right; }
.results th:first-child, .results td:first-child { text-align: left; }
td.best { font-weight: 600; color: #00694d; } td.best::before { content: "★ "; }
figure { margin: 1.8rem 0; text-align: center; } figure img { max-width: 100%; height: auto; }
figcaption { color: #555; font-size: .9rem; } code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
pre { background: #f5f5f5; padding: .8rem 1rem; border-radius: 4px; overflow-x: auto; }
@media print { body { max-width: none; margin: 0; } figure { break-inside: avoid; } }
"""
