"""Pages to look at, each made once, and a browser to look at them with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from tests.support import browser as browsing

from walktalk.report import open_study, write_page
from walktalk.studies import make_spec, run_study

SMALL: dict[str, Any] = {
    "name": "small",
    "repetitions": 3,
    "network": {"topology": "us_five_sites"},
    "task": {"name": "digits", "alpha": 1.0},
    "training": {"batch_size": 8, "local_steps": 2},
    "algorithms": [{"name": "multi_walk", "walks": [1, 4]}, {"name": "async_gossip"}],
    "stop": {"iterations": 160},
    "evaluate": {"every": 20},
}
REFERENCE = {"name": "centralized"}  # all data in one place
BROKEN = {
    **SMALL,
    "name": "broken",
    "repetitions": 2,
    "network": {"topology": "erdos_renyi", "nodes": 8, "p": 0.5},
    "faults": [{"kind": "kill", "node": "aggregator", "at": 8.0}],
    "stop": {"time": 24.0},
    "evaluate": {"seconds": 2.0},
}
REAL = {
    **SMALL,
    "name": "real",
    "repetitions": 1,
    "network": {"topology": "cycle", "nodes": 3},
    "algorithms": [{"name": "multi_walk", "walks": 2}, {"name": "async_gossip"}],
    "stop": {"iterations": 24},
    "evaluate": {"every": 6},
}

BUSY = {  # 20 nodes and more than 3,000 events a run
    **SMALL,
    "name": "busy",
    "repetitions": 1,
    "task": {"name": "quadratic"},
    "algorithms": [{"name": "multi_walk", "walks": 15}, {"name": "async_gossip"}],
    "stop": {"iterations": 700},
    "evaluate": {"every": 100},
}
THOUSAND = {
    **BUSY,
    "name": "thousand",
    "network": {"topology": "random_regular", "nodes": 1000, "degree": 14},
    "algorithms": [{"name": "async_gossip"}, {"name": "multi_walk", "walks": 60}],
    "stop": {"iterations": 2000},
    "evaluate": {"every": 500},
}


def simulate(content: dict[str, Any], folder: Path) -> None:
    run_study(make_spec(content), folder, workers=1)


def on_peers(content: dict[str, Any], folder: Path) -> None:
    from walktalk.studies.peers import run_on_peers

    run_on_peers(make_spec(content), folder)


NAMES = ("brest", "lyon", "saint-malo")


def deployed(content: dict[str, Any], folder: Path) -> None:
    """As `walktalk collect` leaves it: the same records, and in the summary who took part."""
    on_peers(content, folder)
    summary = json.loads((folder / "summary.json").read_text())
    facts = {"site": "", "seconds": 3.0, "samples": 90, "iterations": 8, "bytes": 20_000, "source": "its answer"}
    nodes = [{"name": name, "state": "finished", "lives": 1 + place, **facts} for place, name in enumerate(NAMES)]
    copy = "the copy of brest, which aggregates the walks; brought up to date in iteration 23 of 24"
    summary["cluster"] = {"name": "coast", "state": "finished", "copy": copy, "nodes": nodes}
    (folder / "summary.json").write_text(json.dumps(summary))


@pytest.fixture(scope="session")
def studies(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Callable[[str], Path]:
    """The folder of a study by its kind, with its page; made by whichever test process asks first."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    makers: dict[str, Callable[[Path], None]] = {
        "simulated": lambda folder: simulate(SMALL, folder),
        "broken": lambda folder: simulate(BROKEN, folder),
        "real": lambda folder: on_peers(REAL, folder),
        "collected": lambda folder: deployed({**REAL, "algorithms": REAL["algorithms"][:1]}, folder),
        "referred": lambda folder: simulate({**SMALL, "algorithms": [*SMALL["algorithms"], REFERENCE]}, folder),
        "alone": lambda folder: simulate({**SMALL, "algorithms": [{"name": "multi_walk", "walks": 2}]}, folder),
        "busy": lambda folder: simulate(BUSY, folder),
        "thousand": lambda folder: simulate(THOUSAND, folder),
    }

    def folder_of(kind: str) -> Path:
        folder = shared / f"page-{kind}"
        with FileLock(shared / f"page-{kind}.lock"):
            if not (folder / "report.html").is_file():
                makers[kind](folder)
                write_page(open_study(folder))
        return folder

    return folder_of


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for all pages."""
    missing = browsing.why_not()
    if missing:
        pytest.skip(missing)
    with browsing.browser() as opened:
        yield opened


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., browsing.Visit]]:
    """Opens a page; in the end it must have complained of nothing and asked for nothing."""
    opened: list[browsing.Visit] = []

    def open_page(path: Path, **given: Any) -> browsing.Visit:
        opened.append(browsing.Visit(browser, path, **given))
        return opened[-1]

    yield open_page
    for one in opened:
        one.context.close()
        assert one.complaints == []
        assert [url for url in one.requests if not url.startswith(("file:", "data:"))] == []
