"""What the code of a published table on sorted MNIST (ryou98/BTPP, `dsgd_ceca.py`) does by the name of CECA.

Every node has a second worker there for its second model, but both have the same `rank`, by which rows of the weights
are taken: so the second model takes the rows of the first, and is the same. And a round mixes copies (`model_copy`),
which are made anew in a round of the first models' gradients for those alone, and in one of the second's for these
alone: in a round with digit 0 the first models are mixed in as they were before the last round with digit 1.

    digit 1:  x̂ ← x,  h = x − η g(x),  x ← (h_i + h_j)/2
    digit 0:          h = x − η g(x),  x ← ((m+1) (x̂ − η g) + m h_j) / (2m+1)
"""

from __future__ import annotations

from dataclasses import dataclass

from walktalk.protocols import CECA, HALF, MODEL, UPDATE, Combine, Doubling, Effect, Meeting, Rule, Train, Trained

STALE, REST = "stale", "rest"  # x̂, and x̂ − ηg


@dataclass(frozen=True)
class CodedCECA(CECA):
    """CECA with the weights of that code, with which no mean is exact."""

    def rule(self, rounds: tuple[Doubling, ...]) -> Rule:
        return StaleWindows(rounds)


class StaleWindows(Rule):
    """One model a node, and what it was."""

    __slots__ = ("rounds",)

    def __init__(self, rounds: tuple[Doubling, ...]) -> None:
        self.rounds = rounds

    def begin(self) -> list[Effect]:
        return [Combine(STALE, {MODEL: 1.0})]

    def work(self) -> Train:
        return Train(MODEL)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        copied = [Combine(STALE, {MODEL: 1.0})] if self._now(meeting).is_odd else []
        half, rest = (
            Combine(into, {of: 1.0, UPDATE: 1.0}, {UPDATE: 1.0}) for into, of in ((HALF, MODEL), (REST, STALE))
        )
        return [*copied, half, rest, *meeting.send(HALF, "round")]

    def mix(self, meeting: Meeting) -> list[Effect]:
        now, own = self._now(meeting), HALF if self._now(meeting).is_odd else REST
        theirs = 0.5 if now.is_odd else now.width / (2 * now.width + 1)
        came = {meeting.slot("round", sender): theirs for sender in meeting.there("round")}
        return [Combine(MODEL, {own: 1.0 - sum(came.values()), **came})]

    def _now(self, meeting: Meeting) -> Doubling:
        return self.rounds[meeting.round % len(self.rounds)]
