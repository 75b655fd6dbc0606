"""RelaySGD (Vogels, He, Koloskova, Lin, Karimireddy, Stich, Jaggi 2021): sums that are relayed along a tree.

    m_{i→j} = x_i + Σ_{k≠j} m_{k→i},    c_{i→j} = 1 + Σ_{k≠j} c_{k→i}        (m_{k→i}: of the round before)
    x_i ← ((n − c) x_i + Σ_j m_{j→i}) / n,    c = Σ_j c_{j→i}                (x_i: trained in this round)

A tree has no cycles, so a sum counts everybody once: each model arrives everywhere after as many rounds as it is links
away, with weight 1/n, whatever the tree; data may be as unlike as they like. Sends what D-PSGD sends on the same tree.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from walktalk.errors import SpecError
from walktalk.graphs import Graph
from walktalk.protocols.effects import UPDATE, Combine, Effect, Send, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, Protocol, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.rounds.meeting import HALF, MODEL, InRounds, Meeting, Rule, arrivals, check_fixed

MESSAGES = arrivals("relay", once=False)  # a sum is mixed in, and relayed in the next round


@dataclass(frozen=True)
class RelaySGD(Protocol):
    """On a tree, every node relays the sum of the models behind it, so that all are averaged exactly, only later."""

    name: ClassVar[str] = "relay_sgd"
    family: ClassVar[str] = "gossip"
    title: ClassVar[str] = "RelaySGD"
    description: ClassVar[str] = "On a tree, sums of models are relayed: everybody gets everybody's, each once."
    colour: ClassVar[str] = "#2F6690"
    made_for: ClassVar[str] = "binary_tree"

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MESSAGES

    def check_graph(self, graph: Graph) -> None:
        super().check_graph(graph)
        check_fixed(self.label, graph)
        if graph.edges != graph.nodes - 1:
            raise SpecError(
                f"network: {graph.name} is no tree, on which alone {self.label} can run; take binary_tree, path or star"
            )

    def machine(self, surroundings: Surroundings) -> Machine:
        return InRounds(surroundings, Relay(surroundings), MESSAGES)


class Relay(Rule):
    """The last sum that came from each neighbour is kept until the next has been sent."""

    __slots__ = ("around", "counts")

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.counts: dict[int, int] = {}  # neighbour -> how many models its last sum is of

    def begin(self) -> list[Effect]:
        return []

    def work(self) -> Train:
        return Train(MODEL)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        effects: list[Effect] = [Combine(HALF, {MODEL: 1.0, UPDATE: 1.0}, {UPDATE: 1.0})]
        for to in meeting.targets:
            behind = {f"from/{peer}": 1.0 for peer in self.counts if peer != to}
            count = 1 + sum(count for peer, count in self.counts.items() if peer != to)
            effects.append(Combine(f"to/{to}", {HALF: 1.0, **behind}))
            effects.append(Send(to, Message("relay", round=meeting.round, note=struct.pack("<I", count)), f"to/{to}"))
        return effects

    def mix(self, meeting: Meeting) -> list[Effect]:
        n, sums = self.around.nodes, {peer: f"from/{peer}" for peer in meeting.sources}
        keep: list[Effect] = [Combine(slot, {meeting.slot("relay", peer): 1.0}) for peer, slot in sums.items()]
        self.counts = {peer: struct.unpack("<I", meeting.note("relay", peer))[0] for peer in sums}
        others = sum(self.counts.values())
        if others >= n:
            raise ValueError(f"sums of {others} other models came, but there are {n} nodes")
        return [*keep, Combine(MODEL, {HALF: (n - others) / n, **dict.fromkeys(sums.values(), 1.0 / n)})]
