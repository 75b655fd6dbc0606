"""How much all that a node has released tells of its data: ε at a given δ, by the accountant of Opacus.

What is accounted for is the Gaussian mechanism: what is released is cut to length C, and every number gets noise of
standard deviation z C. Two worlds are neighbours that differ in all data of one node: in one of them its release is
zero, as if it had none (`zero-out`), so that the sensitivity is C. No chance is claimed from which samples a training
takes: every training is one release of the whole node. k releases, each of which may depend on all before, compose by
Rényi divergences (Mironov 2017; converted as by Balle et al. 2020): α k / (2 z²) at order α.
"""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from walktalk.errors import SpecError, UnavailableError

Spent = tuple[tuple[float, int], ...]  # noise, and how many releases had it
ORDERS = tuple(1 + x / 100 for x in range(2, 1000)) + tuple(range(11, 513)) + tuple(2**k for k in range(10, 21))
MOST = 2**40  # releases that anybody could make


@dataclass(frozen=True)
class Privacy:
    """What protects a node's data, and how much of it may be spent.

    Args:
        clip: the longest update, C; a longer one is cut to that.
        noise: standard deviation of the noise on every number, as a multiple of `clip`, z.
        delta: δ, the chance with which ε may not hold.
        budget: the largest ε that a node may spend; none if left out.
    """

    clip: float = 1.0
    noise: float = 1.0
    delta: float = 1e-5
    budget: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.clip < math.inf:
            raise SpecError(f"privacy.clip: {self.clip} is not possible; a length above 0 is needed")
        if not 0 < self.noise < math.inf:
            raise SpecError(
                f"privacy.noise: with {self.noise:g} nothing is hidden and ε is infinite; give a number above 0, such "
                "as 1.0, or leave privacy out"
            )
        if not 0 < self.delta < 1:
            raise SpecError(f"privacy.delta: {self.delta} is not possible; allowed: above 0 and below 1, such as 1e-5")
        if self.budget is not None and self.most() < 1:
            raise SpecError(
                f"privacy.budget: one update with noise {self.noise:g} costs ε = {self.epsilon(1):.3g} at δ = "
                f"{self.delta:g}, and {self.budget:g} is allowed; raise noise or budget"
            )

    @property
    def rule(self) -> str:
        """The screen that every update goes through."""
        return f"private({self.clip!r}, {self.noise!r})"

    def epsilon(self, releases: int, before: Spent = ()) -> float:
        """What so many releases cost a node, beside what it had spent before."""
        return epsilon_of((*before, (self.noise, releases)), self.delta)

    def most(self, before: Spent = ()) -> int:
        """How many releases the budget allows, beside what was spent before."""
        if self.budget is None:
            return MOST
        if self.epsilon(1, before) > self.budget:
            return 0
        low, high = 1, 2
        while high < MOST and self.epsilon(high, before) <= self.budget:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.epsilon(middle, before) <= self.budget else (low, middle)
        return low


@lru_cache(maxsize=2**16)
def epsilon_of(spent: Spent, delta: float) -> float:
    """ε of all these releases at a δ; 0 where there were none."""
    history = [(noise, 1.0, releases) for noise, releases in spent if releases]
    if not history:
        return 0.0
    accountant = _accountant()()
    accountant.history = history
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the best order is the first or last: the bound holds all the same
        return max(0.0, float(accountant.get_epsilon(delta=delta, alphas=list(ORDERS))))


@lru_cache(maxsize=1)
def _accountant() -> Any:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        from opacus.accountants import RDPAccountant
    except ImportError as error:
        raise UnavailableError(
            "privacy: needs an accountant; install it with pip install 'walktalk[privacy]', or leave privacy out"
        ) from error
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])  # it sets up the logging of the whole process when it is imported
    return RDPAccountant
