"""A script's talk with its node; of several processes (`torchrun`) the first talks, and the others hear of it.

They hear each visit, the model, and whether it counts, over a group of their own on the CPU, whatever the script's own
process group runs on. What is said is JSON and numbers.
"""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from walktalk.core.errors import SpecError, UserError
from walktalk.learning import tasks
from walktalk.runtimes.peers import Closed, LocalConnection, SharedMemory, norm_of

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


class Talk:
    """A script's talk with its node: what is asked and answered, and the memory in which both have the models.

    Where a script is several processes (`torchrun`), the first one talks, and the others hear of it.
    """

    def __init__(self, name: str, ranks: Ranks | None) -> None:
        """
        - `name`: of the node.
        - `ranks`: all processes of the script; None: there is this one alone.
        """
        self.name, self.ranks = name, ranks
        self.over = ""  # why there are no more visits; "": there may be
        self.failed = False  # whether that is because the node has ended with an error
        self.visit: object = None  # the one that came last
        self.described: dict[str, Any] = {}  # what the node says of models
        self._connection: LocalConnection | None = None
        self._given: SharedMemory | None = None
        self._back: SharedMemory | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process talks to the node; others of the same script hear of it."""
        return self.ranks is None or self.ranks.is_first

    @property
    def is_prepared(self) -> bool:
        """Whether it is known here what a model is, and where it comes."""
        return self._given is not None

    def begin(self, connection: LocalConnection, said: dict[str, Any], memory: list[int] | None) -> None:
        """Talk over this connection, on which the node has answered the first words."""
        self.prepare(said, memory)
        self._connection = connection

    def prepare(self, said: dict[str, Any], memory: list[int] | None) -> None:
        """Learn what a model is here, and where it comes; `memory`: that of the node, None where that is another's."""
        if "refused" in said:
            raise UserError(str(said["refused"]))
        self.over = self.over or str(said.get("over", ""))
        if self.over:
            return
        self.described = {key: said[key] for key in ("layout", "optimizer", "constants", "memory")}
        self.layout = tasks.StateLayout.from_json(said["layout"])
        self.optimizer_layout = tasks.StateLayout.from_json(said["optimizer"])
        self._constants: dict[str, int] = said["constants"]
        sizes: list[int] = said["memory"]
        if memory is None:
            self._given, self._back = (SharedMemory.new(size) for size in sizes)
        else:
            self._given, self._back = (SharedMemory(*one) for one in zip(memory, sizes, strict=True))

    def ask(self, said: dict[str, Any]) -> dict[str, Any] | None:
        """What the node answers; None where it has gone."""
        self.say(said)  # where it has gone, it may have said why
        return self.answer()

    def answer(self) -> dict[str, Any] | None:
        """What the node says next; None where it has gone."""
        connection = self._connection
        if connection is None:
            return None
        try:
            return connection.receive()[0]
        except Closed:
            self.hang_up()
            return None

    def say(self, said: dict[str, Any]) -> None:
        """Tell the node something that it does not answer."""
        with suppress(Closed):
            if self._connection is not None:
                self._connection.send(said)

    def end(self, said: Mapping[str, Any]) -> None:
        """There are no more visits, and the node has said why."""
        self.over, self.failed = str(said["over"]), bool(said.get("failed"))

    def hang_up(self) -> None:
        """Close the connection, and forget where models come."""
        for one in (self._connection, self._given, self._back):
            if one is not None:
                one.close()
        self._connection = self._given = self._back = None

    # -- models -------------------------------------------------------------------------------------------------------

    def share(self) -> None:
        """Let all processes of the script have the model that has come."""
        if self.ranks is not None and self._given is not None:
            self.ranks.share(self._given.bytes)

    def model(self) -> dict[str, Tensor]:
        """The arrays of the model that has come, by name, in memory that the node has, too."""
        assert self._given is not None
        constants = {}
        for array in self.layout.arrays:
            if array.start < 0:
                kind = tasks.KINDS[array.kind]
                place, size = self._constants[array.name], array.size * kind.itemsize
                constants[array.name] = self._given.bytes[place : place + size].view(kind).view(array.shape)
        return self.layout.state(self._given.numbers(0, self.layout.width), constants)

    def optimizer(self) -> dict[str, Tensor]:
        """The arrays of the optimizer that has come with it, by name; {} where none has."""
        assert self._given is not None
        numbers = self._given.numbers(4 * self.layout.width, self.optimizer_layout.width)
        return self.optimizer_layout.state(numbers, {})

    def put(self, arrays: Mapping[str, Tensor], layout: tasks.StateLayout, place: int) -> None:
        """Copy arrays to where the node reads them: the only copy on the way back."""
        assert self._back is not None
        numbers = self._back.numbers(place, layout.width)
        for array in layout.arrays if arrays else ():
            if array.start >= 0:
                numbers[array.start : array.start + array.size].view(array.shape).copy_(arrays[array.name].detach())

    def not_finite(self, layout: tasks.StateLayout, place: int) -> str:
        """What is said of the first array given back that the node cannot take; "" where it can."""
        assert self._back is not None
        numbers = self._back.numbers(place, layout.width)
        if math.isfinite(norm_of(numbers)):
            return ""
        pieces = {one.name: numbers[one.start : one.start + one.size] for one in layout.arrays if one.start >= 0}
        bad = [name for name, piece in pieces.items() if not math.isfinite(norm_of(piece))]
        return f"{bad[0] if bad else 'the model'} has numbers that are not finite, or enormous"
