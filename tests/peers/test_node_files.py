"""What a node writes: it goes on where the disk is full, tells what is damaged, and its clock may be set back."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

import walktalk.runtimes.peers.node.checkpoints as keeping
from walktalk.core.errors import SpecError, StudyError
from walktalk.graphs import cycle
from walktalk.protocols import Message
from walktalk.records import TraceRow, atomic
from walktalk.runtimes.peers import (
    EventLog,
    JoinRequest,
    Parcel,
    Place,
    Standing,
    make_certificates,
    make_cluster,
    merge,
    read_event_log,
)
from walktalk.runtimes.peers.identity.handshake import next_life, remember_life
from walktalk.runtimes.peers.node.checkpoints import Checkpoints, Kept
from walktalk.runtimes.peers.node.members import Members
from walktalk.runtimes.peers.operations.cluster import free_ports
from walktalk.runtimes.peers.wire.messages import Ack, Answer, Stamp
from walktalk.runtimes.peers.wire.outbox import Outbox
from walktalk.studies.peers.node_job import Seat, find_seat

KEPT = Kept({"model": torch.ones(3)}, {}, 5, 100, 1)


def test_after_a_checkpoint_that_could_not_be_written_comes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One failure ended all later ones."""
    keeper, save = Checkpoints(tmp_path), keeping.save_checkpoint

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(keeping, "EVERY", 0.0)
    monkeypatch.setattr(keeping, "save_checkpoint", full)
    keeper._next = 0.0
    keeper.save_sometimes(lambda: KEPT)
    keeper.close()
    assert not keeper.save(KEPT)
    assert "No space left" in caplog.text
    monkeypatch.setattr(keeping, "save_checkpoint", save)
    assert keeper._next < time.monotonic() + 60.0
    keeper._next = 0.0
    keeper.save_sometimes(lambda: KEPT)
    keeper.close()
    found = keeper.load()
    assert found is not None
    assert found.iterations == 5


def test_a_damaged_checkpoint_is_told_and_put_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keeper = Checkpoints(tmp_path)
    keeper.save(KEPT)
    data = bytearray(keeper.path.read_bytes())
    data[-2] ^= 1
    keeper.path.write_bytes(data)
    assert keeper.load() is None
    assert "damaged" in caplog.text
    assert keeper.path.with_suffix(".damaged").read_bytes() == data  # nobody's work is thrown away


def test_a_checkpoint_of_another_user_is_no_damaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = Checkpoints(tmp_path)
    keeper.save(KEPT)

    def refuse(path: Path, mode: str) -> None:  # tests may run as root, who may read everything
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SpecError, match=r"folder: .*checkpoint.safetensors cannot be read: Permission denied; start"):
        keeper.load()
    assert keeper.path.exists()


def test_a_full_disk_loses_no_line_while_memory_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    event_log, write, room = EventLog(tmp_path, 1), os.write, [100]

    def little(file: int, data: bytes) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = write(file, data[: room[0]])
        room[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", little)
    for number in range(5):
        event_log.write(TraceRow(float(number), 0, "note", number=number))  # the second is cut in its middle
    assert "Lines wait in memory" in caplog.text
    room[0] = 10**6
    event_log.close()
    assert [row.number for row in read_event_log(tmp_path)] == list(range(5))


def test_what_memory_cannot_hold_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import walktalk.runtimes.peers.node.reports as reports

    monkeypatch.setattr(reports, "WAITING", 2)
    event_log, write = EventLog(tmp_path, 1), os.write
    monkeypatch.setattr(os, "write", lambda file, data: 0)
    for number in range(5):
        event_log.write(TraceRow(float(number), 0, "note", number=number))
    monkeypatch.setattr(os, "write", write)
    event_log.close()
    assert [(row.event, row.number) for row in read_event_log(tmp_path)] == [("note", 0), ("note", 1), ("missing", 3)]


def test_lives_grow_though_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next_life(tmp_path)
    monkeypatch.setattr(time, "time_ns", lambda: first - 10**15)
    second = next_life(tmp_path)
    assert second > first
    for life in (second, first):
        EventLog(tmp_path, life).write(TraceRow(0.0, 0, "started", number=life))
    assert [row.number for row in read_event_log(tmp_path)] == [first, second]


def test_the_next_life_is_later_than_one_that_neighbours_have_heard_of(tmp_path: Path) -> None:
    """Its folder was lost and its clock set back, or another had its name for a while."""
    heard = next_life(tmp_path) + 10**15
    remember_life(tmp_path, heard)
    assert next_life(tmp_path) == heard + 1


def test_a_merged_trace_leaves_nothing_out_though_its_order_is_impossible(caplog: pytest.LogCaptureFixture) -> None:
    """Each has received what the other sends after: it dropped all that followed, in silence."""
    one = [TraceRow(1.0, 0, "receive", "in", 1, number=1, key=7), TraceRow(2.0, 0, "send", "x", 1, number=1, key=7)]
    other = [TraceRow(1.0, 1, "receive", "in", 0, number=1, key=7), TraceRow(2.0, 1, "send", "x", 0, number=1, key=7)]
    rest = [TraceRow(3.0, node, "record") for node in (0, 1)]
    with caplog.at_level(logging.WARNING):
        merged = merge([[*one, rest[0]], [*other, rest[1]]])
    assert len(merged) == 6
    assert "received before they were sent" in caplog.text


@pytest.mark.parametrize("name", ["ca", "ports", "operator", "alive", "launcher"])
def test_names_that_collide_with_files_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match=f"{name}' cannot be a node's name"):
        make_cluster({"nodes": {name: {}}})


def test_no_node_takes_the_authoritys_key(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"a": ()})
    key = (tmp_path / "ca.key").read_bytes()
    with pytest.raises(SpecError, match="authority"):
        make_certificates(tmp_path, {"ca": ()})
    assert (tmp_path / "ca.key").read_bytes() == key


def test_an_outbox_that_failed_once_sends_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import walktalk.runtimes.peers.wire.outbox as outboxes

    monkeypatch.setattr(outboxes, "ASK_AFTER", 0.01)
    failures, sent = [OSError("broken")], []

    def put(chunk: bytes) -> None:
        if failures:
            raise failures.pop()
        sent.append(chunk)

    box = Outbox(put, lambda question: box.answered(Ack(stamp, Answer.UNKNOWN)), lambda parcel: None, lambda: None, 1)
    stamp = box.put(Parcel(0, 1, Message("walk", walk=1), 4), memoryview_of(b"1234"))
    end = time.monotonic() + 60
    while not sent and time.monotonic() < end:
        time.sleep(0.001)
    box.answered(Ack(stamp, Answer.TAKEN))
    assert stamp == Stamp(1, 1)
    assert sent
    assert box.wait_idle(60)
    box.close()


def memoryview_of(data: bytes):
    import numpy as np

    return np.frombuffer(data, np.uint8)


WIDE = """
import torch, walktalk as wt
from torch import nn
from torch.nn import functional

def wide():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 2))
    return wt.tasks.torch(module, functional.cross_entropy, [(torch.randn(128, 300), torch.arange(128) % 2)])
"""


def test_a_node_that_leaves_in_the_middle_of_a_training_ends_well(tmp_path: Path) -> None:
    """It was torn down under its training thread: exit code -6, and a supervisor would have started it again.

    A true training, nearly all of it in torch: what only sleeps, as `pace` does, is torn down without a word.
    """
    (tmp_path / "wide_task.py").write_text(WIDE)
    content = {
        "study": {
            "network": {"topology": "complete", "nodes": 1},
            "task": {"name": "wide_task:wide"},
            "training": {"batch_size": 128, "local_steps": 3_000},
            "algorithms": [{"name": "async_gossip"}],
            "stop": {"time": 600.0},
        },
        "folder": "records",
        "nodes": {"a": {"address": f"127.0.0.1:{free_ports(1)[0]}"}},
    }
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(content))
    command = f"import sys; sys.path.append({str(tmp_path)!r}); from walktalk.cli import main; main()"
    node = subprocess.Popen(
        [sys.executable, "-c", command, "node", "--config", str(tmp_path / "cluster.yaml"), "--name", "a"]
    )
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and not any(
            row.event == "train" for row in read_event_log(tmp_path / "records" / "a")
        ):
            time.sleep(0.1)
        node.send_signal(signal.SIGTERM)
        assert node.wait(20) == 0
    finally:
        node.kill()
    assert (tmp_path / "records" / "a" / "checkpoint.safetensors").exists()


def begins(seat: Seat) -> None:
    """What a node writes down when it begins."""
    seat.remember()
    setup = SimpleNamespace(folder=seat.folder, roster=seat.roster, around=None)
    link = SimpleNamespace(endpoint=SimpleNamespace(name=seat.name))
    parts: Any = (setup, None, link, *[None] * 5)
    Members(*parts)


def test_a_node_comes_back_while_its_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It wrote down at every start who belongs, and ended where there was no room for it."""
    cluster = make_cluster({"nodes": {name: {"address": f"10.0.0.{n}:7447"} for n, name in enumerate("abcd", 1)}})
    cluster = cluster.model_copy(update={"folder": tmp_path})
    place = Place(address="10.0.0.9:7447")
    first = find_seat(cluster, cycle(4), "e", False, JoinRequest("a"), place)
    first.roster.join([first.roster.next("e", Standing.MEMBER, address=place.address, neighbours=("a", "b"), rank=4)])
    begins(first)

    def full(*args: object) -> None:
        raise StudyError("roster.json: No space left on device")

    monkeypatch.setattr(atomic, "write_text", full)
    again = find_seat(cluster, cycle(4), "e", True, None, None)
    begins(again)  # all of it is there
    assert not caplog.records
    again.roster.join([again.roster.next("c", Standing.LEFT)])
    begins(again)
    assert "who belongs cannot be written down" in caplog.text
    with pytest.raises(StudyError, match="No space left"):  # nobody would know where it is: it had better not join
        find_seat(cluster, cycle(4), "f", False, JoinRequest("a"), place).remember()
