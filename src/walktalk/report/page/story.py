"""Who won on each axis, in sentences for somebody who sees such a study for the first time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from walktalk.plots import in_words
from walktalk.report.certainty import is_probable, would_tell
from walktalk.report.page.names import Name, within

AXES = ("iteration", "time", "bits")
CLOCKS = {
    "virtual time": "What a clock would have shown in the simulated network.",
    "wall-clock time": "What the clock on the wall showed.",
}
CLEAR = 1.05  # times less than the next; below, a factor says nothing


class Card(NamedTuple):
    """One victory."""

    kind: str  # iteration, time, bits, accuracy or loss
    title: str  # "Fewest iterations"
    winner: str  # label
    value: str  # "241"
    against: str  # "1.4 times fewer than 4 walks"
    meaning: str  # what is counted


class Story(NamedTuple):
    """The result of a study in words."""

    sentence: str
    cards: list[Card]


def story(summary: Mapping[str, Any], names: Mapping[str, Name], time: str = "virtual time") -> Story:
    """The sentence on top of the page, and a card for each axis; `time` is what its time is called."""
    cards = [_axis_card(axis, summary, names, time) for axis in AXES if summary["winners"].get(axis)]
    end = _end_card(summary, names)
    return Story(_sentence(summary, names, time), [*cards, *([end] if end else [])])


def _sentence(summary: Mapping[str, Any], names: Mapping[str, Name], time: str) -> str:
    target, winners = summary["target_loss"], summary["winners"]
    found = [axis for axis in AXES if winners.get(axis)]
    if target is None or not found:
        return "No training loss was reached by all algorithms, so nobody can be said to have needed less."
    if len(summary["algorithms"]) == 1:
        needs = ", ".join(f"{in_words(axis, winners[axis]['value'])} {_noun(axis, time)}" for axis in found)
        return f"Its lowest training loss, {target:.3g}, took {needs}."
    nouns = {
        "iteration": "the fewest iterations are needed by",
        "time": f"the least {time} by",
        "bits": "the least data is sent by",
    }
    parts = [f"{nouns[axis]} {_who(winners[axis], names)}" for axis in found]
    return f"To get down to a training loss of {target:.3g}, {_listed(parts)}."


def _who(winner: Mapping[str, Any], names: Mapping[str, Name]) -> str:
    best = within(names[winner["algorithm"]].name)
    if winner["clear"] is False and winner["next"]:
        following = within(names[winner["next"]].name)
        return f"probably {best}" if is_probable(winner) else f"{best} or {following} (too close to call)"
    return best


def _noun(axis: str, time: str) -> str:
    return {"iteration": "iterations", "time": f"of {time}", "bits": "of data sent"}[axis]


def _axis_card(axis: str, summary: Mapping[str, Any], names: Mapping[str, Name], time: str) -> Card:
    titles = {"iteration": "Fewest iterations", "time": f"Least {time}", "bits": "Least data sent"}
    meanings = {
        "iteration": "An iteration is one training at one node, on a few batches of its data.",
        "time": CLOCKS.get(time, "Virtual in simulations, by the clock on real peers."),
        "bits": "Everything sent between nodes, models and messages.",
    }
    winner = summary["winners"][axis]
    against = _against(winner, names, summary, axis)
    return Card(axis, titles[axis], winner["algorithm"], in_words(axis, winner["value"]), against, meanings[axis])


def _against(winner: Mapping[str, Any], names: Mapping[str, Name], summary: Mapping[str, Any], axis: str) -> str:
    """How much less than the next, or that it may be luck."""
    if winner["next"] is None:
        return ""
    following = within(names[winner["next"]].name)
    if winner["clear"] is False and not is_probable(winner):
        return f"too close to {following} to call{would_tell(winner)}"
    ratio = summary["algorithms"][winner["next"]]["to_target"][axis]["mean"] / max(winner["value"], 1e-300)
    less = "fewer" if axis == "iteration" else "less"
    luck = "; one repetition, so it may be luck" if winner["clear"] is None else would_tell(winner)
    likely = "probably " if winner["clear"] is False else ""
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
        kind, title, meaning = "accuracy", "Best accuracy in the end", "The share of unseen samples that it gets right."
    elif winners.get("loss"):
        value = f"{winners['loss']['value']:.3g}"
        kind, title, meaning = "loss", "Lowest loss in the end", "How wrong the model is on the training data."
    else:
        return None
    winner = winners[kind]
    against = ""
    if winner["next"] is not None:
        following = within(names[winner["next"]].name)
        close = f"too close to {following} to call{would_tell(winner)}"
        likely = f"probably; next: {following}{would_tell(winner)}"
        against = f"next: {following}" if winner["clear"] is not False else likely if is_probable(winner) else close
    return Card(kind, title, winner["algorithm"], value, against, meaning)


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, and {parts[-1]}"
