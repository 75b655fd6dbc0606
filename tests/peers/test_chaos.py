"""A small plan over real processes; `walktalk chaos` makes large ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from walktalk.testing.chaos import ChaosFault, ChaosPlan, chaos_round


@pytest.mark.slow
def test_three_kills_among_six_nodes_do_no_harm(tmp_path: Path) -> None:
    faults = (ChaosFault("aggregator", for_good=True), ChaosFault("random"), ChaosFault("aggregator"))
    plan = ChaosPlan(
        nodes=6,
        walks=2,
        heartbeat=0.3,
        pace=0.02,
        warmup=2.0,
        between=1.0,
        away=1.5,
        settle=14.0,
        judged=5.0,
        faults=faults,
    )
    verdict = chaos_round(plan, 1, tmp_path)
    assert sum(line.startswith("kill -9") for line in verdict.faults) == 3
    assert verdict.aggregators_killed >= 2
    assert not verdict.stuck  # everybody leaves when asked to
    assert not verdict.idle  # and trained until then
    assert verdict.counted <= 1.001  # no update is counted twice
    assert (verdict.walks, verdict.copies) == (2, 0)
    assert verdict.loss.ratio <= 1.5  # a tenth is what the long version asks for; this one is short
    assert verdict.recovery
