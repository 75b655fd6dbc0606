"""The deployment examples say what the program understands."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from walktalk.runtimes.peers import make_cluster
from walktalk.studies import make_spec
from walktalk.studies.building import build_graph

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"


def clusters() -> dict[str, Any]:
    pieces = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    return {
        "cluster.yaml": yaml.safe_load((DEPLOY / "cluster.yaml").read_text()),
        "kubernetes.yaml": yaml.safe_load(pieces[1]["data"]["cluster.yaml"]),
    }


@pytest.mark.parametrize("name", list(clusters()))
def test_clusters_are_valid_and_fit_their_study(name: str) -> None:
    content = {**clusters()[name], "certificates": None}
    cluster = make_cluster(content)
    assert isinstance(cluster.study, dict)
    graph = build_graph(make_spec(cluster.study))
    for node in cluster.nodes:
        assert cluster.endpoint(node, graph).neighbours


def test_the_stateful_set_has_as_many_pods_as_the_cluster_has_nodes() -> None:
    pieces = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert pieces[2]["spec"]["replicas"] == len(clusters()["kubernetes.yaml"]["nodes"])


def test_the_slurm_script_is_valid_bash() -> None:
    subprocess.run(["bash", "-n", str(DEPLOY / "slurm.sbatch")], check=True)
