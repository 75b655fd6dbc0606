"""Two free loops a node: one trains on and on, the other talks to neighbours, and neither waits for the other.

The talking loop offers the model to a random neighbour, waits for the answer and some random time, and begins again: as
many exchanges for each training as the algorithm says. Waiting times are exponential, so exchanges along a link are
nearly a Poisson process. An exchange is that of `pairs`, plain or resilient: where an answer does not come, the talking
loop goes on with others after as long as answers ever took.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt

from walktalk.protocols.effects import Effect, SetTimer
from walktalk.protocols.machine import Context, Machine, NetworkView
from walktalk.protocols.mechanisms.pair_rule import InPairs, PairRule
from walktalk.protocols.mechanisms.pairs import PairNode

TALK = "talk"  # timer
REMEMBERED = 8  # trainings, about, over which the time of one is averaged


@dataclass(frozen=True)
class InFreeLoops(InPairs):
    """An algorithm whose nodes train on and on and talk beside it.

    Args:
        steps: local steps of a training; 0: as many as the study says.
        talks: exchanges that a node begins for each training, on average.
    """

    steps: Annotated[int, Ge(0)] = 0
    talks: Annotated[float, Gt(0)] = 1.0

    def node(self, around: NetworkView, rule: PairRule) -> Machine:
        """One node whose models do what a rule says."""
        return FreeLoops(around, rule, self.waits, self.talks)


class Clock:
    """How long a node's trainings take, and so how long to wait between two exchanges."""

    __slots__ = ("began", "done", "pace", "seen", "talks", "unsure", "variance")

    def __init__(self, talks: float) -> None:
        """
        - `talks`: exchanges that the node begins for each training, on average.
        """
        self.talks = talks
        self.began = self.seen = 0.0  # when the training under way began; when the last event was
        self.pace = 0.0  # how long a training takes, on average; 0: nobody knows yet
        self.variance = 0.0  # of that time from training to training
        self.unsure = 0.0  # the share of it that the average has: 1 over how many trainings it is of
        self.done = 0  # trainings

    def elapsed(self, now: float) -> float:
        """How many times that a training takes have passed since the last event; 0 where nobody knows that yet."""
        passed = (now - self.seen) / self._usual(now) if self.pace else 0.0
        self.seen = now
        return passed

    def completed(self, now: float) -> None:
        """A training is done."""
        took, self.began = now - self.began, now
        self.done += 1
        share = 1.0 / min(self.done, REMEMBERED)  # what it counts for in the averages
        off = took - self.pace
        self.pace += share * off
        self.variance = (1.0 - share) * (self.variance + share * off**2)
        self.unsure = (1.0 - share) ** 2 * self.unsure + share**2

    def next_talk(self, context: Context) -> SetTimer:
        """The timer after which the next exchange begins."""
        return SetTimer(TALK, context.random.expovariate(self.talks / self._usual(context.now)))

    def _usual(self, now: float) -> float:
        """How long a training takes: as the last ones did, and no less than the one under way has taken by now.

        Else a first one that happens to be very short lets a node talk without end until the second is over. Where
        trainings differ, an average of a few is below the truth as often as above it, and divided by, it makes too much
        of the first: 1/mean is too large by the share that the mean's variance has in its square (7 % of Poisson
        timing), so that the average is taken to be longer by as much.
        """
        mean = self.pace + self.unsure * self.variance / self.pace
        return max(mean, (now - self.began) / min(self.done, REMEMBERED))


class FreeLoops(PairNode):
    """A node that trains on and on, and offers its model to random neighbours beside it, at a pace of its own."""

    __slots__ = ("clock",)

    def __init__(self, around: NetworkView, rule: PairRule, patience: float | None, talks: float) -> None:
        """
        - `around`: what the node knows of the network.
        - `rule`: what happens to its models.
        - `patience`: seconds to wait for the first answers; None: nothing is ever lost.
        - `talks`: exchanges that it begins for each training, on average.
        """
        super().__init__(around, rule, patience)
        self.clock = Clock(talks)

    def passed(self, now: float) -> list[Effect]:
        elapsed = self.clock.elapsed(now)
        return self.rule.drift(elapsed) if elapsed > 0 else []

    def trained(self, context: Context) -> list[Effect]:
        """The next training begins at once, and after the first one the talking, too."""
        first = not self.clock.pace
        self.clock.completed(context.now)
        learned = [*self.rule.learn(self.moved), self.record]
        return [*learned, *self._train_on(context), *(self._talk_later(context) if first else [])]

    def talk(self, context: Context) -> list[Effect]:
        partners = self.partner(context)
        return self.offer(partners, context.now) if partners and not self.leaving else self._talk_later(context)

    def go_on(self, context: Context) -> list[Effect]:
        train = self._train_on(context)
        return [*train, *(self._talk_later(context) if self.clock.pace and not self.exchanges.awaited else [])]

    def _train_on(self, context: Context) -> list[Effect]:
        if self.empty or self.leaving or self.training:
            return []
        if not self.clock.pace:
            self.clock.began = self.clock.seen = context.now
        self.training, self.moved = True, False
        return [self.rule.train(context)]

    def _talk_later(self, context: Context) -> list[Effect]:
        """An exchange is over, or there was nobody to have one with."""
        return [self.clock.next_talk(context)] if self.around.neighbours and not self.leaving else []
