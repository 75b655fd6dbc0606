"""Final losses and accuracies, those just before the learning rate falls, and what the graph and α change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from claims.runs import (
    FIRST_DECAY,
    Setting,
    all_labels,
    facts_of,
    graph_name,
    history_in,
    measured,
    measures,
    runs_of,
    short,
)
from claims.spread import (
    NONE,
    NOT_RUN,
    Cell,
    Spread,
    between,
    difference,
    line,
    percent,
    scaled,
    standings,
    table,
    text,
)

MIDDLE = 0.5  # of a run
CIFAR10_IMAGES = 50_000
PERCENT = 100.0


def final(settings: Sequence[Setting], folder: Path) -> list[str]:
    every = measures(settings)
    return [
        *(grid(of, "Final training loss", title, loss_at(1.0)) for title, of in every),
        *(grid(of, "Final test accuracy", f"{title}, %", accuracy, 1) for title, of in every),
        *(
            grid(of, "Who is ahead at the end", f"walks against gossip, {title}", rank_at(of, 1.0))
            for title, of in every
        ),
        *orders(settings),
        *not_numbers(settings),
        centralized(folder),
        "",
    ]


def before_decay(settings: Sequence[Setting]) -> list[str]:
    claim, when = (
        "Before the learning rate falls",
        f"mean of the last evaluations within {percent(FIRST_DECAY)} of the iterations",
    )
    every = measures(settings)
    return [
        *(grid(of, claim, f"training loss, {title}, {when}", loss_at(FIRST_DECAY)) for title, of in every),
        *(grid(of, claim, f"walks against gossip, {title}, {when}", rank_at(of, FIRST_DECAY)) for title, of in every),
    ]


def topology(settings: Sequence[Setting]) -> list[str]:
    """What another graph changes in the final loss, and another α; and how far the models are apart on the way."""
    at = {(s.alpha, s.topology): s for s in settings}
    alphas, labels = sorted({s.alpha for s in settings}, reverse=True), all_labels(settings)
    rows: dict[str, list[Cell]] = {}
    for one, other in (("cycle", "erdos_renyi"), ("complete", "erdos_renyi"), ("complete", "cycle")):
        for alpha in alphas:
            name = f"α = {alpha:g}, {graph_name(one)} − {graph_name(other)}"
            rows[name] = [gap(at[alpha, one], at[alpha, other], label) for label in labels]
    heads = [short(label) for label in labels]
    changes: dict[str, list[Cell]] = {
        f"{graph_name(graph)}, α = {less:g} − α = {more:g}": [gap(at[less, graph], at[more, graph], x) for x in labels]
        for graph in dict.fromkeys(s.topology for s in settings)
        for more, less in pairwise(alphas)
        if {(less, graph), (more, graph)} <= set(at)
    }
    return [
        table(
            "At α = 10 topology matters little; ER (0.3) behaves like the complete graph",
            "difference in final training loss",
            heads,
            rows,
        ),
        *largest(rows, heads),
        table("At α = 1 everyone is slower", "rise of the final training loss", heads, changes),
        grid(
            settings,
            "Consensus in the middle of a run",
            "mean squared distance of the models to their mean",
            consensus,
            2,
        ),
    ]


# -- tables -----------------------------------------------------------------------------------------------------------


def grid(
    settings: Sequence[Setting], claim: str, what: str, cell: Callable[[Setting, str], Cell], digits: int = 3
) -> str:
    """Settings down, algorithms across."""
    labels = all_labels(settings)
    rows = {setting.name: [cell(setting, label) for label in labels] for setting in settings}
    return table(claim, what, [short(label) for label in labels], rows, digits)


def loss_at(share: float) -> Callable[[Setting, str], Cell]:
    return lambda setting, label: measured(setting.runs(label), "train_loss", share)


def accuracy(setting: Setting, label: str) -> Cell:
    return scaled(measured(setting.runs(label), "test_accuracy"), PERCENT)


def consensus(setting: Setting, label: str) -> Cell:
    return measured(setting.runs(label), "consensus", MIDDLE)


def rank_at(settings: Sequence[Setting], share: float) -> Callable[[Setting, str], Cell]:
    """How walks stand against gossip, in all settings together."""
    found = standings(
        {
            (setting.name, label): (
                measured(setting.runs(label), "train_loss", share),
                measured(setting.runs(setting.gossip), "train_loss", share),
            )
            for setting in settings
            for label in all_labels(settings)
            if label != setting.gossip
        }
    )
    return lambda setting, label: found.get((setting.name, label), NONE)


def gap(one: Setting, other: Setting, label: str) -> Cell:
    return difference(*(measured(setting.runs(label), "train_loss") for setting in (one, other)))


# -- lines ------------------------------------------------------------------------------------------------------------


def orders(settings: Sequence[Setting]) -> list[str]:
    """Who follows whom in the final loss."""
    found = []
    for setting in settings:
        ends = {label: measured(setting.runs(label), "train_loss") for label in setting.labels}
        found.append(line("Fewer walks converge faster per iteration", f"{setting.name}: {order(ends)}"))
    return [*found, ""]


def order(ends: Mapping[str, Spread]) -> str:
    """Losses rising. Who has no number in some run is named, and not given a place."""
    names = [short(x) for x in sorted((x for x in ends if ends[x].complete), key=lambda x: ends[x].mean)]
    without = [short(x) for x in ends if ends[x].runs and not ends[x].complete]
    words = " < ".join(names) + (f"; not a number in some runs: {', '.join(without)}" if without else "")
    return words or NOT_RUN


def not_numbers(settings: Sequence[Setting]) -> list[str]:
    """How many evaluations were not a number. The aggregated model's may be so where the walks' mean is fine."""
    found = []
    for setting in settings:
        for label in setting.labels:
            runs = setting.runs(label)
            bare, mean = (sum(int(run[x].isna().sum()) for run in runs) for x in ("train_loss", "mean_train_loss"))
            if bare or mean:
                ended = sum(bool(run["train_loss"].isna().iloc[-1]) for run in runs)
                words = (
                    f"{setting.name}, {short(label)}: {bare} of {sum(map(len, runs))} evaluations of the "
                    f"aggregated model, {mean} of the mean; {ended} of {len(runs)} runs end so"
                )
                found.append(line("Evaluations that are not a number", words))
    return [*found, ""] if found else [line("Evaluations that are not a number", "none"), ""]


def largest(rows: dict[str, list[Cell]], heads: Sequence[str]) -> list[str]:
    """The range of each row, and whose its largest is."""
    found = []
    for name, cells in rows.items():
        gaps = {
            head: abs(cell.mean)
            for head, cell in zip(heads, cells, strict=True)
            if isinstance(cell, Spread) and cell.complete
        }
        widest = max(gaps, key=lambda head: gaps[head], default="")
        words = f"{between(gaps.values(), 3)} apart, most at {widest}" if gaps else NOT_RUN
        found.append(line("Difference between graphs", f"{name}: {words}"))
    return [*found, ""]


def centralized(folder: Path) -> str:
    """The reference: one model on all data, and how many passes over it that is."""
    claim, here = "The model is right", folder / "centralized"
    runs = runs_of(history_in(here, "cycle.csv"), "centralized")
    if not runs:
        return line(claim, f"Centralized: {NOT_RUN}")
    accuracy, loss = scaled(measured(runs, "test_accuracy"), PERCENT), measured(runs, "train_loss")
    training = facts_of(here).get("spec", {}).get("training", {})
    seen = measured(runs, "iteration").mean * training.get("local_steps", 0) * training.get("batch_size", 0)
    words = f"{text(accuracy, 1)} % test accuracy, training loss {text(loss)}, after {seen / CIFAR10_IMAGES:.0f} epochs"
    return line(claim, f"Centralized: {words} (n = {accuracy.runs})")
