"""Real cuts: every node in a network namespace of its own, on a bridge; who is cut off is on another for a while.

Nothing tells the nodes: their packets simply do not arrive any more, as with a pulled cable. Dropping what comes
(`node_faults`) cannot show what that does to connections. Needs root on Linux, and the command `ip`.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from walktalk.core.errors import UnavailableError
from walktalk.runtimes.peers import Cluster
from walktalk.testing.chaos.plan import is_root

NETWORK = "10.213"  # of all addresses of the first worker; nobody else's, as long as chaos goes on
NETWORKS = 32  # networks: 10.213 to 10.244
PORT = 7447
LEASE = 3.0  # seconds of silence until a connection counts as broken


def enter(namespace: str) -> None:
    """This thread, and all that it starts, lives in a namespace from now on."""
    with open(f"/var/run/netns/{namespace}") as place:
        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")


def plugged_in(cluster: Cluster, cables: Cables) -> Cluster:
    """The cluster with an address for every node, each in its namespace; a cut is noticed before it is over."""
    places = {
        name: place.model_copy(update={"address": cables.address(node), "listen": ""})
        for node, (name, place) in enumerate(cluster.nodes.items())
    }
    return cluster.model_copy(update={"nodes": places, "lease": LEASE})


class Cables:
    """One cable a node, and two bridges. Use as a context manager."""

    def __init__(self, nodes: int, worker: int = 0) -> None:
        """nodes: how many. worker: networks that exist at once have different ones."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise UnavailableError(
                "--real-cuts makes network namespaces: it needs root, and the command `ip` (iproute2)"
            )
        self._mark = f"wt{os.getpid() % 100_000}"
        first, _, second = NETWORK.partition(".")
        self._network = f"{first}.{int(second) + worker % NETWORKS}"
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
        """The network namespace of a node."""
        return f"{self._mark}n{node}"

    def address(self, node: int) -> str:
        """Where a node listens."""
        return f"{self._network}.{node // 250}.{node % 250 + 1}:{PORT}"

    def cut(self, side: Iterable[int]) -> None:
        """These reach each other, and nobody else reaches them."""
        for node in side:
            _ip(f"link set {self._cable(node)} master {self._bridge(1)}")

    def heal(self) -> None:
        """Plugs all cables in again, so that everybody reaches everybody."""
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


# A disk that is full.
#
# As root the node's folder is a small file system of its own, in memory, and is filled. Else the system lets the node's
# process make no file longer (`RLIMIT_FSIZE`), which it sees as another error at the same calls.

SIZE = "24m"  # a plan's trace is 2 to 4 MB
FILLER = "filler"


class Disk:
    """A small disk for one node's folder. Use as a context manager, around the life of all processes and the
    reading of its folder.
    """

    def __init__(self, folder: Path) -> None:
        """folder: the folder of the node that gets the disk."""
        self.folder, self.own = folder, is_root()
        self._limited: int | None = None  # a process whose files may not grow
        self.full = False

    def __enter__(self) -> Disk:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.own:
            mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "walktalk-chaos", str(self.folder)]
            self.own = subprocess.run(mount, capture_output=True, check=False).returncode == 0  # containers may not
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.free()
        if self.own:
            subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)

    def fill(self, process: int | None) -> None:
        """Nothing more can be written by this process."""
        self.full = True
        if not self.own and process is not None:
            self._limited = process
            _limit(process, 1)
            return
        with (self.folder / FILLER).open("ab", buffering=0) as file, suppress(OSError):
            for block in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while file.write(bytes(block)):
                        pass

    def free(self) -> None:
        """There is room again."""
        self.full = False
        if self._limited is not None:
            with suppress(OSError, ValueError):  # it may be dead by now
                _limit(self._limited, resource.RLIM_INFINITY)
            self._limited = None
        (self.folder / FILLER).unlink(missing_ok=True)


def _limit(process: int, size: int) -> None:
    _, most = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size if most == resource.RLIM_INFINITY else most, most))
