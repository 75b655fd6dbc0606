"""Wall-clock time and transmitted data: what it takes to come down to a loss, and what an iteration costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from claims.iterations import common_loss
from claims.networks import model_bits, network_of
from claims.runs import Setting, all_labels, measured, measures, pace, short, to_loss
from claims.spread import NOTHING, Cell, Spread, between, line, number, ratio, scaled, table
from walktalk import theory

TARGETS = {10.0: 1.1, 1.0: 1.2, 0.1: 1.8}  # by α: near the end of what gossip reaches; otherwise the loss all reach
GB, MB = 8e9, 8e6  # in bits
CATCH_UP = "2 to 4 walks suffice to catch up with gossip; at α = 0.1 on ER no number of walks does"
SPEED_UP = "Linear speed-up in the number of walks"
GOSSIP_SPEED_UP = "Linear speed-up in the number of nodes for gossip"
LESS_DATA = "Multi-Walk needs less communication"
MODELS = "Each iteration sends one model with walks, ‖P‖₀ in gossip"


def time(settings: Sequence[Setting]) -> list[str]:
    labels = all_labels(settings)
    found = []
    for title, of in measures(settings):
        spent = {s: spent_by(s, "time", labels) for s in of}
        found += [
            by_target(CATCH_UP, f"virtual seconds to a loss, {title}", spent, labels, 1),
            by_target(SPEED_UP, f"how many times as fast as R = 1, {title}", over_one_walk(spent, labels), labels, 2),
            by_target(CATCH_UP, f"times gossip's seconds, {title}", over_gossip(spent, labels), labels, 1),
        ]
    rates = {s.name: [pace(s.runs(label), "iteration") for label in labels] for s in settings}
    faster = {name: [ratio(cell, one_walks(row, labels)) for cell in row] for name, row in rates.items()}
    heads = [short(label) for label in labels]
    seconds = {s.name: [measured(s.runs(label), "time") for label in labels] for s in settings}
    speed = {s.name: [scaled(pace(s.runs(label), "bits"), 1 / MB) for label in labels] for s in settings}
    return [
        *found,
        table(GOSSIP_SPEED_UP, "iterations a second", heads, rates, 1),
        table(GOSSIP_SPEED_UP, "iterations a second over those of R = 1", heads, faster, 2),
        table(GOSSIP_SPEED_UP, "virtual seconds of a whole run", heads, seconds, 1),
        *(line(GOSSIP_SPEED_UP, words) for words in column_words(heads, seconds, faster)),
        "",
        table(LESS_DATA, "MB sent a second", heads, speed, 1),
    ]


def bits(settings: Sequence[Setting], folder: Path) -> list[str]:
    labels = all_labels(settings)
    found = []
    for title, of in measures(settings):
        spent = {s: [in_gb(cell) for cell in spent_by(s, "bits", labels)] for s in of}
        found += [
            by_target(LESS_DATA, f"GB to a loss, {title}", spent, labels, 2),
            by_target(LESS_DATA, f"gossip's GB over these, {title}", under_gossip(spent, labels), labels, 1),
        ]
    return [*found, models_sent(settings, folder, labels)]


# -- to a loss --------------------------------------------------------------------------------------------------------


def target_of(setting: Setting) -> float:
    if setting.alpha in TARGETS or not setting.labels:
        return TARGETS.get(setting.alpha, float("nan"))
    return common_loss(setting, setting.labels)


def spent_by(setting: Setting, axis: str, labels: Sequence[str]) -> list[Spread]:
    return [to_loss(setting.runs(label), axis, target_of(setting)) for label in labels]


def by_target(
    claim: str,
    what: str,
    cells: dict[Setting, list[Spread]] | dict[Setting, list[Cell]],
    labels: Sequence[str],
    digits: int,
) -> str:
    rows = {f"{setting.name}, to {round(target_of(setting), 3)}": row for setting, row in cells.items()}
    return table(claim, what, [short(label) for label in labels], rows, digits, "not reached")


def over_one_walk(spent: dict[Setting, list[Spread]], labels: Sequence[str]) -> dict[Setting, list[Cell]]:
    return {s: [ratio(one_walks(row, labels), cell) for cell in row] for s, row in spent.items()}


def over_gossip(spent: dict[Setting, list[Spread]], labels: Sequence[str]) -> dict[Setting, list[Cell]]:
    return {s: [ratio(cell, gossips(s, row, labels)) for cell in row] for s, row in spent.items()}


def under_gossip(spent: dict[Setting, list[Spread]], labels: Sequence[str]) -> dict[Setting, list[Cell]]:
    return {s: [ratio(gossips(s, row, labels), cell) for cell in row] for s, row in spent.items()}


def gossips(setting: Setting, row: Sequence[Spread], labels: Sequence[str]) -> Spread:
    return row[labels.index(setting.gossip)] if setting.gossip else NOTHING


def one_walks(row: Sequence[Spread], labels: Sequence[str]) -> Spread:
    return row[labels.index("multi_walk-1")] if "multi_walk-1" in labels else NOTHING


# -- of a whole run ---------------------------------------------------------------------------------------------------


def column_words(heads: Sequence[str], seconds: dict[str, list[Spread]], faster: dict[str, list[Cell]]) -> list[str]:
    """The range over all settings, for each algorithm."""
    found = []
    for place, head in enumerate(heads):
        took = between((row[place].mean for row in seconds.values()), 0)
        times = [cell.mean for cell in (row[place] for row in faster.values()) if isinstance(cell, Spread)]
        rate = f"; {between(times, 1)} times R = 1's iterations a second" if times else ""
        found.append(f"{head}: a run takes {took} virtual seconds{rate}")
    return found


def in_gb(value: Spread) -> Spread:
    return scaled(value, 1 / GB)


def models_sent(settings: Sequence[Setting], folder: Path, labels: Sequence[str]) -> str:
    """Measured beside the theory's count for what these runs do, and beside the paper's for its own gossip."""
    size = model_bits(setting.history for setting in settings)
    rows: dict[str, list[Cell]] = {}
    for setting in settings:
        counted: list[Cell] = [
            scaled(pace(setting.runs(label), "bits", "iteration"), 1 / max(size, 1)) for label in labels
        ]
        network = network_of(setting, folder)
        rows[setting.name] = [*counted, *([""] * 3 if network is None else theory_cells(network))]
    what = f"models of {size / MB:.3f} MB ({size // 32:,} numbers) sent per iteration, all messages counted"
    head = [*(short(label) for label in labels), "expected: walks, pairwise gossip", "paper: walks", "paper: ‖P‖₀"]
    return table(MODELS, what, head, rows)


def theory_cells(network: theory.Network) -> list[Cell]:
    ours, papers = theory.messages_per_iteration(network), theory.paper_messages_per_iteration(network)
    off = network.nonzeros_off_diagonal
    return [
        f"{ours['multi_walk']:.3f}, {ours['async_gossip']:.0f}",
        f"{papers['multi_walk']:.0f}",
        f"{number(papers['async_gossip_matrix'], 0)} ({off} without the diagonal)",
    ]
