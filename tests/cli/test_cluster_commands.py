"""`walktalk node`, `status`, `stop` and `certs` as people get them wrong: one line, exit code 2, and no traceback."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

from walktalk.cli.app import app
from walktalk.cli.cluster import _page
from walktalk.cli.node import page_of, print_collected
from walktalk.studies.collecting import Collected

STUDY = {"network": {"topology": "complete", "nodes": 2}, "algorithms": [{"name": "multi_walk"}], "stop": {"time": 1.0}}


def call(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def mistake(*args: object) -> str:
    result = call(*args)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def cluster(folder: Path, **changes: object) -> Path:
    content = {"study": STUDY, "folder": "records", "nodes": {"a": {}, "b": {}}, **changes}
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("nodes: {a", "not valid YAML"),
        ("hello", "should hold key: value pairs"),
        ("", "nodes: is missing"),
        ("nodes: {a: {}, a: {}}", "key 'a' comes twice"),
        ("nodes: {a: }", "nodes.a: should hold key: value pairs"),
        ("nodes: {a: {port: 3}}", "nodes.a.port: there is no such key; allowed: address, listen, site"),
        ("nodes: {a: {}}\ncolour: red", "colour: there is no such key; allowed: name, study, "),
        ("nodes: {a: {}}\nname: a/b", "name: 'a/b' is not possible"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [("status",), ("stop",), ("certs",), ("node", "--name", "a"), ("collect", "--out", "o")],
    ids=lambda c: c[0],
)
def test_a_cluster_file_with_a_mistake(
    command: tuple[str, ...], text: str | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.yaml"
    if text is not None:
        path.write_text(text)
    assert message in mistake(*command, "--config", path)


def test_a_node_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("walktalk.studies.peers.node_job.quiet_process", lambda: None)  # it changes the whole process
    node = ("node", "--config", cluster(tmp_path), "--name")
    assert "'c' is not in the cluster; its nodes are a, b" in mistake(*node, "c")
    (tmp_path / "records").write_text("a file where the folder should be")
    assert "cannot be written" in mistake(*node, "a")
    (tmp_path / "records").unlink()
    cluster(tmp_path, nodes={"a": {}, "b": {}, "c": {}})
    assert "the cluster has 3, but the study's graph has 2" in mistake(*node, "a")
    cluster(tmp_path, certificates="certs")
    assert "ca.pem does not exist; make it with `walktalk certs`" in mistake(*node, "a")
    cluster(tmp_path, algorithm="gossip")
    assert "algorithm: 'gossip' is not in the study" in mistake(*node, "a")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        cluster(tmp_path, nodes={"a": {"address": f"127.0.0.1:{port}"}, "b": {}})
        said = mistake(*node, "a")
    assert f"a: cannot listen on 127.0.0.1:{port}: the port is taken; is the node running already?" in said
    cluster(tmp_path, nodes={"a": {"address": "192.0.2.1:7447"}, "b": {}})
    assert "this machine does not have that address" in mistake(*node, "a")


def test_certificates_need_a_folder_that_can_be_written(tmp_path: Path) -> None:
    assert "the cluster names no folder" in mistake("certs", "--config", cluster(tmp_path))
    (tmp_path / "certs").write_text("")
    assert "cannot be written" in mistake("certs", "--config", cluster(tmp_path), "--out", tmp_path / "certs")


def test_nobody_is_there(tmp_path: Path) -> None:
    stopped = call("stop", "--config", cluster(tmp_path), "--seconds", 0.1)
    assert (stopped.exit_code, stopped.stdout) == (1, "0 of 2 nodes leave\nno answer from a, b\n")
    asked = call("status", "--config", cluster(tmp_path), "--seconds", 0.1, "--json")
    assert (asked.exit_code, json.loads(asked.stdout)) == (1, {"a": None, "b": None})
    assert asked.stderr.startswith(
        f"nobody answers; start the nodes, each on its machine: walktalk node --config {tmp_path}"
    )
    (tmp_path / "records" / "a").mkdir(parents=True)
    asked = call("status", "--config", cluster(tmp_path), "--seconds", 0.1)
    assert asked.exit_code == 1
    assert "collect what the nodes have left: walktalk collect --config" in asked.stderr
    assert "nobody answers, and" in mistake(
        "collect", "--config", cluster(tmp_path), "--out", tmp_path / "o", "--seconds", 0.1
    )


def test_status_fits_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    answer = {
        "done": False,
        "state": "training",
        "aggregates": True,
        "aggregates_since": 3_000.0,
        "checkpoint_age": 100.0,
        "term": 12,
        "total_iterations": 250_000,
        "walks": [1, 2, 14],
        "alive": [1, 2, 3],
        "loss": 0.123,
        "iterations": 123_456,
        "bytes_sent": 12_345_678_900,
        "dropped": {},
    }
    other = {**answer, "aggregates": False, "loss": None, "walks": [], "complaints": ["its certificate is out of date"]}
    sites = {"ca-1": "CA", "ca-2": "CA", "il-1": "IL"}
    Console().print(_page({"ca-1": answer, "ca-2": other, "il-1": None}, sites))
    shown = capsys.readouterr().out
    assert "…" not in shown
    words = ("term", "iterations", " 12 ", "1 2 14", "123,456", "12,345.7", "no answer", "100 s")
    for word in (*words, "ca-2: its certificate is out of date"):
        assert word in shown
    assert "dropped" not in shown
    assert "2 of 3 nodes answer; 250,000 iterations; aggregator: ca-1 for 50 min" in shown
    Console().print(_page({"ca-1": {**answer, "dropped": {"forged": 3}}}, {"ca-1": ""}))
    assert "dropped" in capsys.readouterr().out


def test_the_exit_code_says_how_a_cluster_is_and_watching_asks_again_until_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = {"aggregates": False, "complaints": [], "loss": None}
    path, asked = cluster(tmp_path), iter(range(100))
    answers = {"a": {**well, "aggregates": True}, "b": well}

    def ask(*given: object) -> dict[str, object]:
        if next(asked) % 3 == 2:
            raise KeyboardInterrupt
        return answers

    monkeypatch.setattr("walktalk.cli.cluster.SECONDS_BETWEEN_QUESTIONS", 0.0)
    monkeypatch.setattr("walktalk.cli.cluster._ask", ask)
    watched = call("status", "--config", path, "--watch", "--json")
    lines = [json.loads(line) for line in watched.stdout.splitlines()]
    assert [line["a"]["aggregates"] for line in lines] == [True, True]
    assert watched.exit_code == 0
    answers["b"] = {**well, "complaints": ["its checkpoint cannot be written: No space left on device"]}
    watched = call("status", "--config", path, "--watch")
    assert watched.stdout.count("b: its checkpoint cannot be written") == 2
    assert watched.exit_code == 1
    answers["b"] = None
    once = call("status", "--config", path)
    assert "1 of 2 nodes answer; " in once.stdout
    assert once.exit_code == 1


def test_where_nobody_told_a_loss_there_is_no_page_and_no_error(tmp_path, capsys):
    """As of scripts that train and measure nothing: the model counts all the same."""
    (tmp_path / "history.csv").write_text("algorithm,repetition,iteration,time,bits,train_loss\n")
    page = page_of(tmp_path)
    assert page is None
    print_collected(Collected(tmp_path, tmp_path / "model.safetensors", "finished", "the copy of a", [], {}), page)
    said = capsys.readouterr().out
    assert "model.safetensors" in said
    assert "Report   none: nobody has told a loss" in said
