"""Nothing of a site's data is in any message, log or file outside its folder: marked samples are looked for everywhere.

Nodes talk in plain text through sockets that keep every byte. The task is all that is unusual at once: a recurrent
network of one's own, batches of named columns, a regression on several targets, a graph whose nodes have names.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import walktalk as wt
from walktalk.report import write_page
from walktalk.report.study import open_study
from walktalk.runtimes.peers import Cluster, Fleet, free_ports, make_cluster
from walktalk.studies.collecting import collect
from walktalk.studies.peers import NodeJob, run_node

NAMES = ("brest", "lyon", "nice")
MARKS = {name: (0.8271604938 + k / 7, 0.4192837465 + k / 11, 0.6180339887 + k / 13) for k, name in enumerate(NAMES)}


class Doses(nn.Module):
    """An LSTM over doses, and the age beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(1, 4, batch_first=True), nn.Linear(5, 2)

    def forward(self, dose: torch.Tensor, age: torch.Tensor) -> torch.Tensor:
        return self.out(torch.cat((self.lstm(dose)[0][:, -1], age), 1))


def marked(folder: str, part: str | None = None) -> wt.Task:
    """Each site has its columns in a file of its own."""

    def read(name: str) -> dict[str, torch.Tensor]:
        columns = np.load(Path(folder).parent / name / "samples.npz")
        return {key: torch.from_numpy(columns[key]) for key in columns}

    return wt.tasks.torch(Doses(), nn.functional.mse_loss, read, names=list(NAMES), target="response", part=part)


def samples(name: str, count: int = 40) -> dict[str, np.ndarray]:
    dose = np.tile(np.array(MARKS[name], np.float32)[:, None], (count, 1, 1))
    age = np.random.default_rng(1).normal(size=(count, 1)).astype(np.float32)
    return {"dose": dose, "age": age, "response": np.hstack([age, 2 * age])}


def forms_of(name: str) -> list[bytes]:
    """A site's marks as they could be written: two numbers in a row as float32 or float64, or as text."""
    first, second = MARKS[name][:2]
    shrink_buffers = struct.pack("<ff", first, second)
    return [
        shrink_buffers,
        struct.pack("<dd", first, second),
        struct.pack("<dd", *np.float32((first, second)).astype(float)),
    ] + [repr(value)[:7].encode() for value in (first, second)]


def traces_of_data(content: bytes) -> list[str]:
    """Whose samples are in there."""
    return [name for name in NAMES if any(form in content for form in forms_of(name))]


class Tap:
    """A socket that passes everything on, both ways, and keeps it."""

    def __init__(self, port: int, to: int) -> None:
        self.kept, self._to = bytearray(), to
        self._server = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                one = self._server.accept()[0]
                other = socket.create_connection(("127.0.0.1", self._to))
            except OSError:  # closed, or the node is not there yet: whoever connects tries again
                if self._server.fileno() < 0:
                    return
                one.close()
                continue
            for here, there in ((one, other), (other, one)):
                threading.Thread(target=self._pass_on, args=(here, there), daemon=True).start()

    def _pass_on(self, here: socket.socket, there: socket.socket) -> None:
        try:
            while data := here.recv(1 << 16):
                self.kept += data
                there.sendall(data)
        except OSError:
            pass
        for end in (here, there):
            end.close()

    def close(self) -> None:
        self._server.close()


def run_logged(job: NodeJob) -> None:
    """A node whose log is a file, as on a machine of its own."""
    log = os.open(job.cluster.folder.parent / f"{job.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    os.dup2(log, 1)
    logging.getLogger("walktalk").setLevel(logging.DEBUG)
    run_node(job)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / "sites" / name).mkdir(parents=True)
        np.savez(tmp_path / "sites" / name / "samples.npz", **samples(name))
    nx.write_edgelist(nx.path_graph(NAMES), tmp_path / "graph.txt", data=False)
    return tmp_path


def the_cluster(home: Path) -> tuple[Cluster, list[Tap]]:
    ports = free_ports(6)
    ports, doors = ports[:3], ports[3:]
    taps = [Tap(door, to=port) for door, port in zip(doors, ports, strict=True)]
    nodes = {
        name: {"address": f"127.0.0.1:{door}", "listen": f"127.0.0.1:{port}"}
        for name, door, port in zip(NAMES, doors, ports, strict=True)
    }
    study = {
        "network": {"topology": "edge_list", "file": str(home / "graph.txt")},
        "task": {"name": "tests.peers.test_no_data_leaves:marked", "folder": str(home / "sites" / "any")},
        "algorithms": [{"name": "multi_walk", "walks": 2}],
        "training": {"batch_size": 4},
        "stop": {"iterations": 60},
    }
    return make_cluster({"study": study, "folder": str(home / "records"), "stay": 60.0, "nodes": nodes}), taps


def test_the_search_finds_what_it_looks_for(home: Path) -> None:
    for name in NAMES:
        content = samples(name)["dose"]
        assert traces_of_data(b"before" + content.tobytes()) == [name]
        assert traces_of_data(content.astype(np.float64).tobytes()) == [name]
        assert traces_of_data(f"loss of {MARKS[name][0]!r}".encode()) == [name]
        assert traces_of_data((home / "sites" / name / "samples.npz").read_bytes()) == [name]


def test_no_sample_is_on_the_wire_or_on_any_other_disk(home: Path) -> None:
    cluster, taps = the_cluster(home)
    fleet = Fleet(run_logged, [NodeJob(cluster, name, deployed=True) for name in NAMES], list(NAMES))
    try:
        found = collect(cluster, home / "out", wait=True, seconds=20.0)
        fleet.wait()
    finally:
        fleet.stop()
        for tap in taps:
            tap.close()
    assert not fleet.failed()
    write_page(open_study(home / "out"))

    # it was really trained, and what was sent went through the taps
    Doses().load_state_dict(load_file(found.model))
    assert [one.name for one in found.nodes] == list(NAMES)
    assert min(one.iterations for one in found.nodes) > 0
    assert sum(len(tap.kept) for tap in taps) > sum(one.bytes for one in found.nodes) > 0
    assert any(b"walktalk/" in tap.kept for tap in taps)  # as Zenoh's keys go: nothing is encrypted here

    for tap in taps:
        assert traces_of_data(bytes(tap.kept)) == []
    files = [path for path in home.rglob("*") if path.is_file() and path.name != "samples.npz"]
    assert {path.suffix for path in files} >= {".jsonl", ".safetensors", ".log", ".parquet", ".html", ".csv", ".json"}
    for path in files:
        assert traces_of_data(path.read_bytes()) == [], path
