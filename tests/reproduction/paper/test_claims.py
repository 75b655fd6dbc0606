"""The numbers of DETAILS.md from the runs' tables, on invented runs whose numbers are worked out by hand."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pandas as pd
import pytest

from walktalk.records import RUN_COLUMNS

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "reproduction"))

import paper_claims
from claims import costs, failures, fairness, iterations, language, losses, splits, threshold
from claims.runs import Setting, settings_of
from claims.spread import NOTHING, difference, ratio, spread, standings, text

GB = 8_000_000_000  # bits; a model of the invented runs
GOSSIP = "async_gossip-pairwise"
NAN = math.nan


def cells(report: list[str] | str, row: str, nth: int = 0) -> list[str]:
    """Of the nth table that has such a row, the row."""
    lines = "\n".join([report] if isinstance(report, str) else report).split("\n")
    found = [line for line in lines if line.startswith(f"| {row} |")]
    return [cell.strip() for cell in found[nth].strip("|").split("|")][1:]


def rows(label: str, repetition: int, curve: list[float], seconds: float, models: float, step: float = 100):
    """A run that is evaluated every so many iterations; the mean of its models is 0.1 better than the aggregated."""
    for place, loss in enumerate(curve):
        iteration = int(step * place)
        bits = round(models * iteration) * GB
        yield (
            label,
            repetition,
            iteration,
            seconds * iteration,
            bits,
            loss,
            0.5,
            float(iteration),
            bits,
            loss - 0.1,
            0.6,
        )


def write(file: Path, runs: dict[str, list[list[float]]], pace: dict[str, tuple[float, float]], **more: float) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    table = [
        row
        for label, curves in runs.items()
        for repetition, curve in enumerate(curves)
        for row in rows(label, repetition, curve, *pace[label], **more)
    ]
    pd.DataFrame(table, columns=list(RUN_COLUMNS)).to_csv(file, index=False, lineterminator="\n")


PACE = {"multi_walk-1": (1.0, 0.5), "multi_walk-4": (0.25, 0.33), "multi_walk-6": (0.2, 0.33), GOSSIP: (0.05, 2.0)}
RUNS = {
    "multi_walk-1": [[14, 1.6, 1.2, 1.0, 0.4], [14, 1.8, 1.4, 1.2, 0.6]],
    "multi_walk-4": [[14, 2.0, 1.8, 1.6, 1.0], [14, 2.2, NAN, 1.8, 1.2]],
    GOSSIP: [[14, 1.7, 1.5, 1.1, 0.8], [14, 1.7, 1.5, 1.3, 0.8]],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "alpha-1" / "cycle.csv", RUNS, PACE)
    return tmp_path


@pytest.fixture
def settings(folder: Path) -> list[Setting]:
    return settings_of(folder)


# -- spreads ----------------------------------------------------------------------------------------------------------


def test_a_spread_and_how_it_is_written():
    assert text(spread([1.0, 1.2])) == "1.100 ± 0.141"
    assert text(spread([1234.5]), 1) == "1,234.5"
    assert text(spread([1.0, NAN, 2.0, NAN]), 1) == "not a number in 2 of 4, else 1.5 ± 0.7"
    assert text(spread([NAN, NAN]), 1, "not reached") == "not reached in 2 of 2"
    assert text(spread([-1.0, -3.0]), 0) == "−2 ± 1"
    assert text(NOTHING) == "not run"


def test_ratios_and_differences_are_of_means():
    times = ratio(spread([3.0, 5.0]), spread([2.0, 2.0]))  # 4 ± √2 over 2
    assert (times.mean, times.sigma) == pytest.approx((2.0, math.sqrt(2) / 2))
    apart = difference(spread([3.0, 5.0]), spread([2.0, 4.0]))
    assert (apart.mean, apart.sigma) == pytest.approx((1.0, 2.0))
    assert ratio(spread([1.0, NAN]), spread([1.0, 1.0])) == "–"  # the one that has a number would flatter
    assert difference(spread([1.0]), NOTHING) == ratio(NOTHING, NOTHING) == "not run"


def test_standings_are_read_together():
    low, high = spread([1.0, 1.01, 1.02]), spread([1.5, 1.5, 1.51])
    noisy, single = spread([1.0, 1.9, 1.3]), spread([1.0])
    found = standings({
        "low": (low, high), "high": (high, low), "noisy": (noisy, high), "one": (single, spread([1.5])),
        "broken": (spread([NAN, 1.0]), high), "none": (NOTHING, high),
    })  # fmt: skip
    assert found["low"] == "ahead by 0.493"
    assert found["high"] == "behind by 0.493"
    assert found["noisy"] == "even (+0.103 ± 0.458)"
    assert found["one"] == "ahead by 0.500 (single runs)"
    assert found["broken"] == "not a number in some runs"
    assert found["none"] == "not run"
    # Some 14 % apart with two runs each: that may be said of one, but not of each of twenty such.
    pair = (spread([1.0, 1.02]), spread([1.13, 1.17]))
    assert standings({0: pair, 1: (low, high), 2: (high, low)})[0].startswith("ahead")
    assert standings({0: pair, **dict.fromkeys(range(1, 40), (noisy, noisy))})[0].startswith("even")


# -- image runs -------------------------------------------------------------------------------------------------------


def test_losses_at_the_end_and_before_the_decay(settings, folder):
    final = losses.final(settings, folder)
    assert cells(final, "α = 1, cycle") == ["0.500 ± 0.141", "1.100 ± 0.141", "0.800 ± 0.000"]
    assert cells(final, "α = 1, cycle", 1) == ["0.400 ± 0.141", "1.000 ± 0.141", "0.700 ± 0.000"]  # of the means
    assert cells(final, "α = 1, cycle", 2) == ["50.0 ± 0.0"] * 3
    assert cells(final, "α = 1, cycle", 4) == ["even (+0.300 ± 0.141)", "even (−0.300 ± 0.141)", "–"]  # of two runs
    assert cells(final, "α = 0.1, cycle") == ["not run"] * 3
    words = "\n".join(final)
    assert "α = 1, cycle: R = 1 < gossip < R = 4" in words
    assert (
        "α = 1, cycle, R = 4: 1 of 10 evaluations of the aggregated model, 1 of the mean; 0 of 2 runs end so" in words
    )
    early = losses.before_decay(settings)  # at 300 of 400 iterations
    assert cells(early, "α = 1, cycle") == ["1.100 ± 0.141", "1.700 ± 0.141", "1.200 ± 0.141"]
    assert cells(early, "α = 1, cycle", 2) == ["even (+0.100 ± 0.200)", "even (−0.500 ± 0.200)", "–"]


def test_iterations_to_a_loss_that_both_reach(settings):
    """Down to gossip's 0.8: walk after 333.3 and 366.7 iterations, gossip after 400; before the decay the walk's means
    are 1.7, 1.3, 1.1 and gossip's 1.7, 1.5, 1.2."""
    report = iterations.ahead(settings)
    assert cells(report, "α = 1, cycle, R = 1") == ["0.800", "350 ± 24", "400 ± 0", "1.14 ± 0.08", "2 of 3"]
    assert cells(report, "α = 1, cycle, R = 4")[-1] == "0 of 3"  # one of its evaluations is not a number
    assert cells(report, "α = 10, complete") == ["not run"] * 5
    assert "cycle, to a loss that both reach: R = 1 needs 1.1 ± 0.1 (α = 1) times fewer iterations" in "\n".join(report)


def test_winners_are_those_of_the_phase_diagram(settings, folder):
    report = iterations.winners(settings, folder)
    assert cells(report, "α = 1, cycle") == [
        "R=1 ?, 1.14 times, to 0.800",  # of two runs
        "gossip, 17.50 times, to 0.800",
        "R=1, 4.57 times, to 0.800",
    ]
    assert "the advisor: not run" in "\n".join(report)


def test_the_threshold(settings, folder):
    """Halfway between R = 1 (0.5) and 4 (1.1) lies gossip's 0.8: R = 2 in log R. In the repetitions two thirds and one
    third of the way: 4^(2/3) and 4^(1/3)."""
    report = threshold.section(settings, folder)
    row = cells(report, "α = 1, cycle")
    assert row[:2] == ["2.0", "2.1 ± 0.7"]
    assert row[-3:] == ["1, 4", "17.7", "0.0642"]
    assert "α = 1, cycle: NO" in "\n".join(report)  # invented times are of no graph
    assert threshold.crossing([(1, 2.0), (4, 3.0)], 1.0) == 0.0
    assert threshold.crossing([(1, 2.0), (4, 3.0)], 4.0) == math.inf


def test_more_walks_from_another_folder(folder):
    more = {"multi_walk-6": [[14, 3.0, 2.0]], "multi_walk-1": [[14, 9.0, 9.0]]}
    write(folder / "threshold" / "cycle.csv", more, PACE)
    (folder / "threshold" / "facts.json").write_text(json.dumps({"settings": {"alpha": 1.0}}))
    at = {(s.alpha, s.topology): s for s in settings_of(folder)}
    assert at[1.0, "cycle"].labels == ["multi_walk-1", "multi_walk-4", "multi_walk-6", GOSSIP]
    assert len(at[1.0, "cycle"].runs("multi_walk-1")) == 2  # as they were
    assert at[10.0, "cycle"].labels == []
    row = cells(losses.final(list(at.values()), folder), "α = 1, cycle")
    assert row[2] == "2.000 (n = 1)"


@pytest.fixture
def to_1_1(monkeypatch):
    """The loss to which costs are counted in these tests."""
    monkeypatch.setitem(costs.TARGETS, 1.0, 1.1)


@pytest.mark.usefixtures("to_1_1")
def test_time_to_a_loss(settings):
    """To 1.1: one walk 250 and 316.7 s, four 95.8 s and never, gossip 15 and 17 s."""
    report = costs.time(settings)
    row = "α = 1, cycle, to 1.1"
    assert cells(report, row) == ["283.3 ± 47.1", "not reached in 1 of 2, else 95.8", "16.0 ± 1.4"]
    assert cells(report, row, 1) == ["1", "–", "17.71 ± 3.34"]
    assert cells(report, row, 2) == ["17.7 ± 3.3", "–", "1"]
    assert cells(report, "α = 1, cycle") == ["1.0 ± 0.0", "4.0 ± 0.0", "20.0 ± 0.0"]  # iterations a second
    assert "gossip: a run takes 20 virtual seconds; 20.0 times R = 1's iterations a second" in "\n".join(report)


@pytest.mark.usefixtures("to_1_1")
def test_data_to_a_loss(settings, folder):
    """Half a model an iteration and two: 250 and 316.7 iterations of one walk, 300 and 340 of gossip."""
    report = costs.bits(settings, folder)
    assert cells(report, "α = 1, cycle, to 1.1")[::2] == ["141.67 ± 23.57", "640.00 ± 56.57"]
    assert cells(report, "α = 1, cycle, to 1.1", 1)[0] == "4.5 ± 0.9"
    sent = cells(report, "α = 1, cycle")
    assert sent[:3] == ["0.500 ± 0.000", "0.330 ± 0.000", "2.000 ± 0.000"]
    assert sent[3:] == ["0.667, 2", "1", "60 (40 without the diagonal)"]
    assert "models of 1000.000 MB" in "\n".join(report)


def test_topology_and_alpha(folder):
    less = {label: [[loss - 0.25 for loss in curve] for curve in curves] for label, curves in RUNS.items()}
    write(folder / "alpha-1" / "erdos_renyi.csv", less, PACE)
    write(folder / "alpha-10" / "cycle.csv", less, PACE)
    report = losses.topology(settings_of(folder))
    assert cells(report, "α = 1, cycle − ER (0.3)") == ["0.250 ± 0.200", "0.250 ± 0.200", "0.250 ± 0.000"]
    assert cells(report, "cycle, α = 1 − α = 10")[0] == "0.250 ± 0.200"
    assert cells(report, "α = 1, complete − cycle") == ["not run"] * 3
    assert cells(report, "α = 1, cycle") == ["200.00 ± 0.00"] * 3  # consensus at half of 400 iterations


def test_the_centralized_reference(folder):
    write(
        folder / "centralized" / "cycle.csv", {"centralized": [[14, 1.0, 0.1]]}, {"centralized": (1.0, 0.0)}, step=500
    )
    facts = {"spec": {"training": {"local_steps": 25, "batch_size": 32}}}  # 1,000 · 25 · 32 images of 50,000
    (folder / "centralized" / "facts.json").write_text(json.dumps(facts))
    said = losses.centralized(folder)
    assert said.endswith("Centralized: 50.0 % test accuracy, training loss 0.100, after 16 epochs (n = 1)")


# -- the other runs ---------------------------------------------------------------------------------------------------


def test_fairness(tmp_path):
    ends = {
        ("visit", "multi_walk-1"): [1.0, 1.2],
        ("visit", GOSSIP): [1.5, 1.5],
        ("node", "multi_walk-1"): [2.0, 2.2],
        ("node", GOSSIP): [1.1, 1.3],
        ("walk", "multi_walk-1"): [1.5, 1.5],
        ("tuned", GOSSIP): [1.3, 1.5],
    }
    table = [
        (0.1, "cycle", variant, 3.0 if variant == "tuned" else 1.0, *row)
        for (variant, label), losses in ends.items()
        for repetition, loss in enumerate(losses)
        for row in rows(label, repetition, [14, 1.9, loss], 1.0, 0.5 if variant != "walk" else 1.0)
    ]
    (tmp_path / "fairness").mkdir()
    columns = ["alpha", "topology", "variant", "lr_factor", *RUN_COLUMNS]
    pd.DataFrame(table, columns=columns).to_csv(tmp_path / "fairness" / "fairness.csv", index=False)
    report = fairness.section(tmp_path)
    walk, gossip = "α = 0.1, cycle, R = 1", "α = 0.1, cycle, gossip"
    assert cells(report, walk) == ["1.100 ± 0.141", "2.100 ± 0.141", "1.500 ± 0.000", "(1.100 ± 0.141)"]
    assert cells(report, gossip) == ["1.500 ± 0.000", "1.200 ± 0.141", "(1.200 ± 0.141)", "1.400 ± 0.141 (×3)"]
    apart = ["even (+0.400 ± 0.141)", "behind by 0.900", "even (−0.300 ± 0.141)", "even (+0.300 ± 0.200)"]
    assert cells(report, walk, 1) == apart  # two runs of each, and four verdicts are read
    words = "\n".join(report)
    assert "aggregated model, at the nodes, R = 1: +1.000 against fresh" in words
    assert "aggregated model, at the nodes, gossip: −0.300 against fresh" in words
    assert "own rate lowers the loss most: −0.100 ± 0.141 at α = 0.1, cycle, gossip (×3)" in words
    assert "with the walk, α = 0.1, cycle: gossip < R = 1" in words
    assert cells(report, f"{walk}, to 1.8")[:2] == ["100.00 ± 0.00", "56.35 ± 1.12"]  # 111.1 and 114.3 iterations
    assert cells(report, f"{walk}, to 1.8")[4] == "200.00 ± 0.00"  # state that travels is sent


def test_a_fair_run_that_ends_without_a_number_shows(tmp_path):
    table = [(1.0, "cycle", "visit", 1.0, *row) for row in rows("multi_walk-1", 0, [14, 1.0, NAN], 1.0, 0.5)]
    columns = ["alpha", "topology", "variant", "lr_factor", *RUN_COLUMNS]
    (end,) = {spread.having for spread in fairness.final_losses(pd.DataFrame(table, columns=columns)).values()}
    assert end == 0


def test_figure_8(tmp_path):
    """All reach 1.0: the walk after 16.7 and 10 s, gossip after 20 and 18 s."""
    runs = {"multi_walk-1": [[1.7, 1.2, 0.9], [1.7, 1.0, 0.8]], GOSSIP: [[1.7, 1.4, 1.0], [1.7, 1.4, 0.9]]}
    write(tmp_path / "fig8" / "fig8.csv", runs, {"multi_walk-1": (0.1, 0.5), GOSSIP: (0.1, 2.01)})
    report = language.section(tmp_path)
    assert cells(report, "R = 1")[:2] == ["0.850 ± 0.071", "50.0 ± 0.0"]
    assert cells(report, "gossip")[4:] == [
        "200 ± 0",
        "20.0 ± 0.0",
        "402 ± 0",
        "10.00 ± 0.00",
        "2.010 ± 0.000",
        "2.01 ± 0.00",
    ]
    row = "to 1.000 (all reach it)"
    assert cells(report, row, 2) == ["13.3 ± 4.7", "19.0 ± 1.4", "1.43 ± 0.51"]
    assert cells(report, row, 0)[2] == "1.43 ± 0.51"
    assert cells(report, "to 0.900", 2) == ["17.5 ± 3.5", "not reached in 1 of 2, else 20.0", "–"]


def test_figure_9(tmp_path):
    times = [0.0, 50.0, 300.0, 350.0, 600.0, 650.0, 900.0]
    curves = {
        "fig9": [[14, 2.5, 2.0, 1.9, 1.5, 1.7, 1.0], [14, 2.6, 2.1, 2.0, 1.6, 1.8, 1.1]],
        "fig9-without": [[14, 2.5, 2.0, 1.8, 1.4, 1.3, 0.9], [14, 2.6, 2.1, 1.9, 1.5, 1.4, 0.8]],
    }
    for name, runs in curves.items():
        write(tmp_path / name / "fig9.csv", {"multi_walk-4": runs}, PACE)
        history = pd.read_csv(tmp_path / name / "fig9.csv")
        history.assign(time=times * 2).to_csv(tmp_path / name / "fig9.csv", index=False)
    events = [(300.0, "kill"), (305.0, "elected"), (600.0, "kill"), (604.0, "elected"), (604.5, "forked")]
    pd.DataFrame(
        [("multi_walk-4", repetition, *event) for repetition in (0, 1) for event in events],
        columns=["algorithm", "repetition", "time", "event"],
    ).to_csv(tmp_path / "fig9" / "events.csv", index=False)
    report = failures.section(tmp_path)
    words = "\n".join(report)
    assert cells(report, "R = 4, with failures")[0] == "1.050 ± 0.071"
    assert "R = 4: 4 elections after 4 failures in 2 runs, 4.00 to 5.00 s after, forked 2 times" in words
    assert cells(report, "R = 4, with failures", 1) == [
        "2.050 ± 0.071",
        "1.950 ± 0.071",
        "1.550 ± 0.071",
        "1.750 ± 0.071",
    ]
    rise = cells(report, "R = 4")
    assert rise[0].startswith("+0.200 (from 600 s")
    assert rise[1].startswith("−0.400 (from 350 s")
    assert rise[2].startswith("−0.100 (from 600 s")
    # 0.1 and 0.3 worse: 0.2 ± 12.706 · 0.1
    assert cells(report, "R = 4", 1)[0] == "0.200 (−1.071 to 1.471, n = 2)"


def test_figure_3_is_the_split_of_the_runs():
    shares = {alpha: splits.largest_shares(alpha, 0) for alpha in (10.0, 1.0, 0.1)}
    assert all(len(of) == 20 and (of >= 0.1).all() and (of <= 1).all() for of in shares.values())
    assert shares[10.0].mean() < shares[1.0].mean() < shares[0.1].mean()
    even = splits.largest_shares(1e6, 0)
    assert even == pytest.approx(0.1, abs=0.001)  # ten classes, all alike


def test_an_empty_folder_is_not_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(splits, "SEEDS", 1)
    paper_claims.main(tmp_path)
    said = capsys.readouterr().out
    assert said.count("\n## ") == 10
    for name in (language.CONGESTION, failures.CONVERGES, fairness.CLAIM):
        assert f"- **{name}**: not run" in said
    assert "Centralized: not run" in said


def test_part_of_a_folder_is_enough(folder, capsys, monkeypatch):
    monkeypatch.setattr(splits, "SEEDS", 1)
    (folder / "alpha-1" / "complete.csv").write_text((folder / "alpha-1" / "cycle.csv").read_text())
    write(folder / "alpha-3" / "cycle.csv", {"multi_walk-1": RUNS["multi_walk-1"][:1], GOSSIP: RUNS[GOSSIP][:1]}, PACE)
    write(folder / "fig9" / "fig9.csv", {"multi_walk-4": [[14, 2.5, 2.0]]}, PACE)  # and no events.csv
    paper_claims.main(folder)
    said = capsys.readouterr().out
    assert "| α = 3, cycle, to 0.8 |" in said  # an α without a loss of its own: what all reach
    assert "| α = 1, complete |" in said
