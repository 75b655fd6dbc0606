"""Numbers with their spread over repetitions, and how they are written in Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from walktalk.studies import CLEAR, decide, holm, known_from

Key = TypeVar("Key")

NOT_RUN = "not run"
NONE = "–"  # ran, but has no such number


@dataclass(frozen=True)
class Spread:
    """Mean and sample σ over the runs that have such a number."""

    mean: float
    sigma: float  # nan of a single run
    having: int  # runs that have the number: a loss may not be one, a target may not be reached
    runs: int  # runs there are
    values: tuple[float, ...] = ()  # of those that have it, where they are compared

    @property
    def complete(self) -> bool:
        return self.having == self.runs > 0

    @property
    def error(self) -> float:
        """The mean's standard error; nan of a single run."""
        return self.sigma / math.sqrt(self.having) if self.having else math.nan


NOTHING = Spread(math.nan, math.nan, 0, 0)
Cell = Spread | str


def scaled(value: Spread, factor: float) -> Spread:
    """In another unit."""
    return Spread(factor * value.mean, factor * value.sigma, value.having, value.runs)


def spread(values: Iterable[float]) -> Spread:
    every = np.array(list(values), dtype=float)
    finite = every[np.isfinite(every)]
    if len(finite) == 0:
        return Spread(math.nan, math.nan, 0, len(every))
    return Spread(float(finite.mean()), _sigma(finite), len(finite), len(every), tuple(map(float, finite)))


def _sigma(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def ratio(over: Spread, under: Spread) -> Cell:
    """Of the means, as in phase.csv; σ as of independent runs. Nothing where some run lacks its number: the mean of the
    others would flatter."""
    if not (over.complete and under.complete):
        return NONE if over.runs and under.runs else NOT_RUN
    if over is under:
        return "1"
    value = over.mean / under.mean
    sigma = abs(value) * math.hypot(over.sigma / over.mean, under.sigma / under.mean)
    return Spread(value, sigma, min(over.runs, under.runs), min(over.runs, under.runs))


def difference(one: Spread, other: Spread) -> Cell:
    """Of the means, σ as of independent runs; nothing where some run lacks its number."""
    if not (one.complete and other.complete):
        return NONE if one.runs and other.runs else NOT_RUN
    fewest = min(one.runs, other.runs)
    return Spread(one.mean - other.mean, math.hypot(one.sigma, other.sigma), fewest, fewest)


Rivals = tuple[Spread, Spread]  # losses of one, and of what it is compared with


def standings(pairs: Mapping[Key, Rivals]) -> dict[Key, str]:
    """Whose loss is lower in each of these comparisons: ahead, behind, or even where the difference may be luck.

    They are read together. So the spread of one run is learned from all of them, and they are corrected for how many
    they are (Holm): all that are not even are right together 95 times of 100, on this split of the data.
    Of single runs nobody knows the error, so their standing says so.
    """
    known = known_from({values.values for pair in pairs.values() for values in pair if values.complete})
    decided = {
        key: found
        for key, pair in pairs.items()
        if all(one.complete for one in pair)
        and (found := decide("loss", *(one.values for one in sorted(pair, key=lambda x: x.mean)), known=known))
    }
    together = dict(zip(decided, holm([one.chance for one in decided.values()]), strict=True))
    return {key: _standing(*pair, together.get(key)) for key, pair in pairs.items()}


def _standing(one: Spread, other: Spread, chance: float | None) -> str:
    """The words on one comparison, and how sure it is among all that are read."""
    if not (one.runs and other.runs):
        return NOT_RUN
    if not (one.complete and other.complete):
        return "not a number in some runs"
    gap = other.mean - one.mean
    if chance is None:
        return f"{'ahead' if gap > 0 else 'behind'} by {abs(gap):.3f} (single runs)"
    if chance < CLEAR:
        return f"even ({'+' if gap > 0 else ''}{number(gap, 3)} ± {math.hypot(one.sigma, other.sigma):.3f})"
    return f"{'ahead' if gap > 0 else 'behind'} by {abs(gap):.3f}"


# -- written ----------------------------------------------------------------------------------------------------------


def text(value: Spread, digits: int = 3, lacking: str = "not a number") -> str:
    """As in DETAILS.md: 0.303 ± 0.005; and how many runs have no such number."""
    if value.runs == 0:
        return NOT_RUN
    if value.having == 0:
        return lacking if value.runs == 1 else f"{lacking} in {value.runs} of {value.runs}"
    written = number(value.mean, digits) + ("" if math.isnan(value.sigma) else f" ± {number(value.sigma, digits)}")
    return written if value.complete else f"{lacking} in {value.runs - value.having} of {value.runs}, else {written}"


def number(value: float, digits: int) -> str:
    """With a true minus, as in running text."""
    return f"{value:,.{digits}f}".replace("-", "−")


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def between(values: Iterable[float], digits: int) -> str:
    """The smallest and the largest: 2.3 to 5.5."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return NOT_RUN
    ends = [number(end, digits) for end in (min(finite), max(finite))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def line(claim: str, words: str) -> str:
    return f"- **{claim}**: {words}"


def table(
    claim: str,
    what: str,
    head: Sequence[str],
    rows: Mapping[str, Sequence[Cell]],
    digits: int | Sequence[int] = 3,
    lacking: str = "not a number",
) -> str:
    """A table under the name of its claim. Cells with another number of runs than most say theirs."""
    counts = Counter(cell.runs for row in rows.values() for cell in row if isinstance(cell, Spread) and cell.runs)
    usual = counts.most_common(1)[0][0] if counts else 0
    over = {0: "", 1: "; one run each"}.get(usual, f"; mean ± σ over {usual} repetitions")
    places = [digits] * len(head) if isinstance(digits, int) else digits
    body = [
        [name, *(_cell(cell, place, lacking, usual) for cell, place in zip(row, places, strict=True))]
        for name, row in rows.items()
    ]
    lines = [["", *head], ["---"] * (len(head) + 1), *(body or [[NOT_RUN, *[""] * len(head)]])]
    return "\n".join([f"**{claim}**: {what}{over}", "", *("| " + " | ".join(cells) + " |" for cells in lines), ""])


def _cell(cell: Cell, digits: int, lacking: str, usual: int) -> str:
    if isinstance(cell, str):
        return cell
    return text(cell, digits, lacking) + (f" (n = {cell.runs})" if cell.runs not in (0, usual) else "")
