"""The protocols in rounds: the law that defines each, their special cases, and where they end on unlike data.

f_v(x) = ½ (x − b_v)ᵀ diag(a_v) (x − b_v), with exact gradients: the optimum is known, and every rule is a few lines of
NumPy, written here from its definition.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.support.mechanisms import slow_unless
from tests.support.unlike import LR, Ended, Unlike, matrix, run, train_then_mix
from walktalk import graphs
from walktalk.core.errors import GraphError, SpecError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.graphs.changing_rounds import RandomSubgraphs
from walktalk.learning import TrainingRows
from walktalk.protocols import (
    CECA,
    D2,
    HEADER_BYTES,
    KGT,
    OSGP,
    SGP,
    ChocoSGD,
    DiLoCo,
    EpidemicLearning,
    FedAvg,
    FedBuff,
    FedOpt,
    FedProx,
    GradientTracking,
    LocalDSGD,
    MomentumTracking,
    NoLoCo,
    Protocol,
    PushPull,
    QGDSGDm,
    RelaySGD,
    Scaffold,
    SlowMo,
    StreamingDiLoCo,
    SyncGossip,
)
from walktalk.protocols.gossip.d2 import with_sum_one
from walktalk.testing import check_protocol

GRAPH = graphs.erdos_renyi(6, p=0.5, seed=2)
EPIDEMIC = Seed(0).child("epidemic")  # what nodes of Epidemic Learning draw from, by default
LOPSIDED = Graph.from_arcs(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (0, 3)], "lopsided")
CHANGING = (graphs.one_peer_exponential(8), graphs.random_matchings(6, seed=1), graphs.base_graph(7, peers=2))
VARIANTS = [
    KGT(steps=4, outer_lr=0.7),
    MomentumTracking(0.5, mix_first=False),
    SlowMo(rounds=2, outer_momentum=0.0),
    QGDSGDm(nesterov=True),
    ChocoSGD(codec=""),
    ChocoSGD(codec="top_k(0.3)", gamma=0.3),
    EpidemicLearning(draw="local"),
    D2(lazy=False),
    SGP(exchanges=2),
    FedAvg(server=2, weighted=False),
    FedOpt(server=2, optimizer="momentum", weighted=False),
    PushPull(branches=3),
]


@pytest.mark.parametrize(
    "protocol", [pytest.param(one, marks=slow_unless(one.name == "fedopt")) for one in VARIANTS], ids=lambda p: p.label
)
def test_other_settings_pass_in_virtual_time(protocol: Protocol) -> None:
    graph = graphs.complete(5) if isinstance(protocol, (EpidemicLearning, D2, FedAvg, FedOpt, PushPull)) else None
    check_protocol(protocol, engines=("sim",), graph=graph, seconds=3.0)


# -- special cases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [GRAPH, *CHANGING], ids=lambda g: g.name)
@pytest.mark.parametrize("protocol", [LocalDSGD(), LocalDSGD(steps=1), QGDSGDm(beta=0.0)], ids=lambda p: p.label)
def test_it_is_d_psgd(protocol: Protocol, graph: Graph) -> None:
    assert np.allclose(run(protocol, graph, 9).members, train_then_mix(graph, 9), atol=1e-5)


@pytest.mark.parametrize("protocol", [ChocoSGD(codec="", gamma=1.0)], ids=lambda p: p.label)
def test_choco_without_compression_is_d_psgd(protocol: Protocol) -> None:
    assert np.allclose(run(protocol, GRAPH, 9).members, train_then_mix(GRAPH, 9), atol=1e-5)


def test_choco_with_local_steps_and_without_compression_is_local_sgd() -> None:
    ours, theirs = (run(p, GRAPH, 6) for p in (ChocoSGD(codec="", gamma=1.0, steps=4), LocalDSGD(steps=4)))
    assert np.allclose(ours.members, theirs.members, atol=1e-5)


@pytest.mark.parametrize("graph", [graphs.exponential(8), graphs.one_peer_exponential(8)], ids=lambda g: g.name)
def test_sgp_with_doubly_stochastic_weights_is_d_psgd(graph: Graph) -> None:
    assert np.allclose(run(SGP(), graph, 9).members, train_then_mix(graph, 9), atol=1e-5)


def test_sgp_with_two_exchanges_goes_two_rounds_of_the_graph_to_a_training() -> None:
    graph = graphs.one_peer_exponential(8)
    ended, once = run(SGP(exchanges=2), graph, 6), run(SGP(), graph, 6)
    x = np.repeat(ended.trainer.initial().double().numpy()[None], 8, 0)
    for t in range(6):
        x = matrix(graph, 2 * t + 1) @ matrix(graph, 2 * t) @ (x - LR * ended.trainer.gradients(x))
    assert np.allclose(ended.members, x, atol=1e-5)
    assert ended.bits == 2 * once.bits


@pytest.mark.parametrize("beta", [0.9, 0.0])
def test_with_a_momentum_that_stays_at_the_node_it_is_d_psgd_with_momentum(beta: float) -> None:
    """v ← βv + g at every node, never mixed; then x ← W(x − ηv), or Wx − ηv. β = 0: D-PSGD in either order."""
    w, rounds = matrix(GRAPH), 9
    for protocol, mixes_first in ((LocalDSGD(), False), (SyncGossip(resilient=False), True)):
        ended = run(protocol, GRAPH, rounds, momentum=beta)
        x = np.repeat(ended.trainer.initial().double().numpy()[None], 6, 0)
        v = np.zeros_like(x)
        for _ in range(rounds):
            v = beta * v + ended.trainer.gradients(x)
            x = w @ x - LR * v if mixes_first else w @ (x - LR * v)
        assert np.allclose(ended.members, x, atol=1e-4)


def test_a_node_of_epidemic_learning_takes_the_plain_mean_of_what_came() -> None:
    """However many that are, where everybody draws its own receivers."""
    ended, draws = run(EpidemicLearning(draw="local"), graphs.complete(6), 7), graphs.RandomTargets(6, 2, EPIDEMIC)
    x, heard = np.repeat(ended.trainer.initial().double().numpy()[None], 6, 0), set()
    for t in range(7):
        half = x - LR * ended.trainer.gradients(x)
        sources = [draws.sources(v, t) for v in range(6)]
        heard |= {len(one) for one in sources}
        x = np.stack([half[[v, *one]].mean(0) for v, one in enumerate(sources)])
    assert len(heard) > 2
    assert np.allclose(ended.members, x, atol=1e-5)


def test_epidemic_learning_with_everybody_is_one_large_batch() -> None:
    everyone = graphs.complete(6)
    members = run(EpidemicLearning(peers=5), everyone, 7).members
    assert np.allclose(members, train_then_mix(everyone, 7), atol=1e-5)
    assert np.allclose(members, members[0], atol=1e-5)


STAR = graphs.star(6)


@pytest.mark.parametrize("protocol", [DiLoCo(outer_lr=1.0, outer_momentum=0.0), FedAvg(), Scaffold()])
def test_one_local_step_and_a_server_are_data_parallel_sgd(protocol: Protocol) -> None:
    ended = run(protocol, STAR, 8)
    x = ended.trainer.initial().double().numpy()
    for _ in range(8):
        x = x - LR * ended.trainer.gradients(np.repeat(x[None], 6, 0)).mean(0)
    assert np.allclose(ended.output, x, atol=1e-5)


def test_fedprox_without_a_pull_is_fedavg_and_with_one_strays_less() -> None:
    plain, same, pulled = (run(p, STAR, 1, steps=6) for p in (FedAvg(), FedProx(mu=0.0), FedProx(mu=2.0)))
    assert np.array_equal(plain.output, same.output)
    start, mu = plain.trainer.initial().double().numpy(), 2.0
    assert np.linalg.norm(pulled.output - start) < 0.8 * np.linalg.norm(plain.output - start)
    y = np.repeat(start[None], 6, 0)
    for _ in range(6):
        y = y - LR * (plain.trainer.gradients(y) + mu * (y - start))
    assert np.allclose(pulled.output, y.mean(0), atol=1e-5)


@pytest.mark.parametrize("weighted", [True, False])
def test_a_round_of_fedavg_is_the_mean_of_all_that_was_trained(weighted: bool) -> None:
    samples = [1, 2, 3, 4, 5, 9]
    ended = run(FedAvg(steps=4, weighted=weighted), STAR, 3, samples=samples)
    shares = np.array(samples) / sum(samples) if weighted else np.full(6, 1 / 6)
    x = ended.trainer.initial().double().numpy()
    for _ in range(3):
        x = shares @ _trained(ended.trainer, x, 4)
    assert np.allclose(ended.output, x, atol=1e-5)


@pytest.mark.parametrize("protocol", [FedAvg(3), FedAvg(weighted=False), FedOpt(2), FedProx(3), Scaffold(4), DiLoCo(2)])
def test_at_the_root_of_a_tree_a_server_has_the_mean_that_it_has_on_a_star(protocol: Protocol) -> None:
    """For a model down and one up along every link, whatever the tree."""
    samples, rounds = [1, 2, 3, 4, 5, 9], 6
    star = run(protocol, STAR, rounds, samples=samples)
    sends = sum(row.event == "send" for row in star.trace)
    for tree, root in ((graphs.binary_tree(6), 0), (graphs.path(6), 2), (STAR, 0)):
        ended = run(replace(protocol, tree=True, server=root), tree, rounds, samples=samples)  # type: ignore[type-var, call-arg]
        assert np.allclose(ended.output, star.output, atol=1e-5)
        assert np.allclose(ended.members, star.members, atol=1e-5)
        assert sum(row.event == "send" for row in ended.trace) == sends
        for row in (row for row in ended.trace if row.event == "send"):
            assert row.peer in tree.neighbours(row.node)


def test_fedavg_is_local_sgd_where_everybody_meets() -> None:
    fed, local = run(FedAvg(steps=3), STAR, 5), run(LocalDSGD(steps=3), graphs.complete(6), 5)
    assert np.allclose(fed.output, local.members, atol=1e-5)


def test_noloco_with_one_group_of_all_is_momentum_on_the_mean_change() -> None:
    ended, eta, beta = run(NoLoCo(steps=3), graphs.complete(6), 6), 0.7, 0.5
    x = ended.trainer.initial().double().numpy()
    step = np.zeros_like(x)
    for _ in range(6):
        step = beta * step + eta * (_trained(ended.trainer, x, 3) - x).mean(0)
        x = x + step
    assert np.allclose(ended.members, x, atol=1e-5)


def _trained(trainer: Unlike, x: np.ndarray, steps: int) -> np.ndarray:
    y = np.repeat(x[None], len(trainer.curvatures), 0)
    for _ in range(steps):
        y = y - LR * trainer.gradients(y)
    return y


# -- the law that defines each ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("nesterov", [False, True])
def test_quasi_global_momentum_follows_its_rule(nesterov: bool) -> None:
    beta, mu, w = 0.9, 0.1, matrix(GRAPH)
    ended = run(QGDSGDm(nesterov=nesterov), GRAPH, 12)
    x = np.repeat(ended.trainer.initial().double().numpy()[None], 6, 0)
    m = np.zeros_like(x)
    for _ in range(12):
        g = ended.trainer.gradients(x)
        v = g + beta * m
        mixed = w @ (x - LR * (g + beta * v if nesterov else v))
        m, x = (1 - mu) * m + mu * (x - mixed) / LR, mixed
    assert np.allclose(ended.members, x, atol=1e-4)
    assert np.allclose([slots["momentum"] for slots in ended.slots], m, atol=1e-4)


def test_quasi_global_momentum_costs_what_d_psgd_costs() -> None:
    assert run(QGDSGDm(), GRAPH, 5).bits == run(LocalDSGD(), GRAPH, 5).bits


@pytest.mark.parametrize("graph", [GRAPH, *CHANGING], ids=lambda g: g.name)
def test_the_mean_of_trackers_is_the_mean_of_gradients(graph: Graph) -> None:
    ended = run(GradientTracking(), graph, 10)
    tracked, last = ([slots[name] for slots in ended.slots] for name in ("tracker", "last"))
    assert np.allclose(np.mean(tracked, 0), np.mean(last, 0), atol=1e-5)


@pytest.mark.parametrize(("branches", "nodes"), [(2, 7), (3, 8), (1, 4), (2, 1)])
def test_parameters_go_down_the_tree_and_gradients_up(branches: int, nodes: int) -> None:
    """In NumPy: x ← R(x − η/n y), y ← Rᵀy + g⁺ − g, where R takes everybody's parent, and the root itself."""
    graph = graphs.complete(nodes)
    ended = run(PushPull(branches=branches), graph, 9)
    pull = np.zeros((nodes, nodes))
    pull[range(nodes), [max(0, (v - 1) // branches) for v in range(nodes)]] = 1.0
    x = np.repeat(ended.trainer.initial().double().numpy()[None], nodes, 0)
    y = g = ended.trainer.gradients(x)
    for _ in range(9):
        x = pull @ (x - LR / nodes * y)
        y, g = pull.T @ y + ended.trainer.gradients(x) - g, ended.trainer.gradients(x)
    assert np.allclose(ended.members, x, atol=1e-5)
    assert np.allclose(y.sum(0), g.sum(0), atol=1e-9)


def test_all_that_is_tracked_is_the_sum_of_the_gradients() -> None:
    """Those of leaves are with their parents when a round is over."""
    ended = run(PushPull(), graphs.binary_tree(7), 10)
    tracked = np.sum([slots["tracker"] for v, slots in enumerate(ended.slots) if v < 3], 0)
    assert np.allclose(tracked, np.sum([slots["last"] for slots in ended.slots], 0), atol=1e-4)


def test_push_pull_sends_two_models_along_each_link_of_its_tree() -> None:
    ended = run(PushPull(), graphs.binary_tree(7), 5)
    assert ended.bits == 8 * 6 * 2 * 5 * (HEADER_BYTES + 12)
    with pytest.raises(SpecError, match="binary_tree, or complete"):
        PushPull().check_graph(graphs.cycle(7))
    with pytest.raises(SpecError, match="take complete"):
        PushPull(branches=3).check_graph(graphs.binary_tree(7))


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 6, 7, 8, 11, 13, 16, 24, 33])
def test_with_ceca_all_have_the_exact_mean_after_few_rounds(nodes: int) -> None:
    """From one training on, at which nodes part: another ⌈log₂ n⌉ rounds without a step, and all agree on its mean."""
    graph, period = graphs.complete(nodes), max(1, (nodes - 1).bit_length())
    once = run(CECA(), graph, period, schedule=lambda progress: float(progress == 0.0))
    twice = run(CECA(), graph, 2 * period, schedule=lambda progress: float(progress == 0.0))
    start = once.trainer.initial().double().numpy()
    mean = start - LR * once.trainer.gradients(np.repeat(start[None], nodes, 0)).mean(0)
    for ended in (once, twice):
        assert np.allclose(ended.members, mean, atol=1e-5)


def test_ceca_by_its_equations() -> None:
    nodes, rounds = 6, 11
    ended = run(CECA(), graphs.complete(nodes), rounds)
    a = np.repeat(ended.trainer.initial().double().numpy()[None], nodes, 0)
    b, digits = a.copy(), [int(digit) for digit in f"{nodes - 1:b}"]
    for t in range(rounds):
        m = 0 if t % len(digits) == 0 else m  # noqa: F821 - of the round before
        if digits[t % len(digits)]:
            step = LR * ended.trainer.gradients(a)
            half = a - step
            came = np.roll(half, m + 1, 0)
            a, b, m = (half + came) / 2, ((m + 1) * came + m * (b - step)) / (2 * m + 1), 2 * m + 1
        else:
            step = LR * ended.trainer.gradients(b)
            half = b - step
            came = np.roll(half, m, 0)
            a, b, m = ((m + 1) * (a - step) + m * came) / (2 * m + 1), (half + came) / 2, 2 * m
    assert np.allclose(ended.members, a, atol=1e-5)
    assert ended.bits == 8 * nodes * rounds * (HEADER_BYTES + 12)


def test_ceca_says_which_links_it_lacks() -> None:
    with pytest.raises(SpecError, match="take complete"):
        CECA().check_graph(graphs.cycle(8))
    CECA().check_graph(graphs.exponential(8))  # 7 is 111: it sends 1, 2 and 4 further


def test_a_relayed_model_arrives_as_many_rounds_later_as_it_is_links_away() -> None:
    tree, rounds = graphs.binary_tree(7), 8
    ended = run(RelaySGD(), tree, rounds)
    far = np.array([[_distance(tree, i, j) for j in range(7)] for i in range(7)])
    x, halves = np.repeat(ended.trainer.initial().double().numpy()[None], 7, 0), []
    for t in range(rounds):
        halves.append(x - LR * ended.trainer.gradients(x))
        # that of node j as it was when it left; one's own before the training, where nothing can have come yet
        late = np.maximum(far - 1, 0)
        came = [[halves[t - late[i, j]][j] if late[i, j] <= t else x[i] for j in range(7)] for i in range(7)]
        x = np.mean(came, axis=1)
    assert np.allclose(ended.members, x, atol=1e-5)


def test_on_two_trees_every_other_parameter_goes_along_the_one_and_the_rest_along_the_other() -> None:
    rounds, n = 9, 8
    ended = run(RelaySGD(trees="two_binary"), graphs.two_binary_trees(n), rounds)
    trees = graphs.pair_of_trees(n)
    late = [np.maximum([[_distance(tree, i, j) for j in range(n)] for i in range(n)], 1) - 1 for tree in trees]
    x, halves = np.repeat(ended.trainer.initial().double().numpy()[None], n, 0), []
    for t in range(rounds):
        halves.append(x - LR * ended.trainer.gradients(x))
        before, x = x, np.empty_like(x)
        for which, far in enumerate(late):
            came = [[halves[t - far[i, j]][j] if far[i, j] <= t else before[i] for j in range(n)] for i in range(n)]
            x[:, which::2] = np.mean(came, axis=1)[:, which::2]
    assert np.allclose(ended.members, x, atol=1e-5)


def test_on_two_trees_nobody_sends_more_than_two_models_a_round() -> None:
    """The published log of RelaySGD has exactly 2 models for every node and round, of 16 nodes."""
    halves = [sum(len(tree.neighbours(v)) for tree in graphs.pair_of_trees(16)) for v in range(16)]
    assert max(halves) == 2 * 2
    assert graphs.two_binary_trees(16).diameter() <= 6
    rounds, n, number = 5, 6, 4  # bytes of a number
    ended = run(RelaySGD(trees="two_binary"), graphs.two_binary_trees(n), rounds)
    messages = 2 * (n - 1) * rounds  # along each tree; of 3 numbers 2 go along the first and 1 along the second
    assert ended.bits == 8 * messages * (2 * (HEADER_BYTES + 4) + 3 * number)  # the note says how many a sum is of


def _distance(tree: Graph, a: int, b: int) -> int:
    steps, seen = 0, {a}
    while b not in seen:
        seen |= {u for v in seen for u in tree.neighbours(v)}
        steps += 1
    return steps


@pytest.mark.parametrize("codec", ["int4", "top_k(0.34)"])
def test_compression_does_not_touch_the_mean_and_public_copies_agree(codec: str) -> None:
    ended, w = run(ChocoSGD(codec=codec, gamma=0.3), GRAPH, 10), matrix(GRAPH)
    public = np.stack([slots["public"] for slots in ended.slots])
    around = np.stack([slots["around"] for slots in ended.slots])
    assert np.allclose(around, (w - np.diag(np.diag(w))) @ public, atol=1e-4)
    before = run(ChocoSGD(codec=codec, gamma=0.3), GRAPH, 9)
    learned = -LR * before.trainer.gradients(before.members)
    assert np.allclose(ended.members.mean(0), before.members.mean(0) + learned.mean(0), atol=1e-5)


@pytest.mark.parametrize("graph", [graphs.random_matchings(6, seed=3), GRAPH], ids=lambda g: g.name)
def test_whoever_meets_the_mean_of_noloco_follows_momentum_on_the_mean_change(graph: Graph) -> None:
    eta, beta, states = 0.7, 0.5, [run(NoLoCo(), graph, t) for t in range(5)]
    step = np.zeros(3)
    for before, after in itertools.pairwise(states):
        step = beta * step - eta * LR * before.trainer.gradients(before.members).mean(0)
        assert np.allclose(after.members.mean(0), before.members.mean(0) + step, atol=1e-5)


@pytest.mark.parametrize("graph", [graphs.random_matchings(6, seed=3), GRAPH], ids=lambda g: g.name)
@pytest.mark.parametrize("fragments", [2, 3])
def test_in_fragments_noloco_takes_the_step_of_one_after_the_other(graph: Graph, fragments: int) -> None:
    rounds, eta, beta, gamma = 9, 0.7, 0.5, 0.7
    ended, whole = run(NoLoCo(fragments=fragments), graph, rounds), run(NoLoCo(), graph, rounds)
    outer = np.repeat(ended.trainer.initial().double().numpy()[None], 6, 0)
    x, step = outer.copy(), np.zeros_like(outer)
    for t in range(rounds):
        x, w, part = x - LR * ended.trainer.gradients(x), matrix(graph, t), np.s_[:, t % fragments :: fragments]
        step[part] = beta * step[part] + eta * w @ (x - outer)[part] + gamma * (w @ outer[part] - outer[part])
        outer[part] += step[part]
        x[part] = outer[part]
    assert np.allclose(ended.members, x, atol=1e-5)
    sent = sum(row.event == "send" for row in whole.trace)
    each = sum(len(range(3)[t % fragments :: fragments]) for t in range(rounds)) / rounds  # of 3 numbers
    assert whole.bits == 8 * sent * (HEADER_BYTES + 12)
    assert ended.bits == pytest.approx(8 * sent * (HEADER_BYTES + 4 * each), rel=0.02)


def test_the_server_of_diloco_goes_nesterov_steps() -> None:
    ended, eta, beta = run(DiLoCo(steps=5), STAR, 7), 0.7, 0.9
    x = ended.trainer.initial().double().numpy()
    m = np.zeros_like(x)
    for _ in range(7):
        delta = x - _trained(ended.trainer, x, 5).mean(0)
        m = beta * m + delta
        x = x - eta * (delta + beta * m)
    assert np.allclose(ended.output, x, atol=1e-4)


def test_streaming_diloco_of_one_fragment_without_delay_is_diloco() -> None:
    settings = {"steps": 3, "outer_lr": 0.7}
    streaming = run(StreamingDiLoCo(fragments=1, delay=0, alpha=0.0, **settings), STAR, 8)  # type: ignore[arg-type]
    plain = run(DiLoCo(**settings), STAR, 8)  # type: ignore[arg-type]
    assert np.allclose(streaming.output, plain.output, atol=1e-4)
    assert np.allclose(streaming.members, plain.members, atol=1e-4)


@pytest.mark.parametrize(("fragments", "delay", "alpha"), [(3, 0, 0.0), (3, 1, 0.5), (2, 1, 0.3), (4, 3, 0.5)])
def test_a_fragment_is_exchanged_after_each_training_and_mixed_in_later(
    fragments: int, delay: int, alpha: float
) -> None:
    rounds, eta, beta = 11, 0.4, 0.9
    ended = run(StreamingDiLoCo(fragments=fragments, delay=delay, alpha=alpha), STAR, rounds)
    outer = ended.trainer.initial().double().numpy()
    x, m, done = np.repeat(outer[None], 6, 0), np.zeros(3), []
    for k in range(rounds):
        x = x - LR * ended.trainer.gradients(x)
        part = slice(k % fragments, None, fragments)
        change = (x - outer).mean(0)[part]
        m[part] = beta * m[part] + change
        outer = outer.copy()
        outer[part] += eta * (change + beta * m[part])
        done.append(outer)
        if k >= delay:
            part = slice((k - delay) % fragments, None, fragments)
            x[:, part] = alpha * x[:, part] + (1 - alpha) * done[k - delay][part]
    assert np.allclose(ended.output, outer, atol=1e-4)
    assert np.allclose(ended.members, x, atol=1e-4)


def test_the_servers_control_variate_is_the_mean_of_all() -> None:
    ended = run(Scaffold(steps=5), STAR, 6)
    control = ended.slots[0]["control"]
    assert np.abs(control).max() > 0.01
    assert np.allclose(control, np.mean([slots["own_control"] for slots in ended.slots], 0), atol=1e-5)
    assert all(np.allclose(slots["control"], control, atol=1e-6) for slots in ended.slots)


@pytest.mark.parametrize(("protocol", "lr"), [(SGP(), LR), (OSGP(), 0.0), (OSGP(delay=3), 0.0)])
def test_pushing_moves_the_sums_by_what_was_learned_and_by_nothing_else(protocol: Protocol, lr: float) -> None:
    """Where rows of P do not sum to one: Σx by −ηΣg, and Σw not at all."""
    before, after = (run(protocol, LOPSIDED, rounds, lr=lr) for rounds in (9, 10))
    sums, weights = ([np.sum(part(ended), 0) for ended in (before, after)] for part in (pushed, pushed_weights))
    assert np.allclose(sums[1], sums[0] - lr * before.trainer.gradients(before.members).sum(0), atol=1e-5)
    assert np.allclose(weights, 5.0, atol=1e-4)
    assert np.ptp(pushed_weights(after)) > 0.5


def pushed(ended: Ended) -> np.ndarray:
    """x of every node."""
    return np.stack([slots["sum"] for slots in ended.slots])


def pushed_weights(ended: Ended) -> np.ndarray:
    """w of every node: x = w z."""
    return (pushed(ended) * ended.members).sum(1) / (ended.members**2).sum(1)


# -- where they end on unlike data ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "graph", "rounds"),
    [
        (GradientTracking(), GRAPH, 300),
        (GradientTracking(), CHANGING[1], 300),
        (GradientTracking(), graphs.equi_dyn(6, seed=1), 300),
        (PushPull(), graphs.binary_tree(6), 500),
        (PushPull(branches=5), graphs.complete(6), 400),
        (D2(), GRAPH, 300),
        (D2(lazy=False), graphs.complete(6), 300),
        (LocalDSGD(), graphs.complete(6), 300),
        (EpidemicLearning(peers=5), graphs.complete(6), 300),
        (Scaffold(steps=5), STAR, 150),
        (DiLoCo(steps=1), STAR, 150),
        (FedProx(steps=1), STAR, 150),
        (RelaySGD(), graphs.binary_tree(6), 350),
        (RelaySGD(trees="two_binary"), graphs.two_binary_trees(6), 350),
    ],
    ids=lambda value: getattr(value, "label", getattr(value, "name", "")),
)
def test_it_reaches_the_optimum(protocol: Protocol, graph: Graph, rounds: int) -> None:
    ended = run(protocol, graph, rounds)
    assert np.abs(ended.members - ended.trainer.optimum()).max() < 1e-4


@pytest.mark.parametrize(
    ("protocol", "graph"),
    [
        (SyncGossip(resilient=False), GRAPH),
        (LocalDSGD(), GRAPH),
        (QGDSGDm(), GRAPH),
        (ChocoSGD(), GRAPH),
        (NoLoCo(steps=5), GRAPH),
        (SGP(), graphs.exponential(6)),
        (EpidemicLearning(peers=2), graphs.complete(6)),
        (CECA(), graphs.complete(6)),
        (FedAvg(steps=5), STAR),
        (FedProx(steps=5), STAR),
        (DiLoCo(steps=5), STAR),
    ],
    ids=lambda value: getattr(value, "label", getattr(value, "name", "")),
)
def test_it_stays_beside_the_optimum(protocol: Protocol, graph: Graph) -> None:
    ended = run(protocol, graph, 150)
    assert np.abs(ended.members - ended.trainer.optimum()).max() > 1e-2


def test_d2_needs_eigenvalues_above_minus_a_third() -> None:
    """On a cube W has −1/2: a difference of its two halves grows; lazy, and there only, it comes to the optimum."""
    cube = graphs.hypercube(3)
    assert np.linalg.eigvalsh(matrix(cube))[0] == pytest.approx(-0.5)
    with pytest.raises(SpecError, match="set lazy to true"):
        D2(lazy=False).check_graph(cube)
    for fine in (graphs.cycle(16), graphs.complete(6)):  # exactly −1/3, and 0
        D2(lazy=False).check_graph(fine)
    ended = run(D2(), cube, 300)
    assert np.abs(ended.members - ended.trainer.optimum()).max() < 1e-4


def test_the_mean_of_d2_stays_where_no_gradient_moves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 x(t) − x(t−1) grows as cosh(√ε t) where weights sum to 1 + ε, as thrice 1/3 in 32 bits does: by 1.5 % here.

    Updates of a ten thousandth, as no rounding hides a sum that is next to one while a model moves.
    """
    dice = torch.Generator().manual_seed(0)

    def stirred(self: Unlike, given: TrainingRows) -> tuple[torch.Tensor, None]:
        return given.rows + 1e-4 * torch.randn(given.rows.shape, generator=dice), None

    monkeypatch.setattr(Unlike, "train", stirred)
    ended = run(D2(lazy=False), graphs.cycle(3), 1000)
    start = ended.trainer.initial().numpy()
    assert np.abs(ended.members.mean(0) - start).max() < 0.005 * np.abs(start).max()


@pytest.mark.parametrize("graph", [GRAPH, graphs.star(7), graphs.cycle(16)], ids=lambda graph: graph.name)
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_weights_of_d2_sum_to_one_in_32_bits(graph: Graph, share: float) -> None:
    weights = np.eye(graph.nodes) * (1.0 - share) + share * matrix(graph)
    rows = [with_sum_one(str(v), {str(u): w for u, w in enumerate(row)}) for v, row in enumerate(weights)]
    exact = [[Fraction(float(np.float32(row[str(u)]))) for u in range(graph.nodes)] for row in rows]
    assert {sum(row) for row in exact} == {sum(column) for column in zip(*exact, strict=True)} == {Fraction(1)}
    np.testing.assert_allclose(np.array(exact, float), weights, atol=2.0**-24 * graph.nodes)


# -- graphs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [2, 5, 24, 61])
@pytest.mark.parametrize("eta", [0.5, 1.0])
def test_what_a_round_of_equi_dyn_leaves_of_disagreement(nodes: int, eta: float) -> None:
    """Over all shifts alike: E[WᵀW] is a² + b² − 2ab/(n − 1) times the identity, beside the mean."""
    graph = graphs.equi_dyn(nodes, seed=3, eta=eta)
    rounds = {graph.rounds.targets(0, t)[0]: t for t in range(40 * nodes)}  # type: ignore[union-attr]
    by_shift = {shift: matrix(graph, t) for shift, t in rounds.items()}
    assert set(by_shift) == set(range(1, nodes))
    beside_the_mean = np.eye(nodes) - 1 / nodes
    b = eta * (nodes - 1) / nodes
    left = (1 - b) ** 2 + b**2 - 2 * (1 - b) * b / (nodes - 1)
    squares = np.mean([beside_the_mean @ w.T @ w @ beside_the_mean for w in by_shift.values()], 0)
    assert np.allclose(squares, left * beside_the_mean)
    for w in by_shift.values():
        assert np.allclose(w.sum(0), 1.0)


@pytest.mark.parametrize("nodes", [2, 5, 12])
def test_in_pairs_equi_dyn_is_symmetric_and_nobody_meets_two(nodes: int) -> None:
    graph = graphs.equi_dyn(nodes, seed=3, directed=False)
    met = np.zeros((nodes, nodes))
    for t in range(30 * nodes):
        w = matrix(graph, t)
        assert np.allclose(w, w.T)
        assert ((w > 0) & ~np.eye(nodes, dtype=bool)).sum(1).max() == 1
        met += w > 0
    assert (met > 0).all()
    with pytest.raises(GraphError, match="eta"):
        graphs.equi_dyn(5, eta=1.5)


@pytest.mark.parametrize("peers", [1, 2, 3, 5])
@pytest.mark.parametrize("nodes", [2, 3, 5, 6, 7, 11, 12, 16, 22, 25, 33])
def test_the_rounds_of_a_base_graph_give_the_exact_mean(nodes: int, peers: int) -> None:
    graph = graphs.base_graph(nodes, peers=peers)
    period, product = len(graph.rounds.tables), np.eye(nodes)  # type: ignore[union-attr]
    for t in range(period):
        w = matrix(graph, t)
        assert np.allclose(w, w.T)
        assert (w >= -1e-12).all()
        assert ((w - np.diag(np.diag(w)) > 0).sum(1) <= peers).all()
        product = w @ product
    assert np.allclose(product, 1 / nodes)
    assert period <= 2 * np.log(nodes) / np.log(peers + 1) + 2


@pytest.mark.parametrize(
    ("graph", "rounds"),
    [
        (graphs.one_peer_exponential(16), 4),
        (graphs.k_peer_exponential(27, peers=2), 3),
        (graphs.k_peer_exponential(16, peers=3), 2),
        (graphs.k_peer_exponential(8, peers=1), 3),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_exponential_graphs_give_the_exact_mean_from_any_round_on(graph: Graph, rounds: int) -> None:
    for start in range(rounds):
        product = np.linalg.multi_dot([np.eye(graph.nodes), *(matrix(graph, start + t) for t in range(rounds))])
        assert np.allclose(product, 1 / graph.nodes)


@pytest.mark.parametrize("budget", [0.3, 0.6])
def test_matcha_uses_its_budget_and_the_links_that_matter_more_often(budget: float) -> None:
    graph = graphs.matcha(graphs.barbell(10), budget, seed=1)
    rounds = graph.rounds
    assert isinstance(rounds, RandomSubgraphs)
    for pairs in rounds.matchings:
        assert len({v for pair in pairs for v in pair}) == 2 * len(pairs)  # no two share a node
    assert sorted(pair for pairs in rounds.matchings for pair in pairs) == list(map(tuple, graph.edge_list().tolist()))
    assert sum(rounds.chances) == pytest.approx(budget * len(rounds.matchings), abs=1e-6)
    bridge = next(p for p, pairs in zip(rounds.chances, rounds.matchings, strict=True) if (4, 5) in pairs)
    assert bridge > budget + 0.1
    used = np.zeros((10, 10))
    for t in range(400):
        w = matrix(graph, t)
        assert np.allclose(w.sum(0), 1.0)
        used += w - np.diag(np.diag(w)) > 0
    assert used[4, 5] / 400 == pytest.approx(bridge, abs=0.12)


def test_random_groups_partition_the_nodes() -> None:
    rounds = graphs.random_groups(11, seed=4, size=3).rounds
    assert rounds is not None
    for t in range(20):
        groups = {tuple(sorted((v, *rounds.targets(v, t)))) for v in range(11)}
        assert sorted(len(group) for group in groups) == [3, 3, 5]
        assert sorted(v for group in groups for v in group) == list(range(11))
    assert rounds.targets(0, 1) != rounds.targets(0, 2)


def test_receivers_are_drawn_evenly_and_an_oracle_gives_everybody_as_many() -> None:
    local, oracle = graphs.RandomTargets(9, 3, Seed(2)), graphs.RandomCirculants(9, 3, Seed(2))
    counts = np.zeros((9, 9))
    for t in range(400):
        for v in range(9):
            assert len(set(local.targets(v, t)) - {v}) == 3
            assert all(v in local.sources(to, t) for to in local.targets(v, t))
            assert len(oracle.sources(v, t)) == len(oracle.targets(v, t)) == 3
            assert all(v in oracle.sources(to, t) for to in oracle.targets(v, t))
            counts[v, list(local.targets(v, t))] += 1
    off = counts[~np.eye(9, dtype=bool)] / 400
    assert np.abs(off - 3 / 8).max() < 0.12  # five standard deviations


def test_a_spanning_tree_is_a_tree_of_the_graphs_own_edges() -> None:
    graph = graphs.erdos_renyi(12, p=0.4, seed=3)
    tree = graphs.spanning_tree(graph, root=2)
    assert tree.edges == 11
    assert tree.is_connected()
    assert all(set(tree.neighbours(v)) <= set(graph.neighbours(v)) for v in range(12))
    assert [_distance(tree, 2, v) for v in range(12)] == [_distance(graph, 2, v) for v in range(12)]
    assert graphs.build("spanning_tree", 12, seed=3, p=0.4, root=2) == tree
    with pytest.raises(GraphError, match="root = 12"):
        graphs.build("spanning_tree", 12, seed=3, root=12)


@pytest.mark.parametrize(
    ("protocol", "graph", "said"),
    [
        (RelaySGD(), graphs.cycle(5), "no tree"),
        (RelaySGD(trees="two_binary"), graphs.cycle(5), "take two_binary_trees"),
        (D2(), graphs.random_matchings(6), "changes by round"),
        (SyncGossip(), graphs.random_matchings(6), "take local_dsgd"),
        (ChocoSGD(), graphs.random_matchings(6), "changes by round"),
        (EpidemicLearning(), graphs.cycle(5), "not complete"),
        (EpidemicLearning(peers=5), graphs.complete(5), "4 or fewer"),
        (FedAvg(), graphs.cycle(5), "take star"),
        (FedAvg(tree=True), graphs.cycle(5), "is no tree"),
        (FedBuff(tree=True), graphs.complete(5), "is no tree"),
        (StreamingDiLoCo(), graphs.cycle(5), "take star"),
        (Scaffold(server=5), graphs.star(5), "no node 5"),
        (LocalDSGD(), Graph.from_arcs(3, [(0, 1), (1, 2), (2, 0), (0, 2)], "lopsided"), "take sgp"),
    ],
    ids=lambda value: getattr(value, "label", getattr(value, "name", "")),
)
def test_what_cannot_run_somewhere_says_so(protocol: Protocol, graph: Graph, said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        protocol.check_graph(graph)
    assert "\n" not in str(caught.value)
