"""A cluster that runs, as a page: from what its nodes answer when they are asked, every few seconds.

Who complains and every node come first (`nodes`), then the network as it is, the walks, and how every site does; then
the mean of the nodes' own losses as a curve, and a replay of what could be seen from one answer to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from walktalk.graphs import Graph
from walktalk.protocols import AGGREGATE, known
from walktalk.records import TRACE_COLUMNS, HistoryRow, StudyFolder, frame
from walktalk.report.live.nodes import ObservedNodes, drawn_state
from walktalk.report.live.server import LiveAddress, PageState, Server
from walktalk.report.live.study import SCRIPTS, waiting_page
from walktalk.report.page import PageParts, curve_data, network_data, page_html, sections
from walktalk.report.page.data import names_of, on_dark, on_light
from walktalk.report.page.sections import tag, together
from walktalk.report.replay.data import curve_of, run_data, with_words
from walktalk.report.study import Study
from walktalk.studies import StudySpec

UNKNOWN: dict[str, Any] = {
    "walks": [],
    "iterations": 0,
    "aggregates": False,
    "term": 0,
    "loss": None,
    "bytes_sent": 0,
    "alive": [],
    "done": False,
}
"""What is shown of a node of which nothing else is known, because its answers are nonsense."""
EVENTS = 60_000  # of the replay; a cluster may run for days
Answer = Mapping[str, Any]


class ClusterPage:
    """Builds the live page of a cluster from its nodes' answers."""

    def __init__(self, name: str, folder: Path, sites: Mapping[str, str], spec: StudySpec, algorithm: str) -> None:
        self.name, self.sites, self.label = name, dict(sites), algorithm or spec.algorithms[0].title
        self.described = known([self.label], spec.described)
        self.study = Study(StudyFolder(folder), spec)
        self.network = network_data(self.study, None, list(self.sites))
        self._edges: frozenset[tuple[str, str]] | None = None  # those that are drawn; None: those of the beginning
        self.observed = ObservedEvents(list(self.sites))
        self.nodes = ObservedNodes()
        self.history: list[HistoryRow] = []
        self.answers: dict[str, Answer | None] = {}
        self.last: dict[str, Answer] = {}  # by node: what it said last; one that is started again has not undone it
        self._latest: PageParts | None = None

    def add_answers(self, answers: Mapping[str, Answer | None], now: float) -> None:
        """Takes in what the nodes answered, `now` seconds after they were first asked."""
        answers = {name: a and {**UNKNOWN, **self.last.get(name, {}), **a} for name, a in answers.items()}
        self.answers = answers
        self.last |= {name: answer for name, answer in answers.items() if answer is not None}
        joined = {name: str(self.last.get(name, {}).get("site", "")) for name in answers if name not in self.sites}
        self.sites |= joined
        self.observed.names = list(self.sites)
        self._look_at_network()
        self.observed.add(answers, now)
        self.nodes.add(answers, self.sites, now)
        there = [answer for answer in answers.values() if answer is not None]
        losses = [float(answer["loss"]) for answer in there if answer["loss"] is not None]
        if losses:
            sent, loss = sum(a["bytes_sent"] for a in self.last.values()), sum(losses) / len(losses)
            self.history.append(HistoryRow(self.label, 0, self.iterations, now, 8 * sent, loss, math.nan, math.nan))

    def _look_at_network(self) -> None:
        """Draw the network anew where nodes have come or gone: as they say themselves whose neighbours they are."""
        told = {name: self.last[name].get("neighbours") for name in self.answers if name in self.last}
        edges = frozenset(
            (min(name, other), max(name, other))
            for name, others in told.items()
            for other in (others if isinstance(others, dict) else ())
            if other in self.answers and other != name
        )
        composed = set(self.answers) == set(self.sites) and len(self.sites) == self.study.graph.nodes
        if edges == self._edges or not edges or (self._edges is None and composed and self.network is not None):
            return
        self._edges = edges
        there = [name for name in self.sites if name in self.answers]
        place = {name: index for index, name in enumerate(there)}
        graph = Graph.from_edges(len(there), [(place[one], place[other]) for one, other in sorted(edges)])
        drawn = network_data(self.study, None, there, replace(graph, name=self.name))
        before = dict(zip(*((self.network or {}).get(key) or () for key in ("names", "places")), strict=False))
        self.network = with_absent(drawn, there, list(self.sites), before)

    @property
    def iterations(self) -> int:
        """The iterations of all nodes together, including those done before this page was opened."""
        told = [int(answer.get("total_iterations", 0)) for answer in self.last.values()]
        return max(sum(int(answer["iterations"]) for answer in self.last.values()), *told, 0)

    @property
    def done(self) -> bool:
        """Whether the run is over, as far as anybody answers."""
        there = [answer for answer in self.answers.values() if answer is not None]
        return bool(there) and all(answer["done"] for answer in there)

    def progress(self) -> dict[str, Any]:
        """How it is, as the page shows it."""
        there = {name: answer for name, answer in self.answers.items() if answer is not None}
        asked = len(self.answers) or len(self.sites)  # those that have left for good are not
        words = [f"{len(there)} of {asked} nodes answer"]
        words += [f"{self.iterations:,} iterations"] if there else []
        words += [f"aggregator: {name}" for name, answer in there.items() if answer["aggregates"]]
        words += ["the run is over"] if self.done else []
        share = len(there) / max(asked, 1)
        return {"share": share, "words": " · ".join(words), "losses": {}, "name": self.name}

    def parts(self) -> dict[str, Any] | None:
        """The page by now; None before anybody was asked."""
        if not self.answers:
            return None
        history = frame(self.history)
        asked, words = len(self.answers), self.progress()["words"]
        nodes = together(self.nodes.attention_html(), self.nodes.nodes_html(self.sites))
        content = {
            "lead": tag("p", f"A cluster of {asked} nodes, as they answer every few seconds.", class_="lead"),
            "story": tag("p", words, class_="verdict"),
            "participants": nodes,
            "walks": self.nodes.walks_html(),
            "by_site": self.nodes.sites_html(self.sites, self.last),
            "algorithms": sections.algorithms_html(names_of(self.described)),
            "settings": sections.settings_html(self.study),
        }
        data = {
            "kind": "cluster",
            "name": self.name,
            "finished": self.done,
            "incidents": {},
            "network": drawn_state(self.network, self.answers),
            "partition": None,
            "replay": self._replay(history),
            **curve_data(history, self.described, None, "time"),
        }
        self._latest = PageParts(self.name, data, content)
        return {"data": data, "sections": content}

    def html(self) -> str:
        """The page to open."""
        return (
            waiting_page(self.name)
            if self._latest is None
            else page_html(self._latest, live=True, scripts=(*SCRIPTS, "live/nodes.js"))
        )

    def _replay(self, history: pd.DataFrame) -> dict[str, Any] | None:
        if not self.observed.rows or self.network is None or "places" not in self.network:
            return None
        one = self.described[self.label]
        named = {"label": self.label, "title": names_of(self.described)[self.label].name, "repetition": 0}
        seen = {"colour": on_light(one.colour), "colour_dark": on_dark(one.colour)}
        run = run_data(self.observed.trace(), EVENTS)
        run["end"] = run["scenes"][-1][1] = float(history["time"].max())  # also where nothing new was seen
        if run["iterations"] is None:  # more were done than could be seen
            run["iterations"] = self.observed.totals
        run["left_out"] = ["Events from answer to answer: what happens in between is not shown.", *run["left_out"]]
        return {**with_words([{**named, **seen, **run, "curve": curve_of(history)}], "real"), "live": True}


def with_absent(
    drawn: dict[str, Any] | None, there: list[str], names: list[str], before: Mapping[str, list[float]]
) -> dict[str, Any] | None:
    """The drawing with places for those that have left, too, since replays know nodes by number; they have no edges.

    Args:
        drawn: of those that are there, in their order.
        there: their names.
        names: of all, in the order that is wanted.
        before: by name, where nodes were drawn until now.
    """
    if drawn is None or "places" not in drawn:
        return drawn
    number = [names.index(name) for name in there]
    places = [before.get(name, [0.0, 0.0]) for name in names]
    degrees = [0] * len(names)
    for index, node in enumerate(number):
        places[node], degrees[node] = drawn["places"][index], drawn["degrees"][index]
    pairs = [[number[one], number[other]] for one, other in drawn["pairs"]]
    return {**drawn, "places": places, "degrees": degrees, "pairs": pairs, "names": names}


class ObservedEvents:
    """The events that can be told from one answer to the next, as the rows of a trace."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.rows: list[dict[str, Any]] = []
        self._alive: dict[int, bool] = {}
        self._walks: dict[int, int] = {}  # walk -> node
        self._open: dict[int, list[tuple[int, int]]] = {}  # node -> its trainings that go on: number, walk
        self._iterations: dict[int, int] = {}
        self._aggregator = -1
        self._number = 0
        self.totals: list[int] = []  # iterations of all nodes at each `trained`

    def trace(self) -> pd.DataFrame:
        """The rows as `records.read_trace` gives them."""
        absent = {"bytes": 0, "lr": math.nan, "slot": "", "detail": ""}
        filled = [{name: row.get(name, absent.get(name, -1)) for name in TRACE_COLUMNS} for row in self.rows]
        return pd.DataFrame(filled, columns=list(TRACE_COLUMNS))

    def add(self, answers: Mapping[str, Answer | None], now: float) -> None:
        """Adds the events that these answers show to have happened since those before."""
        for node, name in enumerate(self.names):
            answer = answers.get(name)
            self._life(node, answer is not None, now)
            if answer is not None:
                self._moves(node, answer, now)
        for node, name in enumerate(self.names):
            answer = answers.get(name)
            if answer is not None:
                self._trains(node, answer, now)
                self._aggregates(node, answer, now)

    def _add(self, now: float, node: int, event: str, **more: Any) -> None:
        self.rows.append({"time": now, "node": node, "event": event, **more})

    def _life(self, node: int, there: bool, now: float) -> None:
        if self._alive.get(node, True) != there:
            self._add(now, node, "revive" if there else "kill")
            if not there:
                self._open.pop(node, None)
        self._alive[node] = there

    def _moves(self, node: int, answer: Answer, now: float) -> None:
        for walk in answer["walks"]:
            before = self._walks.get(walk, node)
            if before != node:
                self._number += 1
                both = {"walk": walk, "slot": f"walk/{walk}", "number": self._number}
                self._add(now, before, "send", peer=node, detail='{"kind": "walk"}', **both)
                self._add(now, node, "receive", peer=before, **both)
            self._walks[walk] = node

    def _trains(self, node: int, answer: Answer, now: float) -> None:
        grew = answer["iterations"] > self._iterations.get(node, answer["iterations"])
        walks = set(answer["walks"]) or {-1}
        staying = []
        for number, walk in self._open.get(node, []):
            if grew or answer["done"] or walk not in walks:
                self._add(now, node, "trained", walk=walk, number=number)
                self.totals.append(sum({**self._iterations, node: answer["iterations"]}.values()))
            else:
                staying.append((number, walk))
        for walk in sorted(walks - {walk for _, walk in staying}):
            if not answer["done"] and (walk > 0 or not self._walks):
                self._number += 1
                self._add(now, node, "train", walk=walk, number=self._number)
                staying.append((self._number, walk))
        self._open[node], self._iterations[node] = staying, answer["iterations"]

    def _aggregates(self, node: int, answer: Answer, now: float) -> None:
        if answer["aggregates"] and node != self._aggregator:
            if self._aggregator >= 0:
                self._add(now, node, "elected", number=answer["term"])
            self._add(now, node, "record", detail=AGGREGATE)
            self._aggregator = node


# -- serving it from this process, which only asks and shows ----------------------------------------------------------

AddAnswers = Callable[[dict[str, Answer | None], float], None]


@contextmanager
def served_cluster(page: ClusterPage, *, host: str | None = None, port: int = 0) -> Iterator[tuple[str, AddAnswers]]:
    """The page's address, and a function that takes the nodes' answers and the seconds since they were first asked.

    `host`: the interface to listen on, this machine alone if left out; `port`: 0 takes a free one.
    """
    pages = PageState()
    address = LiveAddress(host, port)
    server = Server(address, pages, page.html, None)
    server.start()

    def add_answers(answers: dict[str, Answer | None], seconds: float) -> None:
        page.add_answers(answers, seconds)
        pages.update(parts=page.parts(), progress=page.progress())

    try:
        yield address.url, add_answers
    finally:
        server.stop()
