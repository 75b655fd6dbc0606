"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["good", "absent", "bad"]
"""`absent` is something that not everybody needs; `bad` is something that will not work."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, how it is, and what to do about it."""

    about: str  # a word or two: "torch", "extra peers"
    state: State
    said: str  # one line
    remedy: str = ""  # a command or a setting; empty where nothing is to be done
