"""A cluster is upgraded node by node while it trains, and rolled back: no walk is lost, nothing counts twice.

Old nodes are those of the last commit that refused every other version, as a wheel that is built from git; later ones
are of a version that does not exist yet (`tests/support/future.py`).
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from walktalk.core.errors import UserError
from walktalk.runtimes.peers import read_event_log
from walktalk.studies.collecting import collect

if TYPE_CHECKING:
    from benchmarks.rolling_upgrade import Trial, Version

ROOT = Path(__file__).parents[2]


def the_benchmark() -> Any:
    """`benchmarks/rolling_upgrade.py`, which is no package."""
    described = importlib.util.spec_from_file_location("rolling_upgrade", ROOT / "benchmarks" / "rolling_upgrade.py")
    assert described is not None
    assert described.loader is not None
    module = sys.modules["rolling_upgrade"] = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


rolling = the_benchmark()
SETTLES = 4.0  # seconds in which all nodes train, between two steps


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Version:
    try:
        return rolling.Version("old", rolling.build(rolling.BEFORE, tmp_path_factory.mktemp("old")))
    except UserError as error:
        pytest.skip(str(error))


def later_version() -> Version:
    """Needs the tests beside the sources."""
    begin = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tests.support.future; {rolling.MAIN}"
    return rolling.Version("future", ROOT / "src", begin)


@pytest.fixture
def trial(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Trial]:
    made = rolling.Trial(tmp_path / "trial", getattr(request, "param", "multi_walk"), nodes=4, pace=0.1)
    try:
        yield made
    finally:
        made.end()


def up_and_down(trial: Trial, first: Version, second: Version) -> None:
    """Node by node from one version to the other and back; then what came of it is looked at."""
    for name in trial.names:
        trial.start(name, first)
    trial.await_all()
    phases, refused = {}, 0
    steps = {"before": None, "upgrade": second, "upgraded": None, "rollback": first, "after": None}
    for step, version in steps.items():
        began = time.time()
        if version is None:
            time.sleep(SETTLES)
            refused += rolling.refusals(trial.await_all())
        else:
            trial.replace_all(version)
        phases[step] = began, time.time()
    collected = collect(trial.cluster, trial.folder / "out", seconds=20.0)
    trial.end()
    rows = [row for name in trial.names for row in read_event_log(trial.folder / "records" / name)]
    found = rolling.judged(trial, phases, [row.time for row in rows if row.event == "trained"], refused)
    assert (found.restarted, found.copies, found.twice, found.refused) == (0, 0, 0, 0), found
    assert found.counted <= 1.001
    if trial.algorithm == "multi_walk":
        assert found.walks == 3
    assert all(one.lives == 3 for one in collected.nodes)
    told = {name: trial.log(name) for name in trial.names}
    assert not any("refuses" in log or "is damaged" in log for log in told.values()), told
    assert min(found.rates.values()) > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("trial", ["multi_walk", "async_gossip", "fedavg"], indirect=True)
def test_a_cluster_of_the_version_before_is_upgraded_and_rolled_back(trial: Trial, old: Version) -> None:
    up_and_down(trial, old, rolling.present())


@pytest.mark.slow
def test_a_cluster_is_upgraded_to_a_version_that_says_more_and_rolled_back(trial: Trial) -> None:
    up_and_down(trial, rolling.present(), later_version())
