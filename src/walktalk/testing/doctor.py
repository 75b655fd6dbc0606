"""What this machine can do for walktalk, and what is missing: each finding with what to do about it.

`checkup` is all that `walktalk doctor` looks at, and what it finds of peers and of a cluster's file.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packaging.requirements import Requirement

import walktalk
from walktalk.core.errors import DataError, UserError

if TYPE_CHECKING:
    from walktalk.runtimes.peers import Cluster

# -- What `walktalk doctor` finds of this machine: Python, torch and its device, memory, disk, packages, data sets ----

State = Literal["good", "absent", "bad"]
"""`absent` is something that not everybody needs; `bad` is something that will not work."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, how it is, and what to do about it."""

    about: str  # a word or two: "torch", "extra peers"
    state: State
    said: str  # one line
    remedy: str = ""  # a command or a setting; empty where nothing is to be done


TESTED = ((3, 10), (3, 11), (3, 12), (3, 13))  # on which the tests were run
LITTLE_MEMORY = 2 << 30
LITTLE_DISK = 1 << 30
# In a process of its own: where a CPU promises what it cannot do, the answer is a signal, not an exception.
PRODUCT = "import walktalk, torch; a = torch.ones(64, 64, dtype=torch.bfloat16); print(float((a @ a)[0, 0]))"


def python() -> Iterator[Finding]:
    """The interpreter, and which walktalk it finds."""
    yield Finding("walktalk", "good", f"{walktalk.__version__} in {Path(walktalk.__file__).parent}")
    tested = sys.version_info[:2] in TESTED
    said = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    versions = ", ".join(f"{major}.{minor}" for major, minor in TESTED)
    yield Finding("Python", "good", said if tested else f"{said}; the tests were run on {versions} only")


def torch_and_device() -> Iterator[Finding]:
    """Whether torch can be imported, on what it computes, and whether products in 16 bits work."""
    try:
        import torch
    except Exception as error:  # whatever a broken installation throws
        said = " ".join(str(error).split())
        yield Finding("torch", "bad", f"cannot be imported: {said}", "pip install --force-reinstall torch")
        return
    yield Finding("torch", "good", f"{torch.__version__}, {torch.get_num_threads()} threads on {os.cpu_count()} CPUs")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            yield Finding("device", "good", f"cuda:{index}, {about.name}, {about.total_memory / 2**30:.0f} GB")
    elif torch.version.cuda:
        yield Finding("device", "good", "CPU; this torch could use CUDA, but finds no GPU")
    else:
        yield Finding("device", "good", "CPU; this torch has no CUDA, so a GPU would not be used")
    yield _bf16()


def _bf16() -> Finding:
    done = subprocess.run([sys.executable, "-c", PRODUCT], capture_output=True, text=True, timeout=120)
    kept = os.environ.get("ONEDNN_MAX_CPU_ISA")
    note = f"; ONEDNN_MAX_CPU_ISA={kept}" if kept else ""
    if done.returncode == 0 and done.stdout.strip() == "64.0":
        return Finding("bf16 on CPU", "good", f"products in 16 bits work{note}")
    died = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    remedy = "set ONEDNN_MAX_CPU_ISA=AVX512_CORE, or stay with training.precision: fp32"
    return Finding("bf16 on CPU", "bad", f"a product in 16 bits ends with {died}{note}", remedy)


def room(folder: Path) -> Iterator[Finding]:
    """Memory and disk that are free, and whether results can be written."""
    free = _free_memory()
    if free is not None:
        few = free < LITTLE_MEMORY
        remedy = "close other programs, or say --memory" if few else ""
        yield Finding("memory", "bad" if few else "good", f"{free / 2**30:.1f} GB free", remedy)
    left = shutil.disk_usage(folder).free
    if not os.access(folder, os.W_OK):
        yield Finding("disk", "bad", f"nothing can be written to {folder}", "change to another folder, or use --out")
    elif left < LITTLE_DISK:
        yield Finding("disk", "bad", f"{left / 2**30:.1f} GB free in {folder}", "make room, or use --out")
    else:
        yield Finding("disk", "good", f"{left / 2**30:.0f} GB free in {folder}")


def _free_memory() -> int | None:
    """Bytes, where the system says so as Linux does."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) << 10 if found else None


# -- what is installed: all that walktalk needs, its extras, and data sets ---------------------------------------------

EXTRAS = {
    "peers": "real nodes: run --engine peers, node, status, chaos",
    "language": "language models: the task mnli",
    "privacy": "what protects the data of nodes: the key privacy, wt.private",
    "ray": "studies on a cluster: run --workers ray",
    "tensorboard": "evaluations for TensorBoard: run --tensorboard, wt.TensorBoard",
    "mlflow": "evaluations for MLflow: run --mlflow, wt.MLflow",
    "wandb": "evaluations for Weights & Biases: run --wandb, wt.WandB",
}


def packages() -> Iterator[Finding]:
    """The dependencies in one line, then each extra."""
    declared = [Requirement(line) for line in requires("walktalk") or []]
    wrong = [said for one in declared if _applies(one, "") and (said := _misfit(one))]
    needed = sum(_applies(one, "") for one in declared)
    remedy = "pip install --upgrade walktalk"
    yield (
        Finding("packages", "bad", "; ".join(wrong), remedy)
        if wrong
        else Finding("packages", "good", f"all {needed} that are needed")
    )
    for extra, purpose in EXTRAS.items():
        own = [one for one in declared if _applies(one, extra) and not _applies(one, "")]
        missing = [said for one in own if (said := _misfit(one))]
        if missing:
            yield Finding(f"extra {extra}", "absent", f"{purpose}; {missing[0]}", f"pip install 'walktalk[{extra}]'")
        else:
            yield Finding(f"extra {extra}", "good", ", ".join(f"{one.name} {version(one.name)}" for one in own))


def _applies(one: Requirement, extra: str) -> bool:
    return one.marker is None or one.marker.evaluate({"extra": extra})


def _misfit(one: Requirement) -> str:
    """What is wrong with an installed package; empty where nothing is."""
    try:
        found = version(one.name)
    except PackageNotFoundError:
        return f"{one.name} is not installed"
    fits = one.specifier.contains(found, prereleases=True)
    return "" if fits else f"{one.name} is {found}, but {one.specifier} is needed"


def data_sets() -> Iterator[Finding]:
    """Each data set that is files: there and whole, not there, or damaged."""
    from walktalk.learning import data  # imports torch, which may be what is wrong here

    for name, dataset in data.DATASETS.items():
        folder = data.home() / dataset.folder
        if not any((folder / file).exists() for file in dataset.files):
            yield Finding(f"data {name}", "absent", f"not in {folder}", f"walktalk data get {name}")
            continue
        try:
            yield Finding(f"data {name}", "good", f"in {data.locate(dataset)}, complete and unchanged")
        except DataError as error:
            yield Finding(f"data {name}", "bad", str(error), f"walktalk data get {name}")


# -- `checkup`: all that `walktalk doctor` looks at, and what it finds of peers and of a cluster's file ---------------


def checkup(folder: Path, cluster: Path | None = None, name: str = "") -> Iterator[Finding]:
    """Yields every finding of `walktalk doctor` as soon as it is known.

    Args:
        folder: Where results would be written.
        cluster: A cluster file, to look at its ports, nodes and certificates from this machine.
        name: Of the one node of it that will run here; then what no node needs is left out.
    """
    yield from python()
    yield from (one for one in packages() if not name or one.state != "absent" or one.about == "extra peers")
    found = list(torch_and_device())
    yield from found
    yield from room(folder)
    if found[0].state == "good":  # data and peers need torch
        if not name:
            yield from data_sets()
        yield from loopback()
        if cluster is not None:
            yield from cluster_file(cluster, name)


# -- whether nodes can talk on this machine; of a cluster, its ports, neighbours and certificates ----------------------

PATIENCE = 5.0  # seconds for a word to arrive, or for an address to answer
CLUSTER = "doctor"


def loopback() -> Iterator[Finding]:
    """Two Zenoh sessions of this process on 127.0.0.1, and a word from one to the other."""
    try:
        from walktalk.runtimes.peers import Endpoint, close_session, free_ports, open_session
    except (ImportError, UserError):
        return  # the extra is absent, which is said already
    try:
        (port,) = free_ports(1)
        began = time.monotonic()
        listens = open_session(Endpoint(CLUSTER, "a", 0, f"127.0.0.1:{port}", {"b": 1}))
        talks = open_session(Endpoint(CLUSTER, "b", 1, "", {"a": 0}, (f"127.0.0.1:{port}",)))
    except UserError as error:
        yield Finding("peers on loopback", "bad", str(error), "see that nothing forbids connections to 127.0.0.1")
        return
    try:
        key = f"walktalk/{CLUSTER}/a/b/word"
        with listens.declare_queryable(key, lambda query: query.reply(key, b"yes")):
            answered = False
            while not answered and time.monotonic() - began < PATIENCE:
                answered = any(reply.ok is not None for reply in talks.get(key, timeout=0.5))
    finally:
        for session in (talks, listens):
            close_session(session, PATIENCE)
    took = time.monotonic() - began
    if answered:
        yield Finding("peers on loopback", "good", f"a word from one to another after {took:.2f} s, port {port}")
    else:
        remedy = "see that no firewall forbids connections to 127.0.0.1"
        yield Finding("peers on loopback", "bad", f"no word arrived in {PATIENCE:g} s, port {port}", remedy)


def cluster_file(path: Path, own: str = "") -> Iterator[Finding]:
    """The cluster in this file, as seen from this machine; `own`: the node that will run here, if that is known."""
    try:
        from walktalk.runtimes.peers import OPERATOR, load_cluster

        cluster = load_cluster(path)
    except UserError as error:
        yield Finding("cluster", "bad", str(error))
        return
    yield Finding("cluster", "good", f"{cluster.name}, {len(cluster.nodes)} nodes, in {path}")
    if cluster.relay:
        yield _reached("relay", cluster.relay)
    for name, place in cluster.nodes.items():
        if cluster.relay and not (place.reachable and place.has_port):
            yield Finding(f"node {name}", "good", f"is met at the relay {cluster.relay}")
        elif not place.has_port:
            yield Finding(f"node {name}", "good", f"{place.address}, no port: it connects to the others")
        elif (not own or name == own) and _is_here(place.listening):
            yield _running(cluster, name) or _own_port(name, place.listening)
        else:
            yield _reached(f"node {name}", place.address)
    if cluster.certificates is None:
        said = "none: nothing is encrypted, and anyone who reaches a port may join"
        yield Finding("certificates", "absent", said, f"walktalk certs --config {path}")
        return
    for name in (own,) if own else (*cluster.nodes, OPERATOR):
        if (cluster.certificates / f"{name}.pem").exists():
            yield _certificate(cluster.certificates, name)
    if own and not (cluster.certificates / f"{own}.pem").exists():
        remedy = f"walktalk certs request {own} --config {path}"
        yield Finding(f"certificate {own}", "bad", f"none in {cluster.certificates}", remedy)
    elif not any(cluster.certificates.glob("*.pem")):
        yield Finding("certificates", "bad", f"none in {cluster.certificates}", f"walktalk certs --config {path}")


def _running(cluster: Cluster, name: str) -> Finding | None:
    """That a node is running here already, as the certificate of whoever listens at its address says."""
    from walktalk.runtimes.peers import is_running

    try:
        files = cluster.own_credentials(name)
    except UserError:
        return None
    address = cluster.nodes[name].address
    if files is None or not is_running(name, address, files):
        return None
    return Finding(f"node {name}", "good", f"{address}, here: it is running")


def _certificate(folder: Path, name: str) -> Finding:
    from walktalk.runtimes.peers import credentials, valid_until

    try:
        found = credentials(folder, name)
    except UserError as error:
        return Finding(f"certificate {name}", "bad", str(error))
    return Finding(f"certificate {name}", "good", f"valid until {valid_until(found.certificate):%Y-%m-%d}")


def _is_here(listening: str) -> bool:
    """Whether this machine has the address that a node listens on."""
    host = listening.rpartition(":")[0].strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as one:
            one.bind(address)
    except OSError:
        return False
    return True


def _own_port(name: str, listening: str) -> Finding:
    host, _, port = listening.rpartition(":")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(address)
    except OSError as error:
        said = f"{listening}, here: {error.strerror or error}"
        return Finding(f"node {name}", "bad", said, "fine if the node is running; else give it another port")
    return Finding(f"node {name}", "good", f"{listening}, here: the port is free")


def _reached(name: str, address: str) -> Finding:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except OSError as error:
        said = f"{address} does not answer: {error.strerror or error}"
        return Finding(name, "absent", said, "fine if it is not running yet; else look at firewalls between")
    return Finding(name, "good", f"{address} answers")
