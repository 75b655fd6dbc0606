from __future__ import annotations

from typing import Any

from walktalk.report import results_table


def spread(mean: float, std: float | None = None) -> dict[str, Any]:
    return {"mean": mean, "std": std}


AXES = ("iteration", "time", "bits")
BROKEN = {"repetitions": 5, "final_loss": None, "final_accuracy": None, "to_target": dict.fromkeys(AXES)}


def entry(loss: float, std: float, iterations: float) -> dict[str, Any]:
    values = (spread(iterations, 12.4), spread(iterations / 4, 3.0), spread(iterations * 1e6, 1e6))
    return {
        "repetitions": 5,
        "final_loss": spread(loss, std),
        "final_accuracy": spread(0.9512, 0.011),
        "to_target": dict(zip(AXES, values, strict=True)),
    }


def summary() -> dict[str, Any]:
    won = {"algorithm": "multi_walk-4", "value": 0.1, "next": "async_gossip-pairwise", "clear": True}
    return {
        "study": "mine",
        "target_loss": 0.1234,
        "algorithms": {
            "multi_walk-4": entry(0.25, 0.5, 1200.0),
            "async_gossip-pairwise": entry(0.00012, 0.00003, 2400.0),
            "sync_gossip": dict(BROKEN),
        },
        "winners": {axis: dict(won) for axis in ("loss", "accuracy", *AXES)},
    }


def test_the_table_has_means_spreads_and_units() -> None:
    table = results_table(summary())
    assert table.title == "Results of mine"
    assert table.head == ["Algorithm", "Final loss", "Accuracy (%)", "Iterations", "Time", "Data sent"]
    walk, gossip, broken = ([cell.text for cell in row] for row in table.rows)
    assert walk == ["4 walks", "0.250 ± 0.500", "95.1 ± 1.1", "1,200 ± 12", "300 ± 3 s", "150 ± 0 MB"]
    assert gossip[:2] == ["Gossip in pairs", "1.20e-04 ± 3e-05"]
    assert broken == ["Gossip in rounds", "–", "–", "not reached", "not reached", "not reached"]
    assert [cell.best for cell in table.rows[0]] == [False, True, True, True, True, True]
    assert not any(cell.best for cell in table.rows[1])


def test_the_note_says_what_is_too_close_to_call() -> None:
    content = summary()
    assert (
        results_table(content).note == "Iterations, time and data: to training loss 0.123. Mean ± σ over 5 repetitions."
    )
    content["winners"]["time"]["clear"] = False
    assert results_table(content).note.endswith("Too close to call: time (4 walks or Gossip in pairs).")


def test_the_note_says_what_is_probable_and_how_many_repetitions_would_tell() -> None:
    content = summary()
    content["winners"]["time"].update(clear=False, chance=0.95, repetitions_needed=7)
    content["winners"]["bits"].update(clear=False, chance=0.7, repetitions_needed=None)
    assert results_table(content).note.endswith(
        "Probable, but not sure: time (4 walks before Gossip in pairs; about 7 repetitions would tell). "
        "Too close to call: data sent (4 walks or Gossip in pairs)."
    )


def test_runs_that_diverged_are_named() -> None:
    assert results_table(summary()).warning == ""
    warning = results_table({**summary(), "diverged": {"multi_walk-4": [1, 3]}}).warning
    assert warning.startswith("Diverged, the loss is not a number: 4 walks (2 of 5 runs).")


def test_a_task_without_accuracy_has_no_such_column() -> None:
    content = summary()
    for algorithm in content["algorithms"].values():
        algorithm["final_accuracy"] = None
    content["winners"]["accuracy"] = None
    assert "Accuracy (%)" not in results_table(content).head


def test_nothing_is_marked_that_is_too_close_to_call_or_has_no_rival() -> None:
    content = summary()
    content["winners"]["time"].update(clear=False, chance=0.6)
    content["winners"]["bits"].update(clear=False, chance=0.93)
    content["winners"]["loss"].update(next=None, clear=None)
    marked = [cell.best for cell in results_table(content).rows[0]]
    assert marked == [False, False, True, True, False, True]


def test_further_columns_are_the_test_loss_and_metrics_of_ones_own() -> None:
    content = summary()
    for k, label in enumerate(("multi_walk-4", "async_gossip-pairwise")):
        entry = content["algorithms"][label]
        entry |= {"final_test_loss": spread(0.5 + k), "final_each_test_loss_worst": spread(1.0)}
        entry |= {"final_auc": spread(0.75), "final_consensus": spread(0.1)}
    table = results_table(content, further=True)
    assert table.head[2:-3] == ["Accuracy (%)", "Test loss", "Auc"]
    assert [cell.text for cell in table.rows[0]][3:5] == ["0.500", "0.750"]
    assert [cell.text for cell in table.rows[2]][3:5] == ["–", "–"]
    assert not any(cell.best for row in table.rows for cell in row[3:5])
