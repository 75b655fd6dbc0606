"""What went wrong in a run and what was done about it, in words, from its trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from walktalk.errors import UserError
from walktalk.records import read_trace
from walktalk.report.study import Study

WORDS = {  # event of a trace: what a person reads; the node is its node, the walk its walk
    "kill": "node {node} dies",
    "revive": "node {node} comes back",
    "pause": "node {node} stands still",
    "resume": "node {node} goes on",
    "partition": "the network is cut",
    "heal": "the network is whole again",
    "elected": "node {node} takes over as aggregator",
    "restarted": "walk {walk} was lost and starts again",
    "forked": "walk {walk} was lost and is copied from another",
    "all_lost": "all walks are lost",
    "joined": "node {node} joins",
    "left_for_good": "node {node} has left for good",
}
OWN = ("joined", "left_for_good")  # all nodes write these down; what counts is what the one says whom it is about
FAULTS = ("kill", "pause", "partition", "all_lost")  # the rest is what mended it, or was done about it
MOST = 200  # of one run


class Incident(NamedTuple):
    """One thing that went wrong, or was mended."""

    time: float  # seconds
    event: str
    words: str
    fault: bool  # else what mended it, or what the others did about it


def incidents_of(study: Study, names: Sequence[str] | None = None) -> dict[str, list[Incident]]:
    """By algorithm, in its first repetition; algorithms of which nothing is known are left out.

    `names`: of the nodes, where the data has some; those of the graph come first.
    """
    found = {}
    for algorithm in study.spec.algorithms:
        try:
            trace = read_trace(study.folder.run(algorithm.title, 0).trace)
        except UserError:  # still running, or its trace was thrown away
            continue
        told = _incidents(trace, study.node_names or names)
        if told:
            found[algorithm.title] = told
    return found


def _incidents(trace: Any, names: Sequence[str] | None) -> list[Incident]:
    known = trace["event"].isin(list(WORDS)) & (~trace["event"].isin(OWN) | (trace["node"] == trace["peer"]))
    rows = trace[known].head(MOST)
    columns = (rows[name] for name in ("time", "event", "node", "walk"))
    return [
        Incident(float(time), str(event), _in_words(str(event), node, walk, names), str(event) in FAULTS)
        for time, event, node, walk in zip(*columns, strict=True)
    ]


def _in_words(event: str, node: int, walk: int, names: Sequence[str] | None) -> str:
    words = WORDS[event] if names is None else WORDS[event].replace("node {node}", "{node}")
    return words.format(node=node if names is None or node < 0 else names[node], walk=walk)
