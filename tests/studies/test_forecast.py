"""A forecast is the schedule of the run itself."""

from __future__ import annotations

import pytest

import walktalk as wt

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


def test_walks_that_do_not_fit_are_refused():
    with pytest.raises(wt.UserError):
        wt.forecast(wt.MultiWalk(walks=1, aggregator=9), GRAPH, model_bytes=1)
