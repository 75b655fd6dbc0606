"""A forecast is the schedule of the run itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import walktalk as wt
from walktalk.protocols import LocalDSGD, compressed

GRAPH = wt.graphs.cycle(6)
TIMINGS = {"poisson": wt.PoissonTiming(0.5), "network": wt.NetworkTiming(compute=0.1, bandwidth=1e6, spread=0.3)}


@pytest.mark.parametrize("timing", list(TIMINGS))
@pytest.mark.parametrize("protocol", [wt.MultiWalk(walks=2), wt.AsyncGossip()], ids=["walks", "gossip"])
def test_it_is_what_training_then_takes(protocol, timing):
    given = {"timing": TIMINGS[timing], "stop": wt.Stop(iterations=90), "seed": 3}
    run = wt.train(wt.tasks.digits(nodes=6), protocol, GRAPH, device="cpu", **given)
    found = wt.forecast(protocol, GRAPH, model_bytes=run.trainer.payload_bytes, **given)
    last = run.history.iloc[-1]
    assert (found.iterations, found.time, found.bits) == (last.iteration, last.time, last.bits)
    assert found.events >= 90


def test_steps_of_its_own_take_their_time():
    timing, stop = wt.NetworkTiming(compute=2.0, latency=0.0), wt.Stop(iterations=12)
    asked = {"model_bytes": 4, "timing": timing, "stop": stop, "local_steps": 4}
    times = [wt.forecast(LocalDSGD(steps=steps), GRAPH, **asked).time for steps in (0, 4, 1, 8)]
    assert times == pytest.approx([4.0, 4.0, 1.0, 8.0], abs=1e-3)  # two rounds, and next to nothing on the way


def test_statistics_of_a_compressed_model_go_as_they_are():
    x, y = torch.randn(48, 4), torch.arange(48) % 3
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    parts = [(x[k::6], y[k::6]) for k in range(6)]
    task, stop = wt.tasks.torch(model, nn.functional.cross_entropy, parts), wt.Stop(iterations=12)
    protocol = compressed(wt.AsyncGossip(), "int8")
    run = wt.train(task, protocol, GRAPH, device="cpu", stop=stop, seed=3)
    sizes = {"model_bytes": run.trainer.payload_bytes, "statistics_bytes": run.trainer.statistics_bytes}
    assert sizes["statistics_bytes"] > 0
    assert wt.forecast(protocol, GRAPH, stop=stop, seed=3, **sizes).bits == run.history.iloc[-1].bits


def test_walks_that_do_not_fit_are_refused():
    with pytest.raises(wt.UserError):
        wt.forecast(wt.MultiWalk(walks=1, aggregator=9), GRAPH, model_bytes=1)
