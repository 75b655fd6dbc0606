"""Where the optimizer's state lives, and whose learning rate: final losses, who is ahead, and what is sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from claims.costs import GB, TARGETS
from claims.losses import order
from claims.runs import AGGREGATED, MEAN, graph_name, in_order, measured, of_means, runs_of, short, to_loss, value_until
from claims.spread import (
    NONE,
    NOT_RUN,
    NOTHING,
    Cell,
    Spread,
    difference,
    line,
    number,
    scaled,
    spread,
    standings,
    text,
)
from claims.spread import table as as_table
from walktalk.reproduction.paper.drawing.who_wins import family

STATES = {"visit": "fresh at each visit", "node": "at the nodes", "walk": "with the walk"}
TUNED, OWN = "tuned", "own"
CLAIM = "Optimizer state and learning rate"
KEYS = ["alpha", "topology"]

Place = tuple[float, str, str]  # α, graph, algorithm
Factors = dict[Place, float]
Ends = dict[tuple[float, str, str, str], Spread]  # α, graph, variant, algorithm: final loss


def section(folder: Path) -> list[str]:
    file = folder / "fairness" / "fairness.csv"
    if not file.is_file():
        return [line(CLAIM, NOT_RUN), ""]
    table = pd.read_csv(file)
    places, factors, found = places_in(table), own_factors(table), list[str]()
    for title, of in ((AGGREGATED, table), (MEAN, of_means(table))):
        ends = final_losses(of)
        found += [losses(places, ends, factors, title), ahead(places, ends, title), *orders(places, ends, title), ""]
        found += [*effects(places, ends, factors, title), ""]
    return [*found, data(table)]


def places_in(table: pd.DataFrame) -> list[Place]:
    """α falling, graphs as they come, walks before gossip."""
    found = [(float(a), str(g), str(x)) for a, g, x in rows_of(table, [*KEYS, "algorithm"])]
    graphs, labels = list(dict.fromkeys(g for _, g, _ in found)), in_order(x for _, _, x in found)
    return sorted(found, key=lambda place: (-place[0], graphs.index(place[1]), labels.index(place[2])))


def rows_of(table: pd.DataFrame, columns: list[str]) -> list[list[Any]]:
    """What there is of these, each once."""
    return [list(row) for row in table[columns].drop_duplicates().itertuples(index=False, name=None)]


def final_losses(table: pd.DataFrame) -> Ends:
    """Of every variant. `OWN` is what was tuned, or, where the paper's rate was best, as it is with fresh state.

    A last evaluation counts even where it is not a number, so that a run which diverged shows.
    """
    losses: dict[tuple[float, str, str, str], list[float]] = {}
    for (alpha, graph, variant, label, _), run in table.groupby([*KEYS, "variant", "algorithm", "repetition"]):
        run = run.sort_values("iteration", kind="stable")
        losses.setdefault((float(alpha), graph, variant, label), []).append(value_until(run, "train_loss"))
    ends = {key: spread(values) for key, values in losses.items()}
    fresh = {key: end for key, end in ends.items() if key[2] == "visit"}
    return ends | {(a, g, OWN, x): ends.get((a, g, TUNED, x), end) for (a, g, _, x), end in fresh.items()}


def own_factors(table: pd.DataFrame) -> Factors:
    """The factor on the learning rate where an algorithm's own is another than the paper's."""
    tuned = rows_of(table[table["variant"] == TUNED], [*KEYS, "algorithm", "lr_factor"])
    return {(float(alpha), graph, label): float(factor) for alpha, graph, label, factor in tuned}


# -- tables -----------------------------------------------------------------------------------------------------------


def losses(places: Sequence[Place], ends: Ends, factors: Factors, title: str) -> str:
    """In brackets: the number of another column."""
    rows: dict[str, list[Cell]] = {}
    for alpha, graph, label in places:
        cells: list[Cell] = [ends.get((alpha, graph, state, label), NOTHING) for state in STATES]
        if family(label) == "gossip" and (alpha, graph, "walk", label) not in ends:
            cells[-1] = f"({text(ends.get((alpha, graph, 'node', label), NOTHING))})"
        own, factor = text(ends.get((alpha, graph, OWN, label), NOTHING)), factors.get((alpha, graph, label))
        cells.append(f"({own})" if factor is None else f"{own} (×{factor:g})")
        rows[f"α = {alpha:g}, {graph_name(graph)}, {short(label)}"] = cells
    return as_table(CLAIM, f"final training loss, {title}", [*STATES.values(), "own rate, fresh"], rows)


def effects(places: Sequence[Place], ends: Ends, factors: Factors, title: str) -> list[str]:
    """What each place of the state changes against fresh, by algorithm; and an own rate, at its most either way."""
    found = []
    for state in ("node", "walk"):
        for label in in_order(x for _, _, x in places if state == "node" or family(x) == "walk"):
            changes = [
                difference(ends.get((a, g, state, x), NOTHING), ends.get((a, g, "visit", x), NOTHING))
                for a, g, x in places
                if x == label
            ]
            means = [change.mean for change in changes if isinstance(change, Spread)]
            found.append(line(CLAIM, f"{title}, {STATES[state]}, {short(label)}: {signed(means)} against fresh"))
    changed = {
        place: difference(ends[(*place[:2], OWN, place[2])], ends[(*place[:2], "visit", place[2])])
        for place in places
        if place in factors and (*place[:2], "visit", place[2]) in ends
    }
    known = {place: change for place, change in changed.items() if isinstance(change, Spread)}
    for word, best in (("lowers the loss most", min), ("raises it most", max)):
        if known:
            place = best(known, key=lambda place: known[place].mean)
            where = f"α = {place[0]:g}, {graph_name(place[1])}, {short(place[2])} (×{factors[place]:g})"
            found.append(line(CLAIM, f"{title}, own rate {word}: {text(known[place])} at {where}"))
    return found or [line(CLAIM, NOT_RUN)]


def signed(values: Sequence[float]) -> str:
    """A range whose sign shows."""
    ends = [("+" if end > 0 else "") + number(end, 3) for end in (min(values), max(values))] if values else []
    return " to ".join(dict.fromkeys(ends)) or NOT_RUN


def ahead(places: Sequence[Place], ends: Ends, title: str) -> str:
    """Walks against gossip with the same choice. Gossip's state with the walk is at the nodes."""
    gossips = {(a, g): x for a, g, x in places if family(x) == "gossip"}
    variants = (*STATES, OWN)
    walks = [place for place in places if place[2] != gossips.get(place[:2], place[2])]

    def end_of_gossip(alpha: float, graph: str, variant: str) -> Spread:
        rival = gossips[alpha, graph]
        return ends.get((alpha, graph, variant, rival), ends.get((alpha, graph, "node", rival), NOTHING))

    found = standings(
        {
            (a, g, x, variant): (ends.get((a, g, variant, x), NOTHING), end_of_gossip(a, g, variant))
            for a, g, x in walks
            for variant in variants
        }
    )
    rows: dict[str, list[Cell]] = {
        f"α = {a:g}, {graph_name(g)}, {short(x)}": [found[a, g, x, variant] for variant in variants]
        for a, g, x in walks
    }
    return as_table(CLAIM, f"walks against gossip, {title}", [*STATES.values(), "own rates, fresh"], rows)


def orders(places: Sequence[Place], ends: Ends, title: str) -> list[str]:
    """Who follows whom, with each choice. Gossip's state with the walk is at the nodes."""
    found = []
    for variant, name in {**STATES, OWN: "own rates, fresh"}.items():
        for alpha, graph in dict.fromkeys(place[:2] for place in places):
            here = {x: ends.get((alpha, graph, variant, x), NOTHING) for a, g, x in places if (a, g) == (alpha, graph)}
            if variant == "walk":
                here |= {x: ends.get((alpha, graph, "node", x), NOTHING) for x in here if family(x) == "gossip"}
            found.append(line(CLAIM, f"{title}, {name}, α = {alpha:g}, {graph_name(graph)}: {order(here)}"))
    return found


def data(table: pd.DataFrame) -> str:
    """GB of a whole run and to the losses of the other tables, by where the state lives."""
    rows: dict[str, list[Cell]] = {}
    for alpha, graph, label in places_in(table):
        of, target = table[(table["alpha"] == alpha) & (table["topology"] == graph)], TARGETS.get(alpha, math.nan)
        cells: list[Cell] = []
        for state in STATES:
            runs = runs_of(of[of["variant"] == state], label)
            spent = (measured(runs, "bits"), to_loss(runs, "bits", target))
            cells += [scaled(bits, 1 / GB) for bits in spent] if runs or family(label) == "walk" else [NONE, NONE]
        rows[f"α = {alpha:g}, {graph_name(graph)}, {short(label)}, to {target}"] = cells
    head = [f"{name}, {what}" for name in STATES.values() for what in ("whole run", "to the loss")]
    return as_table(CLAIM, "GB transmitted", head, rows, 2, "not reached")
