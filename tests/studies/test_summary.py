from __future__ import annotations

import json
import math

import pandas as pd
import pytest

from walktalk.records import HistoryRow, frame
from walktalk.report import results_table
from walktalk.studies.results.summary import at_the_end, first_below, summarize, summary_text
from walktalk.studies.spec.load import load_spec


def run(
    algorithm: str, repetition: int, losses: list[float], *, seconds: float = 1.0, bits: int = 8
) -> list[HistoryRow]:
    """An evaluation every 10 iterations."""
    return [
        HistoryRow(algorithm, repetition, 10 * k, 10 * k * seconds, 10 * k * bits, loss, 1 - loss / 4, 0.0)
        for k, loss in enumerate(losses)
    ]


def study(*runs: list[HistoryRow]) -> pd.DataFrame:
    return frame(row for rows in runs for row in rows)


def test_a_crossing_is_found_by_straight_line() -> None:
    table = study(run("a", 0, [2.0, 1.0, 0.5]))
    assert first_below(table, "iteration", 1.5) == 5.0
    assert first_below(table, "iteration", 1.0) == 10.0
    assert first_below(table, "time", 0.75) == 15.0
    assert first_below(table, "bits", 2.0) == 0.0
    assert math.isnan(first_below(table, "iteration", 0.4))


def test_a_crossing_after_an_infinite_loss_is_where_it_was_seen() -> None:
    assert first_below(study(run("a", 0, [math.inf, 1.0])), "iteration", 1.5) == 10.0


def test_each_axis_has_its_winner() -> None:
    table = study(
        run("walk", 0, [2.0, 0.5, 0.2], seconds=1.0, bits=8),
        run("walk", 1, [2.0, 0.7, 0.4], seconds=1.0, bits=8),
        run("gossip", 0, [2.0, 1.0, 0.5], seconds=0.05, bits=80),
        run("gossip", 1, [2.0, 1.2, 0.5], seconds=0.05, bits=80),
    )
    summary = summarize(table)
    assert summary["target_loss"] == 0.5  # the worst of the best: every run reaches it
    winners = {axis: winner["algorithm"] for axis, winner in summary["winners"].items()}
    assert winners == {"loss": "walk", "accuracy": "walk", "iteration": "walk", "time": "gossip", "bits": "walk"}
    walk = summary["algorithms"]["walk"]
    assert walk["final_loss"]["mean"] == pytest.approx(0.3)
    assert walk["final_loss"]["std"] == pytest.approx(math.sqrt(0.02))
    assert walk["to_target"]["iteration"]["mean"] == pytest.approx((10 + 10 + 10 * 0.2 / 0.3) / 2)
    assert summary["algorithms"]["gossip"]["to_target"]["time"]["mean"] == pytest.approx(1.0)
    assert summary["winners"]["time"]["clear"] is True
    assert summary["winners"]["loss"]["next"] == "gossip"


def test_an_algorithm_that_hardly_learns_does_not_set_the_target() -> None:
    summary = summarize(
        study(run("good", 0, [2.0, 0.5]), run("stuck", 0, [2.0, 1.99]), run("broken", 0, [2.0, math.nan]))
    )
    assert summary["target_loss"] == 0.5
    assert summary["algorithms"]["stuck"]["to_target"]["iteration"] is None
    assert summary["algorithms"]["broken"]["final_loss"] is None
    assert summary["winners"]["iteration"]["algorithm"] == "good"


def test_an_algorithm_that_loses_again_what_it_had_learned_does_not_set_the_target() -> None:
    runs = (run("good", 0, [2.0, 0.5]), run("astray", 0, [2.0, 1.2, 1.95]), run("slow", 0, [2.0, 1.1, 0.9]))
    summary = summarize(study(*runs))
    assert summary["target_loss"] == 0.9
    assert summary["algorithms"]["astray"]["to_target"]["iteration"] is None
    assert summary["algorithms"]["astray"]["best_loss"]["mean"] == 1.2


def test_it_says_which_runs_diverged() -> None:
    summary = summarize(
        study(
            run("good", 0, [2.0, 0.5]),
            run("a", 0, [2.0, math.nan]),
            run("a", 1, [math.nan, 1.0]),
            run("a", 2, [2.0, math.inf]),
        )
    )
    assert summary["diverged"] == {"a": [0, 2]}
    assert "never_finite" not in summary
    summary_text(summary)


def test_a_loss_that_never_was_a_number_is_no_matter_of_the_rate() -> None:
    content = summarize(study(run("good", 0, [2.0, 0.5]), run("bad", 0, [math.nan, math.nan])))
    assert content["never_finite"] == ["bad"]
    warning = results_table(content).warning
    assert warning.startswith("The loss is not a number from the beginning: ")
    assert "data" in warning
    assert "optimizer.lr" not in warning
    mixed = summarize(study(run("later", 0, [2.0, math.nan]), run("bad", 0, [math.nan, math.nan])))
    assert "optimizer.lr" in results_table(mixed).warning


def test_one_run_has_no_spread_and_no_rival() -> None:
    summary = summarize(study(run("only", 0, [2.0, 1.0])))
    assert summary["algorithms"]["only"]["final_loss"] == {"mean": 1.0, "std": None}
    assert summary["winners"]["loss"] == {"algorithm": "only", "value": 1.0, "next": None, "clear": None}


def test_a_task_without_accuracy_has_no_winner_there() -> None:
    rows = [row._replace(test_accuracy=math.nan) for row in run("a", 0, [2.0, 1.0])]
    assert summarize(study(rows))["winners"]["accuracy"] is None


def test_an_empty_history_has_no_winners() -> None:
    assert summarize(study())["winners"]["loss"] is None


def test_everything_goes_into_json_and_nothing_tells_whose_machine_it_was() -> None:
    summary = summarize(study(run("a", 0, [2.0, 1.0])), load_spec("smoke"), "cuda")
    assert json.loads(summary_text(summary)) == summary
    assert summary["settings"]["name"] == summary["study"] == "smoke"
    assert set(summary["machine"]) == {"system", "processor", "cpus", "device"}
    assert summary["versions"]["torch"]


def test_the_end_of_a_run_is_the_mean_of_its_last_evaluations() -> None:
    """One lucky moment at the very end decides nothing."""
    bad, good = [2.0, *[1.0] * 18, 0.1], [2.0, *[0.9] * 19]
    summary = summarize(study(*(run(name, k, losses) for name, losses in (("a", bad), ("b", good)) for k in range(3))))
    assert summary["window"] == 5
    assert summary["algorithms"]["a"]["final_loss"]["mean"] == pytest.approx(0.82)
    assert summary["algorithms"]["b"]["final_loss"]["mean"] == pytest.approx(0.9)
    assert summary["algorithms"]["a"]["best_loss"]["mean"] == pytest.approx(0.1)
    table = study(run("c", 0, [2.0, 1.0, 0.5]))
    assert at_the_end(table, "train_loss") == 0.5  # of three, none can be spared
    assert at_the_end(study(run("d", 0, [1.0, 1.0, 1.0, math.inf, 1.0, 1.0, 1.0, 3.0])), "train_loss") == 2.0
    assert math.isnan(at_the_end(study(run("e", 0, [1.0] * 7 + [math.nan])), "train_loss"))


def test_what_was_before_the_learning_rate_fell_is_no_end() -> None:
    spec = load_spec("smoke")
    spec = spec.model_copy(update={
        "stop": type(spec.stop)(iterations=190), "schedule": type(spec.schedule)(decay_at=[0.5, 0.9]),
    })  # fmt: skip
    losses = [2.0, *[1.0] * 17, 0.3, 0.1]  # evaluated at 0, 10, … 190; the rate falls at 171
    summary = summarize(study(run("a", 0, losses)), spec)
    assert summary["algorithms"]["a"]["final_loss"]["mean"] == pytest.approx(0.2)
    assert summary["window"] == 2


def test_verdicts_that_are_read_together_are_surer_alone() -> None:
    rows = (run(name, k, [2.0, end + 0.05 * k]) for name, end in (("a", 0.5), ("b", 0.9)) for k in range(3))
    won = summarize(study(*rows))["winners"]
    assert won["loss"]["chance"] < won["loss"]["chance_alone"]
    assert won["loss"]["clear"] is (won["loss"]["chance"] >= 0.975)


def test_splits_of_the_data_are_counted() -> None:
    rows = [run(name, k, [2.0, end + 0.3 * k]) for name, end in (("a", 0.5), ("b", 0.52)) for k in range(6)]
    one, six = summarize(study(*rows)), summarize(study(*rows), splits={k: k for k in range(6)})
    assert "splits" not in one
    assert six["splits"] == 6
    assert six["winners"]["loss"]["chance_alone"] > one["winners"]["loss"]["chance_alone"]
