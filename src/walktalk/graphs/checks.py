"""Checks that the families share: each names the key, the value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable

from walktalk.errors import GraphError
from walktalk.graphs.graph import Graph
from walktalk.seeds import Seed, as_seed

TRIES = 100  # samples of a random family before we give up


def at_least(family: str, key: str, value: int, least: int) -> int:
    """The value as an integer, or an error if it is none or too small."""
    if isinstance(value, bool) or int(value) != value or value < least:
        raise GraphError(f"{family}: {key} = {value!r}, but it must be a whole number, {least} or more")
    return int(value)


def probability(family: str, key: str, value: float) -> float:
    """The value, or an error if it is not between 0 and 1."""
    if not 0 <= value <= 1:
        raise GraphError(f"{family}: {key} = {value!r}, but it must be between 0 and 1")
    return float(value)


def until_connected(sample: Callable[[Seed], Graph], seed: int | Seed, hint: str) -> Graph:
    """Samples from child seeds "attempt 0", "attempt 1" … until one is connected, and says how many it took."""
    root = as_seed(seed)
    for attempt in range(TRIES):
        graph = sample(root.child("attempt", attempt))
        if graph.is_connected():
            note = (f"resampled {attempt} times until connected",) if attempt else ()
            return Graph(graph.indptr, graph.indices, graph.name, (*graph.notes, *note))
    raise GraphError(f"{graph.name}: {TRIES} samples in a row were disconnected; {hint}")
