"""The deployment examples say what the program understands."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from walktalk.runtimes.peers import load_cluster, make_cluster
from walktalk.runtimes.peers.operations.monitoring import WHAT_THERE_IS, parse_address
from walktalk.studies import make_spec
from walktalk.studies.planning import build_graph

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
SUPPORT = Path(__file__).parents[1] / "support"


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


def test_the_manifests_are_what_kubernetes_publishes() -> None:
    schema = json.loads((SUPPORT / "kubernetes-1.37.json").read_text())
    pieces = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert {piece["kind"] for piece in pieces} == set(schema["kinds"])
    for piece in pieces:
        name = schema["kinds"][piece["kind"]]
        judge = jsonschema.Draft7Validator({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})
        assert [error.message for error in judge.iter_errors(piece)] == []
        piece["spec" if "spec" in piece else "data"] = {"replica": 3}  # it does not take everything
        assert piece["kind"] == "ConfigMap" or list(judge.iter_errors(piece))


def test_probes_ask_for_pages_that_there_are() -> None:
    pieces = {piece["kind"]: piece for piece in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}
    (container,) = pieces["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    _, port = parse_address(clusters()["kubernetes.yaml"]["metrics"])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["path"].encode() in WHAT_THERE_IS
        assert ports[asked["port"]] == port


SRUN = """#!/bin/bash
# Stands in for Slurm's: so many tasks, each knows its number.
tasks=1
while [[ $1 == --* ]]; do case $1 in --ntasks=*) tasks=${1#*=};; esac; shift; done
for ((rank = 0; rank < tasks; rank++)); do SLURM_PROCID=$rank "$@" & done
wait
"""


def test_the_slurm_script_starts_every_node_with_its_name(tmp_path: Path) -> None:
    """With something in place of `srun` and `walktalk`; `examples/deploy/README.md` says what a real Slurm did."""
    for name, text in {
        "srun": SRUN,
        "hostname": "#!/bin/bash\necho machine.example\n",
        "walktalk": '#!/bin/bash\necho "$@" >> "$STARTED"\n',
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    study = tmp_path / "study.yaml"
    study.write_text("network: {topology: complete, nodes: 3}\n")
    given = {"STUDY": str(study), "OUT": str(tmp_path / "out"), "STARTED": str(tmp_path / "started")}
    told = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "3", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", str(DEPLOY / "slurm.sbatch")], check=True, env={**os.environ, **given, **told})
    cluster = load_cluster(tmp_path / "out" / "cluster.yaml")
    addresses = [place.address for place in cluster.nodes.values()]
    assert addresses == [f"machine.example:{7447 + rank}" for rank in range(3)]
    started = sorted((tmp_path / "started").read_text().splitlines())
    assert started == [f"node --config {tmp_path}/out/cluster.yaml --name {name}" for name in cluster.nodes]
