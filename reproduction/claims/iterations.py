"""Who is ahead per iteration, and who wins on each axis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from claims.runs import FIRST_DECAY, Setting, graph_name, measures, short, to_loss
from claims.spread import NOT_RUN, Cell, between, line, percent, ratio, table, text
from walktalk.core.errors import StudyError
from walktalk.reproduction.paper.drawing import who_wins

PER_ITERATION = "Multi-Walk converges better per iteration than gossip on graphs of large diameter"
WINNERS = "Who wins by α, topology and axis"


def ahead(settings: Sequence[Setting]) -> list[str]:
    below = f"evaluations below gossip's before {percent(FIRST_DECAY)}"
    head = ["loss both reach", "iterations", "gossip's", "gossip's over the walks'", below]
    found = []
    for title, of in measures(settings):
        rows: dict[str, list[Cell]] = {}
        for s in of:
            pairs = {f"{s.name}, {short(label)}": pair(s, label) for label in s.walks if s.gossip}
            rows |= pairs or {s.name: [NOT_RUN] * len(head)}
        found.append(
            table(
                PER_ITERATION,
                f"to a loss that both reach in every repetition; {title}",
                head,
                rows,
                (3, 0, 0, 2, 0),
                "not reached",
            )
        )
    return [*found, *(line(PER_ITERATION, words) for words in cycle_words(settings)), ""]


def common_loss(setting: Setting, labels: Sequence[str | None]) -> float:
    """The lowest loss that every repetition of all of these reached: phase.csv's target, between these."""
    runs = [[run[run["iteration"] > 0] for run in setting.runs(label)] for label in labels]
    return max(who_wins.worst_best(of) for of in runs)


def pair(setting: Setting, label: str) -> list[Cell]:
    """A row: walks against gossip."""
    target = common_loss(setting, (label, setting.gossip))
    walks, gossip = (to_loss(setting.runs(x), "iteration", target) for x in (label, setting.gossip))
    below, of = evaluations_below(setting, label)
    return [f"{target:.3f}", walks, gossip, ratio(gossip, walks), f"{below} of {of}"]


def evaluations_below(setting: Setting, label: str) -> tuple[int, int]:
    """At how many evaluations before the first decay the mean over repetitions is below gossip's, and of how many.

    An evaluation where some run has no number is not below.
    """
    walks, gossip = (curve(setting.runs(x)) for x in (label, setting.gossip))
    both = pd.concat([walks, gossip], axis=1, keys=["walks", "gossip"], join="inner")
    return int((both["walks"] < both["gossip"]).sum()), len(both)


def curve(runs: Sequence[pd.DataFrame]) -> Any:
    """The mean loss by iteration, up to the first decay, the start left out."""
    table = pd.concat({n: run.set_index("iteration")["train_loss"] for n, run in enumerate(runs)}, axis=1)
    kept = table[(table.index > 0) & (table.index <= FIRST_DECAY * table.index.max())]
    return kept.mean(axis=1, skipna=False)


def cycle_words(settings: Sequence[Setting]) -> list[str]:
    """The line of each graph: how many times fewer iterations one walk needs."""
    found = []
    for graph in dict.fromkeys(s.topology for s in settings):
        parts = []
        for setting in (s for s in settings if s.topology == graph and s.walks and s.gossip):
            times = pair(setting, setting.walks[0])[3]
            parts.append(f"{times if isinstance(times, str) else text(times, 1)} (α = {setting.alpha:g})")
            name = short(setting.walks[0])
        words = f"{name} needs {', '.join(parts)} times fewer iterations" if parts else NOT_RUN
        found.append(f"{graph_name(graph)}, to a loss that both reach: {words}")
    return found


# -- phase.csv --------------------------------------------------------------------------------------------------------


def winners(settings: Sequence[Setting], folder: Path) -> list[str]:
    """What `walktalk paper phase` finds, and how often the advisor said the same."""
    try:
        found = who_wins.measured(folder)
    except StudyError as error:
        return [line(WINNERS, f"{NOT_RUN}: {error}"), ""]
    rows: dict[str, list[Cell]] = {}
    for setting in settings:
        of = found[(found["alpha"] == setting.alpha) & (found["topology"] == setting.topology)]
        by_axis: dict[str, Any] = {str(row.axis): row for row in of.itertuples()}
        rows[setting.name] = [margin(by_axis[axis]) if axis in by_axis else NOT_RUN for axis in who_wins.AXES]
    words = [
        f"{who_wins.TITLES[axis].lower()}: the winner's margin is {between(margins(found, axis), 1)} times"
        for axis in who_wins.AXES
    ]
    return [
        table(
            WINNERS,
            "as in phase.csv; a question mark: it may be luck (95 %, corrected for all of them)",
            list(who_wins.TITLES.values()),
            rows,
        ),
        *(line(WINNERS, part) for part in (*words, advisor_words(found, folder / "advisor.csv"))),
        "",
    ]


def margin(row: Any) -> str:
    """Who wins, by how much, at which loss."""
    return (
        f"{who_wins.cell(row.winner, row.clear)}, {max(row.ratio, 1 / row.ratio):.2f} times, to {row.target_loss:.3f}"
    )


def margins(found: pd.DataFrame, axis: str) -> Any:
    ratios = found[found["axis"] == axis]["ratio"]
    return pd.concat([ratios, 1 / ratios], axis=1).max(axis=1)


def advisor_words(found: pd.DataFrame, file: Path) -> str:
    if not file.is_file():
        return f"the advisor: {NOT_RUN}"
    both = found.merge(pd.read_csv(file), on=who_wins.COLUMNS[:3], suffixes=("", "_said"))
    same = int((both["winner"] == both["winner_said"]).sum())
    family = int((both["winner"].map(who_wins.family) == both["winner_said"].map(who_wins.family)).sum())
    margin, said = (pd.concat([both[x], 1 / both[x]], axis=1).max(axis=1) for x in ("ratio", "ratio_said"))
    moved = int((~np.isclose(both["target_loss"], both["target_loss_said"])).sum())
    return (
        f"the advisor names the same winner in {same} and the same family in {family} of {len(both)} settings "
        f"({len(found) - len(both)} not asked; {moved} asked for another loss than these runs'); "
        f"its margins are {between(said / margin, 1)} times the measured ones"
    )
