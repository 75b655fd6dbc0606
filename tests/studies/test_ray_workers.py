"""`--workers ray`: a cluster of two nodes, one of which dies half-way, writes the bytes of a single process."""

from __future__ import annotations

import pytest
from tests.support.folders import assert_same_folder

from walktalk.studies import make_spec, run_study

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.slow

SPEC = {
    "name": "on-ray",
    "repetitions": 4,
    "network": {"topology": "cycle", "nodes": 6},
    "algorithms": [{"name": "multi_walk", "walks": [1, 3]}, {"name": "async_gossip"}],
    "stop": {"iterations": 2000},
    "evaluate": {"every": 200},
}


@pytest.fixture
def cluster():
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.second = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_a_node_dies_half_way_and_nothing_is_lost(tmp_path, cluster):
    run_study(make_spec(SPEC), tmp_path / "alone", device="cpu", workers=1)
    killed = []

    def kill_one(progress) -> None:
        if progress.done and not killed:
            killed.append(progress.done)
            cluster.remove_node(cluster.second, allow_graceful=False)

    result = run_study(make_spec(SPEC), tmp_path / "ray", device="cpu", workers="ray", progress=kill_one)
    assert 0 < killed[0] < 12 * 2000
    assert len(cluster.list_all_nodes()) == 1
    assert len(result.runs) == 12
    assert_same_folder(tmp_path / "ray", tmp_path / "alone")
    # And once more, from what is there: nothing is left to do.
    run_study(make_spec(SPEC), tmp_path / "ray", device="cpu", workers="ray", resume=True)
    assert_same_folder(tmp_path / "ray", tmp_path / "alone")
