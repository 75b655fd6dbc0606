"""Nothing has become slower: ratios of CPU times, not seconds, against those recorded.

After a change that is meant to move them: `python benchmarks/ratios.py --record`.
"""

from __future__ import annotations

import importlib.util
import json
from contextlib import nullcontext
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FALL = 0.7  # a ratio may fall by 30 %
TRIES = (2, 5, 5)  # rounds of each: a busy machine can spoil one measurement; a slower program spoils all


def load_ratios():
    spec = importlib.util.spec_from_file_location("ratios", ROOT / "benchmarks" / "ratios.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Measured:
    """Ratios that are this share of the recorded ones."""

    def __init__(self, share: float) -> None:
        self.share = share

    def ratios(self, rounds: int) -> dict[str, float]:
        recorded = json.loads((ROOT / "benchmarks" / "recorded.json").read_text())
        return {name: ratio * self.share for name, ratio in recorded.items()}


@pytest.mark.parametrize("share", [0.69, 0.71])
def test_a_fall_of_more_than_thirty_percent_is_seen(share, monkeypatch):
    monkeypatch.setitem(globals(), "load_ratios", lambda: Measured(share))
    with pytest.raises(AssertionError, match="slower than recorded") if share < FALL else nullcontext():
        test_no_ratio_falls_by_more_than_thirty_percent()


@pytest.mark.slow  # which other processes disturb; `make bench-check` compares with the commit before
def test_no_ratio_falls_by_more_than_thirty_percent():
    module = load_ratios()
    recorded = json.loads((ROOT / "benchmarks" / "recorded.json").read_text())
    best = dict.fromkeys(recorded, 0.0)
    for rounds in TRIES:
        found = module.ratios(rounds)
        assert found.keys() == recorded.keys()
        best = {name: max(best[name], found[name]) for name in best}
        if all(best[name] >= FALL * recorded[name] for name in best):
            return
    fallen = [name for name in best if best[name] < FALL * recorded[name]]
    said = [f"{name}: {best[name]:.3g}, recorded {recorded[name]:.3g}" for name in fallen]
    raise AssertionError(f"slower than recorded by more than 30 %: {'; '.join(said)}")
