"""What needs no torch is answered at once: without importing it, which alone takes seconds."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 1.5  # of processor time, where 0.3 to 0.4 are usual: another machine may be slower, or busy
QUICK = {
    "--help": 0,
    "--version": 0,
    "presets": 0,
    "presets smoke": 0,
    "paper list": 0,
    "run --help": 0,
    "rum smoke": 2,
    "run smokee": 2,
    "run nowhere.yaml": 2,
    "run smoke --engine nothing": 2,
    "advise smokee": 2,
    "theory --study smokee": 2,
    "paper run fig44": 2,
}
ALGORITHMS = {"algorithms": 0, "algorithms d2": 0, "algorithms d3": 2}
SAYS_IT = (
    "import sys; from walktalk.cli import main\ntry: main()\nfinally: print('torch' in sys.modules, file=sys.stderr)"
)


def answered(line: str) -> tuple[int, float, str]:
    """Exit code, processor time and the last line of stderr of one call."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", SAYS_IT, *line.split()],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        said = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, used.ru_utime + used.ru_stime, said.splitlines()[-1]


@pytest.mark.parametrize("line", QUICK)
def test_it_is_quick_and_does_without_torch(line):
    tries = []
    for _ in range(3):  # the first may write byte code, and others use this machine, too
        code, seconds, torch = answered(line)
        assert (code, torch) == (QUICK[line], "False")
        tries.append(seconds)
        if seconds < SECONDS:
            return
    raise AssertionError(f"walktalk {line} took {min(tries):.2f} s of processor time")


@pytest.mark.parametrize("command", ["certs", "status --seconds 0.1", "stop --seconds 0.1"])
def test_so_is_what_is_said_to_a_cluster(command, tmp_path):
    config = tmp_path / "cluster.yaml"
    config.write_text("certificates: certs\nnodes: {a: {address: 127.0.0.1:9}, b: {address: 127.0.0.1:9}}\n")
    spent = []
    for line in ("certs", command):  # who asks needs a certificate, too
        _, seconds, torch = answered(f"{line} --config {config}")
        spent.append(seconds)
        assert torch == "False"
    assert spent[-1] < 2 * SECONDS  # keys are made, sessions opened


@pytest.mark.parametrize(
    "package",
    [
        "walktalk",
        "walktalk.records",
        "walktalk.studies",
        "walktalk.studies.spec",
        "walktalk.reproduction.paper",
        "walktalk.runtimes.peers",
    ],
)
def test_a_lazy_front_door_opens_for_every_name_on_it(package):
    door = importlib.import_module(package)
    stub = ast.parse(Path(door.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    listed = [alias.name for line in stub.body if isinstance(line, ast.ImportFrom) for alias in line.names]
    assert sorted(listed) == sorted(set(door.__all__) - {"__version__"})
    assert all(getattr(door, name) is not None for name in door.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        door.nothing  # noqa: B018


@pytest.mark.parametrize("line", ALGORITHMS)
def test_algorithms_are_listed_without_torch(line):
    """Half a second here; that it stays far from the seconds that torch takes is asked on any machine."""
    code, seconds, torch = answered(line)
    assert (code, torch) == (ALGORITHMS[line], "False"), "something that protocols import has imported torch"
    assert seconds < 5 * SECONDS


def test_training_is_imported_without_what_comes_after_it() -> None:
    """Plots, tables and bars take as long as torch's own import, and nobody has asked for them yet."""
    late = ("pandas", "pyarrow", "matplotlib", "scipy", "networkx", "sklearn", "rich", "zenoh")
    code = f"import sys, walktalk as wt; wt.train; print([name for name in {late} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert run.stdout.strip() == "[]"
