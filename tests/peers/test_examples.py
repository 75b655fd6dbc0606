"""The deployment examples say what the program understands."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from walktalk import __version__
from walktalk.graphs import complete
from walktalk.protocols import MultiWalk
from walktalk.runtimes.peers import load_cluster, make_cluster
from walktalk.runtimes.peers.operations.metrics import NodeMetrics
from walktalk.runtimes.peers.operations.monitoring import WHAT_THERE_IS, parse_address
from walktalk.runtimes.semantics import Stop
from walktalk.studies import make_spec
from walktalk.studies.planning import build_graph
from walktalk.testing.cluster import running

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


def test_the_chart_and_the_manifests_are_one() -> None:
    """Every line of kubernetes.yaml is one of the chart, its values in it; with Helm on the path, all of them are."""
    values = yaml.safe_load((DEPLOY / "chart" / "values.yaml").read_text())
    chart = yaml.safe_load((DEPLOY / "chart" / "Chart.yaml").read_text())
    pieces = {piece["kind"]: piece for piece in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}
    template = (DEPLOY / "chart" / "templates" / "walktalk.yaml").read_text()
    assert re.findall(r"^kind: (\w+)", template, re.MULTILINE) == list(pieces)
    assert chart["version"] == chart["appVersion"] == values["image"]["tag"] == __version__
    (container,) = pieces["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{values['image']['repository']}:{values['image']['tag']}"
    assert container["resources"] == values["resources"]
    assert pieces["StatefulSet"]["spec"]["replicas"] == values["nodes"] == values["study"]["network"]["nodes"]
    assert clusters()["kubernetes.yaml"]["study"] == values["study"]
    if shutil.which("helm") is None:
        return  # examples/deploy/README.md says how the chart was rendered without Helm
    rendered = subprocess.run(["helm", "template", "walktalk", "chart"], cwd=DEPLOY, capture_output=True, text=True)
    assert list(yaml.safe_load_all(rendered.stdout)) == list(pieces.values()), rendered.stderr


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


# -- who has to look, and when: alerts and the dashboard --------------------------------------------------------------


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the metrics that a node has, as Prometheus stores them."""
    with running(MultiWalk(walks=1), complete(2), tmp_path_factory.mktemp("two"), Stop(time=60.0)) as cluster:
        families = {family.name: family.type for family in NodeMetrics(cluster.nodes[0].health).collect()}
    ends = {"counter": ("_total",), "summary": ("_sum", "_count")}
    later = {"walktalk_checkpoint_age_seconds", "walktalk_loss", "walktalk_training_age_seconds"}
    certificates = {"walktalk_certificate_warning", "walktalk_certificate_expiry_timestamp_seconds"}
    names = {f"{name}{end}" for name, kind in families.items() for end in ends.get(kind, ("",))}
    return names | later | certificates


def test_alerts_and_dashboard_ask_for_metrics_that_there_are(metrics: set[str]) -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
    panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    asked = [rule["expr"] for rule in rules] + [one["expr"] for panel in panels for one in panel["targets"]]
    used = {name for expression in asked for name in re.findall(r"\bwalktalk_\w+", expression)}
    assert len(used) > 20
    assert used <= metrics
    assert len({panel["id"] for panel in panels}) == len(panels)
    documented = (DEPLOY.parents[1] / "docs" / "operations.md").read_text()
    assert {name for name in metrics if name.removesuffix("_sum").removesuffix("_count") not in documented} == set()
    assert {rule["alert"] for rule in rules if f"`{rule['alert']}`" not in documented} == set()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on the path: apt-get install prometheus")
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    for path in (DEPLOY / "alerts.yaml", DEPLOY / "prometheus.yml", SUPPORT / "alerts.test.yaml"):
        shutil.copy(path, tmp_path)
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts.test.yaml"]):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus on the path: apt-get install prometheus")
def test_a_real_prometheus_fires_for_what_goes_wrong_and_for_nothing_else(tmp_path: Path) -> None:
    """Three nodes, real ones; every fault has its alert, the dashboard has something to show, and all is over again."""
    command = [sys.executable, "benchmarks/alerts.py", "--rounds", "9", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=DEPLOY.parents[1], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "alerts.json").read_text())
    assert sum(bool(one["expected"]) for one in found["rounds"]) >= 7
    assert all(one["fired"] == one["expected"] for one in found["rounds"])
    assert len(found["shown"]) > 12
