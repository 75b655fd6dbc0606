"""Five sites with slow links: does the simulator predict the time per iteration? Needs root, iproute2 and /dev/net/tun.

Each site is a network namespace whose only way out is a link with a rate (`tc tbf`, both directions) and a delay
(`slow_link.py`, because netem is missing on many machines), to a bridge in the middle:

    site ── TAP, delay ── its router ── veth, rate ── bridge

First the links are measured with plain TCP, and a training alone; with these the simulator predicts; then five nodes,
one process in each namespace, train for real over Zenoh (whose shared memory is always off here).

    python benchmarks/agreement_sites.py [--rate-mbit 40] [--delay-ms 5] [--iterations 60] [--repeats 3] [--out DIR]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from agreement import measured, predicted, report, seconds_an_iteration
from walktalk.runtimes.peers import merge, read_event_log
from walktalk.runtimes.simulator import NetworkTiming
from walktalk.studies import make_spec
from walktalk.studies.planning import prepare

SLOW_LINK = Path(__file__).with_name("slow_link.py")  # the program that delays frames
SITES = ("cal", "ore", "ill", "nyc", "vir")
PREFIX = "wt-"  # of namespaces and devices: whatever has it is ours, and is removed in the end
HIDDEN = 3600  # 270,010 numbers: a model of 1.08 MB
PATIENCE = 200  # seconds that a run may take, from the start of its processes
TRAINING = 0.1  # seconds at least, so that five trainings on two processors take turns


def shell(command: str) -> None:
    subprocess.run(command.split(), check=True)


@contextmanager
def five_sites(args: argparse.Namespace) -> Iterator[dict[str, str]]:
    """The namespaces and their links; gives back each site's address."""
    tools: list[subprocess.Popen[str]] = []
    addresses = {site: f"10.71.0.{number + 1}" for number, site in enumerate(SITES)}
    try:
        shell(f"ip link add {PREFIX}br type bridge")
        shell(f"ip link set {PREFIX}br up")
        for number, site in enumerate(SITES):
            tools.append(_link(site, addresses[site], f"10.72.{number}.1", args))
        yield addresses
    finally:
        for tool in tools:
            tool.terminate()
            tool.wait()
        for site in SITES:
            for name in (site, f"{site}-r"):
                subprocess.run(["ip", "netns", "del", PREFIX + name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", f"{PREFIX}br"], check=False, capture_output=True)


def _link(site: str, address: str, unused: str, args: argparse.Namespace) -> subprocess.Popen[str]:
    here, router, outer, inner = PREFIX + site, f"{PREFIX}{site}-r", f"{PREFIX}{site}0", f"{PREFIX}{site}1"
    for name in (here, router):
        shell(f"ip netns add {name}")
        shell(f"ip -n {name} link set lo up")
    command = [sys.executable, str(SLOW_LINK), here, address, router, unused, "--delay-ms", str(args.delay_ms)]
    tool = subprocess.Popen([*command, "--seconds", "3600"], stdout=subprocess.PIPE, text=True)
    assert tool.stdout is not None
    assert tool.stdout.readline().strip() == "up", "the delaying program did not start"
    shell(f"ip link add {outer} type veth peer name {inner}")
    shell(f"ip link set {outer} master {PREFIX}br up")
    shell(f"ip link set {inner} netns {router}")
    shell(f"ip -n {router} link add br0 type bridge")
    for device in ("w0", inner):
        shell(f"ip -n {router} link set {device} master br0")
    for device in (inner, "br0"):
        shell(f"ip -n {router} link set {device} up")
    limit = f"root tbf rate {args.rate_mbit}mbit burst 64kb latency 500ms"
    shell(f"tc qdisc add dev {outer} {limit}")
    shell(f"ip netns exec {router} tc qdisc add dev {inner} {limit}")
    shell(f"ip netns exec {here} sysctl -qw net.ipv4.tcp_slow_start_after_idle=0")
    return tool


def enter(namespace: str) -> None:
    """Let this process live in a namespace from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/var/run/netns/{namespace}", "rb") as file:
        if libc.setns(file.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def links(addresses: dict[str, str], size: int) -> tuple[float, float]:
    """Seconds one way, and bit/s of a transfer of this size, by plain TCP from the first site to the last."""
    server = os.fork()
    if server == 0:
        enter(PREFIX + SITES[-1])
        _serve(addresses[SITES[-1]])
        os._exit(0)
    reader, writer = os.pipe()
    client = os.fork()
    if client == 0:
        enter(PREFIX + SITES[0])
        latency, seconds = _measure(addresses[SITES[-1]], size)
        os.write(writer, f"{latency} {seconds}".encode())
        os._exit(0)
    os.waitpid(client, 0)
    os.waitpid(server, 0)
    latency, seconds = map(float, os.read(reader, 100).split())
    return latency, 8.0 * size / (seconds - latency)


def _serve(address: str) -> None:
    with socket.create_server((address, 7000)) as server:
        connection, _ = server.accept()
        with connection:
            while head := connection.recv(8, socket.MSG_WAITALL):
                left = int.from_bytes(head, "big")
                while left:
                    left -= len(connection.recv(min(left, 1 << 20)))
                connection.sendall(b"x")


def _measure(address: str, size: int) -> tuple[float, float]:
    """Half a round trip, and from the first byte of a transfer to its last at the other side."""
    for _ in range(50):
        with suppress(OSError), socket.create_connection((address, 7000), timeout=5) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            trips = [_trip(connection, 0) for _ in range(20)]
            transfers = [_trip(connection, size) for _ in range(8)]
            return median(trips) / 2, median(transfers[2:]) - median(trips) / 2
        time.sleep(0.1)
    raise SystemExit("the sites cannot reach each other")


def _trip(connection: socket.socket, size: int) -> float:
    began = time.monotonic()
    connection.sendall(size.to_bytes(8, "big") + bytes(size))
    connection.recv(1)
    return time.monotonic() - began


def study(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "name": "five-sites",
        "network": {"topology": "complete", "nodes": len(SITES)},
        "task": {"name": "digits", "hidden": HIDDEN},
        "algorithms": [{"name": "multi_walk", "walks": args.walks}],
        "training": {"local_steps": 1},
        "stop": {"iterations": args.iterations},
    }


def real_trace(addresses: dict[str, str], args: argparse.Namespace, iterations: int) -> Any:
    """Five nodes, each in its namespace, to the end of the run."""
    import pandas as pd

    from walktalk.records import TRACE_COLUMNS

    with tempfile.TemporaryDirectory() as place:
        nodes = {site: {"address": f"{address}:7447", "site": site.upper()} for site, address in addresses.items()}
        content = {
            "name": "sites",
            "study": {**study(args), "stop": {"iterations": iterations}},
            "folder": "records",
            "pace": TRAINING,
            "wait": PATIENCE,
            "nodes": nodes,
        }
        config = Path(place) / "cluster.yaml"
        config.write_text(yaml.safe_dump(content, sort_keys=False))
        main = "from walktalk.cli import main; main()"
        command = [sys.executable, "-c", main, "node", "--config", str(config), "--fresh", "--device", "cpu", "--name"]
        running = [subprocess.Popen(["ip", "netns", "exec", PREFIX + site, *command, site]) for site in SITES]
        try:
            codes = [process.wait(PATIENCE) for process in running]
        except subprocess.TimeoutExpired as error:
            last = {site: [row[:8] for row in read_event_log(Path(place) / "records" / site)][-3:] for site in SITES}
            raise SystemExit(f"after {PATIENCE} s some still run; what each wrote last: {last}") from error
        finally:
            for process in running:
                process.kill()
        if any(codes):
            raise SystemExit(f"nodes ended with {codes}")
        rows = merge(read_event_log(Path(place) / "records" / site) for site in SITES)
    return pd.DataFrame(rows, columns=list(TRACE_COLUMNS))


def compare(addresses: dict[str, str], args: argparse.Namespace) -> dict[str, Any]:
    """Links and trainings measured, a prediction, and the run that it is about."""
    spec = make_spec(study(args))
    model_bytes = prepare(spec, "cpu").trainer.payload_bytes
    latency, bandwidth = links(addresses, model_bytes)
    compute, spread, hop = measured(real_trace(addresses, args, 15))
    timing = NetworkTiming(compute=compute, spread=spread, latency=latency, bandwidth=1e12, node_bandwidth=bandwidth)
    guess = predicted(spec, timing, model_bytes)
    real = seconds_an_iteration(real_trace(addresses, args, args.iterations))
    return {
        "graph": "five sites",
        "latency_ms": 1e3 * latency,
        "mbit_s": bandwidth / 1e6,
        "compute_ms": 1e3 * compute,
        "hop_ms": 1e3 * hop,
        "measured_ms": 1e3 * real,
        "predicted_ms": 1e3 * guess,
        "ratio": guess / real,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate-mbit", type=float, default=40.0)
    parser.add_argument("--delay-ms", type=float, default=5.0, help="of each site's link, one way")
    parser.add_argument("--walks", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None, help="folder for a CSV file")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("network namespaces need root")
    with five_sites(args) as addresses:
        results = [compare(addresses, args) for _ in range(args.repeats)]
    report(results, args.json, args.out, "agreement_sites")


if __name__ == "__main__":
    main()
