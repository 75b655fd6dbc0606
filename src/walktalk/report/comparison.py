"""Several studies side by side: one page, one table, and which settings differ."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from walktalk.core.errors import StudyError
from walktalk.protocols import Described, together
from walktalk.records import write_text
from walktalk.report.many_runs import as_results, runs_table, shown_columns
from walktalk.report.page import PageParts, page_html
from walktalk.report.page.conclusions import conclusion_of
from walktalk.report.page.data import names_of
from walktalk.report.page.html import curve_data
from walktalk.report.page.sections import Html, conclusion_html, lead, repeat_html, results_html, sortable_head, tag
from walktalk.report.page.sections import together as joined
from walktalk.report.settings import as_yaml, between, flat
from walktalk.report.study import Study, open_study
from walktalk.studies import spec_mapping, summarize

# Lengths of dashes and gaps in pixels: a study's curves are told apart by them, its algorithms by colour.
DASHES: tuple[list[float], ...] = ([], [7.0, 3.0], [2.0, 3.0], [9.0, 3.0, 2.0, 3.0])


@dataclass(frozen=True)
class Comparison:
    """Studies that are compared, each under a name that no other has."""

    studies: Mapping[str, Study]

    @cached_property
    def algorithms(self) -> dict[str, Described]:
        """Every algorithm of every study, by study and label; no two of the same colour while there are enough."""
        alone = all(len(study.algorithms) == 1 for study in self.studies.values())
        each = [one for study in self.studies.values() for one in study.algorithms.values()]
        found = [
            replace(one, label=f"{name}: {label}", title=name if alone else f"{_telling(one, each)} · {name}")
            for name, study in self.studies.items()
            for label, one in study.algorithms.items()
        ]
        return together(found)

    @property
    def without_differences(self) -> str:
        """The sentence that replaces the table where no setting differs."""
        listed = [spec_mapping(study.spec)["algorithms"] for study in self.studies.values()]
        same = all(one == listed[0] for one in listed)
        return "All settings are the same." if same else "All settings are the same, but for the algorithms."

    @cached_property
    def history(self) -> pd.DataFrame:
        """The evaluations of all studies in one table."""
        parts = [
            study.history.assign(algorithm=name + ": " + study.history["algorithm"].astype(str))
            for name, study in self.studies.items()
        ]
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The summary over all studies together: who won on each axis."""
        return self.summary_to(None)

    def summary_to(self, target: float | None) -> dict[str, Any]:
        """The summary with what it takes to reach this training loss; the lowest that every run reached, if None."""
        return {"study": "the comparison", **summarize(self.history, described=self.algorithms, target=target)}

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row for each algorithm of each study: the settings in which studies differ, then what it came to."""
        studies = list(self.studies.values())
        return runs_table([study.spec for study in studies], [study.summary for study in studies])

    @cached_property
    def differences(self) -> dict[str, list[Any]]:
        """The settings in which the studies differ: key, then a value for each study, None where it has none."""
        return between([spec_mapping(study.spec) for study in self.studies.values()])

    @property
    def time(self) -> str:
        """The name of the time axis, where all studies have the same kind of time."""
        kinds = {study.time for study in self.studies.values()}
        return kinds.pop() if len(kinds) == 1 else "time"

    @property
    def warning(self) -> str:
        """A warning where losses or times of the studies cannot be compared; empty where they can."""
        tasks = dict.fromkeys(study.spec.task.title for study in self.studies.values())
        if len(tasks) > 1:
            return f"The studies learn different things ({', '.join(tasks)}), so their losses cannot be compared."
        if len({study.time for study in self.studies.values()}) > 1:
            return "Some of the studies are simulated, others real: their times cannot be compared."
        return ""


def _telling(one: Described, each: Sequence[Described]) -> str:
    """Its heading, with the settings in which it differs from what is called the same in another study.

    In a study a title says as much as is needed there: "Push gossip" where it is the only one, whatever its share.
    """
    alike = [other for other in each if other.title == one.title or other.title.startswith(f"{one.title}, ")]
    unlike = {name for other in alike for name in one.settings if other.settings.get(name) != one.settings[name]}
    told = [f"{name} {as_yaml(value)}" for name, value in one.settings.items() if name in unlike and value is not None]
    return ", ".join([one.heading, *told])


def open_comparison(folders: Sequence[str | PathLike[str]]) -> Comparison:
    """The studies in these folders; a `StudyError` where there are fewer than two, or one is there twice."""
    places = [Path(folder) for folder in folders]
    if len(places) < 2:
        raise StudyError("a comparison needs two studies or more; name their folders, `walktalk list` shows them")
    again = [str(place) for k, place in enumerate(places) if place.resolve() in {p.resolve() for p in places[:k]}]
    if again:
        raise StudyError(f"{again[0]} is there twice; name each study's folder once")
    studies = [open_study(place) for place in places]
    return Comparison(dict(zip(_names(studies), studies, strict=True)))


def _names(studies: Sequence[Study]) -> list[str]:
    """The studies' own names where they differ, else as much of their folders' paths as tells them apart."""
    given = [study.spec.name for study in studies]
    parts = [study.folder.path.resolve().parts for study in studies]
    depth = 1
    while len(set(given)) < len(given) and depth <= max(map(len, parts)):
        given = ["/".join(path[-depth:]) for path in parts]
        depth += 1
    return given


def write_comparison(comparison: Comparison, out: str | PathLike[str]) -> Path:
    """Write the page of a comparison to a file; returns its path."""
    path = Path(out)
    if path.is_dir():
        raise StudyError(f"--out {path}: is a folder; name a file, such as {path / 'compare.html'}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page_html(comparison_parts(comparison, path)))
    return path


def comparison_parts(comparison: Comparison, out: Path) -> PageParts:
    """The page of a comparison, its links relative to where it is written."""
    names = names_of(comparison.algorithms)
    told = conclusion_of(comparison.summary, names, comparison.time)
    count, curves = len(comparison.studies), len(comparison.algorithms)
    warning = [tag("p", comparison.warning, class_="warning", role="note")] if comparison.warning else []
    content = {
        "lead": tag("p", f"{count} studies with {curves} algorithms in all, side by side.", class_="lead"),
        "story": joined(*warning, conclusion_html(told, names)),
        "algorithms": _studies_html(comparison, out),
        "results": results_html(comparison.summary, names, comparison.time),
        "runs": _runs_html(comparison.runs),
        "settings": _differences_html(comparison),
        "repeat": repeat_html(_command(comparison, out)),
    }
    return PageParts("Comparison", _data(comparison), content, {"settings": "What differs between the studies."})


def _data(comparison: Comparison) -> dict[str, Any]:
    data = curve_data(comparison.history, comparison.algorithms, comparison.summary, comparison.time)
    order = list(comparison.studies)
    for algorithm in data["algorithms"]:
        study = next(k for k, name in enumerate(order) if algorithm["label"].startswith(f"{name}: "))
        algorithm["dash"] = list(DASHES[study % len(DASHES)])
    return {"name": "Comparison", "finished": True, "incidents": {}, "network": None, "partition": None, **data}


def _studies_html(comparison: Comparison, out: Path) -> Html:
    """A line on each study, with a link to its page."""
    entries = []
    for name, study in comparison.studies.items():
        page = Path(os.path.relpath(study.folder.report, out.resolve().parent)).as_posix()
        link = [tag("a", "its page", href=page)] if study.folder.report.is_file() else []
        entries += [tag("dt", name), tag("dd", lead(study), " ", *link)]
    return tag("dl", *entries, class_="algorithms")


def _runs_html(table: pd.DataFrame) -> Html:
    """A row for each algorithm of each study, to be sorted and filtered; settings that differ come first."""
    shown = as_results(table, "")
    keys = list(shown_columns(table))
    lines = []
    for (_, row), cells in zip(table.iterrows(), shown.rows, strict=True):
        first, *rest = [(cell.text, _sort_key(row[key])) for key, cell in zip(keys, cells, strict=True)]
        head = tag("th", first[0], scope="row", data_sort=first[1])
        lines.append(tag("tr", head, *(tag("td", text, data_sort=key) for text, key in rest)))
    heads = [sortable_head(text, place, title=key) for place, (key, text) in enumerate(shown_columns(table).items())]
    body = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *lines), class_="results sortable filtered")
    frame = tag("div", body, class_="scroller", tabindex="0", role="region", aria_label="Table of all runs")
    return joined(frame, tag("p", FILTERS, class_="note"))


FILTERS = "Mean ± σ over repetitions. A filter is a part of a text, or a comparison: <0.1, >=0.9, =cycle, !=cycle."


def _sort_key(value: Any) -> str:
    """What a cell is sorted by; nothing where there is no number."""
    return "" if value is None or value != value else str(value)


def _differences_html(comparison: Comparison) -> Html:
    """A row for each setting that differs, a column a study; then how many do not."""
    found = comparison.differences
    first = next(iter(comparison.studies.values()))
    same = {key: value for key, value in flat(spec_mapping(first.spec), False).items() if key not in {*found, "name"}}
    head = tag("tr", tag("th", "Setting", scope="col"), *(tag("th", name, scope="col") for name in comparison.studies))
    rows = [
        tag("tr", tag("th", tag("code", key), scope="row"), *(tag("td", as_yaml(value)) for value in values))
        for key, values in found.items()
    ]
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="settings", id="differences")
    frame = tag("div", table, class_="scroller", tabindex="0", role="region", aria_label="Settings that differ")
    none = tag("p", comparison.without_differences)
    shared = [
        tag("tr", tag("th", tag("code", key), scope="row"), tag("td", as_yaml(value))) for key, value in same.items()
    ]
    folded = tag("table", tag("tbody", *shared), class_="settings")
    rest = tag("details", tag("summary", f"{len(same)} settings that are the same"), folded)
    return joined(frame if rows else none, rest)


def _command(comparison: Comparison, out: Path) -> str:
    folders = [str(study.folder.path) for study in comparison.studies.values()]
    return shlex.join(["walktalk", "compare", *folders, "--out", str(out)])
