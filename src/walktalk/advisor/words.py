"""Amounts and algorithms in words, and an advice in a line or a small table."""

from __future__ import annotations

from html import escape
from math import isfinite
from typing import TYPE_CHECKING

from walktalk.advisor.candidates import Candidate

if TYPE_CHECKING:
    from walktalk.advisor.advice import Advice

TABLE = 8  # lines of a ranking that a notebook shows


def name_of(candidate: Candidate) -> str:
    """An algorithm in words."""
    return candidate.protocol.title


def begun(text: str) -> str:
    """As it begins a sentence; the rest, as in DiLoCo, stays as it is."""
    return text[:1].upper() + text[1:]


def amount(objective: str, value: float) -> str:
    """A cost with its unit; bits as bytes, which people compare with a data plan."""
    if not isfinite(value):
        return "unknown"
    if objective == "iterations":
        return f"{value:,.0f} iterations"
    units = (
        (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))
        if objective == "time"
        else (("TB", 8e12), ("GB", 8e9), ("MB", 8e6), ("kB", 8e3), ("bytes", 8.0))
    )
    unit, size = next((u for u in units if abs(value) >= u[1]), units[-1])
    return f"{value / size:,.3g} {unit}"


def headline(advice: Advice) -> str:
    """In one line: which algorithm, which learning rate, and what it will cost."""
    goal, best, answer = advice.ground.goal, advice.best, advice.answer
    what = f"{name_of(best)}, learning rate {best.lr:g}"
    if goal.budget is not None:
        loss = f"loss {answer.value:.3g} (95 %: {answer.low:.3g} to {answer.high:.3g})"
        out = "" if advice.missed is None else f"; {advice.missed:.4g} is out of reach"
        return f"{what}: {loss} for {amount(goal.objective, goal.budget)}{out}"
    cost, low, high = (amount(goal.objective, value) for value in (answer.value, answer.low, answer.high))
    sure = "" if advice.reached else ", extrapolated"
    return f"{what}: {cost} (95 %: {low} to {high}) to a loss of {advice.loss:.4g}{sure}"


def html(advice: Advice) -> str:
    """For a notebook: the line, the best of the ranking, and the code that carries it out."""
    table = advice.ranking.head(TABLE).to_html(index=False, float_format=lambda value: f"{value:.4g}")
    return f"<p><b>{escape(headline(advice))}</b></p>{table}<pre>{escape(advice.code)}</pre>"
