"""Push-Pull where messages and nodes are lost: running sums leave no rest, and the living follow the living."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.unlike import Ended, run
from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import GradientTracking, PushPull
from walktalk.protocols.mechanisms.trees import RootedTree
from walktalk.runtimes.simulator import Fault, FaultPlan

TREE = graphs.binary_tree(7)


def struck(graph: Graph, rounds: int, *faults: Fault, protocol: PushPull | GradientTracking = PushPull()) -> Ended:
    return run(protocol, graph, rounds, faults=FaultPlan(faults, Seed(1)))


def losing(share: float) -> Fault:
    return Fault("lose", at=0.0, share=share)


def optimum_of(ended: Ended, nodes: list[int]) -> np.ndarray:
    a, b = ended.trainer.curvatures[nodes], ended.trainer.centres[nodes]
    return np.asarray((a * b).sum(0) / a.sum(0))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_trackers_with_what_was_not_heard_add_up_to_the_last_gradients(share: float) -> None:
    """After a round: what a leaf tracks is with its parent, or was pushed and not heard."""
    ended, tree = struck(TREE, 23, losing(share)), RootedTree(7, 2)
    total = np.sum([slots["tracker"] for v, slots in enumerate(ended.slots) if tree.below(v)], axis=0)
    for v in range(1, 7):
        (above,) = tree.above(v)
        total = total + ended.slots[v]["pushed"] - ended.slots[above].get(f"heard/{v}", 0.0)
    assert np.allclose(total, np.sum([slots["last"] for slots in ended.slots], axis=0), atol=1e-4)


def test_what_is_lost_leaves_no_rest_where_that_of_gradient_tracking_stays() -> None:
    ours, theirs = (struck(TREE, 800, losing(0.2), protocol=one) for one in (PushPull(), GradientTracking()))
    assert np.abs(ours.members - ours.trainer.optimum()).max() < 1e-3
    assert np.abs(theirs.members - theirs.trainer.optimum()).max() > 1e-2


def test_without_a_leaf_that_is_dead_the_others_come_to_their_own_optimum() -> None:
    ended = struck(TREE, 500, Fault("kill", at=20.5, node=6))
    assert np.abs(ended.members[:6] - optimum_of(ended, [0, 1, 2, 3, 4, 5])).max() < 1e-3


def test_a_dead_node_cuts_the_tree_and_each_part_comes_to_its_own_optimum() -> None:
    """1 is dead: 3 and 4, its children, are roots of what is below them, here of themselves."""
    ended = struck(TREE, 500, Fault("kill", at=20.5, node=1))
    models = dict(zip((0, 2, 3, 4, 5, 6), ended.members, strict=True))
    for part in ([0, 2, 5, 6], [3], [4]):
        for v in part:
            assert np.abs(models[v] - optimum_of(ended, part)).max() < 1e-3


def test_steps_are_divided_by_the_number_of_those_that_are_left() -> None:
    """Down to the last leaf, each a round later; and it is n again when all are back."""
    ended = struck(TREE, 60, Fault("kill", at=20.5, node=1, seconds=20.0))
    steps = {
        (row.node, round(row.time)): -1.0 / row.detail[next(name for name in row.detail if name != "model")] / 10
        for row in ended.trace
        if row.event == "combine" and row.slot == "half"
    }
    assert steps[0, 19] == steps[6, 19] == pytest.approx(7.0)
    assert steps[0, 30] == steps[2, 30] == steps[6, 30] == pytest.approx(4.0)
    assert steps[3, 30] == pytest.approx(1.0)
    assert steps[0, 59] == steps[3, 59] == steps[6, 59] == pytest.approx(7.0)


@pytest.mark.parametrize("node", [0, 1, 6])
def test_who_comes_back_takes_part_again(node: int) -> None:
    ended = struck(TREE, 700, Fault("kill", at=20.5, node=node, seconds=30.0))
    assert np.abs(ended.members - ended.trainer.optimum()).max() < 1e-3


def test_sizes_of_what_is_below() -> None:
    for branches in (1, 2, 3, 5):
        for nodes in (1, 2, 6, 13):
            tree = RootedTree(nodes, branches)
            for v in range(nodes):
                assert tree.size(v) == 1 + sum(tree.size(child) for child in tree.below(v))
            assert tree.size(0) == nodes
