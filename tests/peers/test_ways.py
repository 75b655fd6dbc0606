"""The way of one message through a node: few files, so that whoever follows it can."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import walktalk.runtimes
from tests.peers.test_hostile import lonely_node
from walktalk.protocols import AsyncGossip, Message
from walktalk.runtimes.peers import Node, Parcel
from walktalk.runtimes.peers.wire.messages import Stamp, chunks
from walktalk.runtimes.peers.wire.session import MODELS

MOST_FILES = 9
HERE = Path(walktalk.runtimes.__file__).parent


def files_of(work: Any) -> set[str]:
    """The files of the runtimes in which anything is called while some work is done."""
    seen: set[str] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(HERE):
            seen.add(str(path.relative_to(HERE)))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(before)
    return seen


def take(node: Node, pieces: list[bytes]) -> None:
    """Let a model come in, piece by piece, and the node's loop handle it."""
    for piece in pieces:
        node.link.receive(MODELS, 1, piece)
    node.events.get_nowait()()


def test_a_model_that_comes_goes_through_few_files(tmp_path: Path) -> None:
    """There were twelve."""
    with lonely_node(tmp_path, AsyncGossip()) as node:
        node._begin()
        model = np.ones(node.models.tensors.width, np.float32)
        parcel = Parcel(1, 0, Message("answer", round=77), model.nbytes)
        pieces = list(chunks(parcel, model.view(np.uint8), Stamp(1, 2)))
        received = node.reports.counts.received_messages[1]
        files = files_of(lambda: take(node, pieces))
        assert node.reports.counts.received_messages[1] == received + 1  # it was taken
    assert "semantics/interpreter.py" in files  # it was put into its slot
    assert len(files) <= MOST_FILES, sorted(files)
