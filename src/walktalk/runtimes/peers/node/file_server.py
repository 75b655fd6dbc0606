"""What a node hands out to whoever collects: its event logs and its copy of the model, piece by piece. Never any data.

All of it lies in the node's own folder, so that it can be read there just as well when the node is gone:

    trace-LIFE.jsonl …   what it wrote down, in parts (`event_log`)
    copy.safetensors     its copy of the model, weights by name, as `load_state_dict` takes them
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from walktalk.records import save_checkpoint
from walktalk.runtimes.peers.node.event_log import PATTERN, event_log_files
from walktalk.runtimes.peers.node.roster import MEMBERS_FILE
from walktalk.runtimes.peers.wire.session import PIECE

COPY = "copy.safetensors"
FILES = re.compile(rf"{PATTERN}|copy\.safetensors")  # no other file is ever asked for or handed out
PATIENCE = 20.0  # seconds without a question after which nobody waits any more
EARLIER = "earlier"  # the folder of what a run from before has left


class Copy(NamedTuple):
    """A node's copy of the model, and its role in the protocol."""

    model: Tensor  # as a row
    role: str  # that the protocol gave it: the aggregate, or a member
    key: int  # the aggregator's term, or the member's number: a walk's, a node's


class FileServer:
    """Hands out a node's trace and its copy of the model, from threads that are not the node's."""

    def __init__(
        self, folder: Path, newest: Callable[[], Copy | None], named: Callable[[Tensor], Mapping[str, Tensor]] | None
    ) -> None:
        """
        - `folder`: the node's own.
        - `newest`: its copy as it is now; None where it has none yet.
        - `named`: a model's weights by name; None: it hands out no copy.
        """
        self._folder, self._newest, self._named = folder, newest, named
        self._asked_at = -PATIENCE  # when somebody who waits for the end asked last
        self._lock = threading.Lock()
        self.collected = False  # somebody has got all of it

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for the end of the run, to collect what this node has by then."""
        return not self.collected and time.monotonic() < self._asked_at + PATIENCE

    def answer(self, asked: Mapping[str, str], facts: Mapping[str, Any]) -> bytes:
        """Answer with a piece of the file that is asked for; else, as JSON, with which files there are, and the facts.

        Asked for: `file` and `from`, the first byte; or `copy`, to have the copy written first; `waits`: whoever asks
        will ask again until the run is over; `collected`: has got everything, and nobody need wait for it any more.
        """
        if "waits" in asked:
            self._asked_at = time.monotonic()
        self.collected = self.collected or "collected" in asked
        if "file" in asked:
            return self._piece(asked["file"], int(asked.get("from", "0")))
        if "copy" in asked:
            self.put_copy()
        files = {path.name: path.stat().st_size for path in self._folder.iterdir() if FILES.fullmatch(path.name)}
        newest = self._newest() if self._named is not None else None
        copy = None if newest is None else {"role": newest.role, "key": newest.key}
        return json.dumps({"files": files, "copy": copy, **facts}).encode()

    def put_copy(self) -> None:
        """Write the copy into the folder."""
        copy = self._newest()
        if copy is None or self._named is None:
            return
        with self._lock:
            facts = {"role": copy.role, "key": copy.key, "moment": time.time()}
            weights = {name: tensor.detach().clone() for name, tensor in self._named(copy.model).items()}
            save_checkpoint(self._folder / COPY, weights, facts)

    def _piece(self, name: str, start: int) -> bytes:
        if not FILES.fullmatch(name) or start < 0:
            raise ValueError(f"no such file: {name!r}")
        with (self._folder / name).open("rb") as file:
            file.seek(start)
            return file.read(PIECE)


def archive_earlier_run(folder: Path) -> None:
    """Move what an earlier run has left into a folder of its own, so that it is not taken for this one's."""
    left = [*event_log_files(folder), *folder.glob("*.safetensors"), *folder.glob(MEMBERS_FILE)]
    if left:
        aside = folder / EARLIER / str(time.time_ns())
        aside.mkdir(parents=True)
        for path in left:
            path.rename(aside / path.name)
