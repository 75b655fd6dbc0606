"""A script of several processes, as `torchrun` starts them: the first talks to the node, the others hear of it.

They hear each visit, the model, and whether it counts, over a group of their own on the CPU, whatever the script's own
process group runs on. What is said is JSON and numbers.
"""

from __future__ import annotations

import datetime
import json
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from walktalk.core.errors import SpecError

FOR_EVER = datetime.timedelta(days=365)  # that a visit may be waited for


class Ranks:
    """The processes of a script that train one model together."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self._group = dist.new_group(backend="gloo", timeout=FOR_EVER)

    @property
    def is_first(self) -> bool:
        """Whether this is the process that talks to the node."""
        return self.rank == 0

    def say(self, said: dict[str, Any]) -> None:
        """Tell all others; only for the first."""
        data = torch.frombuffer(bytearray(json.dumps(said).encode()), dtype=torch.uint8)
        dist.broadcast(torch.tensor([len(data)]), 0, group=self._group)
        dist.broadcast(data, 0, group=self._group)

    def hear(self) -> dict[str, Any]:
        """What the first says next."""
        size = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(size, 0, group=self._group)
        data = torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(data, 0, group=self._group)
        said: dict[str, Any] = json.loads(data.numpy().tobytes())
        return said

    def share(self, memory: Tensor) -> None:
        """Give all others what is in the first one's memory."""
        dist.broadcast(memory, 0, group=self._group)

    def close(self) -> None:
        """Let the group go: its threads must not outlive the script."""
        if dist.is_initialized():
            dist.destroy_process_group(self._group)


def ranks_here() -> Ranks | None:
    """The processes that this one is of; None where it is alone."""
    if dist.is_available() and dist.is_initialized():
        return Ranks() if dist.get_world_size() > 1 else None
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ:
        raise SpecError(
            "wt.site: call torch.distributed.init_process_group before it, so that all processes hear of visits"
        )
    return None
