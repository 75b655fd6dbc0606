"""One algorithm of each mechanism: what the quick suite asks where the slow one asks all of them."""

from __future__ import annotations

import pytest

from walktalk.protocols import PROTOCOLS

ONE_OF_EACH = ("multi_walk", "digest", "async_gossip", "agraf", "swift", "sync_gossip", "fedavg", "fedbuff")
"""Walks, one model that travels, pairs, pushes, free loops, rounds, a server, and one that waits for nobody."""


def ours() -> list[str]:
    """The names of our own algorithms, without those that other tests have registered in this process."""
    return [name for name in PROTOCOLS if PROTOCOLS.find(name).__module__.startswith("walktalk.")]


def slow_unless(quick: bool) -> list[pytest.MarkDecorator]:
    """The marks of a case: none if it belongs in the quick suite."""
    return [] if quick else [pytest.mark.slow]
