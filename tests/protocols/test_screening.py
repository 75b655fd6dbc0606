"""Screens against bad nodes: the rules' own laws, any protocol behind one in both runtimes, and what a defence buys."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import walktalk as wt
from tests.support.mechanisms import slow_unless
from tests.support.runs import TIMINGS, Played, setup
from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed
from walktalk.protocols import (
    INITIAL,
    MEMBER,
    Apply,
    Combine,
    Context,
    Effect,
    EpidemicLearning,
    Event,
    Machine,
    Message,
    Received,
    Record,
    Send,
    screened,
)
from walktalk.protocols.wrappers.compression import CodedNode
from walktalk.protocols.wrappers.error_feedback import FeedbackNode
from walktalk.protocols.wrappers.screening import MeetingNode, PrivateNode, ScreenedNode
from walktalk.runtimes.simulator import Fault, FaultPlan
from walktalk.studies import make_spec, run_study
from walktalk.testing import check_protocol
from walktalk.testing.cluster import SPOILS, running
from walktalk.transforms.rules import NUMBER_RULES, SCREENS, rule_named, screen_named

NO_KEYS = torch.zeros(1, dtype=torch.int64)


def mixed(rule: str, own: torch.Tensor, others: torch.Tensor, weights: list[float]) -> torch.Tensor:
    return screen_named(rule).mixed(own[None], others[None], torch.tensor([weights]), NO_KEYS, len(own))[0]


def drawn(seed: int, models: int, width: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.randn(models + 1, width, generator=torch.Generator().manual_seed(seed))
    return numbers[0], numbers[1:]


# -- the rules ------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from(["clip(1e6)", "refuse(1e6)"]))
def test_with_a_wide_radius_nothing_is_screened(seed: int, models: int, rule: str) -> None:
    own, others = drawn(seed, models)
    weights = [0.9 / models] * models
    plain = (1 - sum(weights)) * own + sum(w * x for w, x in zip(weights, others, strict=True))
    torch.testing.assert_close(mixed(rule, own, others, weights), plain)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 2.0), st.floats(-1e6, 1e6))
def test_no_attacker_moves_a_node_farther_than_the_radius(seed: int, radius: float, size: float) -> None:
    own, others = drawn(seed, 1)
    for rule in (f"clip({radius})", f"refuse({radius})"):
        moved = mixed(rule, own, size * others, [0.5]) - own
        assert float(moved.norm()) <= 0.5 * radius * float(own.norm()) * (1 + 1e-4)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(-1e20, 1e20))
def test_the_middle_of_several_stays_between_the_honest_ones(seed: int, honest: int, said: float) -> None:
    own, others = drawn(seed, honest)
    bad = torch.full_like(own, said)
    among = torch.cat([own[None], others])
    for rule in ("median", "trim(1)"):
        made = mixed(rule, own, torch.cat([others, bad[None]]), [0.1] * (honest + 1))
        assert bool((made <= among.max(0).values + 1e-5).all())
        assert bool((made >= among.min(0).values - 1e-5).all())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38])
@pytest.mark.parametrize("rule", ["clip", "refuse", "median", "trim", "refuse(inf)"])
def test_what_is_no_number_never_gets_through(rule: str, value: float) -> None:
    own, others = drawn(0, 3)
    others[1, 2] = value
    made = mixed(rule, own, others, [0.25] * 3)
    assert bool(made.isfinite().all())


def witnessed(own: list[float], came: list[float], witnesses: list[list[float]]) -> bool:
    """Whether refuse(1) lets a model through to a node with this model of its own, and these models of others."""
    others = torch.tensor([came, *witnesses])
    made = mixed("refuse(1)", torch.tensor(own), others, [1.0] + [0.0] * len(witnesses))
    return bool(torch.allclose(made, torch.tensor(came)))


def test_two_witnesses_outvote_a_model_that_is_astray_and_two_bad_ones_do_not() -> None:
    good, like, bad = [1.0, 2.0, 0.0], [1.1, 1.9, 0.1], [-1.0, -2.0, 0.0]
    assert witnessed(good, like, [bad, bad])  # near to the own model: nobody is asked
    assert not witnessed(good, bad, [])
    assert not witnessed(good, bad, [like, bad])  # both must agree, so three bad neighbours are needed
    assert witnessed(good, bad, [bad, bad])
    assert witnessed(bad, like, [good, good])  # the way back of a node whose first model was a bad one
    assert not witnessed(good, bad, [[math.nan] * 3, bad])
    assert witnessed([0.0] * 3, bad, [])  # zeros say nothing


def test_the_first_model_must_not_be_the_opposite_of_the_initial_one() -> None:
    own, others = drawn(3, 1)
    assert torch.equal(mixed("facing", own, -own[None] + 0.1 * others, [1.0]), own)
    torch.testing.assert_close(mixed("facing", own, others + own, [1.0]), others[0] + own)
    torch.testing.assert_close(mixed("facing", torch.zeros_like(own), others, [1.0]), others[0])


def test_the_median_of_two_is_their_mean_and_trimming_leaves_somebody() -> None:
    own, others = drawn(1, 1)
    for rule in ("median", "trim(5)"):
        torch.testing.assert_close(mixed(rule, own, others, [0.5]), (own + others[0]) / 2)


def test_private_is_cut_to_its_length_and_the_noise_has_the_size_that_is_said() -> None:
    rows, keys = torch.randn(400, 50) * 10, torch.arange(400)
    nobody, weights = rows.new_empty(400, 0, 50), rows.new_empty(400, 0)
    told = screen_named("private(2, 0)").mixed(rows, nobody, weights, keys, 50)
    torch.testing.assert_close(told.norm(dim=1), torch.full((400,), 2.0))
    noise = screen_named("private(2, 0.5)").mixed(rows, nobody, weights, keys, 50) - told
    assert float(noise.std()) == pytest.approx(1.0, rel=0.03)  # 20,000 numbers: 4 standard errors are 0.02
    assert abs(float(noise.mean())) < 0.03
    short = rows / rows.norm(dim=1, keepdim=True)
    torch.testing.assert_close(screen_named("private(2, 0)").mixed(short, nobody, weights, keys, 50), short)


@pytest.mark.parametrize("text", ["clip(0)", "trim(1.5)", "trim(0)", "private(0, 1)", "median(2)", "nothing"])
def test_a_rule_that_cannot_be_is_refused_in_one_line(text: str) -> None:
    with pytest.raises((SpecError, ValueError), match="screen") as told:
        screen_named(text)
    assert "\n" not in str(told.value)


# -- protocols behind a screen --------------------------------------------------------------------------------------

BEHIND = [
    screened(wt.AsyncGossip(), "clip(0.2)"),
    screened(wt.AsyncGossip(), "refuse(0.1)"),
    screened(wt.SyncGossip(patience=0.4), "median"),
    screened(wt.SyncGossip(patience=0.4), "trim(1)"),
    screened(wt.MultiWalk(walks=3), "refuse(0.2)"),
    screened(EpidemicLearning(), "clip(0.2)"),
]


@pytest.mark.parametrize(
    "protocol",
    [pytest.param(one, marks=slow_unless(one.name in ("multi_walk", "epidemic_learning"))) for one in BEHIND],
    ids=lambda p: p.label,
)
def test_any_protocol_behind_a_screen_is_a_protocol(protocol: wt.Protocol) -> None:
    check_protocol(protocol, engines=("sim",), graph=graphs.complete(6), seconds=3.0)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", BEHIND, ids=lambda p: p.label)
def test_and_so_it_is_on_real_nodes(protocol: wt.Protocol) -> None:
    check_protocol(protocol, engines=("peers",), graph=graphs.complete(6))


class Knows(Machine):
    """A node that answers whatever it is asked in its own way."""

    def handle(self, event: Event, context: Context) -> list[Effect]:
        return []

    def refused(self, sender: int, message: Message, context: Context) -> list[Effect]:
        return [Send(sender, message)]

    def has_work(self) -> bool:
        return False

    def keepsake(self) -> bytes:
        return b"kept"

    def farewell(self) -> bytes:
        return b"left"


@pytest.mark.parametrize(
    "around",
    [
        lambda inner: ScreenedNode(inner, "clip", 3),
        lambda inner: MeetingNode(inner, "median"),
        lambda inner: PrivateNode(inner, "private"),
        lambda inner: CodedNode(inner, {}, "int8"),
        lambda inner: FeedbackNode(inner, {}, "int8", ()),
    ],
)
def test_whatever_is_wrapped_around_a_node_asks_it_everything(around: Callable[[Machine], Machine]) -> None:
    node, context = around(Knows()), Context(0.0, random.Random(0))
    assert node.refused(3, Message("walk"), context) == [Send(3, Message("walk"))]
    assert not node.has_work()
    assert node.keepsake().endswith(b"kept")
    assert node.farewell().endswith(b"left")


class Takes(Machine):
    """A node that takes every message but those of round 9."""

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Received) and event.message.round == 9:
            raise ValueError("not this one")
        return []


def test_witnesses_are_what_came_last_from_two_others() -> None:
    node, context = ScreenedNode(Takes(), "refuse", 5), Context(0.0, random.Random(0))
    seen: list[set[int]] = []
    holds: dict[str, int] = {}  # slot -> whose model is in it
    for sender in (0, 0, 1, 2, 0, 3, 4, 4):
        holds["in"] = sender
        for effect in node.handle(Received(sender, Message("walk"), "in"), context):
            if isinstance(effect, Combine):
                holds[effect.into] = holds["in"]
            elif isinstance(effect, Apply):
                seen.append({holds[slot] for slot, weight in effect.terms.items() if not weight})
    assert seen == [set(), set(), set(), {0, 1}, {1, 2}, {2, 0}, {0, 3}, {0, 3}]
    assert len(holds) == 4  # three models are kept at most
    with pytest.raises(ValueError, match="not this one"):
        node.handle(Received(1, Message("walk", round=9), "in"), context)
    _, judged = node.handle(Received(2, Message("walk"), "in"), context)
    assert isinstance(judged, Apply)
    assert {holds[slot] for slot, weight in judged.terms.items() if not weight} == {3, 4}  # 1 left nothing behind


class Trains(Machine):
    """A node that puts out what came, trained."""

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Received):
            return [Combine("model", {event.slot: 2.0}), Record(MEMBER, 0, "model")]
        return []


@pytest.mark.parametrize(("as_it_came", "own"), [(True, 3.0), (False, 6.0)])
def test_a_model_that_travels_is_compared_with_the_last_as_it_came_and_others_with_what_was_put_out(
    as_it_came: bool, own: float
) -> None:
    node, context = ScreenedNode(Trains(), "clip", 3, as_it_came), Context(0.0, random.Random(0))
    holds = {INITIAL: 1.0}
    compared = []
    for came in (3.0, 4.0):
        holds["in"] = came
        for effect in node.handle(Received(1, Message("walk"), "in"), context):
            if isinstance(effect, Combine):
                holds[effect.into] = sum(weight * holds[slot] for slot, weight in effect.terms.items())
            elif isinstance(effect, Apply):
                compared.append(holds[effect.own])
    assert compared == [1.0, own]


def test_walks_have_hosts_and_gossip_has_nodes_with_models() -> None:
    assert screened(wt.MultiWalk(), "refuse").models_travel
    assert not screened(wt.AsyncGossip(), "refuse").models_travel


def test_what_cannot_be_screened_is_told() -> None:
    with pytest.raises(SpecError, match="no several meet"):
        screened(wt.MultiWalk(), "median")
    with pytest.raises(SpecError, match="sends no models"):
        screened(wt.Centralized(), "clip")
    assert screened(wt.MultiWalk(), "none") == wt.MultiWalk()
    assert set(SCREENS) >= {"clip", "refuse", "median", "trim", "private"}
    assert not set(SCREENS) & set(NUMBER_RULES)  # those protect from nobody
    assert {rule_named(name).name for name in (*SCREENS, *NUMBER_RULES)} == {*SCREENS, *NUMBER_RULES}
    with pytest.raises(SpecError, match="a beta of at least 0 and below 1"):
        rule_named("adam_moment(2)")
    with pytest.raises(SpecError, match="screen: 'nothing' is not possible"):
        rule_named("nothing")


# -- bad nodes --------------------------------------------------------------------------------------------------------


def ends(faults: list[dict[str, object]], algorithms: list[dict[str, object]]) -> dict[str, float]:
    """The losses at the end of a study of 12 nodes, by label."""
    spec = make_spec(
        {
            "name": "bad",
            "network": {"topology": "complete", "nodes": 12},
            "task": {"name": "digits", "alpha": 10.0},
            "algorithms": algorithms,
            "stop": {"iterations": 720},
            "evaluate": {"every": 720},
            "faults": faults,
        }
    )
    history = run_study(spec).history
    last = history.sort_values("iteration").groupby("algorithm").tail(1)
    return dict(zip(last["algorithm"], last["train_loss"], strict=True))


def test_a_bad_node_destroys_what_is_plain_and_hardly_harms_what_is_screened() -> None:
    algorithms = [
        {"name": name, **more, **screen}
        for name, more in (("async_gossip", {}), ("sync_gossip", {}), ("multi_walk", {"walks": 3}))
        for screen in ({}, {"screen": "refuse(1)"})
    ]
    clean = ends([], algorithms)
    flipped = ends([{"kind": "corrupt", "at": 0, "nodes": [3]}], algorithms)
    for label, loss in clean.items():
        if "refuse" in label:
            assert flipped[label] < 2.5 * loss, label  # walks lose the way that they have come since the last copy
        else:
            assert flipped[label] > 5 * loss, label


def test_an_attack_that_ends_is_over() -> None:
    """For the first moments only; afterwards everybody learns as ever."""
    gossip = [{"name": "async_gossip"}]
    brief = ends([{"kind": "corrupt", "at": 0, "seconds": 2.0, "node": 0}], gossip)
    lasting = ends([{"kind": "corrupt", "at": 0, "node": 0}], gossip)
    assert min(brief.values()) < 0.5 * min(lasting.values())


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"kind": "corrupt", "at": 0}, "either node or nodes"),
        ({"kind": "corrupt", "at": 0, "node": 3, "how": "nicely"}, "flip, scale, noise"),
        ({"kind": "corrupt", "at": 0, "nodes": [99]}, "there is no node 99"),
    ],
)
def test_a_wrong_attack_is_one_line(fault: dict[str, object], said: str) -> None:
    with pytest.raises(wt.UserError, match=said):
        ends([fault], [{"name": "async_gossip"}])


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(
        [
            screened(wt.AsyncGossip(), "clip(0.3)"),
            screened(wt.MultiWalk(walks=2), "refuse(0.8)"),
            screened(wt.SyncGossip(), "trim(1)"),
            screened(wt.SyncGossip(), "median"),
            wt.AsyncGossip(),
        ]
    ),
    st.integers(0, 10**6),
    st.sampled_from(TIMINGS),
)
def test_attacks_and_screens_are_replayed_from_the_trace(protocol: wt.Protocol, seed: int, timing: Any) -> None:
    """A run with bad nodes, recomputed in NumPy from its trace, ends with the same model."""
    attack = FaultPlan((Fault("corrupt", at=0.0, node=1), Fault("corrupt", at=2.0, node=2, how="scale", factor=1.5)))
    played = Played(setup(protocol, graphs.complete(5), seed=Seed(seed), timing=timing, faults=attack))
    assert "corrupted" in {row.event for row in played.trace}
    np.testing.assert_allclose(played.output, played.replay().play(played.trace).output(), rtol=1e-3, atol=1e-3)


def test_real_nodes_can_be_bad_too_and_their_run_is_replayed(tmp_path: Path) -> None:
    """One of five real nodes flips the signs of what it sends; the others refuse it, and the trace says all of it."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / SPOILS).write_text("flip\n")
    protocol = screened(wt.AsyncGossip(), "refuse(1)")
    with running(protocol, graphs.complete(5), tmp_path, wt.Stop(iterations=150)) as cluster:
        cluster.wait()
    spoiled = {row.node for row in cluster.trace() if row.event == "corrupted"}
    assert spoiled == {1}
    members = cluster.replay().members
    for v, node in enumerate(cluster.nodes):
        (kept,) = node.models.interpreter.output.members.values()
        np.testing.assert_allclose(kept.double().numpy(), members[v], rtol=1e-3, atol=1e-3)
