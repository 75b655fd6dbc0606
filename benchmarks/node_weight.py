"""How much memory, how many threads and how much processor time until it begins a node of a real cluster takes.

    python benchmarks/node_weight.py [--nodes 3] [--certificates]

Starts a small cluster on this machine as a person would, one `walktalk node` a process, lets it train for some seconds,
and reads the books of the system (Linux). Beside it: what `import torch` takes in a process of its own, since no node
can be lighter than that.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

PATIENCE = 120.0  # seconds until all nodes must have begun
TRAINS = 8.0  # seconds in which they train before anybody looks
MAIN = "from walktalk.cli import main; main()"
TORCH = "import torch, os; print(open('/proc/self/smaps_rollup').read(), sum(os.times()[:2]))"


def main() -> None:
    """Print one line for each node, and one for torch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--certificates", action="store_true", help="with mutual TLS")
    asked = parser.parse_args()
    print(f"{'process':>12} {'RSS MB':>8} {'PSS MB':>8} {'private MB':>11} {'threads':>8} {'CPU s to begin':>15}")
    with tempfile.TemporaryDirectory() as folder:
        weigh_cluster(Path(folder), asked.nodes, asked.certificates)
    done = subprocess.run([sys.executable, "-c", TORCH], capture_output=True, text=True, check=True, env=environment())
    rollup, _, seconds = done.stdout.rpartition(" ")
    print(line("import torch", rollup, 1, float(seconds)))


def weigh_cluster(folder: Path, nodes: int, certificates: bool) -> None:
    """Start, wait, look, stop."""
    names = [f"node-{number}" for number in range(nodes)]
    config = folder / "cluster.yaml"
    content = {
        "name": "weight",
        "study": {
            "network": {"topology": "complete", "nodes": nodes},
            "task": {"name": "digits", "alpha": 1.0},
            "algorithms": [{"name": "multi_walk", "walks": 2}],
            "stop": {"iterations": 10_000_000},
        },
        "folder": "records",
        "pace": 0.05,
        "nodes": {name: {"address": "127.0.0.1"} for name in names},
        **({"certificates": "certs"} if certificates else {}),
    }
    config.write_text(yaml.safe_dump(content, sort_keys=False))
    if certificates:
        subprocess.run([sys.executable, "-c", MAIN, "certs", "--config", str(config)], check=True, capture_output=True)
    command = [sys.executable, "-c", MAIN, "node", "--config", str(config), "--name"]
    running = []
    try:
        for name in names:
            with (folder / f"{name}.log").open("w") as log:
                running.append(subprocess.Popen([*command, name], stderr=log, env=environment()))
        seconds = [until_it_begins(folder / f"{name}.log", node) for name, node in zip(names, running, strict=True)]
        time.sleep(TRAINS)
        for name, node, spent in zip(names, running, seconds, strict=True):
            books = Path(f"/proc/{node.pid}")
            threads = len(list((books / "task").iterdir()))
            print(line(name, (books / "smaps_rollup").read_text(), threads, spent))
    finally:
        for node in running:
            node.terminate()
        for node in running:
            node.wait(60)


def until_it_begins(log: Path, node: subprocess.Popen[bytes]) -> float:
    """Wait for that line; the processor time that the node has taken by then."""
    end = time.monotonic() + PATIENCE
    while "begins;" not in log.read_text():
        if time.monotonic() > end or node.poll() is not None:
            raise SystemExit(f"the node did not begin:\n{log.read_text()}")
        time.sleep(0.05)
    fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def environment() -> dict[str, str]:
    """One thread for arithmetic, as on a machine that is shared."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def line(name: str, rollup: str, threads: int, seconds: float) -> str:
    """From the lines of `smaps_rollup`."""
    rows = (row.split() for row in rollup.splitlines() if row.endswith(" kB"))
    size = {row[0].rstrip(":"): int(row[1]) / 1000 for row in rows}
    private = size["Private_Clean"] + size["Private_Dirty"]
    return f"{name:>12} {size['Rss']:8.0f} {size['Pss']:8.0f} {private:11.0f} {threads:8d} {seconds:15.2f}"


if __name__ == "__main__":
    main()
