"""Did you mean …?"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(word: object, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"`, or nothing where no known word is near."""
    near = get_close_matches(str(word).replace("-", "_"), list(known), n=1, cutoff=0.6)
    near = near or get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
