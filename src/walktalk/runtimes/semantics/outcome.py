"""What a run comes to: the models that it puts out, the bytes that it sends, and what it lets out of nodes' data."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Generic

from walktalk.protocols import AGGREGATE, Record
from walktalk.runtimes.semantics.contents import Content, Contents, EvaluatedModel
from walktalk.transforms.rules import MOST, Privacy


class Output(Generic[Content]):
    """The models that nodes recorded: members that are to agree, and the aggregate where there is one."""

    def __init__(self, contents: Contents[Content]) -> None:
        self._contents = contents
        self.members: dict[int, Content] = {}  # what `Record` said last
        self.owners: dict[int, int] = {}  # member -> the node that recorded it
        self.aggregate: Content | None = None
        self.aggregated_at: int | None = None  # the iteration in which it was last brought up to date
        self.aggregate_term = 0  # of two that aggregate at the same time, the higher term counts
        self.aggregate_slot = ""  # where the node that recorded it has it
        self.aggregator: int | None = None  # that node

    def record(self, node: int, effect: Record, content: Content, iteration: int) -> None:
        """Remember what is one of the members, or the model that the algorithm puts out."""
        if effect.role != AGGREGATE:
            self.members[effect.key], self.owners[effect.key] = content, node
        elif effect.key >= self.aggregate_term:
            self.aggregate, self.aggregate_term, self.aggregate_slot = content, effect.key, effect.slot
            self.aggregated_at, self.aggregator = iteration, node

    def model(self, which: EvaluatedModel) -> Content:
        """The model that is measured and handed out.

        "aggregated": the aggregate where there is one, else the mean of the members; "mean": always the mean;
        "node": the first member (node 0 in gossip, walk 1 in Multi-Walk), as the authors' own code does for gossip.
        """
        if which == "node":
            return self.members[min(self.members)]
        if which == "aggregated" and self.aggregate is not None:
            return self.aggregate
        return self._contents.mean(self.members.values())

    def in_order(self) -> list[Content]:
        """The models of all members, by node."""
        return [self.members[key] for key in sorted(self.members)]

    def node_dies(self, node: int) -> None:
        """What it held is out of the mean; somebody must be left. Where it aggregated, whoever still does counts."""
        if node == self.aggregator:
            self.aggregate_term = 0
        gone = [key for key, owner in self.owners.items() if owner == node and key in self.members]
        for key in gone if len(gone) < len(self.members) else gone[1:]:
            del self.owners[key]
            del self.members[key]


class Traffic:
    """The bytes that were sent between nodes."""

    __slots__ = ("bytes", "payload_bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self.payload_bytes = 0  # the models' part of it

    def add(self, size: int, payload: int) -> None:
        """A message goes out: its bytes, and how many of them are a model's."""
        self.bytes += size
        self.payload_bytes += payload

    def withdraw(self, size: int, payload: int) -> None:
        """A message that was counted does not go out after all."""
        self.bytes -= size
        self.payload_bytes -= payload


class Releases:
    """How often every node let something out that its data are behind, and whether it may again."""

    def __init__(
        self,
        privacy: Privacy | None = None,
        most: int = MOST,
        ask: Callable[[], bool] | None = None,
        secret: bool = False,
    ) -> None:
        """
        - `privacy`: what protects the nodes' data; None: nothing is private.
        - `most`: how often a node may.
        - `ask`: is asked before every time, where something else keeps the account.
        - `secret`: whether the numbers that noise is made from are kept out of the trace.
        """
        self.privacy, self.most, self.secret = privacy, most, secret
        self.counts: collections.Counter[int] = collections.Counter()  # by node
        self._ask = ask

    def take(self, node: int) -> bool:
        """Counts one more of a node; False, and nothing is counted, where it may let out no more."""
        if self.spent(node) or (self._ask is not None and not self._ask()):
            return False
        self.counts[node] += 1
        return True

    def spent(self, node: int) -> bool:
        """Whether a node may let out no more."""
        return self.counts[node] >= self.most

    @property
    def epsilon(self) -> float | None:
        """What the node that has released most has spent; None where nothing is private."""
        return None if self.privacy is None else self.privacy.epsilon(max(self.counts.values(), default=0))
