"""The asynchronous protocols: the law that defines each, their special cases, and where they end on unlike data."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.support.unlike import LR, Ended, run
from walktalk import graphs
from walktalk.core.errors import UserError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import (
    AGRAF,
    HEADER_BYTES,
    OSGP,
    SGP,
    SWIFT,
    A2CiD2,
    AsyncGossip,
    AsyncSGD,
    DivShare,
    FedAsync,
    FedBuff,
    NetworkView,
    Protocol,
    StreamingDiLoCo,
    SwarmSGD,
)
from walktalk.protocols.gossip.a2cid2 import constants
from walktalk.protocols.gossip.swift import Mailboxes
from walktalk.protocols.machine import Context
from walktalk.protocols.mechanisms.asynchronous_server import Damping, Staleness
from walktalk.protocols.mechanisms.free_loops import Clock
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import NetworkTiming, PoissonTiming, RunSetup, Simulation, Timing
from walktalk.transforms.codecs import codec_named

UNEVEN = NetworkTiming(compute=1.0, spread=0.4, straggler_share=0.3, straggler_slowdown=3.0, latency=0.4)


def trainings(ended: Ended) -> int:
    """How many there were."""
    return sum(row.event == "trained" for row in ended.trace)


# -- overlap stochastic gradient push ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "graph", [graphs.exponential(8), graphs.one_peer_exponential(8), graphs.random_matchings(5)], ids=lambda g: g.name
)
def test_osgp_without_delay_is_sgp(graph: Graph) -> None:
    """And so, with doubly stochastic weights, D-PSGD."""
    ours, theirs = (run(protocol, graph, 9) for protocol in (OSGP(delay=0), SGP()))
    assert np.allclose(ours.members, theirs.members, atol=1e-5)
    assert ours.bits == theirs.bits


def test_osgp_conserves_sum_and_weight_with_what_is_on_the_way() -> None:
    graph = Graph.from_arcs(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (0, 3)], "lopsided")
    ended = run(OSGP(delay=3), graph, 40, timing=UNEVEN, lr=0.0)
    start = ended.trainer.initial().double().numpy()
    assert np.allclose(ended.members, start, atol=1e-5)  # x and w are always the same multiple of the start


def test_osgp_does_not_wait_and_sgp_does() -> None:
    far = NetworkTiming(compute=1.0, latency=0.8)
    goes_on, waits = (trainings(run(protocol, graphs.exponential(6), 20, timing=far)) for protocol in (OSGP(), SGP()))
    assert goes_on == 6 * 20
    assert waits < 0.6 * goes_on


# -- gossip that overlaps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mixing", ["pairwise", "neighbourhood"])
def test_gossip_that_overlaps_trains_while_answers_are_on_the_way(mixing: str) -> None:
    far = NetworkTiming(compute=1.0, latency=0.5)
    waits, goes_on = (
        run(AsyncGossip(mixing, overlap=overlap, resilient=False), graphs.cycle(6), 20, timing=far)  # type: ignore[arg-type]
        for overlap in (False, True)
    )
    assert (trainings(waits), trainings(goes_on)) == (6 * 10, 6 * 20)


# -- where they end on unlike data ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "protocol",
    [OSGP(), AsyncGossip(overlap=True, resilient=False), SwarmSGD(blocking=True), SWIFT(), AsyncSGD(), AGRAF()],
    ids=lambda protocol: protocol.label,
)
def test_it_comes_near_the_optimum_and_stays_beside_it(protocol: Protocol) -> None:
    """With a constant step gossip is biased by how unlike the data are, and the more so the larger the step."""
    graph = graphs.exponential(6) if protocol.on_directed_graphs else graphs.cycle(6)
    graph = graphs.star(6) if protocol.made_for else graph
    far, near = (
        np.abs(ended.members.mean(0) - ended.trainer.optimum()).max()
        for ended in (run(protocol, graph, 400, lr=lr) for lr in (0.2, 0.02))
    )
    assert 1e-3 < near < 0.5 * far


@pytest.mark.parametrize(
    ("protocol", "graph"),
    [
        (FedAsync(), graphs.star(6)),
        (SwarmSGD(codec="int8"), graphs.cycle(6)),
        (A2CiD2.fitted(graphs.cycle(6)), graphs.cycle(6)),
        (StreamingDiLoCo(), graphs.star(6)),
    ],
    ids=lambda one: getattr(one, "label", one.name),
)
def test_what_no_theory_calls_exact_is_not(protocol: Protocol, graph: Graph) -> None:
    """Near the optimum, and never there: FedAsync for whoever came last, the others for how unlike the data are."""
    ended = run(protocol, graph, 120, lr=0.2)
    assert np.abs(ended.members - ended.trainer.optimum()).max() > 1e-2
    assert np.abs(ended.members.mean(0) - ended.trainer.optimum()).max() < 0.5


def test_streaming_diloco_of_one_step_whose_fragments_wait_for_nothing_is_exact() -> None:
    """Everybody's gradient at one model: momentum SGD on the mean. A fragment that trains on meanwhile is not."""
    exact, late = (
        run(StreamingDiLoCo(1, fragments=parts, delay=0, alpha=0.0, outer_momentum=0.5), graphs.star(6), 200)
        for parts in (1, 3)
    )
    assert np.abs(exact.members - exact.trainer.optimum()).max() < 1e-4
    assert np.abs(late.members - late.trainer.optimum()).max() > 1e-2


# -- DivShare ---------------------------------------------------------------------------------------------------------


def test_where_all_fragments_go_to_all_it_is_gossip_that_does_not_wait() -> None:
    """Whatever P is; what comes during a training is mixed in before the next: y ← T(mean of y_i and older y_j)."""
    graph, rounds = graphs.complete(5), 12
    whole, parts = (run(DivShare(fragments=p, peers=4), graph, rounds) for p in (1, 3))
    trainer = whole.trainer
    x = np.repeat(trainer.initial().double().numpy()[None], 5, 0)
    before, y = np.zeros_like(x), x - LR * trainer.gradients(x)
    for t in range(1, rounds):
        mixed = y if t == 1 else (y + before.sum(0) - before) / 5
        before, y = y, mixed - LR * trainer.gradients(mixed)
    last = (y + before.sum(0) - before) / 5
    assert np.allclose([slots["model"] for slots in whole.slots], last, atol=1e-5)
    assert np.allclose(parts.members, last, atol=1e-5)


def test_fragments_cost_what_j_models_cost_and_reach_more_nodes() -> None:
    graph, size = graphs.complete(9), 12
    whole, parts = (run(DivShare(fragments=p, peers=2), graph, 6) for p in (1, 3))
    for ended, fragments in ((whole, 1), (parts, 3)):
        sends = [row for row in ended.trace if row.event == "send"]
        assert len(sends) == 6 * 9 * 2 * fragments
        assert ended.bits == 8 * (6 * 9 * 2 * size + HEADER_BYTES * len(sends))
    heard = [len({(row.node, row.peer) for row in ended.trace if row.event == "receive"}) for ended in (whole, parts)]
    assert heard[1] > heard[0]


# -- SwarmSGD ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timing", [NetworkTiming(compute=1.0, latency=0.001), UNEVEN, PoissonTiming()])
def test_blocking_swarm_with_one_step_is_random_pairwise_gossip(timing: Timing) -> None:
    """Replayed as nothing but gradient steps and exact means of pairs, neither of which trains meanwhile."""
    ended = run(SwarmSGD(steps=1, blocking=True), graphs.erdos_renyi(7, p=0.5, seed=3), 30, timing=timing)
    x = np.repeat(ended.trainer.initial().double().numpy()[None], 7, 0)
    steps, open_, pairs = np.zeros(7, int), {}, 0
    for row in ended.trace:
        if row.event == "trained":
            x[row.node] -= LR * ended.trainer.gradients(x)[row.node]
            steps[row.node] += 1
        elif row.event == "combine" and row.slot == "model" and len(row.detail) == 2 and "update" not in row.detail:
            partner = int(next(slot for slot in row.detail if "/" in slot).split("/")[1])
            if open_.pop(partner, None) != row.node:  # the first of the two; the other waits for its model
                open_[row.node], pairs = partner, pairs + 1
                x[row.node] = x[partner] = (x[row.node] + x[partner]) / 2
    assert pairs > 20
    assert steps.min() > 0.3 * steps.mean()  # nobody starves
    settled = [v for v in range(7) if v not in open_.values()]
    assert np.allclose(ended.members[settled], x[settled], atol=1e-4)


@pytest.mark.parametrize("graph", [graphs.cycle(6), graphs.complete(7), graphs.star(6), graphs.path(5)], ids=str)
def test_nobody_waits_in_a_circle(graph: Graph) -> None:
    """All end their first training at once, so that circles of those who ask each other are likely."""
    for seed in range(10):
        timing = NetworkTiming(compute=1.0, latency=0.001, spread=0.0 if seed < 8 else 0.2)
        setup = RunSetup(SwarmSGD(blocking=True), graph, Seed(seed), Stop(time=60.0), timing, model_bytes=12)
        trace = Simulation(replace(setup, keep_schedule=False)).advance().trace
        last = {row.node: row.time for row in trace if row.event == "trained"}
        assert min(last[v] for v in range(graph.nodes)) > 40.0


def test_blocking_swarm_of_two_is_data_parallel_sgd() -> None:
    ended = run(SwarmSGD(blocking=True), graphs.complete(2), 8)
    x = ended.trainer.initial().double().numpy()
    for _ in range(8):
        x = x - LR * ended.trainer.gradients(np.repeat(x[None], 2, 0)).mean(0)
    assert np.allclose(ended.members, x, atol=1e-5)


def test_where_things_may_fail_blocking_partners_have_done_their_steps_too() -> None:
    """No model changes while it is trained, and nobody starves; on the star all others ask the one in the middle."""
    for graph in (graphs.star(6), graphs.complete(7)):
        ended = run(SwarmSGD(blocking=True, resilient=True), graph, 40, timing=UNEVEN)
        trains, mixed = set(), 0
        for row in ended.trace:
            if row.event in ("train", "trained"):
                (trains.add if row.event == "train" else trains.discard)(row.node)
            elif row.event == "combine" and row.slot == "model" and "update" not in row.detail:
                assert row.node not in trains
                mixed += 1
        counts = Counter(row.node for row in ended.trace if row.event == "trained")
        assert mixed > 80
        assert min(counts[v] for v in range(graph.nodes)) > 8


def test_swarm_without_blocking_is_gossip_that_overlaps() -> None:
    swarm, gossip = (
        run(protocol, graphs.cycle(6), 25, timing=UNEVEN)
        for protocol in (SwarmSGD(steps=1, resilient=False), AsyncGossip(overlap=True, resilient=False))
    )
    assert np.array_equal(swarm.members, gossip.members)


def test_local_steps_are_geometric_with_their_mean() -> None:
    ended = run(SwarmSGD(steps=4, random_steps=True, resilient=False), graphs.cycle(6), 200)
    drawn = [row.detail["steps"] for row in ended.trace if row.event == "train"]
    assert min(drawn) == 1
    assert np.mean(drawn) == pytest.approx(4.0, rel=0.15)  # five standard deviations
    assert np.mean(np.array(drawn) == 1) == pytest.approx(0.25, abs=0.07)


@pytest.mark.parametrize("timing", [NetworkTiming(compute=1.0, latency=0.001), UNEVEN])
def test_quantized_swarm_keeps_the_same_points_of_reference_at_both_ends(timing: Timing) -> None:
    graph = graphs.erdos_renyi(6, p=0.5, seed=2)
    ended = run(SwarmSGD(codec="int4"), graph, 40, timing=timing)
    same = [
        np.allclose(ended.slots[v][f"shown/{u}"], ended.slots[u][f"seen/{v}"], atol=1e-5)
        for v in range(6)
        for u in graph.neighbours(v)
    ]
    assert np.mean(same) > 0.6  # the others have a message on the way
    apart = [ended.slots[u][f"seen/{v}"] - ended.members[v] for v in range(6) for u in graph.neighbours(v)]
    assert np.abs(apart).max() < 3.0


def test_32_bits_change_nothing_and_8_bits_send_a_quarter() -> None:
    """`part(0, 1)` sends all numbers as they are."""
    plain, whole, few = (
        run(SwarmSGD(codec=codec, resilient=False), graphs.cycle(6), 20) for codec in ("", "part(0, 1)", "int8")
    )
    assert np.allclose(plain.members, whole.members, atol=1e-4)
    assert plain.bits == whole.bits
    assert few.bits < plain.bits
    assert codec_named("int8").size(10**6) < 0.26 * codec_named("part(0, 1)").size(10**6)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"random_steps": True}, "the mean of them"),
        ({"blocking": True, "codec": "int8"}, "set blocking to false"),
        ({"codec": "nonsense"}, "codec"),
    ],
)
def test_swarm_says_what_cannot_be(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        SwarmSGD(**settings)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


# -- SWIFT ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speeds", [[1, 1, 1, 1, 1, 1], [1, 2, 3, 4, 5, 6], [100, 1, 1, 7, 1, 50]])
def test_the_expected_mixing_of_swift_is_doubly_stochastic(speeds: list[int]) -> None:
    """Node i mixes with probability p_i, and then its row alone is not that of the identity."""
    graph, p = graphs.erdos_renyi(6, p=0.5, seed=2), np.array(speeds) / sum(speeds)
    expected = np.zeros((6, 6))
    for i in range(6):
        around = NetworkView(i, 6, graph.neighbours(i), tuple(len(graph.neighbours(j)) for j in graph.neighbours(i)))
        node = Mailboxes(around, 1)
        node.steps, node.theirs = speeds[i], {j: speeds[j] for j in graph.neighbours(i)}
        w = np.eye(6)
        for j, weight in node.row().items():
            w[i, j] = weight
            w[i, i] -= weight
        assert (w >= 0).all()
        expected += p[i] * w
    assert np.allclose(expected.sum(0), 1.0)
    assert np.allclose(expected.sum(1), 1.0)
    assert np.allclose(expected, expected.T)


def test_swift_never_waits_and_sends_to_all_neighbours_after_every_step() -> None:
    far = NetworkTiming(compute=1.0, latency=5.0)
    ended = run(SWIFT(), graphs.cycle(6), 20, timing=far)
    assert trainings(ended) == 6 * 20
    assert sum(row.event == "send" for row in ended.trace) == 2 * 6 * 20


def test_swift_mixes_what_lies_in_the_mailboxes() -> None:
    """All in step: what lies there is everybody's model of the step before."""
    graph, every = graphs.cycle(5), 2
    ended = run(SWIFT(every=every), graph, 9)
    x = np.repeat(ended.trainer.initial().double().numpy()[None], 5, 0)
    w = sum((np.roll(np.eye(5), k, 0) for k in (-1, 0, 1)), np.zeros((5, 5))) / 3
    for t in range(1, 10):
        x = (w if t % every == 0 else np.eye(5)) @ x - LR * ended.trainer.gradients(x)
    assert np.allclose(ended.members, x, atol=1e-5)


# -- with a server ----------------------------------------------------------------------------------------------------

STAR = graphs.star(6)


def replayed(protocol: FedAsync | FedBuff, ended: Ended) -> np.ndarray:
    """The server's model by the paper's rule, in the order in which things came."""
    start = {v: (ended.trainer.initial().double().numpy(), 0) for v in range(6)}
    x, version, buffer, sent = start[0][0], 0, [], {}
    for row in ended.trace:
        if row.event == "receive" and row.node:
            start[row.node] = sent[row.node]
        if row.node or row.event not in ("trained", "receive"):
            continue
        v = 0 if row.event == "trained" else row.peer
        began, of = start[v]
        change = -LR * ended.trainer.curvatures[v] * (began - ended.trainer.centres[v])
        s = (1 + version - of) ** -0.5
        if isinstance(protocol, FedAsync):
            share = protocol.alpha * s
            x = (1 - share) * x + share * (began + change) if protocol.mixes == "model" else x + share * change
            version += 1
        else:
            buffer.append(s * change)
            if len(buffer) == protocol.buffer:
                x, version, buffer = x + protocol.server_rate * np.mean(buffer, 0), version + 1, []
        if v:
            sent[v] = x, version
        else:
            start[0] = x, version
    return np.asarray(x)


@pytest.mark.parametrize(
    "protocol", [FedAsync(), FedAsync(mixes="change"), FedBuff(), FedBuff(buffer=1), FedBuff(server_rate=0.5)]
)
def test_the_server_goes_by_the_rule_in_the_order_in_which_things_come(protocol: FedAsync | FedBuff) -> None:
    ended = run(protocol, STAR, 25, timing=UNEVEN)
    assert np.allclose(ended.output, replayed(protocol, ended), atol=1e-4)


def test_a_buffer_of_one_is_fedasync_and_without_damping_asynchronous_sgd() -> None:
    def end(protocol: Protocol) -> np.ndarray:
        return run(protocol, STAR, 20, timing=UNEVEN).members

    fedasync, damped = FedAsync(alpha=0.6, mixes="change"), FedBuff(buffer=1, server_rate=0.6)
    assert np.allclose(end(damped), end(fedasync), atol=1e-5)
    assert np.allclose(end(FedBuff(buffer=1, staleness="constant")), end(AsyncSGD()), atol=1e-5)


def test_asynchronous_sgd_adds_every_gradient_once() -> None:
    ended = run(AsyncSGD(), STAR, 30)
    assert trainings(ended) == 6 * 30
    learned = [row for row in ended.trace if row.event == "combine" and row.node == 0 and row.slot == "model"]
    assert len(learned) == 1 + 6 * 30  # the initial model, and every gradient
    assert all(row.detail == {"model": 1.0, "buffer": 1.0} for row in learned[1:])


@pytest.mark.parametrize("protocol", [AsyncSGD(), FedBuff(), FedAsync()], ids=lambda p: p.label)
def test_on_a_tree_results_and_answers_are_handed_on(protocol: AsyncSGD | FedBuff | FedAsync) -> None:
    """Of each node along as many links as it is away; on a star that is what it is anyway."""
    rounds, path = 20, graphs.path(5)
    plain, star = (run(replace(protocol, tree=tree), STAR, rounds) for tree in (False, True))
    assert np.allclose(plain.output, star.output, atol=1e-5)
    ended = run(replace(protocol, tree=True, server=1), path, rounds, timing=UNEVEN)
    taken = [row for row in ended.trace if row.event == "receive" and row.node == 1 and row.slot.startswith("result/")]
    for node, far in ((0, 1), (2, 1), (3, 2), (4, 3)):
        learned = sum(row.event == "trained" and row.node == node for row in ended.trace)
        handed = sum(row.event == "send" and row.slot.endswith(f"/{node + 1}") for row in ended.trace)  # by others
        at_server = sum(row.slot == f"result/{node + 1}" for row in taken)
        assert learned - 1 <= at_server <= learned
        assert (
            abs(handed - (2 * far - 2) * at_server) <= 2 * far
        )  # it sends its own from another slot, so does the server
    assert all(row.peer in path.neighbours(row.node) for row in ended.trace if row.event == "send")


@pytest.mark.parametrize(
    ("kind", "late", "counts"), [("constant", 9, 1.0), ("polynomial", 3, 0.5), ("hinge", 4, 1.0), ("hinge", 6, 0.5)]
)
def test_what_is_late_counts_less(kind: Staleness, late: int, counts: float) -> None:
    assert Damping(kind, 0.5, 4)(late) == pytest.approx(counts)


def test_a_buffer_with_one_of_everybody_reaches_the_optimum_and_a_smaller_one_does_not() -> None:
    """As long as all are equally fast."""
    whole, part = (run(FedBuff(buffer=buffer, staleness="constant", steps=1), STAR, 300) for buffer in (6, 1))
    assert np.abs(whole.output - whole.trainer.optimum()).max() < 1e-4
    assert np.abs(part.output - part.trainer.optimum()).max() > 1e-3


# -- two free loops ---------------------------------------------------------------------------------------------------


def test_agraf_without_talk_is_local_sgd() -> None:
    ended = run(AGRAF(talks=1e-9), graphs.cycle(5), 12)
    x = np.repeat(ended.trainer.initial().double().numpy()[None], 5, 0)
    for _ in range(12):
        x = x - LR * ended.trainer.gradients(x)
    assert np.allclose(ended.members, x, atol=1e-5)


def test_a_first_training_that_happens_to_be_short_does_not_let_a_node_talk_without_end() -> None:
    """Poisson timing has such: one in a hundred is a hundred times as short as usual."""
    clock, bits = Clock(talks=1.0), random.Random(0)
    now, begun = 1e-4, 0
    clock.completed(now)
    timer = clock.next_talk(Context(now, bits))
    while (now := now + timer.after) < 1.0:  # the second training is under way
        begun += 1
        timer = clock.next_talk(Context(now, bits))
    assert begun < 30


def test_what_is_sent_is_two_models_a_training_also_where_each_takes_another_time() -> None:
    """Waits that are in proportion to an average of eight trainings made it 7 % more in Poisson timing."""
    setup = RunSetup(AGRAF(), graphs.cycle(8), Seed(1), Stop(iterations=16_000), PoissonTiming(), model_bytes=40_000)
    simulation = Simulation(replace(setup, keep_schedule=False, keep_trace=False))
    simulation.advance()
    assert simulation.bytes / 40_000 / simulation.iteration == pytest.approx(2.0, rel=0.03)


@pytest.mark.parametrize(("chi1", "chi2"), [(1.0, 1.0), (8.0, 2.0)])
def test_a2cid2_mixes_with_its_momentum_as_its_differential_equation_says(chi1: float, chi2: float) -> None:
    """d(x, x̃) = η (−1 1; 1 −1) (x, x̃) dt with η = 1 / (2 √(χ₁χ₂)), integrated in small steps."""
    rule = A2CiD2(chi1=chi1, chi2=chi2).machine(NetworkView(0, (1,), (1,), 2)).rule
    ours = {"model": 1.0, "tilde": 0.0, "before": 0.0}
    for effect in rule.drift(0.7):
        ours[effect.into] = sum(weight * ours[slot] for slot, weight in effect.terms.items())
    x, tilde, eta, steps = 1.0, 0.0, 0.5 / np.sqrt(chi1 * chi2), 20_000
    for _ in range(steps):
        x, tilde = x + eta * (tilde - x) * 0.7 / steps, tilde + eta * (x - tilde) * 0.7 / steps
    assert ours["model"] == pytest.approx(x, abs=1e-4)
    assert ours["tilde"] == pytest.approx(tilde, abs=1e-4)
    assert rule.alpha == pytest.approx(0.5 * np.sqrt(chi1 / chi2))


@pytest.mark.parametrize("protocol", [AGRAF(), A2CiD2()])
def test_there_are_as_many_exchanges_as_trainings_whatever_each_takes(protocol: Protocol) -> None:
    shares = []
    for seed in range(6):
        setup = RunSetup(
            protocol, graphs.complete(8), Seed(seed), Stop(iterations=400), PoissonTiming(), model_bytes=12
        )
        trace = Simulation(replace(setup, keep_schedule=False)).advance().trace
        shares.append(sum(row.event == "send" for row in trace) / 2 / 400)
    assert 0.85 < np.mean(shares) < 1.2
    assert max(shares) < 1.4


def test_agraf_that_talks_much_is_asynchronous_sgd_on_one_model() -> None:
    """Gradients are ready at any time, and each moves the one model of all by −ηg/n."""
    n, timing = 4, NetworkTiming(compute=1.0, spread=0.5, latency=1e-6)
    ended = run(AGRAF(talks=150.0), graphs.complete(n), 12, timing=timing)
    x = ended.trainer.initial().double().numpy()
    began = dict.fromkeys(range(n), x)
    for row in ended.trace:
        if row.event == "trained":
            gradient = ended.trainer.curvatures[row.node] * (began[row.node] - ended.trainer.centres[row.node])
            x = x - LR * gradient / n
            began[row.node] = x
    apart = np.abs(ended.members - x).max()
    assert apart < 0.25 * LR * 5.0  # of a single step: the first trainings of all end before anybody talks


def test_agraf_that_talks_much_with_all_in_step_is_d_sgd_with_exact_averages() -> None:
    ended = run(AGRAF(talks=300.0), graphs.complete(4), 6, timing=NetworkTiming(compute=1.0, latency=1e-6))
    assert np.abs(ended.members - ended.members.mean(0)).max() < 1e-4


def test_the_constants_of_a_graph() -> None:
    """On the complete graph both are (n − 1)/(2n); on the cycle χ₁ grows with n², χ₂ with n."""
    chi1, chi2 = constants(graphs.complete(8), 1.0)
    assert (chi1, chi2) == pytest.approx((7 / 16, 7 / 16))
    chi1, chi2 = constants(graphs.cycle(16), 1.0)
    assert chi1 == pytest.approx(1 / (2 * (1 - np.cos(2 * np.pi / 16))))
    assert chi2 == pytest.approx(0.5 * 15 / 16)


def test_on_the_complete_graph_the_momentum_of_communication_is_none() -> None:
    graph = graphs.complete(5)
    with_, without = (run(p, graph, 20, timing=UNEVEN).members for p in (A2CiD2.fitted(graph), AGRAF()))
    assert np.allclose(with_, without, atol=1e-5)


def test_a_momentum_of_communication_agrees_sooner() -> None:
    """Without gradients, after a few steps: √(χ₁χ₂) instead of χ₁, on a cycle of 24 several times as fast."""
    graph = graphs.cycle(24)

    def spread(protocol: Protocol, seed: int) -> float:
        def few(progress: float) -> float:
            return float(progress < 0.02)

        members = run(protocol, graph, 60, timing=PoissonTiming(), schedule=few, seed=seed).members
        return float(np.linalg.norm(members - members.mean(0)))

    plain, accelerated = (np.mean([spread(p, seed) for seed in range(2)]) for p in (AGRAF(), A2CiD2.fitted(graph)))
    assert accelerated < 0.3 * plain
