"""What takes time in a run: a training, and a message on its way."""

from __future__ import annotations

from typing import NamedTuple

from walktalk.protocols import Message
from walktalk.runtimes.meaning import Packed, Work
from walktalk.runtimes.simulator.schedule import Terms


class Training(NamedTuple):
    """A training under way."""

    node: int
    slot: str
    walk: int
    number: int  # counts the trainings of the run in the order they start
    steps: int  # that were asked for; 0: as many as the study says
    work: Work | None  # what it begins with; None where nothing is written down
    result: Terms  # the value it makes


class Envelope(NamedTuple):
    """A message under way."""

    sender: int
    to: int
    message: Message
    packed: Packed  # what goes along
    number: int  # counts the messages of the run in the order they are sent
