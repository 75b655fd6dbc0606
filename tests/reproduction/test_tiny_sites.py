"""The suite `tiny-sites`: how data are dealt out, what is measured at which budget, and what verdicts say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from walktalk.core.errors import SpecError
from walktalk.reproduction import suites
from walktalk.reproduction.suites import tiny_sites
from walktalk.reproduction.suites.tiny_sites import DATA, SETTINGS, Outcome, Setting, best_rates, dealt, found_setting

SMALL = Setting("diabetes", 4, 2, False)


def row(contender: str, seed: int, trainings: float, bytes_: float = 0.5, rate: float = 0.1) -> Outcome:
    return Outcome("digits", 16, 5, True, contender, rate, seed, trainings, bytes_, 0.5, 1.0, 1.0)


def test_sites_have_what_the_setting_says_and_nothing_twice() -> None:
    sites, (held, _) = dealt(Setting("digits", 16, 5, True), 0, validate=False)
    assert [len(labels) for _, labels in sites] == [5] * 16
    rows = np.concatenate([*(inputs for inputs, _ in sites), held])
    assert len(np.unique(rows, axis=0)) == len(rows)
    classes = [len({*labels.tolist()}) for _, labels in sites]
    alike = [len({*labels.tolist()}) for _, labels in dealt(Setting("digits", 16, 5, False), 0, validate=False)[0]]
    assert np.mean(classes) < 2.5 < 3.5 < np.mean(alike)
    validation = dealt(Setting("digits", 16, 5, True), 0, validate=True)[1][0]
    assert not {one.tobytes() for one in validation} & {one.tobytes() for one in held}


def test_every_setting_has_data_enough() -> None:
    rng = np.random.default_rng(0)
    for task, data in DATA.items():
        most = max(one.sites * one.samples for one in SETTINGS.values() if one.task == task)
        assert len(data.draw(rng)[1]) - data.test - data.valid >= most
    with pytest.raises(SpecError, match="did you mean"):
        found_setting("digits-1x64-alik")


def test_a_run_is_measured_at_each_budget_and_the_same_seed_gives_the_same() -> None:
    tours = {one.name: one for one in tiny_sites.CONTENDERS}
    chosen = [(tours["tour-1"], 0.03), (tours["fedavg"], 0.1)]
    tour, fedavg = tiny_sites.run(SMALL, 0, chosen, validate=False)
    assert tour == tiny_sites.run(SMALL, 0, chosen[:1], validate=False)[0]._replace(contender="tour-1")
    assert tour.bytes == tour.trainings  # a tour has sent exactly what all are given
    assert fedavg.bytes != fedavg.trainings
    assert fedavg.gigabytes > 1.4 * tour.gigabytes  # three of four send a model each way
    assert tour.seconds == pytest.approx(80 * 1.2, rel=0.05)


def test_the_best_rate_is_the_one_with_the_best_mean() -> None:
    tried = pd.DataFrame(
        [
            row("tour-1", seed, good, rate=rate)
            for rate, both in ((0.1, (0.9, 0.1)), (0.3, (0.6, 0.6)))
            for seed, good in enumerate(both)
        ]
    )
    assert best_rates(tried) == {("digits-5x16-unlike", "tour-1"): 0.3}


def test_a_verdict_compares_the_best_of_both_kinds_seed_by_seed() -> None:
    runs = pd.DataFrame(
        [
            row(name, seed, good + 0.01 * seed, bytes_=good)
            for name, good in (("tour-1", 0.8), ("walk-1", 0.7), ("fedavg", 0.6), ("pooled", 0.9))
            for seed in range(4)
        ]
    )
    runs["hours"] = [0.5 + 0.1 * ((k * 7) % 3) for k in range(len(runs))]
    by_trainings, _, by_hours = suites.verdicts(runs)
    assert (by_trainings.travelling, by_trainings.other, by_trainings.winner) == ("tour-1", "fedavg", "tours")
    assert by_trainings.ahead == pytest.approx(20.0)
    assert by_hours.winner == "even"
    assert "tour-1 81.5 %, fedavg 61.5 %: **+20.0 ± 0.0**" in suites.in_short(runs)
    table = suites.as_markdown(runs)
    assert "| **81.5 %** |" in table
    assert "tours: +20.0 ± 0.0" in table
    assert len(suites.diagram(runs).axes) == 3
