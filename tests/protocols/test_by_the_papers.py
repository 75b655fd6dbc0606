"""Rules of the family in plain NumPy, written from the papers alone, in 64 bits: the simulator has the same numbers.

Those in rounds need nothing but the weights of the graph. Of those that go by events, the order in which things
happened is taken from the trace, never what was combined.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.protocols.test_token_saga import Run
from tests.support.unlike import LR, Unlike, matrix, run
from walktalk import graphs
from walktalk.graphs import Graph
from walktalk.protocols import (
    CECA,
    D2,
    EXTRA,
    KGT,
    OSGP,
    SGP,
    Digest,
    FedBuff,
    GradientTracking,
    MomentumTracking,
    Protocol,
    PushPull,
    QGDSGDm,
    Scaffold,
    SlowMo,
    SwarmSGD,
    TokenSaga,
    Walkman,
)
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import NetworkTiming

N, ROUNDS = 6, 12
GRAPH = graphs.erdos_renyi(N, p=0.5, seed=2)
TREE = graphs.binary_tree(N)
LOPSIDED = Graph.from_arcs(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (0, 3)], "lopsided")
UNEVEN = NetworkTiming(compute=1.0, spread=0.6, latency=0.4)
Gradients = Callable[[np.ndarray], np.ndarray]


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    """To one part in a million, as far as 32 bits go."""
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6 * max(1.0, np.abs(theirs).max()))


def start_of(trainer: Unlike, nodes: int = N) -> np.ndarray:
    return np.repeat(trainer.initial().double().numpy()[None], nodes, 0)


# -- in rounds --------------------------------------------------------------------------------------------------------


def gradient_tracking(x: np.ndarray, grad: Gradients, w: np.ndarray) -> np.ndarray:
    """Adapt, then combine: x ← W(x − ηy), y ← Wy + ∇f(x⁺) − ∇f(x) (Pu, Nedić 2021)."""
    y = g = grad(x)
    for _ in range(ROUNDS):
        x = w @ (x - LR * y)
        y, g = w @ y + grad(x) - g, grad(x)
    return x


def momentum_tracking(x: np.ndarray, grad: Gradients, w: np.ndarray) -> np.ndarray:
    """Trackers of momenta, in place of the paper's corrections c = u − y (Takezawa et al. 2023)."""
    u = y = grad(x)
    for _ in range(ROUNDS):
        x = w @ x - LR * y
        before, u = u, 0.9 * u + grad(x)
        y = w @ y + u - before
    return x


def quasi_global_momentum(x: np.ndarray, grad: Gradients, w: np.ndarray) -> np.ndarray:
    """v = βm + g, x⁺ = W(x − ηv), m ← (1 − μ)m + μ(x − x⁺)/η with μ = 1 − β = 0.1 (Lin et al. 2021)."""
    m = np.zeros_like(x)
    for _ in range(ROUNDS):
        after = w @ (x - LR * (0.9 * m + grad(x)))
        m = 0.9 * m + 0.1 * (x - after) / LR
        x = after
    return x


def decentlam(x: np.ndarray, grad: Gradients, w: np.ndarray) -> np.ndarray:
    """A momentum of g̃ = (x − W(x − ηg))/η (Yuan et al. 2021); it is SlowMo with a slow step in every round."""
    m = np.zeros_like(x)
    for _ in range(ROUNDS):
        m = 0.8 * m + (x - w @ (x - LR * grad(x))) / LR
        x = x - LR * m
    return x


def d_squared(x: np.ndarray, grad: Gradients, w: np.ndarray) -> np.ndarray:
    """x⁺ = W(2x − x₋ − ηg + ηg₋), the first round W(x − ηg) (Tang et al. 2018), W lazy."""
    w = (np.eye(len(w)) + w) / 2
    before, x, g = x, w @ (x - LR * grad(x)), grad(x)
    for _ in range(ROUNDS - 1):
        now = grad(x)
        before, x, g = x, w @ (2 * x - before - LR * (now - g)), now
    return x


def extra(x: np.ndarray, grad: Gradients, w: np.ndarray) -> np.ndarray:
    """Primal and dual: x⁺ = Wx − η∇f(x) − q, q⁺ = q + (W̃ − W)x, W̃ = (I + W)/2 (Shi et al. 2015, equation 2.14)."""
    q = np.zeros_like(x)
    for _ in range(ROUNDS):
        after = w @ x - LR * grad(x) - q
        q = q + 0.5 * (x - w @ x)
        x = after
    return x


def k_gt(x: np.ndarray, grad: Gradients, w: np.ndarray) -> np.ndarray:
    """Three steps along g + c; c ← c + (W − I)(x − y)/(Kη), x ← W y (Liu et al. 2024, server rate 1)."""
    c = np.zeros_like(x)
    for _ in range(ROUNDS):
        y = x
        for _ in range(3):
            y = y - LR * (grad(y) + c)
        c = c - (np.eye(len(w)) - w) @ (x - y) / (3 * LR)
        x = w @ y
    return x


def push_pull(x: np.ndarray, grad: Gradients, w: np.ndarray) -> np.ndarray:
    """x ← R(x − (η/n)y), y ← Cy + ∇f(x⁺) − ∇f(x), R and C = Rᵀ of a binary tree (You, Pu 2024)."""
    n = len(w)
    pull = np.array([[float(j == max((i - 1) // 2, 0)) for j in range(n)] for i in range(n)])
    y = g = grad(x)
    for _ in range(ROUNDS):
        x = pull @ (x - LR / n * y)
        y, g = pull.T @ y + grad(x) - g, grad(x)
    return x


def sgp(x: np.ndarray, grad: Gradients, w: np.ndarray) -> np.ndarray:
    """Push-sum with equal shares for all that a node reaches, itself included (Assran et al. 2019); the ratio."""
    n = len(x)
    reaches = [[i, *LOPSIDED.neighbours(i)] for i in range(n)]
    p = np.array([[(i in reaches[j]) / len(reaches[j]) for j in range(n)] for i in range(n)])
    weight = np.ones((n, 1))
    for _ in range(ROUNDS):
        x, weight = p @ (x - LR * grad(x / weight)), p @ weight
    return x / weight


def ceca(x: np.ndarray, grad: Gradients, w: np.ndarray) -> np.ndarray:
    """By what they mean: a has the mean of a window of nodes that ends with i, b the same without i (Ding et al. 2023).

    A window of m others doubles; where the next digit of n − 1 is 1 the window with the node itself is handed on.
    """
    digits = f"{len(x) - 1:b}"
    a, b, m = x, x, 0
    for t in range(ROUNDS):
        if t % len(digits) == 0:
            m = 0
        odd = digits[t % len(digits)] == "1"
        step = -LR * grad(a if odd else b)
        a, b = a + step, b + step
        came = np.roll(a if odd else b, m + odd, axis=0)  # of the node so many before
        of_them = m + odd  # how many nodes a window that comes has
        b = (of_them * came + m * b) / max(m + of_them, 1)
        a = (of_them * came + (m + 1) * a) / (m + 1 + of_them)
        m += of_them
    return a


IN_ROUNDS = [
    (GradientTracking(), GRAPH, gradient_tracking),
    (MomentumTracking(), GRAPH, momentum_tracking),
    (QGDSGDm(), GRAPH, quasi_global_momentum),
    (SlowMo(rounds=1, outer_momentum=0.8), GRAPH, decentlam),
    (D2(), GRAPH, d_squared),
    (EXTRA(), GRAPH, extra),
    (KGT(steps=3), GRAPH, k_gt),
    (PushPull(), TREE, push_pull),
    (SGP(), LOPSIDED, sgp),
    (CECA(), graphs.complete(6), ceca),
    (CECA(), graphs.complete(7), ceca),
]


@pytest.mark.parametrize(("protocol", "graph", "rule"), IN_ROUNDS, ids=lambda one: getattr(one, "name", None))
def test_in_rounds(protocol: Protocol, graph: Graph, rule: Callable[..., np.ndarray]) -> None:
    ended = run(protocol, graph, ROUNDS)
    theirs = rule(start_of(ended.trainer, graph.nodes), ended.trainer.gradients, matrix(graph))
    close(ended.members, theirs)


def test_scaffold() -> None:
    """Option II: five steps along g − c_i + c, c_i⁺ = c_i − c + (x − y)/(Kη) (Karimireddy et al. 2020)."""
    ended = run(Scaffold(steps=5), graphs.star(N), ROUNDS)
    x = ended.trainer.initial().double().numpy()
    own, c = np.zeros((N, 3)), np.zeros(3)
    for _ in range(ROUNDS):
        y = np.repeat(x[None], N, 0)
        for _ in range(5):
            y = y - LR * (ended.trainer.gradients(y) - own + c)
        after = own - c + (x - y) / (5 * LR)
        x, c, own = x + (y - x).mean(0), c + (after - own).mean(0), after
    close(ended.output, x)


# -- by events --------------------------------------------------------------------------------------------------------


def gradient(trainer: Unlike, node: int, x: np.ndarray) -> np.ndarray:
    return np.asarray(trainer.curvatures[node] * (x - trainer.centres[node]))


@pytest.mark.parametrize("delay", [1, 2])
def test_osgp(delay: int) -> None:
    """Shares of a node's n-th push are added when they come, but not before the receiver's own n-th push."""
    ended = run(OSGP(delay=delay), LOPSIDED, 15, timing=UNEVEN)
    x, w = start_of(ended.trainer, 5), np.ones(5)
    at, pushes, shares = {}, [0] * 5, {}
    waiting: dict[int, list[int]] = {v: [] for v in range(5)}
    for row in ended.trace:
        v = row.node
        if row.event == "train":
            at[v] = x[v] / w[v]
        elif row.event == "trained":
            parts = len(LOPSIDED.neighbours(v)) + 1
            x[v] = (x[v] - LR * gradient(ended.trainer, v, at[v])) / parts
            w[v] /= parts
            pushes[v] += 1
            given = pushes[v], x[v].copy(), w[v]
        elif row.event == "send":
            shares[row.number] = given
        elif row.event == "receive":
            waiting[v].append(row.number)
        for number in [number for number in waiting[v] if shares[number][0] <= pushes[v]] if v >= 0 else []:
            waiting[v].remove(number)
            x[v], w[v] = x[v] + shares[number][1], w[v] + shares[number][2]
    close(ended.members, x / w[:, None])


def test_swarm_that_does_not_block() -> None:
    """Two models that meet become their mean; what is trained meanwhile is added when it is done (Nadiradze 2021)."""
    ended = run(SwarmSGD(steps=3, resilient=False), graphs.cycle(N), 10, timing=UNEVEN)
    x = start_of(ended.trainer)
    at: dict[int, np.ndarray] = {}
    sent: dict[int, np.ndarray] = {}
    mine: dict[int, np.ndarray] = {}  # what a node has offered
    answers = set()
    before = x.copy()
    for row in ended.trace:
        v = row.node
        if row.event == "train":
            at[v] = x[v].copy()
        elif row.event == "trained":
            y = at[v]
            for _ in range(3):
                y = y - LR * gradient(ended.trainer, v, y)
            x[v] = x[v] + y - at[v]
        elif row.event == "send":
            if row.detail["kind"] == "answer":
                sent[row.number] = before[v].copy()
                answers.add(row.number)
            else:
                sent[row.number] = mine[v] = x[v].copy()
        elif row.event == "receive":
            met = mine[v] if row.number in answers else x[v]
            before[v] = x[v]
            x[v] = x[v] + (sent[row.number] - met) / 2
    close(ended.members, x)


def test_fedbuff() -> None:
    """Changes of two local steps, damped by 1/√(1 + staleness), the server's step along the mean of every three."""
    ended = run(FedBuff(steps=2, buffer=3), graphs.star(N), 12, timing=UNEVEN)
    x, version = ended.trainer.initial().double().numpy(), 0
    has = dict.fromkeys(range(N), (x, 0))
    sent: dict[int, tuple[np.ndarray, int]] = {}
    buffer: list[np.ndarray] = []
    for row in ended.trace:
        if row.event == "send" and row.node == 0:
            sent[row.number] = x, version
        elif row.event == "receive" and row.node:
            has[row.node] = sent[row.number]
        elif row.node == 0 and row.event in ("trained", "receive"):
            v = 0 if row.event == "trained" else row.peer
            y, of = has[v]
            for _ in range(2):
                y = y - LR * gradient(ended.trainer, v, y)
            buffer.append((y - has[v][0]) / np.sqrt(1.0 + version - of))
            if len(buffer) == 3:
                x, version, buffer = x + np.mean(buffer, 0), version + 1, []
        elif row.node == 0 and row.event == "train":
            has[0] = x, version
    assert version > 10
    close(ended.output, x)


def visits(ended: Run) -> list[int]:
    """Nodes in the order in which the walk was at them."""
    return [row.node for row in ended.engine.advance(1.0).traces[0] if row.event == "trained"]


def test_token_saga() -> None:
    """z ← z − η(∇f_v(z) − ĝ_v + ḡ), all memories 0 at first."""
    ended = Run(TokenSaga(), GRAPH, Stop(iterations=60))
    way, z, noted = visits(ended), ended.trainer.initial().double().numpy(), np.zeros((N, 3))
    for v in way:
        g = gradient(ended.trainer, v, z)
        z, noted[v] = z - LR * (g - noted[v] + noted.mean(0)), g
    assert len(set(way)) == N
    close(ended.value(ended.simulation.interpreter.output.members[1]), z)


def test_walkman() -> None:
    """x_v = prox of f_v/β at y + z_v/β, z_v ← z_v + β(y − x_v), y = mean(x − z/β) (Mao et al. 2020, algorithm 1).

    The prox of a quadratic in closed form; ours comes to it by many local steps.
    """
    beta = 2.0
    ended = Run(Walkman(beta=beta, steps=150), GRAPH, Stop(iterations=60))
    way = visits(ended)
    x, z = start_of(ended.trainer), np.zeros((N, 3))
    for v in way:
        y = (x - z / beta).mean(0)
        a, b = ended.trainer.curvatures[v], ended.trainer.centres[v]
        x[v] = (a * b + beta * y + z[v]) / (a + beta)
        z[v] = z[v] + beta * (y - x[v])
    assert len(set(way)) > 3
    close(ended.value(ended.simulation.interpreter.output.members[1]), (x - z / beta).mean(0))


def test_digest() -> None:
    """Local SGD everywhere; the travelling model takes what a node has learned since it was there, by 1/V."""
    ended = Run(Digest(), GRAPH, Stop(iterations=120))
    y = ended.trainer.initial().double().numpy()
    x, had = start_of(ended.trainer), start_of(ended.trainer)
    for row in ended.engine.advance(1.0).traces[0]:
        v = row.node
        if row.event == "trained":
            x[v] = x[v] - LR * gradient(ended.trainer, v, x[v])
        elif row.event == "counted":
            y = y + (x[v] - had[v]) / N
            x[v] = had[v] = y
    close(ended.output(), y)
