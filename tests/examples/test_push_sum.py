"""The laws of push-sum, on its effects alone: models are numbers here, and messages arrive in any order."""

from __future__ import annotations

import random
import runpy
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from walktalk.protocols import INITIAL, UPDATE, Combine, Context, Forget, NetworkView, Received, Send, Started, Trained
from walktalk.testing import check_protocol

push_sum = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "push_sum.py"))
SUM, MODEL = push_sum["SUM"], push_sum["MODEL"]
NODES = 4


class World:
    """Complete graph, a number for each model, and the messages that are under way."""

    def __init__(self, seed: int) -> None:
        protocol, self.dice = push_sum["PushSum"](), random.Random(seed)
        others = [tuple(n for n in range(NODES) if n != v) for v in range(NODES)]
        self.machines = [protocol.machine(NetworkView(v, NODES, others[v], (3, 3, 3))) for v in range(NODES)]
        self.slots = [{INITIAL: 10.0 * v} for v in range(NODES)]
        self.flying: list[tuple[int, Received, float]] = []
        for v in range(NODES):
            self.tell(v, Started())

    def tell(self, node: int, event: object) -> None:
        slots = self.slots[node]
        for effect in self.machines[node].handle(event, Context(0.0, self.dice)):
            if isinstance(effect, Combine):
                slots[effect.into] = sum(weight * slots[slot] for slot, weight in effect.terms.items())
            elif isinstance(effect, Send):
                arrival = Received(node, effect.message, f"share/{node}")
                self.flying.append((effect.to, arrival, slots[effect.slot]))
            elif isinstance(effect, Forget):
                del slots[effect.slot]

    def arrive(self, which: int) -> None:
        to, event, value = self.flying.pop(which % len(self.flying))
        self.slots[to][event.slot] = value
        self.tell(to, event)

    def sums(self) -> float:
        return sum(slots[SUM] for slots in self.slots) + sum(value for _, _, value in self.flying)

    def weights(self) -> float:
        import struct

        return sum(machine.weight for machine in self.machines) + sum(
            struct.unpack("<d", event.message.note)[0] for _, event, _ in self.flying
        )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, NODES), st.integers(0, 50)), max_size=60), st.integers(0, 99))
def test_weights_stay_and_sums_change_only_by_what_is_learned(steps, seed):
    world = World(seed)
    begun = learned = world.sums()
    for node, which in steps:
        if node < NODES:
            weight = world.machines[node].weight
            world.slots[node][UPDATE] = float(which)
            world.tell(node, Trained(MODEL))
            learned += weight * which
        elif world.flying:
            world.arrive(which)
        assert abs(world.weights() - NODES) < 1e-9
        assert abs(world.sums() - learned) < 1e-6 * max(1.0, abs(learned))
    assert begun == 60.0


def test_without_learning_all_nodes_agree_on_the_mean():
    world = World(seed=1)
    for _ in range(60):
        for node in range(NODES):
            world.slots[node][UPDATE] = 0.0
            world.tell(node, Trained(MODEL))
        while world.flying:
            world.arrive(0)
    assert all(abs(slots[MODEL] - 15.0) < 1e-6 for slots in world.slots)


def test_it_passes_what_every_protocol_has_to_pass():
    check_protocol(push_sum["PushSum"](), engines=("sim",))
