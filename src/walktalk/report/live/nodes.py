"""What an operator wants to see of a running cluster: who complains and of what, every node, the walks, every site.

All of it is told by the nodes' answers, one after the other. What only shows between two answers – since when something
is so, how fast a node trains, how a site's loss went – is remembered here.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

from walktalk.core.wall_clock import wall_seconds
from walktalk.report.figures import with_unit
from walktalk.report.page.sections import Html, sortable_head, tag, together

Answer = Mapping[str, Any]

WINDOW = 60.0  # seconds over which a rate is the mean
DAY = 86_400.0
URGENT, SOON = 7.0, 30.0  # days before a certificate ends at which it is marked
LITTLE = 0.05  # of a disk that is free, from which on it is marked
POINTS = 60  # of a site's course: as many as can be told apart in its small drawing
WIDE, HIGH = 120, 28  # of that drawing, in pixels
GONE, SILENT = "left for good", "no answer"


class Complaint(NamedTuple):
    """What a node complains of, or warns of, and since when."""

    node: str
    words: str
    since: float
    urgent: bool


class ObservedNodes:
    """Remembers what the nodes' answers show one after the other."""

    def __init__(self) -> None:
        self.answers: Mapping[str, Answer | None] = {}
        self.complaints: list[Complaint] = []
        self.now = 0.0
        self._states: dict[str, tuple[str, float]] = {}  # by node: its state, and since when
        self._trained: dict[str, deque[tuple[float, int]]] = {}  # by node: iterations lately
        self._walks: dict[int, tuple[str, float, float, int]] = {}  # where, since when, seen last, visits
        self._losses: dict[str, list[tuple[float, float]]] = {}  # by site
        self._first = 0.0

    def add(self, answers: Mapping[str, Answer | None], sites: Mapping[str, str], now: float) -> None:
        """Take in what was answered now; None: nothing."""
        if not self.answers:
            self._first = now
        self.answers, self.now = dict(answers), now
        for name in sites:
            self._see(name, state_of(answers, name), now)
        self._complain(answers, now)
        for name, answer in answers.items():
            if answer is not None:
                self._learn(name, answer, now)
        self._see_sites(sites, now)

    def _see(self, name: str, state: str, now: float) -> None:
        before = self._states.get(name)
        if before is None or before[0] != state:
            self._states[name] = state, now

    def _complain(self, answers: Mapping[str, Answer | None], now: float) -> None:
        """Who complains of the same as before has done so since then; numbers in its words may have changed."""
        known = {(one.node, _without_numbers(one.words)): one.since for one in self.complaints}
        said = [(name, words, True) for name, a in answers.items() if a for words in a.get("complaints") or ()]
        said += [(name, words, False) for name, a in answers.items() if a for words in a.get("warnings") or ()]
        self.complaints = [
            Complaint(name, words, known.get((name, _without_numbers(words)), now), urgent)
            for name, words, urgent in ((name, str(words), urgent) for name, words, urgent in said)
        ]

    def _learn(self, name: str, answer: Answer, now: float) -> None:
        trained = self._trained.setdefault(name, deque())
        trained.append((now, int(answer["iterations"])))
        while len(trained) > 2 and trained[1][0] <= now - WINDOW:
            trained.popleft()
        for walk in answer["walks"]:
            where, since, _, visits = self._walks.get(walk, ("", now, now, 0))
            self._walks[walk] = (name, since, now, visits) if where == name else (name, now, now, visits + 1)

    def _see_sites(self, sites: Mapping[str, str], now: float) -> None:
        for site, names in by_site(sites).items():
            losses = [a["loss"] for name in names if (a := self.answers.get(name)) and a["loss"] is not None]
            if losses:
                course = self._losses.setdefault(site, [])
                course.append((now, sum(losses) / len(losses)))
                if len(course) > 2 * POINTS:
                    del course[1:-1:2]

    def rate(self, name: str) -> float | None:
        """Trainings a minute, over the last one; None where that is not known yet."""
        trained = self._trained.get(name)
        if self.answers.get(name) is None or not trained or trained[-1][0] <= trained[0][0]:
            return None
        (began, before), (now, after) = trained[0], trained[-1]
        return 60.0 * max(0, after - before) / (now - began)

    def since(self, name: str) -> str:
        """How long the node has been in its state, as far as it was seen."""
        _, since = self._states[name]
        return ("over " if since <= self._first else "") + lasting(self.now - since)

    # -- as HTML ------------------------------------------------------------------------------------------------------

    def attention_html(self) -> Html:
        """Who complains and of what, the urgent first; or that nobody does."""
        silent = [name for name in self.answers if self.answers[name] is None]
        lines = [_attention(name, "does not answer", self.now - self._states[name][1], True) for name in silent]
        named = {one.node for one in self.complaints if one.urgent} | set(silent)
        alike: dict[tuple[bool, str], list[Complaint]] = {}  # what several say alike is said once
        for one in self.complaints:
            if one.urgent or one.words.partition(" ")[0] not in named:  # what a node says itself is not told by others
                alike.setdefault((not one.urgent, _without_numbers(one.words)), []).append(one)
        for (mild, _), some in sorted(alike.items(), key=lambda pair: pair[0][0]):
            names, since = ", ".join(one.node for one in some), min(one.since for one in some)
            lines.append(_attention(names, some[0].words, self.now - since, not mild))
        if not lines:
            there = len(self.answers)
            return tag("p", f"All {there} nodes answer, and none complains.", class_="well")
        return tag("ul", *lines, class_="attention", aria_label="What has to be looked at")

    def nodes_html(self, sites: Mapping[str, str]) -> Html:
        """A row for each node: what it does, since when, how fast, and what may run out."""
        located = any(sites.values())
        titles = [title for title in NODES if located or title != "Site"]
        rows = [self._row(name, sites[name], located) for name in sites]
        table = _table("nodes", titles, rows)
        note = (
            "A loss is the node's own, on its own data. “A minute” is the mean of the last one; “over” means: since "
            "before this page was opened."
        )
        frame = tag("div", table, class_="scroller", tabindex="0", role="region", aria_label="The cluster's nodes")
        return together(frame, tag("p", note, class_="note"))

    def _row(self, name: str, site: str, located: bool) -> Html:
        answer, state = self.answers.get(name), state_of(self.answers, name)
        bad = answer is None and state != GONE
        complains = bad or any(one.node == name for one in self.complaints)
        urgent = bad or any(one.node == name and one.urgent for one in self.complaints)
        mark = "bad" if urgent else "gone" if state == GONE else "warn" if complains else "good"
        dot = tag("span", "", class_=f"dot {mark}", aria_hidden="true")
        cells = [_cell("State", state, None, f"for {self.since(name)}", mark if urgent else None)]
        cells += self._doing(name, answer) if answer is not None else [_cell(title, "") for title in NODES[3:]]
        place = [_cell("Site", site)] if located else []
        first = tag("th", dot, name, scope="row", data_sort=name)
        return tag("tr", first, *place, *cells, data_attention="yes" if complains else "no")

    def _doing(self, name: str, answer: Answer) -> list[Html]:
        trains, since, rate = answer.get("trains"), answer.get("training_seconds") or 0.0, self.rate(name)
        loss, saved = answer["loss"], answer.get("checkpoint_age")
        known = answer.get("neighbours") or {}
        missing = [other for other, there in known.items() if not there]
        beside = f"{len(known) - len(missing)} of {len(known)}" if known else str(len(answer["alive"]))
        return [
            _cell("Trains now", trains or "–", since, f"for {lasting(since)}" if trains and since >= 1.0 else ""),
            _cell("A minute", "" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}", rate),
            _cell("Iterations", f"{answer['iterations']:,}", answer["iterations"]),
            _cell("Loss", "–" if loss is None else f"{loss:.3g}", loss),
            _cell("Neighbours", beside, len(known) - len(missing), f"not {', '.join(missing)}" if missing else ""),
            _certificate(answer.get("certificate_ends")),
            _disk(answer.get("disk")),
            _cell("Saved", "" if saved is None else f"{lasting(saved)} ago", saved),
            _cell("Sent", with_unit("bits", 8 * answer["bytes_sent"]), answer["bytes_sent"]),
            _cell("Version", str(answer.get("version", "")), None),
        ]

    def walks_html(self) -> Html:
        """Where every walk is; nothing where there are none."""
        if not self._walks:
            return Html("")
        rows = []
        for walk, (where, since, seen, visits) in sorted(self._walks.items()):
            away = self.now - seen
            here = f"at {where}" if away <= 0 else f"under way, last at {where}"
            lasts = self.now - since if away <= 0 else away
            number = tag("th", f"Walk {walk}", scope="row", data_sort=str(walk))
            cells = [
                _cell("Where", here),
                _cell("For", lasting(lasts), lasts),
                _cell("Moves seen", str(visits), visits),
            ]
            rows.append(tag("tr", number, *cells))
        table = _table("walks", WALKS, rows)
        frame = tag("div", table, class_="scroller", tabindex="0", role="region", aria_label="The walks")
        return together(
            frame, tag("p", "Nodes are asked every few seconds: most moves happen in between.", class_="note")
        )

    def sites_html(self, sites: Mapping[str, str], last: Mapping[str, Answer]) -> Html:
        """How the model does at each site; where nodes have no site, at each node."""
        groups = by_site(sites)
        everything = sum(int(last[name]["iterations"]) for name in sites if name in last)
        told = {site: _metrics(last[name] for name in names if name in last) for site, names in groups.items()}
        names_of_metrics = sorted({key for one in told.values() for key in one})
        titles = ["Site" if any(sites.values()) else "Node", "Nodes", "Iterations", "Share", "Loss", "Best", "Course"]
        titles[6:6] = names_of_metrics
        rows = []
        for site, names in groups.items():
            course = self._losses.get(site, [])
            trained = sum(int(last[name]["iterations"]) for name in names if name in last)
            heard = any(name in last for name in names)
            now, best = (course[-1][1], min(loss for _, loss in course)) if course else (None, None)
            share = trained / everything if everything else 0.0
            metrics = [(key, told[site].get(key)) for key in names_of_metrics]
            cells = [
                _cell("Nodes", str(len(names)), len(names)),
                _cell("Iterations", f"{trained:,}" if heard else "–", trained),
                _cell("Share", f"{100 * share:.0f} %" if heard else "–", share),
                _cell("Loss", "–" if now is None else f"{now:.3g}", now),
                _cell("Best", "–" if best is None else f"{best:.3g}", best),
                *(_cell(key, "–" if value is None else f"{value:.3g}", value) for key, value in metrics),
                tag("td", _course(course, site), data_title="Course", data_sort="" if now is None else str(now)),
            ]
            rows.append(tag("tr", tag("th", site, scope="row", data_sort=site), *cells))
        table = _table("sites", titles, rows)
        note = "The loss is the mean of the site's nodes, each on its own data, of models as they came to them."
        frame = tag("div", table, class_="scroller", tabindex="0", role="region", aria_label="Every site")
        return together(frame, tag("p", note, class_="note"))


NODES = (
    "Node",
    "Site",
    "State",
    "Trains now",
    "A minute",
    "Iterations",
    "Loss",
    "Neighbours",
    "Certificate",
    "Disk free",
    "Saved",
    "Sent",
    "Version",
)
WALKS = ("Walk", "Where", "For", "Moves seen")
WORDS = ("Site", "State", "Trains now", "Where")
"""Columns that have words, no numbers."""


def state_of(answers: Mapping[str, Answer | None], name: str) -> str:
    """What a node does, in a word or two."""
    answer = answers.get(name)
    if answer is None:
        return SILENT if name in answers else GONE
    if answer.get("hangs") and not answer["done"]:
        return "hangs"
    return "aggregates" if answer["aggregates"] and not answer["done"] else str(answer.get("state", ""))


def by_site(sites: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of each site's nodes; a node without a site is one of its own."""
    found: dict[str, list[str]] = {}
    for name, site in sites.items():
        found.setdefault(site or name, []).append(name)
    return found


def lasting(seconds: float) -> str:
    """A length of time in its largest fitting unit."""
    for unit, length in (("days", DAY), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def drawn_state(network: dict[str, Any] | None, answers: Mapping[str, Answer | None]) -> dict[str, Any] | None:
    """The drawing with how each node is, and which connections are down: both ends are there, one misses the other."""
    if network is None or "places" not in network:
        return network
    names = dict(enumerate(network.get("names") or answers))
    told = {name: (answer or {}).get("neighbours") or {} for name, answer in answers.items()}

    def parted(one: str, other: str) -> bool:
        return told.get(one, {}).get(other) is False or told.get(other, {}).get(one) is False

    ends = [(names.get(a, ""), names.get(b, "")) for a, b in network["pairs"]]
    there = {name for name, answer in answers.items() if answer is not None}
    down = [place for place, both in enumerate(ends) if there.issuperset(both) and parted(*both)]
    complaining = {name for name in there if (answers[name] or {}).get("complaints")}
    states = [
        "gone" if name not in answers else "away" if name not in there else "bad" if name in complaining else ""
        for name in names.values()
    ]
    return {**network, "states": states, "down": down}


def _table(name: str, titles: Sequence[str], rows: Sequence[Html]) -> Html:
    """A table that can be sorted, and on a phone has a card for each row."""
    heads = (sortable_head(title, place, words=title in WORDS) for place, title in enumerate(titles))
    parts = tag("thead", tag("tr", *heads)), tag("tbody", *rows)
    return tag("table", *parts, class_="results sortable stacked", data_name=name)


def _cell(title: str, text: str, key: float | None = None, more: str = "", mark: str | None = None) -> Html:
    """A cell that sorts by a number or its text; on a phone its title stands before it."""
    below = [tag("span", more, class_="more")] if more else []
    order = text if key is None else str(float(key))
    classes = " ".join(filter(None, ("words" if title in WORDS else "", mark)))
    return tag("td", text, *below, data_title=title, data_sort=order, class_=classes or None)


def _certificate(ends: object) -> Html:
    if not isinstance(ends, str):
        return _cell("Certificate", "")
    try:
        end = datetime.fromisoformat(ends)
    except ValueError:
        return _cell("Certificate", "?")
    aware = end if end.tzinfo else end.replace(tzinfo=timezone.utc)
    days = (aware.timestamp() - wall_seconds()) / DAY
    mark = "bad" if days < URGENT else "warn" if days < SOON else None
    words = "has ended" if days < 0 else f"{days:.0f} days" if days >= 2 else f"{24 * days:.0f} h"
    return _cell("Certificate", words, days, "", mark)


def _disk(disk: object) -> Html:
    if not (isinstance(disk, list) and len(disk) == 2 and disk[1]):
        return _cell("Disk free", "")
    free, share = 8 * disk[0], disk[0] / disk[1]
    return _cell(
        "Disk free", with_unit("bits", free), disk[0], f"{100 * share:.0f} %", "bad" if share < LITTLE else None
    )


def _attention(name: str, words: str, lasts: float, urgent: bool) -> Html:
    when = tag("span", f"for {lasting(lasts)}", class_="when")
    dot = tag("span", "", class_=f"dot {'bad' if urgent else 'warn'}", aria_hidden="true")
    return tag(
        "li", dot, tag("b", name), tag("span", f"{words}", class_="words"), when, class_="" if urgent else "mild"
    )


def _without_numbers(words: str) -> str:
    return re.sub(r"\d[\d.,]*", "#", words)


def _metrics(answers: Iterable[Answer]) -> dict[str, float]:
    """The mean of what nodes have measured beside loss and accuracy, by name."""
    found: dict[str, list[float]] = {}
    for answer in answers:
        for key, value in (answer.get("metrics") or {}).items():
            if isinstance(value, (int, float)) and math.isfinite(value):
                found.setdefault(str(key), []).append(float(value))
    return {key: sum(values) / len(values) for key, values in found.items()}


def _course(course: Sequence[tuple[float, float]], site: str) -> Html:
    """A small line of how the loss went."""
    if len(course) < 2:
        return Html("")
    (first, _), (last, _) = course[0], course[-1]
    low, high = min(loss for _, loss in course), max(loss for _, loss in course)
    across, up = max(last - first, 1e-9), max(high - low, 1e-9)
    points = " ".join(
        f"{2 + (WIDE - 4) * (time - first) / across:.1f},{HIGH - 2 - (HIGH - 4) * (loss - low) / up:.1f}"
        for time, loss in course
    )
    words = f"The loss at {site}: from {course[0][1]:.3g} to {course[-1][1]:.3g} in {lasting(last - first)}"
    line = tag("polyline", points=points)
    box = f"0 0 {WIDE} {HIGH}"
    return tag(
        "svg", tag("title", words), line, viewBox=box, width=str(WIDE), height=str(HIGH), class_="course", role="img"
    )
