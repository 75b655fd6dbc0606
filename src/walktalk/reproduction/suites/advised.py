"""What the advisor says in the settings of the suite `tiny-sites`, beside what was measured there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import pandas as pd

from walktalk.api import advise
from walktalk.graphs import complete
from walktalk.protocols import PROTOCOLS, Protocol
from walktalk.records import write_text
from walktalk.reproduction.suites.tiny_sites import (
    CONTENDERS,
    DATA,
    Contender,
    Setting,
    budgets_of,
    dealt,
    entry_of,
    setting_of,
    task_of,
    training_of,
)
from walktalk.reproduction.suites.verdicts import KEYS

Objective: TypeAlias = Literal["iterations", "time", "bits"]
OBJECTIVES: dict[str, Objective] = {"trainings": "iterations", "bytes": "bits", "hours": "time"}
"""What the advisor calls the suite's budgets."""
SEED = 200  # of what it is asked about: data that no run of the suite had
CLOSE = 1.1  # times the best's error is right
ASKED = tuple(one for one in CONTENDERS if one.family != "reference" and one.name not in ("tram-fl", "token-saga"))
# The two left out are slow to advise on; whoever wants them can ask.


class Advised(NamedTuple):
    """One answer, as the CSV has it."""

    task: str
    sites: int
    samples: int
    unlike: bool
    budget: str
    advised: str  # the contender
    error: float  # of that one as the suite measured it: what is missing to an accuracy of 1, or the squared error
    best: str  # which contender was the best of those that were to choose from
    best_error: float

    @property
    def right(self) -> bool:
        """Whether what was advised is the best, or nearly."""
        return self.error <= CLOSE * self.best_error


def ask_advisor(runs: pd.DataFrame, out: Path, say: Callable[[str], None], only: Iterable[str] = ()) -> list[Advised]:
    """The advisor's answers for all settings of `runs.csv`; those that are in the folder's `advice.csv` are kept.

    Args:
        runs: the table.
        out: the folder.
        say: hears each answer.
        only: names of settings; all if none is given.
    """
    there = out / "advice.csv"
    known = [Advised(*row) for row in pd.read_csv(there).itertuples(index=False)] if there.is_file() else []
    asked = {(setting_of(one), one.budget) for one in known}
    for _, mine in runs.groupby(KEYS, sort=False):
        setting = setting_of(next(mine.itertuples()))
        if {*only} and setting.name not in {*only}:
            continue
        for budget in OBJECTIVES:
            if (setting, budget) not in asked:
                known.append(_ask(setting, budget, mine))
                write_text(there, pd.DataFrame(known).to_csv(index=False, lineterminator="\n"))
                last = known[-1]
                said = "right" if last.right else f"but {last.best} was measured as the best"
                say(f"{setting.name}, equal {budget}: {last.advised}, {said}")
    return known


def _ask(setting: Setting, budget: str, mine: pd.DataFrame) -> Advised:
    sites, held = dealt(setting, SEED, validate=True)
    asked = {_protocol(one, setting): one.name for one in ASKED}
    bits, seconds = budgets_of(setting)
    most = {"trainings": float(setting.trainings), "bytes": bits, "hours": seconds}
    advice = advise(
        task_of(setting, sites, held, SEED),
        complete(setting.sites),
        training_of(setting, SEED),
        objective=OBJECTIVES[budget],
        budget=most[budget],
        algorithms=[*asked],
    )
    scale = 1.0 if DATA[setting.task].classes else 0.0
    errors = scale - mine.groupby("contender")[budget].mean()[[*asked.values()]]
    chosen, best = asked[advice.best.protocol], str(errors.idxmin())
    return Advised(*setting, budget, chosen, float(errors[chosen]), best, float(errors[best]))


def _protocol(contender: Contender, setting: Setting) -> Protocol:
    settings = entry_of(contender, setting, [])
    return PROTOCOLS.find(settings.pop("name"))(**settings)
