"""A small storm over real processes, for every run of the tests; `benchmarks/chaos.py` makes large ones."""

from __future__ import annotations

from pathlib import Path

from walktalk.studies.chaos import Storm, chaos_round


def test_three_kills_among_six_nodes_do_no_harm(tmp_path: Path) -> None:
    storm = Storm(
        nodes=6, walks=2, warmup=3.0, between=1.0, away=1.5, settle=9.0, blows=("aggregator", "random", "aggregator")
    )
    verdict = chaos_round(storm, 1, tmp_path)
    assert len(verdict.killed) == 3
    assert not verdict.stuck  # everybody leaves when asked to
    assert verdict.worst <= 1.0 + 1e-4  # no update is counted twice
    assert (verdict.walks, verdict.copies) == (2, 0)
    assert verdict.loss <= 1.5 * verdict.reference  # a tenth is what the long version asks for; this one is short
    assert verdict.recovery
