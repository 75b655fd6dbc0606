"""Who wins, walks or gossip: by how different the data is (α), by topology, and on each axis; measured and predicted.

The target of a setting is the lowest training loss that the best of both families reached in every repetition, so that
nobody is asked for more than it did. A family's cost is that of its best algorithm. The prediction is the advisor's,
with pilots on a small task: it knows the network, the model's size and α, and nothing of the measured runs but the
target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from walktalk.advisor import Goal, Objective, advise_study
from walktalk.core.errors import StudyError
from walktalk.protocols import MultiWalk, Protocol, known
from walktalk.records import read_history, write_text
from walktalk.report import figures as plots
from walktalk.reproduction import paper
from walktalk.studies import CLEAR, decide, first_below, holm, load_spec, make_spec

AXES: dict[plots.Axis, Objective] = {"iteration": "iterations", "time": "time", "bits": "bits"}
COLUMNS = ["alpha", "topology", "axis", "target_loss", "winner", "ratio", "clear"]
NETWORKS = {panel.name: dict(panel.network) for panel in paper.TOPOLOGIES}
NAMES = {"cycle": "cycle", "complete": "complete", "erdos_renyi": "ER (0.3)"}
PANELS = {panel.name: panel for panel in paper.figure("fig5").panels}
FAMILIES = ("walk", "gossip")
MODEL_BYTES = 4 * 269_722  # ResNet-20, whose runs are predicted; the pilots train a smaller model
SURE = 0.9  # how sure the advisor has to be for no question mark
TITLES = {"iteration": "Iterations", "time": "Wall-clock time", "bits": "Transmitted data"}


# -- measured ---------------------------------------------------------------------------------------------------------


def measured(folder: Path) -> pd.DataFrame:
    """Reads verdicts off the runs in a folder, of `reproduction/paper_gpu.py` or of `walktalk paper run fig5`: a
    row per verdict. All of them are read together, so `clear` is corrected for how many they are.
    """
    rows: list[Verdict] = []
    for file, alpha, topology in histories(folder):
        rows += verdicts(history_of_both(file), alpha, topology)
    if not rows:
        raise StudyError(
            f"{folder} has no runs alpha-A/TOPOLOGY.csv or fig5-7/TOPOLOGY-alphaA/history.csv; "
            "make them with reproduction/paper_gpu.py or with `walktalk paper run fig5`"
        )
    return read_together(rows)


def read_together(rows: Sequence[Verdict]) -> pd.DataFrame:
    """Verdicts as a table; how clear each is, corrected for how many they are (Holm)."""
    chances = [row.chance() for row in rows]
    together = iter(holm([chance for chance in chances if chance is not None]))
    # Of single runs nobody knows how sure it is: it is not said to be unsure, as in the figures.
    clear = [True if chance is None else next(together) >= CLEAR for chance in chances]
    return pd.DataFrame(
        [(*row.setting, row.winner, row.ratio, sure) for row, sure in zip(rows, clear, strict=True)], columns=COLUMNS
    )


def histories(folder: Path) -> Iterator[tuple[Path, float, str]]:
    """The histories in a folder, each with its α and its topology."""
    for file in sorted(folder.glob("alpha-*/*.csv")):
        if file.stem not in NETWORKS:
            raise StudyError(f"{file} is not named after a topology; allowed: {', '.join(NETWORKS)}")
        yield file, alpha_of(file), file.stem
    for file in studies(folder):
        panel = PANELS[file.parent.name]
        assert panel.alpha is not None
        yield file, panel.alpha, str(panel.network["topology"])


def studies(folder: Path) -> list[Path]:
    """The histories of Figure 5's panels: in the folder of `paper run`, or in that of the runs itself."""
    found = [*folder.glob("*/history.csv"), *folder.glob("fig5-7/*/history.csv")]
    return sorted(file for file in found if file.parent.name in PANELS)


def model_bytes(folder: Path) -> int | None:
    """How large the model of these runs is, if it is another than that of the advisor's pilots, which train digits."""
    specs = [load_spec(file.with_name("spec.yaml")) for file in studies(folder)]
    return None if specs and all(spec.task.name == "digits" for spec in specs) else MODEL_BYTES


def alpha_of(file: Path) -> float:
    """The α that the file's folder is named after."""
    try:
        return float(file.parent.name.removeprefix("alpha-"))
    except ValueError:
        raise StudyError(f"{file.parent} is not named after an α; allowed: names such as alpha-0.1") from None


def history_of_both(file: Path) -> pd.DataFrame:
    """The runs in a file, walks and gossip; with one of them alone, nobody wins."""
    history = read_history(file)
    for one in FAMILIES:
        if not any(family(str(label)) == one for label in history["algorithm"]):
            raise StudyError(f"{file} has no runs of {one}, so there is nothing to compare")
    for one in FAMILIES:
        of = [group for label, group in history.groupby("algorithm") if family(str(label)) == one]
        if not any(math.isfinite(worst_best([run for _, run in runs.groupby("repetition")])) for runs in of):
            raise StudyError(f"{file}: in every algorithm of {one} some run diverged, so there is nothing to compare")
    return history


@dataclass(frozen=True)
class Verdict:
    """Who wins in one setting on one axis, and the costs that say so."""

    setting: tuple[float, str, str, float]  # α, topology, axis and target loss
    winner: str  # its label
    ratio: float  # gossip's cost over the best walk's
    costs: list[float]  # of the winner, by repetition
    others: list[float]  # of the other family's best

    def chance(self) -> float | None:
        """That the winner really needs less, as for one verdict alone; None of single runs."""
        found = decide(self.setting[2], self.costs, self.others)
        return None if found is None else found.chance


def verdicts(history: pd.DataFrame, alpha: float, topology: str) -> list[Verdict]:
    """Who wins in one setting, on each axis."""
    history = history[history["iteration"] > 0]  # before, a BatchNorm's running statistics mean nothing
    runs = {
        str(label): [run.sort_values("iteration") for _, run in of.groupby("repetition")]
        for label, of in history.groupby("algorithm", sort=False)
    }
    target = max(min(worst_best(of) for label, of in runs.items() if family(label) == one) for one in FAMILIES)
    found = []
    for axis in AXES:
        costs = {label: [first_below(run, axis, target) for run in of] for label, of in runs.items()}
        found.append(verdict((alpha, topology, axis, target), costs))
    return found


@cache
def family(label: str) -> str:
    """Which of the two an algorithm of the paper is: as the protocol of that label says."""
    return "gossip" if known([label])[label].family == "gossip" else "walk"


def worst_best(runs: Sequence[pd.DataFrame]) -> float:
    """The lowest loss that every repetition reached."""
    finite = [run[(run["iteration"] > 0) & np.isfinite(run["train_loss"])]["train_loss"] for run in runs]
    bests = [float(losses.min()) for losses in finite if len(losses)]
    return max(bests) if len(bests) == len(runs) else math.inf


def verdict(setting: tuple[float, str, str, float], costs: dict[str, list[float]]) -> Verdict:
    """The winner among the best of both families, and gossip's cost over the best walk's."""
    means = {label: float(np.mean(values)) for label, values in costs.items() if np.isfinite(values).all()}
    best = {one: min((x for x in means if family(x) == one), key=lambda x: means[x]) for one in FAMILIES}
    winner, other = sorted(best.values(), key=lambda label: means[label])
    return Verdict(setting, winner, means[best["gossip"]] / means[best["walk"]], costs[winner], costs[other])


# -- predicted --------------------------------------------------------------------------------------------------------


def words(file: Path) -> pd.DataFrame:
    """What the advisor has said so far, as it lies in a file; nothing where there is none."""
    if not file.is_file():
        return pd.DataFrame(columns=COLUMNS)
    try:
        table = pd.read_csv(file, dtype={"alpha": float, "target_loss": float, "ratio": float, "clear": bool})
        if list(table.columns) != COLUMNS or table.isna().any(axis=None):
            raise ValueError("other columns, or values missing")
    except ValueError as error:
        raise StudyError(f"{file} is damaged; delete it, and --advise asks the advisor again") from error
    return table


def of_these(found: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The words on these settings, with these targets."""
    return found[COLUMNS[:4]].merge(table, on=COLUMNS[:4])


def predicted(
    found: pd.DataFrame,
    file: Path,
    *,
    device: str = "auto",
    model_bytes: int | None = MODEL_BYTES,
    told: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """The advisor's word on the same settings, from pilots on digits with the paper's optimizer and network.

    Each word goes to the file at once, and is not asked for again where the target is still the same.
    """
    rows = list(words(file).itertuples(index=False, name=None))
    known = {row[:4] for row in rows}
    for alpha, topology, axis, target in found[COLUMNS[:4]].itertuples(index=False, name=None):
        if (alpha, topology, axis, target) not in known:
            goal = Goal(AXES[axis], target)
            rows.append((alpha, topology, axis, target, *word(alpha, topology, goal, device, model_bytes)))
            write_text(file, pd.DataFrame(rows, columns=COLUMNS).to_csv(index=False))
            if told is not None:
                told(f"α = {alpha:g}, {topology}, {axis}: {rows[-1][4]}")
    return of_these(found, pd.DataFrame(rows, columns=COLUMNS))


def word(
    alpha: float, topology: str, goal: Goal, device: str, model_bytes: int | None = MODEL_BYTES
) -> tuple[str, float, bool]:
    """The advised algorithm, gossip's expected cost over the best walk's, and whether the advisor is sure."""
    base = paper.settings("image", "smoke")
    spec = make_spec({**base, "network": NETWORKS[topology], "task": {**base["task"], "alpha": alpha}})
    advice = advise_study(spec, goal, device=device, model_bytes=model_bytes)
    costs = {**advice.prospects, **{rival.candidate.label: rival.mean for rival in advice.rivals}}
    gossips = {one.label for one in advice.survey.candidates if one.protocol.family == "gossip"}
    gossip = min(cost for label, cost in costs.items() if label in gossips)
    walk = min(cost for label, cost in costs.items() if label not in gossips)
    return short(advice.best.protocol), gossip / walk, advice.sure >= SURE


def short(protocol: Protocol) -> str:
    """An algorithm's label without where its aggregator is: multi_walk-4-at7 is multi_walk-4."""
    return (replace(protocol, aggregator=0) if isinstance(protocol, MultiWalk) else protocol).label


# -- drawn ------------------------------------------------------------------------------------------------------------


def diagram(rows: dict[str, pd.DataFrame]) -> Figure:
    """A row of diagrams for each of these tables, a column for each axis."""
    grids = {
        name: {TITLES[axis]: table_of(found[found["axis"] == axis]) for axis in AXES} for name, found in rows.items()
    }
    return plots.phase_grid(grids, x="Topology", y="Dirichlet α", notes=notes(rows))


def notes(rows: dict[str, pd.DataFrame]) -> list[str]:
    """What the cells say: names, numbers and question marks."""
    unsure = {
        "Measured": "the difference may be luck (95 %, corrected for all cells)",
        "Advisor": f"the advisor is less than {SURE:.0%} sure".replace("%", " %"),
    }
    marked = [unsure[name] for name, found in rows.items() if name in unsure and not found["clear"].all()]
    return [
        "In a cell: who reaches the target loss at least cost, and how many times less than the other family's best.",
        f"?: {', or '.join(marked)}." if marked else "",
        "ER: Erdős–Rényi graph. Small α: the nodes' data differ much.",
    ]


def table_of(found: pd.DataFrame) -> pd.DataFrame:
    """The columns that a phase diagram is drawn from, topologies in the paper's order."""
    cells = [cell(winner, clear) for winner, clear in zip(found["winner"], found["clear"], strict=True)]
    table = pd.DataFrame(
        {"x": found["topology"].map(NAMES), "y": found["alpha"], "ratio": found["ratio"], "winner": cells}
    )
    order = list(NAMES.values())
    return table.sort_values("x", key=lambda column: column.map(order.index), kind="stable")


def cell(winner: str, clear: bool) -> str:
    """A name that fits into a cell; a question mark where it may be luck."""
    walks = known([winner])[winner].settings.get("walks", winner)
    name = "gossip" if family(winner) == "gossip" else f"R={walks}"
    return name if clear else f"{name} ?"
