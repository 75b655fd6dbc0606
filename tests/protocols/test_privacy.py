"""Privacy: the accountant against closed forms, noise on all that is learned, budgets that end a run and outlive it."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm
from torch import nn

import walktalk as wt
from tests.support.runs import Played, setup
from walktalk import graphs
from walktalk.core.errors import SpecError, StudyError
from walktalk.core.seeds import Seed
from walktalk.protocols import TokenSaga
from walktalk.records import TraceRow
from walktalk.runtimes.peers.node.models import AT_ONCE, NAME, PrivacyBudget
from walktalk.runtimes.semantics import Evaluate
from walktalk.studies import make_spec, run_study
from walktalk.studies.collecting.outcome import measured_history
from walktalk.testing.cluster import running
from walktalk.transforms.rules import Privacy
from walktalk.transforms.rules import noise as accounting
from walktalk.transforms.rules.noise import ORDERS

DELTA = 1e-5

# -- the accountant ---------------------------------------------------------------------------------------------------


def exact(noise: float, releases: int) -> float:
    """ε of so many Gaussian mechanisms, which are one with μ = √k / z (Dong, Roth, Su 2019): no bound, the truth."""
    mu = math.sqrt(releases) / noise

    def too_much(epsilon: float) -> float:
        first, second = norm.logcdf(-epsilon / mu + mu / 2), epsilon + norm.logcdf(-epsilon / mu - mu / 2)
        return float(np.exp(first) - np.exp(second) - DELTA)

    return float(brentq(too_much, 0.0, 10.0 + mu * (mu + 12.0)))


@pytest.mark.parametrize("noise", [0.7, 1.1, 5.0, 40.0])
@pytest.mark.parametrize("releases", [1, 7, 150, 3000])
def test_what_is_spent_is_the_closed_form_and_never_less_than_the_truth(noise: float, releases: int) -> None:
    spent = Privacy(noise=noise, delta=DELTA).epsilon(releases)
    orders = np.array(ORDERS, dtype=float)
    rdp = orders * releases / (2 * noise**2)  # Mironov 2017, Proposition 7
    bound = rdp + np.log1p(-1 / orders) - (np.log(DELTA) + np.log(orders)) / (orders - 1)  # Balle et al. 2020
    assert spent == pytest.approx(max(0.0, float(bound.min())), rel=1e-9)
    assert exact(noise, releases) <= spent <= 1.35 * exact(noise, releases) + 0.1


def test_it_adds_up_over_releases_of_different_noise() -> None:
    """k releases with noise z are worth 4 k with noise 2 z."""
    privacy = Privacy(noise=2.0)
    assert privacy.epsilon(10, before=((4.0, 40),)) == pytest.approx(privacy.epsilon(20))
    assert privacy.epsilon(0) == 0.0


@settings(deadline=None, max_examples=30)
@given(st.floats(0.5, 50.0), st.floats(1.0, 100.0), st.integers(0, 50))
def test_a_budget_is_kept_and_nothing_of_it_left(noise: float, budget: float, before: int) -> None:
    free = Privacy(noise=noise)
    if free.epsilon(1) > budget:
        with pytest.raises(SpecError, match=r"privacy\.budget: .* raise noise or budget"):
            Privacy(noise=noise, budget=budget)
        return
    privacy, earlier = Privacy(noise=noise, budget=budget), ((noise, before),)
    most = privacy.most(earlier)
    assert privacy.epsilon(most + 1, earlier) > budget
    assert most == 0 or privacy.epsilon(most, earlier) <= budget
    assert most == max(0, privacy.most() - before)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"noise": 0.0}, "ε would be infinite"),
        ({"clip": 0.0}, r"privacy\.clip"),
        ({"delta": 1.0}, r"privacy\.delta"),
        ({"noise": 1.0, "budget": 0.5}, "one update with noise 1 costs ε = 4"),
        ({"sigma": 1.0}, "sigma"),
    ],
)
def test_what_protects_nothing_is_one_line(given: dict[str, float], said: str) -> None:
    with pytest.raises(SpecError, match=said) as told:
        make_spec({"algorithms": [{"name": "async_gossip", "privacy": given}]})
    assert "\n" not in str(told.value)


def test_noise_of_nothing_is_told_in_python_too() -> None:
    with pytest.raises(SpecError, match=r"ε is infinite; give a number above 0"):
        wt.private(wt.AsyncGossip(), noise=0.0)
    with pytest.raises(SpecError, match="sends no models"):
        wt.private(wt.Centralized())
    with pytest.raises(SpecError, match="private already"):
        wt.private(wt.private(wt.AsyncGossip()))
    with pytest.raises(SpecError, match="use the key privacy"):
        wt.screened(wt.AsyncGossip(), "private(1, 1)")


def test_without_the_accountant_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    accounting._accountant.cache_clear()
    with pytest.raises(wt.UserError, match=r"pip install 'walktalk\[privacy\]'"):
        Privacy(noise=1.2345).epsilon(3)


def test_what_would_go_out_beside_the_updates_is_refused() -> None:
    algorithms = [{"name": "multi_walk", "privacy": {}}]
    with pytest.raises(SpecError, match=r"training\.optimizer_state: walk would send"):
        make_spec({"algorithms": algorithms, "training": {"optimizer_state": "walk"}})
    with pytest.raises(SpecError, match=r"algorithms\.0\.optimizer_state: walk would send"):
        make_spec({"algorithms": [{**algorithms[0], "optimizer_state": "walk"}]})
    data = [(torch.randn(8, 3), torch.randint(2, (8,))) for _ in range(2)]
    task = wt.tasks.torch(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), nn.CrossEntropyLoss(), data)
    with pytest.raises(SpecError, match=r"training\.buffers: travel would send running statistics"):
        wt.train(task, wt.private(wt.AsyncGossip()), graphs.complete(2), stop=wt.Stop(iterations=1))


# -- protocols --------------------------------------------------------------------------------------------------------

PROTOCOLS = [
    wt.private(wt.AsyncGossip(), clip=0.5, noise=0.3),
    wt.private(wt.MultiWalk(walks=2), clip=0.5, noise=0.3),
    wt.private(TokenSaga(walks=2), clip=0.5, noise=0.3),  # its trainings are gradients
    wt.screened(wt.private(wt.SyncGossip(), noise=0.3, budget=1000.0), "median"),
]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.label)
def test_all_that_is_learned_is_cut_and_under_noise(protocol: wt.Protocol) -> None:
    """Every training is followed by a release before anything else is done, and the run is replayed in NumPy."""
    played = Played(setup(protocol, graphs.complete(4)))
    after = [
        second.event for first, second in zip(played.trace, played.trace[1:], strict=False) if first.event == "trained"
    ]
    assert set(after) == {"screen"}
    np.testing.assert_allclose(played.output, played.replay().play(played.trace).output(), rtol=1e-3, atol=1e-3)


def test_noise_adds_up_as_it_should() -> None:
    """Where nothing is learned, a walk is a sum of noise: variance k z² C² of every number."""
    privacy = {"clip": 0.5, "noise": 2.0}
    protocol = wt.private(wt.MultiWalk(walks=1), **privacy)
    squares = []
    for seed in range(20):
        played = Played(setup(protocol, graphs.complete(4), seed=Seed(seed), lr=0.0))
        start = played.replay().slots[0]["initial"]
        releases = sum(row.event == "screen" for row in played.trace)
        walked = played.replay().play(played.trace).members[1]
        squares += list((walked - start) ** 2 / (releases * 0.5**2 * 2.0**2))
    assert np.mean(squares) == pytest.approx(1.0, abs=5 * math.sqrt(2 / len(squares)))


def study(**privacy: float) -> wt.StudyResult:
    return run_study(
        make_spec(
            {
                "network": {"topology": "complete", "nodes": 4},
                "algorithms": [{"name": name, "privacy": privacy} for name in ("multi_walk", "async_gossip")],
                "stop": {"iterations": 600},
                "evaluate": {"every": 60},
            }
        )
    )


def test_the_history_says_what_was_spent_and_a_budget_ends_the_run(caplog: pytest.LogCaptureFixture) -> None:
    privacy = Privacy(noise=8.0, budget=4.0)
    most = privacy.most()
    result = study(noise=8.0, budget=4.0)
    assert result.history.equals(study(noise=8.0, budget=4.0).history)
    assert "every node has spent its privacy budget" in caplog.text
    for _, run in result.history.groupby("algorithm"):
        assert list(run["epsilon"]) == sorted(run["epsilon"])
        assert run["epsilon"].iloc[0] == 0.0
        assert run["epsilon"].iloc[-1] == pytest.approx(privacy.epsilon(most))
        assert 4 * most <= run["iteration"].iloc[-1] < 600


def test_who_has_spent_its_budget_learns_no_more_and_the_others_do() -> None:
    protocol = wt.private(wt.MultiWalk(walks=2), noise=3.0, budget=6.0)
    most = protocol.privacy.most() if protocol.privacy is not None else 0
    played = Played(setup(protocol, graphs.star(4), stop=wt.Stop(iterations=5000)))
    released = Counter(row.node for row in played.trace if row.event == "screen")
    assert set(released.values()) == {most}
    assert any(row.event == "withheld" for row in played.trace)
    assert played.trace[-1].event == "budget_spent"
    np.testing.assert_allclose(played.output, played.replay().play(played.trace).output(), rtol=1e-3, atol=1e-3)


# -- real nodes -------------------------------------------------------------------------------------------------------


def test_what_was_spent_outlives_a_node_that_dies(tmp_path: Path) -> None:
    privacy = Privacy(noise=5.0, budget=5.0)
    first = PrivacyBudget(tmp_path, privacy)
    assert all(first.spend() for _ in range(3))
    again = PrivacyBudget(tmp_path, privacy)  # the first has died: all that it had taken out is spent
    assert again.epsilon == privacy.epsilon(AT_ONCE)
    again.spend()
    again.close()
    assert json.loads((tmp_path / NAME).read_text()) == {"spent": [[5.0, AT_ONCE], [5.0, 1]]}
    louder = PrivacyBudget(tmp_path, Privacy(noise=9.0, budget=5.0))
    count = 0
    while louder.spend():
        count += 1
    assert louder.empty
    spent = ((5.0, AT_ONCE + 1),)
    assert Privacy(noise=9.0).epsilon(count, spent) <= 5.0 < Privacy(noise=9.0).epsilon(count + 1, spent)
    assert not PrivacyBudget(tmp_path, Privacy(noise=9.0, budget=5.0)).spend()


def test_what_cannot_be_written_down_is_not_let_out(tmp_path: Path) -> None:
    privacy_budget = PrivacyBudget(tmp_path / "gone", Privacy(noise=5.0))
    (tmp_path / "gone").write_text("a file where the folder should be")
    assert not privacy_budget.spend()
    assert not privacy_budget.empty
    (tmp_path / NAME).write_text('{"spent": [[-1, 3]]}')
    with pytest.raises(StudyError, match="does not say what was spent"):
        PrivacyBudget(tmp_path, Privacy(noise=5.0))


def test_real_nodes_end_their_run_with_their_budget_and_keep_the_noise_to_themselves(tmp_path: Path) -> None:
    protocol = wt.private(wt.AsyncGossip(), noise=3.0, budget=12.0)
    privacy = protocol.privacy
    assert privacy is not None
    with running(protocol, graphs.complete(3), tmp_path, wt.Stop(time=60.0), secret=True) as cluster:
        cluster.wait()
    assert all(node.progress.end.seen and node.status()["epsilon"] <= 12.0 for node in cluster.nodes)
    trace = cluster.trace()
    released = Counter(row.node for row in trace if row.event == "screen")
    assert released == dict.fromkeys(range(3), privacy.most())
    assert {row.key for row in trace if row.event == "screen"} == {0}
    assert {row.node for row in trace if row.event == "budget_spent"} == {0, 1, 2}
    assert not PrivacyBudget(tmp_path / "1", privacy).spend()


def test_a_history_that_is_collected_says_what_was_spent() -> None:
    measured = TraceRow(0.0, 0, "measured", detail={"loss": 1.0, "samples": 3})
    told = TraceRow(1.0, 0, "screen", "update", detail={"own": "update", "rule": "private(1.0, 2.0)"})
    privacy = Privacy(noise=2.0)
    rows = measured_history([measured, told, told], "mw", Evaluate(every=10), privacy)
    assert [row.further for row in rows] == [{"epsilon": 0.0}, {"epsilon": privacy.epsilon(2)}]
