"""What takes time in a run: a training, and a message on its way."""

from __future__ import annotations

from typing import NamedTuple

from walktalk.protocols import Message
from walktalk.runtimes.simulator.schedule import Terms

# Makes a named tuple from its fields without the detour through its own `__new__`, which takes as long again.
made = tuple.__new__


class Training(NamedTuple):
    """A training under way."""

    node: int
    slot: str
    walk: int
    number: int  # counts the trainings of the run in the order they start
    start: Terms  # the value it began from
    out: int  # the value it makes


class Envelope(NamedTuple):
    """A message under way."""

    sender: int
    to: int
    message: Message
    into: str
    model: Terms | None
    number: int  # counts the messages of the run in the order they are sent
