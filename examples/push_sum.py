"""A protocol of one's own: push-sum gossip (SGP, Assran et al. 2019) in one file.

A node gives half of what it has to one neighbour and never waits for an answer. What it has is a pair: a sum x of
models and a weight w. Halving x alone would shrink models; dividing by w, which is halved along with it, puts that
right: the model is z = x / w. All sums together only change by what is learned, and all weights together stay V.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import walktalk as wt
from walktalk.protocols import (
    INITIAL,
    MEMBER,
    UPDATE,
    Arrival,
    Combine,
    Context,
    Effect,
    Event,
    Forget,
    Machine,
    Message,
    NetworkView,
    Protocol,
    Received,
    Record,
    Send,
    Started,
    Train,
    Trained,
)

SUM, MODEL = "sum", "model"  # two slots of every node: x and z


# --8<-- [start:protocol]
@dataclass(frozen=True)
class PushSum(Protocol):
    """Half of the sum and of the weight go to a random neighbour after every training; nobody waits."""

    family: ClassVar[str] = "gossip"

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return {"share": Arrival(slot="share/{sender}", once=True)}

    def machine(self, network_view: NetworkView) -> Machine:
        return PushSumNode(network_view)


# --8<-- [end:protocol]


# --8<-- [start:machine]
class PushSumNode(Machine):
    """One node's part: the weight is a plain number in here, the models are slots that the runtime keeps."""

    def __init__(self, around: NetworkView) -> None:
        self.around = around
        self.weight = 1.0

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Started):
            return [Combine(SUM, {INITIAL: 1.0}), *self.estimate(), Train(MODEL)]
        if isinstance(event, Trained):
            return [*self.push(context), *self.estimate(), Train(MODEL)]
        if isinstance(event, Received):
            return [*self.receive(event), *self.estimate()]
        return []

    # --8<-- [end:machine]

    # --8<-- [start:parts]
    def push(self, context: Context) -> list[Effect]:
        """What was learned goes into the sum, times w: so z moves by just that. Then half of everything leaves."""
        half_and_half = {SUM: 0.5, UPDATE: 0.5 * self.weight}  # of BatchNorm's statistics, which are no sums of changes
        learned = Combine(SUM, {SUM: 1.0, UPDATE: self.weight}, statistics=half_and_half)
        if not self.around.neighbours:
            return [learned]
        to = context.random.choice(self.around.neighbours)
        self.weight /= 2
        half = Message("share", note=struct.pack("<d", self.weight))
        return [learned, Combine(SUM, {SUM: 0.5}), Send(to, half, SUM)]

    def receive(self, event: Received) -> list[Effect]:
        """Somebody's half comes on top."""
        (weight,) = struct.unpack("<d", event.message.note)
        self.weight += weight
        return [Combine(SUM, {SUM: 1.0, event.slot: 1.0}), Forget(event.slot)]

    def estimate(self) -> list[Effect]:
        """z = x / w is what is trained and what is measured."""
        return [Combine(MODEL, {SUM: 1.0 / self.weight}), Record(MEMBER, self.around.node, MODEL)]

    # --8<-- [end:parts]


# --8<-- [start:use]
if __name__ == "__main__":
    graph = wt.graphs.small_world(12, degree=4, rewire=0.2, seed=0)
    task = wt.tasks.digits(nodes=12, alpha=1.0)
    for protocol in (PushSum(), wt.AsyncGossip()):
        run = wt.train(task, protocol, graph, stop=wt.Stop(iterations=2400), evaluate=wt.Evaluate(every=600))
        last = run.history.iloc[-1]
        print(f"{protocol.label:22} loss {last.train_loss:.2f}, {last.bits / 8e6:.1f} MB, {last.time:.0f} s")
# --8<-- [end:use]
