"""An adaptive method of one's own: GTAdam (Carnevale, Farina, Notarnicola, Notarstefano 2022), as a rule in rounds.

    x_i ← Σ_j W_ij x_j − η m_i / (√v_i + τ),    m_i ← β₁ m_i + (1 − β₁) y_i,    v_i ← β₂ v_i + (1 − β₂) y_i²,
    y_i ← Σ_j W_ij y_j + g_i(new x_i) − g_i(old x_i),    y_i = g_i at first

Every node tracks the mean of all gradients with y, and makes Adam's steps along it. Squares and roots look at the
numbers in a slot, which `Combine` never does: `Apply` does, with a number rule. Those of Adam are there already.
The paper also bounds v from above, which changes nothing while gradients are bounded.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Lt

import walktalk as wt
from walktalk.protocols import (
    BALANCED,
    GRADIENT,
    HALF,
    MODEL,
    Apply,
    Combine,
    Demand,
    Differentiate,
    Effect,
    Meeting,
    NeighbourRounds,
    NetworkView,
    Rule,
    Trained,
)

TRACKER, LAST, FIRST, SECOND = "tracker", "last", "first", "second"  # y, the last gradient, m and v


# --8<-- [start:protocol]
@wt.register
@dataclass(frozen=True)
class GTAdam(NeighbourRounds):
    """Gossip in rounds in which every node makes Adam's steps along the mean of all gradients, as it tracks it.

    Args:
        beta1: how much of the running mean of gradients is kept, β₁.
        beta2: how much of the running mean of their squares is kept, β₂.
        tau: what is added to the root of that, τ: no number moves faster than η / τ times its gradient.
    """

    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.999
    tau: Annotated[float, Gt(0)] = 1e-3
    title: ClassVar[str] = "GTAdam"
    paper: ClassVar[str] = "Carnevale, Farina, Notarnicola, Notarstefano 2022"
    keeps: ClassVar[str] = "a model, a tracker and Adam's two running means at every node"
    sends: ClassVar[str] = "a model and a tracker to every neighbour in a round"
    guarantees: ClassVar[str] = "trackers sum to the gradients of now"
    family: ClassVar[str] = "gossip"
    kinds: ClassVar[tuple[str, ...]] = ("model", "tracker")
    demands: ClassVar[tuple[Demand, ...]] = (BALANCED,)
    needs_own_gradients: ClassVar[str] = "asks for gradients, not for trained models"

    def rule(self, around: NetworkView) -> Rule:
        return AdamAlongTheTracker(self)


class AdamAlongTheTracker(Rule):
    """`MODEL` is x, `HALF` what is sent of it; `TRACKER` is y, and after an averaging Σ W y."""

    begins_anew: ClassVar[bool] = True  # trackers add up to the gradients of those that mix them

    def __init__(self, settings: GTAdam) -> None:
        self.settings, self.moves, self.lr = settings, False, 0.0

    def begin(self) -> list[Effect]:
        return []

    def work(self) -> Differentiate:
        return Differentiate(MODEL)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        ours, before = self.settings, self.moves
        self.moves, self.lr = True, event.lr
        return [
            Combine(TRACKER, {**({TRACKER: 1.0, LAST: -1.0} if before else {}), GRADIENT: 1.0}),
            Combine(LAST, {GRADIENT: 1.0}),
            Combine(FIRST, {**({FIRST: ours.beta1} if before else {}), TRACKER: 1.0 - ours.beta1}),
            Apply(SECOND, TRACKER, {SECOND: 1.0} if before else {}, f"adam_moment({ours.beta2}, {ours.tau})"),
            Combine(HALF, {MODEL: 1.0}),
            *meeting.send(HALF, "model"),
            *meeting.send(TRACKER, "tracker"),
        ]

    def mix(self, meeting: Meeting) -> list[Effect]:
        row = meeting.mean(HALF, "model")
        return [
            Combine(MODEL, row, row),
            Apply(MODEL, MODEL, {FIRST: -self.lr, SECOND: 0.0}, f"scaled_step({self.settings.tau})"),
            Combine(TRACKER, meeting.mean(TRACKER, "tracker")),
        ]


# --8<-- [end:protocol]


# --8<-- [start:use]
if __name__ == "__main__":
    graph = wt.graphs.small_world(12, degree=4, rewire=0.2, seed=0)
    task = wt.tasks.digits(nodes=12, alpha=0.1)  # very unlike nodes
    for protocol, lr in ((GTAdam(), 0.01), (wt.protocols.GradientTracking(), 0.1), (wt.protocols.LocalDSGD(), 0.1)):
        sgd = wt.SGD(lr=lr, momentum=0.0, nesterov=False)
        run = wt.train(task, protocol, graph, optimizer=sgd, local_steps=1, stop=wt.Stop(iterations=2400))
        last = run.history.iloc[-1]
        print(f"{protocol.label:18} loss {last.train_loss:.2f}, {100 * last.test_accuracy:.0f} %")
# --8<-- [end:use]
