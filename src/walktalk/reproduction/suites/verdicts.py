"""What came out of the suite `tiny-sites`: who is ahead in which setting, by how much, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from walktalk.reproduction.suites.tiny_sites import CONTENDERS, DATA, Setting, setting_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUDGETS = {"trainings": "equal trainings", "bytes": "equal bytes", "hours": "equal hours"}
DIVERGED = 10.0  # a mean squared error, in variances of what is told
KEYS = ["task", "samples", "sites", "unlike"]
FAMILIES = {one.name: one.family for one in CONTENDERS}
TRAVELLING = ("walks", "tours")
COLOURS = {"walks": "#0072B2", "tours": "#C0563B", "gossip": "#009E73", "server": "#7A5195", "even": "#BBBBBB"}


class Verdict(NamedTuple):
    """One setting at one budget: the best that travels beside the best that does not, seed by seed."""

    setting: Setting
    budget: str
    travelling: str  # the contender
    other: str
    ahead: float  # how much the travelling one is ahead: points of accuracy, or % of the other's error
    half: float  # half of the 95 % interval of that

    @property
    def winner(self) -> str:
        """The family that is ahead, or even."""
        if abs(self.ahead) <= self.half:
            return "even"
        return FAMILIES[self.travelling if self.ahead > 0 else self.other]


def verdicts(runs: pd.DataFrame) -> list[Verdict]:
    """A verdict for each setting and budget of the table `runs.csv`."""
    found = []
    for _, of_one in runs.groupby(KEYS, sort=False):
        setting = setting_of(next(of_one.itertuples()))
        for budget in BUDGETS:
            each = of_one.pivot_table(index="seed", columns="contender", values=budget)
            racing = [name for name in map(str, each) if FAMILIES[name] != "reference"]
            travelling = best(each, [name for name in racing if FAMILIES[name] in TRAVELLING])
            other = best(each, [name for name in racing if FAMILIES[name] not in TRAVELLING])
            apart = each[travelling] - each[other]
            scale = 100.0 if DATA[setting.task].classes else -100.0 / each[other].mean()
            half = student(len(apart)) * float(apart.std()) / math.sqrt(len(apart)) if len(apart) > 1 else math.inf
            found.append(Verdict(setting, budget, travelling, other, scale * float(apart.mean()), abs(scale) * half))
    return found


def in_short(runs: pd.DataFrame) -> str:
    """A row for each setting: at every budget the best that travels beside the best that does not, and who is ahead."""
    lines = [f"| setting | {' | '.join(BUDGETS.values())} |", "| --- |" + " --- |" * len(BUDGETS)]
    found = verdicts(runs)
    for setting in dict.fromkeys(one.setting for one in found):
        cells = []
        for one in (each for each in found if each.setting == setting):
            means = _of(runs, setting).groupby("contender")[one.budget].mean()
            both = (f"{name} {_shown(means[name], setting)}" for name in (one.travelling, one.other))
            ahead = f"{one.ahead:+.1f} ± {one.half:.1f}"
            cells.append(f"{', '.join(both)}: {ahead if one.winner == 'even' else f'**{ahead}**'}")
        lines.append(f"| {setting.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _of(runs: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    here = [setting.task, setting.samples, setting.sites, setting.unlike]
    return runs[(runs[KEYS] == here).all(axis=1)]


def best(each: pd.DataFrame, names: Sequence[str]) -> str:
    """The name with the best mean."""
    return str(each[list(names)].mean().idxmax())


def student(count: int) -> float:
    """Student's t for a 95 % interval of a mean of so many."""
    from scipy.stats import t

    return float(t.ppf(0.975, count - 1))


def as_markdown(runs: pd.DataFrame, budget: str = "trainings") -> str:
    """A row for each setting: the mean of every contender, the best in bold, and the verdict."""
    names = [one.name for one in CONTENDERS if one.name in set(runs["contender"])]
    lines = [f"| setting | {' | '.join(names)} | ahead |", "| --- |" + " --- |" * (len(names) + 1)]
    for verdict in verdicts(runs):
        if verdict.budget != budget:
            continue
        setting = verdict.setting
        means = _of(runs, setting).groupby("contender")[budget].mean()
        top = means.drop("pooled", errors="ignore").max()
        cells = [("**{}**" if means[n] == top else "{}").format(_shown(means[n], setting)) for n in names]
        said = f"{verdict.winner}: {verdict.ahead:+.1f} ± {verdict.half:.1f}"
        lines.append(f"| {setting.name} | {' | '.join(cells)} | {said} |")
    return "\n".join(lines) + "\n"


def _shown(value: float, setting: Setting) -> str:
    if DATA[setting.task].classes:
        return f"{100 * value:.1f} %"
    return f"{math.sqrt(-value):.3f}" if value > -DIVERGED else "diverges"


def diagram(runs: pd.DataFrame) -> Figure:
    """Who is ahead: tasks from top to bottom, budgets from left to right, and in each the sites and their samples."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    found = verdicts(runs)
    tasks = list(dict.fromkeys(one.setting.task for one in found))
    figure = Figure(figsize=(11, 1.0 + 2.3 * len(tasks)), layout="constrained")
    axes = figure.subplots(len(tasks), len(BUDGETS), squeeze=False)
    for row, task in enumerate(tasks):
        mine = [one for one in found if one.setting.task == task]
        sites, samples = (sorted({getattr(one.setting, key) for one in mine}) for key in ("sites", "samples"))
        for column, (budget, words) in enumerate(BUDGETS.items()):
            axis = axes[row, column]
            for one in mine:
                if one.budget != budget:
                    continue
                at = sites.index(one.setting.sites), 2 * samples.index(one.setting.samples) + one.setting.unlike
                axis.barh(at[1], 0.96, left=at[0] - 0.48, height=0.94, color=COLOURS[one.winner], alpha=0.85)
                axis.text(*at, f"{one.ahead:+.1f}", ha="center", va="center", color="white", fontsize=9)
            skews = any(one.setting.unlike for one in mine)
            ticks = [(2 * k + u, f"{s}{' unlike' if u else ''}") for k, s in enumerate(samples) for u in (False, True)]
            ticks = [tick for tick in ticks if skews or tick[0] % 2 == 0]
            axis.set_yticks([at for at, _ in ticks], [word for _, word in ticks])
            axis.set_xticks(range(len(sites)), [str(count) for count in sites])
            axis.set_title(f"{task}, {words}", fontsize=10)
            if column == 0:
                axis.set_ylabel("samples a site")
            if row == len(tasks) - 1:
                axis.set_xlabel("sites")
    handles = [Patch(color=colour, label=name) for name, colour in COLOURS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure
