"""Whole runs on a GPU are what they are on a CPU: every kind of step that an executor has.

Small enough for a GPU that is none (`tests/support/pretended_gpu.py`, by `make test-kernels`).
"""

from __future__ import annotations

import pytest
import torch

import walktalk as wt
from walktalk.runtimes.semantics import Evaluate
from walktalk.runtimes.stacked import executor, rows

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
ALGORITHMS = {
    "walks": {"name": "multi_walk", "walks": 2},
    "gossip": {"name": "async_gossip"},
    "matrix": {"name": "async_gossip", "mixing": "matrix"},
    "eight bits": {"name": "async_gossip", "compression": "int8"},
    "largest": {"name": "multi_walk", "walks": 2, "compression": "top_k(0.1)"},
    "parts": {"name": "divshare"},
    "corrections": {"name": "gradient_tracking"},
    "anchors": {"name": "fedprox"},
    "gradients": {"name": "async_sgd"},
    "screened": {"name": "sync_gossip", "screen": "trim(1)"},
    "moments": {"name": "fedopt"},
    "two models": {"name": "d2"},
}


def history(device: str, settings: dict[str, object], **more: object):
    task = wt.tasks.digits(nodes=6)
    run = wt.train(
        task,
        settings,
        wt.graphs.complete(6),
        stop=24,
        evaluate=Evaluate(every=8, members=True),
        batch_size=4,
        local_steps=2,
        device=device,
        **more,
    )
    return run.history.select_dtypes("number").drop(columns="wall", errors="ignore")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_is_what_it_is_on_a_cpu(name):
    found, expected = (history(device, ALGORITHMS[name]) for device in ("cuda", "cpu"))
    assert list(found) == list(expected)
    assert (found - expected).abs().max().max() <= 0.02 * (1 + expected.abs().max().max())


@pytest.mark.parametrize("name", ["walks", "parts"])
def test_wide_rows_are_combined_by_kernels(monkeypatch, name):
    pytest.importorskip("triton")
    monkeypatch.setattr(executor, "WIDEST_BAG", 1)
    monkeypatch.setattr(rows, "WIDEST_BAG", 1)
    test_a_run_is_what_it_is_on_a_cpu(name)


def test_states_travel():
    found, expected = (
        history(device, ALGORITHMS["walks"], optimizer=wt.SGD(0.05, momentum=0.9), optimizer_state="walk")
        for device in ("cuda", "cpu")
    )
    assert (found - expected).abs().max().max() <= 0.02 * (1 + expected.abs().max().max())
