"""`walktalk doctor` says what is so on this machine, and ends with exit code 1 only where something will not work."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from walktalk.cli import app
from walktalk.runtimes.peers import make_certificates
from walktalk.testing import doctor as machine
from walktalk.testing.doctor import cluster_file


def findings(*arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    told = json.loads(done.stdout)
    assert told["ok"] == (done.exit_code == 0)
    return done.exit_code, {finding["about"]: finding for finding in told["findings"]}


def test_this_machine_is_fit_and_every_part_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setenv("WALKTALK_DATA", str(tmp_path))
    monkeypatch.setattr(machine, "LITTLE_MEMORY", 0)
    code, found = findings()
    assert code == 0
    for about in ("walktalk", "Python", "packages", "torch", "device", "bf16 on CPU", "disk", "peers on loopback"):
        assert found[about]["state"] == "good"
    assert found["extra peers"]["state"] == "good"
    assert found["data cifar10"] == {
        "about": "data cifar10",
        "state": "absent",
        "said": f"not in {tmp_path / 'cifar-10-batches-bin'}",
        "remedy": "walktalk data get cifar10",
    }


def test_a_damaged_data_set_is_bad(tmp_path, monkeypatch):
    monkeypatch.setenv("WALKTALK_DATA", str(tmp_path))
    (tmp_path / "cifar-10-batches-bin").mkdir()
    (tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin").write_bytes(b"short")
    cifar = next(iter(machine.data_sets()))
    assert cifar.state == "bad"
    assert "damaged" in cifar.said or "missing" in cifar.said


def test_an_extra_that_is_not_installed_is_named_with_the_command(monkeypatch):
    monkeypatch.setattr(machine, "requires", lambda name: ["torch>=1", "no-such-thing>=2; extra == 'ray'"])
    found = {finding.about: finding for finding in machine.packages()}
    assert found["packages"].state == "good"
    assert found["extra ray"].state == "absent"
    assert "no-such-thing is not installed" in found["extra ray"].said
    assert found["extra ray"].remedy == "pip install 'walktalk[ray]'"


def test_a_package_that_is_too_old_is_bad(monkeypatch):
    monkeypatch.setattr(machine, "requires", lambda name: ["torch>=999"])
    first = next(machine.packages())
    assert first.state == "bad"
    assert ">=999 is needed" in first.said


def test_a_product_that_kills_its_process_is_reported_not_suffered(monkeypatch):
    monkeypatch.setattr(machine, "PRODUCT", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    found = machine._bf16()
    assert found.state == "bad"
    assert "signal 4" in found.said


def test_a_cluster_is_looked_at_port_by_port_and_certificate_by_certificate(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        make_certificates(tmp_path / "certs", {"a": ["127.0.0.1"], "b": ["127.0.0.1"]})
        (tmp_path / "certs" / "b.key").write_bytes((tmp_path / "certs" / "a.key").read_bytes())
        (tmp_path / "cluster.yaml").write_text(
            f"name: two\ncertificates: certs\nnodes:\n  a: {{address: '127.0.0.1:{port}'}}\n  b: {{}}\n"
        )
        found = {finding.about: finding for finding in cluster_file(tmp_path / "cluster.yaml")}
    assert found["cluster"].state == "good"
    assert (found["node a"].state, found["node b"].state) == ("bad", "good")
    assert "in use" in found["node a"].said
    assert found["certificate a"].state == "good"
    assert found["certificate a"].said.startswith("valid until 20")
    assert found["certificate b"].state == "bad"
    assert "is not the key" in found["certificate b"].said


@pytest.mark.parametrize(
    ("words", "offered"), [("run quick", "quickstart"), ("presets smo", "smoke"), ("paper run fig", "fig4")]
)
def test_the_shell_completes_presets_and_figures(words, offered):
    """As bash asks: the words so far in the environment, the answers one a line."""
    line = f"walktalk {words}".split()
    asked = {"COMP_WORDS": " ".join(line), "COMP_CWORD": str(len(line) - 1), "_WALKTALK_COMPLETE": "complete_bash"}
    code = "import sys; sys.argv[0] = 'walktalk'; from walktalk.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True)
    assert offered in done.stdout.split()
