"""What all protocols in rounds between neighbours share: whether they survive failures, and the node that does so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt

from walktalk.errors import SpecError
from walktalk.protocols.machine import Machine, Protocol, Surroundings
from walktalk.protocols.rounds.meeting import InRounds, Meeting, Rule, Turns
from walktalk.protocols.rounds.resilient import ResilientInRounds
from walktalk.protocols.self_description import InLabel


@dataclass(frozen=True, kw_only=True)
class NeighbourRounds(Protocol):
    """A protocol in rounds between neighbours.

    Args:
        resilient: whether it survives failures; if left out, where there may be any.
        patience: seconds to wait for late neighbours at first; after that it is known how late they are.
    """

    resilient: bool | None = None
    patience: Annotated[float, Gt(0), InLabel("")] = 10.0

    def __post_init__(self) -> None:
        if not self.patience > 0:
            raise SpecError(f"patience: {self.patience} is not possible; a number above 0 is needed")

    def node(
        self, around: Surroundings, rule: Rule, links: Mapping[str, tuple[int, ...]] | None = None, turns: Turns = ()
    ) -> Machine:
        """One node that goes by a rule.

        - `links`: for kinds of messages that go to some alone, to whom.
        - `turns`: which kinds belong to which rounds, where that is not the same in all of them (`Meeting`).
        """
        meeting = Meeting(around, self.messages, links or {}, turns)
        return ResilientInRounds(meeting, rule, self.patience) if self.resilient else InRounds(meeting, rule)
