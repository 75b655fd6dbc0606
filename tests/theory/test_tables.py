"""Tables 1 to 4, costs, crossovers and speed-ups."""

from __future__ import annotations

from math import e, inf, nan, sqrt

import pytest
from scipy.special import gammainc, gammaincc

from walktalk import graphs, theory
from walktalk.core.errors import SpecError
from walktalk.theory import Problem

CYCLE = theory.network(graphs.cycle(20))
COMPLETE = theory.network(graphs.complete(20))
TORUS = theory.network(graphs.torus(5))
PROBLEM = Problem(F=1, L=1, sigma2=0.5, zeta2=0.7)


def test_tables_1_and_2_are_the_two_largest_terms() -> None:
    R, T = 4, 1000
    walk, gossip = theory.table(1, CYCLE, PROBLEM, R, T)
    assert walk.rate.total == pytest.approx(sqrt(0.5 / T) + (R * sqrt(20 * 0.5) / T) ** (2 / 3))
    assert gossip.rate.total == pytest.approx(sqrt(0.5 / T) + (20 * sqrt(0.5 / CYCLE.p) / T) ** (2 / 3))
    walk, gossip = theory.table(2, TORUS, PROBLEM, R, T)
    assert walk.rate.total == pytest.approx(sqrt(1.2 / T) + (R * sqrt(25 * 0.5 + TORUS.H2 * 0.7) / T) ** (2 / 3))
    assert gossip.rate.total == pytest.approx(
        sqrt(1.2 / T) + (25 * sqrt(0.5 / TORUS.p + 0.7 / TORUS.p**2) / T) ** (2 / 3)
    )
    assert (walk.communication, gossip.communication) == (T, 125 * T)
    assert (walk.communication_sent, gossip.communication_sent) == (pytest.approx(0.8 * T), 100 * T)
    assert pytest.approx(1925) == TORUS.H2  # what Table 2 leaves open, for V = 25


def test_table_3_is_theorems_1_and_2_in_bits() -> None:
    B, m, R = 1e9, 1e5, 4
    walk, gossip = theory.table(3, CYCLE, PROBLEM, R, B, model_bits=m)
    assert walk.computation == pytest.approx(B / m)
    assert gossip.computation == pytest.approx(B / (m * 60))
    assert walk.rate.start == pytest.approx(R * CYCLE.H * m / B)
    assert walk.rate.mixing == pytest.approx(R * 0.7 * m / (CYCLE.p_prime * B))
    assert walk.rate.noise == pytest.approx(sqrt(m * 1.2 / B))
    assert walk.rate.deviation == pytest.approx((R * m * sqrt(20 * 0.5 + 4010 * 0.7) / B) ** (2 / 3))
    assert gossip.rate.start == pytest.approx(20 * m * 60 / (CYCLE.p * B))
    assert gossip.rate.noise == pytest.approx(sqrt(m * 60 * 1.2 / B))
    spread = sqrt(0.5 / CYCLE.p + 0.7 / CYCLE.p**2)
    assert gossip.rate.deviation == pytest.approx((20 * m * 60 * spread / B) ** (2 / 3))
    assert walk.communication == gossip.communication == pytest.approx(B)


def test_table_4_is_theorems_1_and_2_in_time() -> None:
    Z, d, m, R = 600.0, 0.3, 1e5, 4
    walk, gossip = theory.table(4, CYCLE, PROBLEM, R, Z, model_bits=m, d=d)
    assert (walk.computation, gossip.computation) == (pytest.approx(Z * R / d), pytest.approx(Z * 20 / d))
    assert (walk.communication, gossip.communication) == (
        pytest.approx(Z * R * m / d),
        pytest.approx(Z * 20 * m * 60 / d),
    )
    assert walk.rate.start == pytest.approx(CYCLE.H * d / Z)
    assert walk.rate.mixing == pytest.approx(0.7 * d / (CYCLE.p_prime * Z))
    assert walk.rate.noise == pytest.approx(sqrt(d * 1.2 / (R * Z)))
    assert walk.rate.deviation == pytest.approx((d * sqrt(0.5 * 20 + 0.7 * 4010) / Z) ** (2 / 3))
    assert gossip.rate.start == pytest.approx(d / (CYCLE.p * Z))
    assert gossip.rate.noise == pytest.approx(sqrt(d * 1.2 / (20 * Z)))


def test_printed_tables_are_complete() -> None:
    assert [len(theory.TABLES[number][1]) for number in (1, 2, 3, 4)] == [6, 6, 2, 2]
    assert theory.TABLES[1][1][4].wins == "✓ if R = O(√V)"
    assert "V³ζ²" in theory.TABLES[2][1][0].rate
    assert "‖P‖₀" in theory.TABLES[3][1][1].rate
    assert theory.TABLES[4][1][0].communication == "Θ(ZRm/d)"
    assert "V² log V" in theory.TORUS_H2
    with pytest.raises(SpecError, match="table: 5 is not possible; allowed: 1, 2, 3 or 4"):
        theory.table(5, CYCLE, PROBLEM, 4, 10)


@pytest.mark.parametrize("V", [20, 40, 80])
def test_printed_orders_against_numbers(V: int) -> None:
    """Where the paper writes Θ(1/V²), V³ and so on, the numbers keep a constant ratio as V doubles."""
    cycle, complete = theory.network(graphs.cycle(V)), theory.network(graphs.complete(V))
    assert cycle.p * V**2 == pytest.approx(8 / 3 * 9.8696, rel=0.05)
    assert pytest.approx(0.5, rel=0.02) == cycle.H2 / V**3
    assert pytest.approx(2, rel=0.06) == complete.H2 / V**2
    assert (cycle.nonzeros, complete.nonzeros) == (3 * V, V * V)


def test_messages() -> None:
    found = theory.messages_per_iteration(CYCLE)
    assert found["multi_walk"] == pytest.approx(2 / 3)  # a third of the steps stay put
    assert found["async_gossip"] == 2
    assert found["async_gossip_neighbourhood"] == 4
    assert found["async_gossip_matrix"] == 40
    assert found["sync_gossip"] == 2
    assert theory.paper_messages_per_iteration(CYCLE) == {"multi_walk": 1, "async_gossip_matrix": 60}
    alone = theory.messages_per_iteration(theory.network(graphs.cycle(1)))
    assert set(alone.values()) == {0}


@pytest.mark.parametrize("iterations", [1, 2, 5, 20, 100, 1000, 20_000])
@pytest.mark.parametrize("delta", [0.0, 0.01, 0.03, 0.1, 0.3, 0.5, 0.9, 1.0, 1.5, 3.0, 10.0])
def test_the_time_bound_is_one_and_not_a_wide_one(iterations: int, delta: float) -> None:
    """Against the exact tails of Z_T, which is Gamma distributed: in units of d/R its shape is T and its mean T.

    Chernoff's exponent is the right one: the upper tail alone is at least its last term, e⁻ˣxᵀ⁻¹/(T − 1)! with
    x = (1 + δ)T, and by Stirling's formula that is the bound over 6√T(1 + δ) at least.
    """
    upper = gammaincc(iterations, iterations * (1 + delta))
    lower = gammainc(iterations, iterations * max(0.0, 1 - delta))
    bound = theory.time_deviation_bound(iterations, delta)
    assert upper + lower <= bound * (1 + 1e-12)
    assert upper >= bound / (6 * sqrt(iterations) * (1 + delta))


def test_the_time_bound_in_numbers() -> None:
    assert theory.time_deviation_bound(100, 1.0) == pytest.approx(2 * (2 / e) ** 100)
    assert theory.time_deviation_bound(1, 0.1) == 1
    for wrong in (-0.1, nan):
        with pytest.raises(SpecError, match="delta"):
            theory.time_deviation_bound(10, wrong)
    with pytest.raises(SpecError, match="iterations"):
        theory.time_deviation_bound(0, 0.1)


def test_conversions_are_inverse() -> None:
    assert theory.iterations_from_bits(theory.bits_from_iterations(500, 1e6, 60), 1e6, 60) == pytest.approx(500)
    assert theory.iterations_from_time(theory.time_from_iterations(500, 4, 0.2), 4, 0.2) == pytest.approx(500)
    assert theory.time_from_iterations(1000, 4, 2.0) == 500
    with pytest.raises(SpecError, match="d: 0 is not possible; allowed: a number above 0"):
        theory.iterations_from_time(1, 1, 0)


def test_crossover_of_iid_data_is_the_papers() -> None:
    for network in (CYCLE, COMPLETE, TORUS):
        crossover = theory.crossover_walks(network)
        assert network.nodes / crossover**2 == pytest.approx(network.p)  # V/R² = p
        below, above = (
            theory.theorem1_order(network, Problem(1, 1, 1, 0), 1, 100).deviation * R ** (2 / 3)
            for R in (0.99 * crossover, 1.01 * crossover)
        )
        gossip = theory.theorem2_order(network, Problem(1, 1, 1, 0), 100).deviation
        assert below < gossip < above
    assert theory.crossover_walks(COMPLETE) == pytest.approx(sqrt(20))


def test_crossover_of_heterogeneous_data() -> None:
    assert theory.crossover_walks(COMPLETE, Problem(1, 1, 0, 1)) == pytest.approx(20 / sqrt(780))
    assert theory.crossover_walks(CYCLE, Problem(1, 1, 0, 1)) == pytest.approx(20 / CYCLE.p / sqrt(4010))
    assert theory.crossover_walks(CYCLE, Problem(1, 1, 1, 0)) == theory.crossover_walks(CYCLE)
    assert theory.crossover_walks(CYCLE, Problem(1, 1, 0, 0)) == inf


def test_axes() -> None:
    """Bits favour walks; time favours gossip once the shared term dominates."""
    bits = theory.on_axis(COMPLETE, Problem(1, 1, 1, 0.01), 4, "bits", budget=1e9, model_bits=1e3)
    assert theory.winner(bits) == "multi_walk"
    time = theory.on_axis(COMPLETE, Problem(1, 1, 1, 0.01), 4, "time", budget=1e9)
    assert theory.winner(time) == "async_gossip_matrix"
    with pytest.raises(SpecError, match="axis: 'watts' is not possible; allowed: iterations, bits, time"):
        theory.on_axis(COMPLETE, PROBLEM, 4, "watts", 1)


def test_speed_up_is_linear_for_a_small_target() -> None:
    for walks in (2, 5, 20):
        assert theory.speed_up(COMPLETE, PROBLEM, walks, target=1e-14) == pytest.approx(walks, rel=0.03)
    assert theory.gossip_speed_up(COMPLETE, PROBLEM, target=1e-14) == pytest.approx(20, rel=0.03)
    assert theory.speed_up(CYCLE, PROBLEM, 20, target=0.5) < 10  # far from the solution it is not


def test_iterations_to_a_target() -> None:
    found = theory.iterations_to(1e-3, lambda t: theory.theorem2_order(CYCLE, PROBLEM, t))
    assert theory.theorem2_order(CYCLE, PROBLEM, found).total == pytest.approx(1e-3)
    with pytest.raises(SpecError, match="target: 0"):
        theory.iterations_to(0, lambda t: theory.theorem2_order(CYCLE, PROBLEM, t))
