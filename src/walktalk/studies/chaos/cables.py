"""Real cuts: every node in a network namespace of its own, on a bridge; who is cut off is on another for a while.

Nothing tells the nodes: their packets simply do not arrive any more, as with a pulled cable. A file that mutes messages
(`BLOCKED`) cannot show what that does to connections. Needs root on Linux, and the command `ip`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable
from types import TracebackType

from walktalk.errors import UnavailableError
from walktalk.runtimes.peers import Cluster

NETWORK = "10.213"  # of all addresses of the first lane; nobody else's, as long as chaos goes on
LANES = 32  # networks: 10.213 to 10.244
PORT = 7447
LEASE = 3.0  # seconds of silence until a connection counts as broken


def enter(namespace: str) -> None:
    """This thread, and all that it starts, lives in a namespace from now on."""
    with open(f"/var/run/netns/{namespace}") as place:
        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")


def plugged_in(cluster: Cluster, cables: Cables) -> Cluster:
    """The same cluster with an address for every node, each in its namespace; a cut is noticed before it is over."""
    places = {
        name: place.model_copy(update={"address": cables.address(node), "listen": ""})
        for node, (name, place) in enumerate(cluster.nodes.items())
    }
    return cluster.model_copy(update={"nodes": places, "lease": LEASE})


class Cables:
    """One cable a node, and two bridges. Use as a context manager."""

    def __init__(self, nodes: int, lane: int = 0) -> None:
        """nodes: how many. lane: networks that exist at once have different ones."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise UnavailableError(
                "--real-cuts makes network namespaces: it needs root, and the command `ip` (iproute2)"
            )
        self._mark = f"wt{os.getpid() % 100_000}"
        first, _, second = NETWORK.partition(".")
        self._network = f"{first}.{int(second) + lane % LANES}"
        self.nodes = range(nodes)

    def __enter__(self) -> Cables:
        try:
            for bridge in (0, 1):
                _ip(f"link add {self._bridge(bridge)} type bridge")
                _ip(f"link set {self._bridge(bridge)} up")
            _ip(f"addr add {self._network}.255.254/16 dev {self._bridge(0)}")
            for node in self.nodes:
                self._plug(node)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for node in self.nodes:  # a namespace, and its end of a cable, live on as long as a process is in it
            _ip(f"link del {self._cable(node)}", must=False)
            _ip(f"netns del {self.namespace(node)}", must=False)
        for bridge in (0, 1):
            _ip(f"link del {self._bridge(bridge)}", must=False)

    def namespace(self, node: int) -> str:
        """A node's."""
        return f"{self._mark}n{node}"

    def address(self, node: int) -> str:
        """Where a node listens."""
        return f"{self._network}.{node // 250}.{node % 250 + 1}:{PORT}"

    def cut(self, side: Iterable[int]) -> None:
        """These reach each other, and nobody else reaches them."""
        for node in side:
            _ip(f"link set {self._cable(node)} master {self._bridge(1)}")

    def heal(self) -> None:
        """Everybody reaches everybody."""
        for node in self.nodes:
            _ip(f"link set {self._cable(node)} master {self._bridge(0)}")

    def _plug(self, node: int) -> None:
        space, cable = self.namespace(node), self._cable(node)
        host = self.address(node).partition(":")[0]
        _ip(f"netns add {space}")
        _ip(f"link add {cable} type veth peer name eth0 netns {space}")
        _ip(f"link set {cable} master {self._bridge(0)} up")
        _ip(f"-n {space} addr add {host}/16 dev eth0")
        _ip(f"-n {space} link set eth0 up")
        _ip(f"-n {space} link set lo up")

    def _cable(self, node: int) -> str:
        return f"{self._mark}c{node}"

    def _bridge(self, number: int) -> str:
        return f"{self._mark}b{number}"


def _ip(command: str, must: bool = True) -> None:
    done = subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=False)
    if must and done.returncode:
        raise UnavailableError(f"--real-cuts: `ip {command}` failed: {done.stderr.strip()}")
