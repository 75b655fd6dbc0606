"""A node of a deployment asks its task for its own part alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional

import walktalk as wt
from walktalk.core.errors import DataError, SpecError
from walktalk.runtimes.peers.identity.handshake import differences
from walktalk.studies.peers import node_job, study

NAMES = ["lyon", "nice", "paris"]
READ: list[str] = []


def clinic(folder: str = "data", part: str | None = None) -> wt.Task:
    """A CSV file at every site."""

    def read(name: str) -> pd.DataFrame:
        READ.append(name)
        return pd.read_csv(Path(folder) / f"{name}.csv")

    return wt.tasks.torch(nn.Linear(2, 2), functional.cross_entropy, read, names=NAMES, target="ill", part=part)


@pytest.fixture
def cluster(tmp_path):
    READ.clear()
    for k, name in enumerate(NAMES):
        rng = np.random.default_rng(k)
        frame = pd.DataFrame(rng.normal(size=(8 + k, 2)), columns=["age", "dose"]).assign(ill=rng.integers(0, 2, 8 + k))
        (tmp_path / "all").mkdir(exist_ok=True)
        frame.to_csv(tmp_path / "all" / f"{name}.csv", index=False)
    from walktalk.runtimes.peers import make_cluster

    (tmp_path / "graph.txt").write_text("lyon nice\nnice paris\n")

    def made(nodes, network=None, **task):
        spec = {
            "task": {"name": "tests.peers.test_own_part:clinic", **task},
            "network": network or {"topology": "complete", "nodes": 3},
            "algorithms": [{"name": "async_gossip"}],
        }
        return make_cluster({"study": spec, "folder": str(tmp_path / "out"), "nodes": nodes})

    return made


def setup_of(cluster, name):
    spec = node_job.make_spec(cluster.study)
    base, job = node_job.build_foundation(spec), node_job.NodeJob(cluster, name)
    node_job._check_names(cluster, base.graph)
    seat = node_job.find_seat(job.cluster, base.graph, job.name, job.rejoin, job.join, job.place)
    return node_job._node_setup(seat, base, job)


def test_it_reads_its_own_folder_only(cluster, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "nice.csv").write_text((tmp_path / "all" / "nice.csv").read_text())  # the others' files are not even here
    setup, trainer = setup_of(cluster({name: {} for name in NAMES}, folder=str(alone)), "nice")
    assert READ == ["nice"]
    assert trainer.task.names == ("nice",)
    assert trainer.task.test is None
    assert setup.samples == len(trainer.data.inputs) == 9
    assert (setup.part, setup.around.node) == (0, 1)


def test_all_nodes_start_from_the_same_weights(cluster, tmp_path):
    made = cluster({name: {} for name in NAMES}, folder=str(tmp_path / "all"))
    starts = [setup_of(made, name)[0].initial for name in NAMES]
    whole = study.prepare(node_job.make_spec(made.study), "cpu").runs[0].initial
    for start in starts:
        assert torch.equal(start, whole)


def test_a_node_may_be_called_otherwise_than_its_data(cluster, tmp_path):
    nodes = {"site-1": {"part": "paris"}, "site-2": {"part": "lyon"}, "site-3": {"part": "nice"}}
    setup, _ = setup_of(cluster(nodes, folder=str(tmp_path / "all")), "site-1")
    assert READ == ["paris"]
    assert setup.samples == 10
    with pytest.raises(DataError, match="no data for 'rome'; there is for lyon, nice, paris"):
        setup_of(cluster({"rome": {}, "lyon": {}, "nice": {}}, folder=str(tmp_path / "all")), "rome")


def test_names_of_the_graph_are_those_of_the_cluster(cluster, tmp_path):
    network = {"topology": "edge_list", "file": str(tmp_path / "graph.txt")}
    setup, _ = setup_of(cluster({name: {} for name in NAMES}, network, folder=str(tmp_path / "all")), "paris")
    assert setup.around.neighbours == (1,)
    with pytest.raises(SpecError, match="those of the study's graph are lyon, nice, paris; list them by these names"):
        setup_of(cluster({name: {} for name in reversed(NAMES)}, network, folder=str(tmp_path / "all")), "paris")


def test_in_a_simulation_all_are_asked_for_and_a_graph_gets_their_names(cluster, tmp_path):
    spec = node_job.make_spec(cluster({name: {} for name in NAMES}, folder=str(tmp_path / "all")).study)
    ready = study.prepare(spec, "cpu")
    assert READ == NAMES
    assert ready.runs[0].setup.graph.names == tuple(NAMES)
    local = study.local_cluster(spec, ready.runs[0], tmp_path / "local")
    assert [local.part(name) for name in local.nodes] == NAMES


def test_two_versions_of_a_task_under_one_name_are_told_apart() -> None:
    """The width and the initial numbers are the same, but not what is trained."""
    data = [(torch.randn(8, 3), torch.randint(0, 2, (8,)))]
    facts = []
    for between, loss in ((nn.Tanh(), functional.cross_entropy), (nn.ReLU(), functional.multi_margin_loss)):
        model = nn.Sequential(nn.Linear(3, 4), between, nn.Linear(4, 2))
        facts.append(node_job.task_facts(wt.tasks.torch(model, loss, data)))
    assert differences(facts[0], facts[0]) == []
    assert differences(facts[0], facts[1]) == [
        "layers is Sequential Linear ReLU Linear there and Sequential Linear Tanh Linear here",
        "loss is multi_margin_loss there and cross_entropy here",
    ]
