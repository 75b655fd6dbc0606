"""What `walktalk doctor --name` finds of one site before a run: each thing that will not work, with what to do."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import walktalk as wt
from walktalk import graphs
from walktalk.cli import app
from walktalk.learning import schema_of
from walktalk.records import yaml_text
from walktalk.runtimes.peers import Sight, being_looked_at, free_ports, load_cluster, look_at
from walktalk.runtimes.peers.identity.editions import Edition
from walktalk.studies.peers import try_site
from walktalk.testing import preflight
from walktalk.testing.doctor import Finding

HERE = "tests.testing.test_preflight"
ORDERS = {"lyon": ["age", "dose"], "nice": ["dose", "age"]}


def clinic(part: str | None = None, broken: str = "") -> wt.Task:
    """A task of two sites that have the same columns in another order."""

    def read(name: str) -> pd.DataFrame:
        frame = pd.DataFrame({"age": np.linspace(1.0, 80.0, 12), "dose": np.linspace(0.0, 1.0, 12), "ill": [0, 1] * 6})
        return frame[[*ORDERS[name], "ill"]]

    def module() -> torch.nn.Module:
        return torch.nn.Linear(3 if broken == "width" else 2, 2)

    return wt.tasks.torch(module, torch.nn.functional.cross_entropy, read, names=list(ORDERS), target="ill", part=part)


def cluster_of(folder: Path, **task: str) -> Path:
    content = {
        "name": "clinics",
        "study": {
            "network": {"topology": "complete", "nodes": 2},
            "task": {"name": f"{HERE}:clinic", **task},
            "algorithms": [{"name": "async_gossip"}],
        },
        "folder": str(folder / "records"),
        "nodes": {name: {"address": f"127.0.0.1:{port}"} for name, port in zip(ORDERS, free_ports(2), strict=True)},
    }
    path = folder / "cluster.yaml"
    path.write_text(yaml_text.dump(content))
    return path


def by_name(findings: Iterator[Finding]) -> dict[str, Finding]:
    return {finding.about: finding for finding in findings}


def test_a_site_builds_its_task_trains_once_and_says_what_is_missing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(preflight, "PATIENCE", 0.1)
    found = by_name(preflight.preflight(load_cluster(cluster_of(tmp_path)), "lyon", "cpu"))
    assert {about for about, one in found.items() if one.state == "bad"} == set()
    assert found["task"].said.startswith("own, 12 samples here")
    assert "5 steps in" in found["one training"].said
    assert found["data"].said.endswith("2 columns, age, dose")
    assert found["way to nice"].state == "absent"  # it does not run yet, which is no reason not to start
    assert "--wait" in found["way to nice"].remedy


def test_a_model_that_does_not_fit_its_data_is_bad_and_named(tmp_path: Path) -> None:
    found = by_name(preflight.preflight(load_cluster(cluster_of(tmp_path, broken="width")), "lyon", "cpu"))
    bad = {about: one for about, one in found.items() if one.state == "bad"}
    assert set(bad) <= {"task", "one training"}
    assert bad
    assert all(one.remedy for one in bad.values())


def test_two_sites_see_each_other_before_the_run_with_clock_study_and_the_order_of_columns(tmp_path: Path) -> None:
    """One is looked at, as by a second doctor that waits; columns in another order trained mixed up, unnoticed."""
    cluster = load_cluster(cluster_of(tmp_path))
    one, other = try_site(cluster, "lyon", "cpu"), try_site(cluster, "nice", "cpu")
    old, new = (Edition("clinics", n, "2026-11-19", "2027-02-17", f"{n}", "0.1.0") for n in (1, 2))
    with being_looked_at(
        cluster, "nice", graphs.complete(2), Sight(other.facts, schema_of(other.task), new)
    ) as is_seen:
        assert is_seen
        with being_looked_at(cluster, "nice", graphs.complete(2), Sight(other.facts, None, None)) as again:
            assert not again  # its port is taken: the node runs
        seen = look_at(cluster, "lyon", "nice", {**one.facts, "training.batch_size": 7}, 20.0)
    assert abs(seen.ahead) < 5.0
    assert seen.bandwidth > 0.0 < seen.delay
    assert seen.differs == ["training.batch_size is 32 there and 7 here"]
    sight = Sight(one.facts, schema_of(one.task), old)
    found = by_name(preflight._of_neighbour("lyon", "nice", seen, sight))
    assert found["data of nice"].state == "bad"
    assert found["data of nice"].said == "the columns are in another order: dose, age at nice and age, dose here"
    assert found["study of nice"].state == "bad"
    assert "kit 1 of 2026-11-19" in found["kit of nice"].said
    late = by_name(preflight._of_neighbour("lyon", "nice", replace(seen, ahead=7200.0), sight))
    assert (late["clock of nice"].state, late["clock of nice"].remedy[:9]) == ("bad", "set both ")


def test_files_of_two_sites_are_compared_without_a_value(tmp_path: Path) -> None:
    config, files = cluster_of(tmp_path), [tmp_path / "lyon.json", tmp_path / "nice.json"]
    for name, file in zip(ORDERS, files, strict=True):
        preflight.write_schema(load_cluster(config), name, file)
    assert "79" not in files[0].read_text()  # nor any other value
    said = CliRunner().invoke(app, ["doctor", "--json", "--compare", str(files[0]), "--compare", str(files[1])])
    assert said.exit_code == 1
    found = {one["about"]: one for one in json.loads(said.stdout)["findings"]}
    assert "another order: dose, age at nice and age, dose at lyon" in found["data of nice"]["said"]
    same = CliRunner().invoke(app, ["doctor", "--compare", str(files[0]), "--compare", str(files[0])])
    assert (same.exit_code, "one form" in same.output) == (0, True)
    files[0].write_text("{}")
    assert CliRunner().invoke(app, ["doctor", "--compare", str(files[0])]).exit_code == 2


Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(
    ("free", "model", "state"), [(64 << 20, 0, "absent"), (1 << 30, 0, "good"), (1 << 30, 600 << 20, "bad")]
)
def test_shared_memory_is_looked_at(free: int, model: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: Usage(0, 0, free))
    (found,) = preflight.shared_memory(model)
    assert found.state == state
    assert (state == "good") is not bool(found.remedy)


def test_a_cache_on_a_read_only_mount_and_a_full_disk_are_seen_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's start ended at a library's cache that could not be written; the path to change is said."""
    cluster, usual = load_cluster(cluster_of(tmp_path)), preflight.tempfile.TemporaryFile
    (tmp_path / "cache").mkdir()

    def refuse(dir: Path) -> object:
        if Path(dir) == tmp_path / "cache":
            raise OSError(30, "Read-only file system")
        return usual(dir=dir)

    monkeypatch.setattr(preflight.tempfile, "TemporaryFile", refuse)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache" / "hf"))
    found = by_name(preflight.folders(cluster, 0))
    assert found["HF_HOME"].state == "bad"
    assert "Read-only file system" in found["HF_HOME"].said
    assert "HF_HOME" in found["HF_HOME"].remedy
    assert found["records"].state == "good"
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: Usage(0, 0, 1 << 20))
    assert by_name(preflight.folders(cluster, 0))["records"].state == "bad"


def test_memory_for_all_models_that_a_node_holds_is_counted() -> None:
    assert preflight._room_for_models(10**9, 3, 10**9, 14e9).state == "good"
    few = preflight._room_for_models(10**9, 3, 10**9, 12e9)
    assert (few.state, bool(few.remedy)) == ("bad", True)


def test_options_that_need_a_site_say_so() -> None:
    for words in (["--wait", "3"], ["--name", "lyon"], ["--schema", "x.json"]):
        done = CliRunner().invoke(app, ["doctor", *words])
        assert done.exit_code == 2, words
        assert "--config" in done.output
