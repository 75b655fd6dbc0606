"""What a study shows, in sentences: who won on each axis, and what went wrong and was mended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from walktalk.core.errors import UserError
from walktalk.protocols import known
from walktalk.records import read_trace
from walktalk.report.figures import with_unit
from walktalk.report.page.data import Name, within
from walktalk.report.results import verdict, would_tell
from walktalk.report.study import Study
from walktalk.studies import algorithms_of

AXES = ("iteration", "time", "bits")
CLOCKS = {
    "virtual time": "What a clock would have shown in the simulated network.",
    "wall-clock time": "What the clock on the wall showed.",
}
CLEAR = 1.05  # times less than the next; below, a factor says nothing


class Card(NamedTuple):
    """One figure at the top of the page: who was best on an axis, and by how much; of one algorithm, what came out."""

    kind: str  # iteration, time, bits, accuracy or loss
    title: str  # "Fewest iterations"
    winner: str | None  # label; None: there is nobody else
    value: str  # "241"
    against: str  # "1.4 times fewer than 4 walks"
    meaning: str  # what is counted
    either: str | None = None  # label of who may be better than the winner: it is too close to call


class Conclusion(NamedTuple):
    """The result of a study in words: a sentence, and a card for each axis."""

    sentence: str
    cards: list[Card]


def conclusion_of(summary: Mapping[str, Any], names: Mapping[str, Name], time: str = "virtual time") -> Conclusion:
    """The sentence on top of the page, and a card for each axis; `time` is what its time is called.

    Where one algorithm alone can win there are no winners: what it came to, and what it took.
    """
    described = known(summary["algorithms"], algorithms_of(summary))
    references = [label for label, one in described.items() if one.is_reference]
    alone = [label for label in summary["algorithms"] if label not in references]
    beside = _beside(summary, names, references)
    if len(alone) == 1:
        told = _of_one(alone[0], summary, names, time)
        return told._replace(sentence=f"{told.sentence} {beside}".rstrip())
    cards = [_axis_card(axis, summary, names, time) for axis in AXES if summary["winners"].get(axis)]
    end = _end_card(summary, names)
    return Conclusion(f"{_sentence(summary, names, time)} {beside}".rstrip(), [*cards, *([end] if end else [])])


def _of_one(label: str, summary: Mapping[str, Any], names: Mapping[str, Name], time: str) -> Conclusion:
    """What one algorithm came to, and what it took."""
    entry, target = summary["algorithms"][label], summary["target_loss"]
    costs = {axis: entry["to_target"][axis] for axis in AXES if entry["to_target"][axis] is not None}
    name = "It" if len(summary["algorithms"]) == 1 else names[label].name
    needs = [f"{with_unit(axis, spread['mean'])} {_noun(axis, time)}" for axis, spread in costs.items()]
    sentence = "No training loss was reached in all its runs."
    if target is not None and needs:
        sentence = f"{name} gets down to a training loss of {target:.3g}: that takes {_listed(needs)}."
    cards = [
        Card(kind, title, None, value, "", meaning)
        for kind, title, value, meaning in (
            ("loss", "Training loss in the end", _figure(entry.get("final_loss")), WRONG),
            ("accuracy", "Accuracy in the end", _figure(entry.get("final_accuracy"), share=True), RIGHT),
            *((axis, COSTS[axis].format(time=time), _cost(axis, entry), meanings(time)[axis]) for axis in AXES),
        )
        if value
    ]
    return Conclusion(sentence, cards)


def _figure(spread: Mapping[str, Any] | None, share: bool = False) -> str:
    if spread is None:
        return ""
    return f"{100 * spread['mean']:.1f} %" if share else f"{spread['mean']:.3g}"


def _cost(axis: str, entry: Mapping[str, Any]) -> str:
    spread = entry.get(f"final_{axis}")
    return "" if spread is None else with_unit(axis, spread["mean"])


def _beside(summary: Mapping[str, Any], names: Mapping[str, Name], references: Sequence[str]) -> str:
    """What the references come to, for comparison."""
    told = []
    for label in references:
        entry = summary["algorithms"][label]
        ends = [
            f"{what} of {value}"
            for key, share, what in (("final_loss", False, "a training loss"), ("final_accuracy", True, "an accuracy"))
            if (value := _figure(entry.get(key), share=share))
        ]
        told += [f"To compare with: {within(names[label].name)} ends at {' and '.join(ends)}."] if ends else []
    return " ".join(told)


def _sentence(summary: Mapping[str, Any], names: Mapping[str, Name], time: str) -> str:
    target, winners = summary["target_loss"], summary["winners"]
    found = [axis for axis in AXES if winners.get(axis)]
    if target is None or not found:
        return "No training loss was reached by all algorithms, so nobody can be said to have needed less."
    nouns = {
        "iteration": "the fewest iterations are needed by",
        "time": f"the least {time} by",
        "bits": "the least data is sent by",
    }
    parts = [f"{nouns[axis]} {_who(winners[axis], names)}" for axis in found]
    return f"To get down to a training loss of {target:.3g}, {_listed(parts)}."


def _who(winner: Mapping[str, Any], names: Mapping[str, Name]) -> str:
    best, said = within(names[winner["algorithm"]].name), verdict(winner)
    if said == "close":
        return f"{best} or {within(names[winner['next']].name)} (too close to call)"
    return f"probably {best}" if said == "probable" else best


def _noun(axis: str, time: str) -> str:
    return {"iteration": "iterations", "time": f"of {time}", "bits": "of data sent"}[axis]


RIGHT = "The share of unseen samples that it gets right."
WRONG = "How wrong the model is on the training data."
COSTS = {"iteration": "Iterations", "time": "Length, by {time}", "bits": "Data sent"}  # of a whole run


def meanings(time: str) -> dict[str, str]:
    """What is counted on each axis, in a sentence; `time` is what its time is called."""
    return {
        "iteration": "An iteration is one training at one node, on a few batches of its data.",
        "time": CLOCKS.get(time, "Virtual in simulations, by the clock on real peers."),
        "bits": "Everything sent between nodes, models and messages.",
    }


def _axis_card(axis: str, summary: Mapping[str, Any], names: Mapping[str, Name], time: str) -> Card:
    titles = {"iteration": "Fewest iterations", "time": f"Least {time}", "bits": "Least data sent"}
    winner = summary["winners"][axis]
    against = _against(winner, names, summary, axis)
    value = with_unit(axis, winner["value"])
    return Card(axis, titles[axis], winner["algorithm"], value, against, meanings(time)[axis], _either(winner))


def _either(winner: Mapping[str, Any]) -> str | None:
    return winner["next"] if verdict(winner) == "close" else None


def _against(winner: Mapping[str, Any], names: Mapping[str, Name], summary: Mapping[str, Any], axis: str) -> str:
    """How much less than the next, or that it may be luck."""
    if winner["next"] is None:
        return ""
    following = within(names[winner["next"]].name)
    if verdict(winner) == "close":
        return f"too close to call{would_tell(winner)}"
    ratio = summary["algorithms"][winner["next"]]["to_target"][axis]["mean"] / max(winner["value"], 1e-300)
    less = "fewer" if axis == "iteration" else "less"
    luck = "; one repetition, so it may be luck" if verdict(winner) == "once" else would_tell(winner)
    likely = "probably " if verdict(winner) == "probable" else ""
    return (
        f"{likely}{ratio:,.2g} times {less} than {following}{luck}"
        if CLEAR < ratio < 1e6
        else f"{following} {likely}comes next{luck}"
    )


def _end_card(summary: Mapping[str, Any], names: Mapping[str, Name]) -> Card | None:
    """Who ended best: by accuracy, or by loss where the task has no accuracy."""
    winners = summary["winners"]
    if winners.get("accuracy"):
        value = f"{100 * winners['accuracy']['value']:.1f} %"
        kind, title, meaning = "accuracy", "Best accuracy in the end", RIGHT
    elif winners.get("loss"):
        value = f"{winners['loss']['value']:.3g}"
        kind, title, meaning = "loss", "Lowest loss in the end", WRONG
    else:
        return None
    winner = winners[kind]
    return Card(kind, title, winner["algorithm"], value, _next(winner, names), meaning, _either(winner))


def _next(winner: Mapping[str, Any], names: Mapping[str, Name]) -> str:
    """Who comes next at the end, and how sure that is."""
    said = verdict(winner)
    if said == "alone":
        return ""
    if said == "close":
        return f"too close to call{would_tell(winner)}"
    following = within(names[winner["next"]].name)
    luck = {"probable": would_tell(winner), "once": "; one repetition, so it may be luck"}.get(said, "")
    return f"{'probably; ' if said == 'probable' else ''}next: {following}{luck}"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, and {parts[-1]}"


# -- what went wrong in a run and what was done about it, from its trace ----------------------------------------------

WORDS = {  # event of a trace: what a person reads; the node is its node, the walk its walk
    "kill": "node {node} dies",
    "revive": "node {node} comes back",
    "pause": "node {node} stands still",
    "hang": "the trainings of node {node} hang",
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
FAULTS = ("kill", "pause", "hang", "partition", "all_lost")  # the rest is what mended it, or was done about it
MOST = 200  # of one run


class Incident(NamedTuple):
    """Something that went wrong in a run, or was repaired, with its time."""

    time: float  # seconds
    event: str
    words: str
    fault: bool  # else what mended it, or what the others did about it


def incidents_of(study: Study, names: Sequence[str] | None = None) -> dict[str, list[Incident]]:
    """The incidents of each algorithm's first repetition, by label; algorithms without any are left out.

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
