"""The effect of a precision: pairs of runs that differ in nothing else, and a spread to hold it against."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas as pd
import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "precision.py"


@pytest.fixture(scope="module")
def precision():
    spec = importlib.util.spec_from_file_location("precision", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_differences_are_of_pairs(precision):
    ends = pd.DataFrame(
        {
            "algorithm": ["a", "a", "a", "a"],
            "repetition": [0, 1, 1, 0],
            "precision": ["fp32", "fp32", "bf16", "bf16"],
            "train_loss": [1.0, 3.0, 3.2, 1.1],
            "test_accuracy": [0.5, 0.7, 0.7, 0.5],
        }
    )
    loss, accuracy = precision.compared(ends).to_dict("records")
    assert loss["difference"] == pytest.approx(0.15)
    assert loss["sigma"] == pytest.approx(0.1 / 2**0.5)
    assert loss["standard_errors"] == pytest.approx(3.0)
    assert loss["between_repetitions"] == pytest.approx(2**0.5)
    assert accuracy["difference"] == 0.0


def test_a_study_in_each_precision_of_a_cpu(precision):
    changes = ["stop.iterations=30", "evaluate.every=30", "algorithms=[{name: async_gossip}]"]
    ends, seconds = precision.run_all("smoke", changes, "cpu", 50)
    assert list(seconds) == ["fp32", "bf16"]  # tf32 would be fp32 once more
    assert precision.precisions_of("cuda:0") == ["fp32", "tf32", "bf16"]
    assert set(ends.iteration) == {30}
    effect = precision.compared(ends).set_index("measure").loc["train_loss"]
    assert effect.repetitions == 2
    assert 0 < abs(effect.difference) < 0.01 * effect.fp32
