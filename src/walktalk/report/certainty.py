"""How sure it is who won, in words; a summary from before it was counted says only whether it is clear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROBABLE = 0.9  # the chance that the first is really better, from which on it is said to be probable


def is_probable(winner: Mapping[str, Any]) -> bool:
    """Whether the best is not clearly, but probably better than the next."""
    return winner["clear"] is False and (winner.get("chance") or 0.0) >= PROBABLE


def would_tell(winner: Mapping[str, Any]) -> str:
    """How many repetitions would make it clear; nothing where it is, or where nobody would make so many."""
    needed = winner.get("repetitions_needed")
    return f"; about {needed:,} repetitions would tell" if winner["clear"] is False and needed else ""
