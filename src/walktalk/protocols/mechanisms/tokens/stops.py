"""Walks that go to nodes that they name, one stop after the other, along shortest paths where these are no neighbours.

A walk carries the stop that it is on its way to. Nodes in between only hand it on, and each hop is paid. Who hands it
on reckons with the network as it knows it, and leaves out its own neighbours that are dead and those that the walk has
found dead on the way to this stop (`Way.shut`): so it does not go to and fro before one. A stop that is dead, or that
no path leads to, is passed over. A walk that was lost and is begun again has no way, and chooses one where it begins.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from random import Random
from typing import NamedTuple

from walktalk.core.seeds import Seed
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.tokens.rule import Carried, WalkRule

MOST_SHUT = 32  # nodes found dead on the way to one stop that a walk remembers, the newest
_WAY = struct.Struct("<IB")


class Way(NamedTuple):
    """What a walk carries that goes from stop to stop."""

    stop: int  # the node that it goes to, or is at
    shut: tuple[int, ...] = ()  # nodes on the way that were found dead
    memory: bytes = b""  # the rule's own, from stop to stop; empty: it begins here

    def encode(self) -> bytes:
        """The state that the walk carries."""
        return _WAY.pack(self.stop, len(self.shut)) + struct.pack(f"<{len(self.shut)}I", *self.shut) + self.memory


def way_in(state: bytes, node: int) -> Way:
    """Reads what `Way.encode` has written; of what is nothing of the kind the walk begins at this node."""
    try:
        stop, count = _WAY.unpack_from(state)
        shut = struct.unpack_from(f"<{min(count, MOST_SHUT)}I", state, _WAY.size)
    except struct.error:
        return Way(node)
    return Way(stop, shut, state[_WAY.size + 4 * len(shut) :])


class StopRule(WalkRule):
    """A rule whose walks go from stop to stop."""

    __slots__ = ("around",)

    def __init__(self, around: NetworkView) -> None:
        self.around = around

    @abstractmethod
    def stops(self, after: int, memory: bytes, random: Random) -> Iterator[tuple[int, bytes]]:
        """Stops that the walk may go to now, the best first, each with what it remembers from there on.

        Args:
            after: the stop that is done, or cannot be reached.
            memory: what the walk remembers; empty where it begins.
            random: where random bits come from.
        """

    @property
    def everybody(self) -> Sequence[int]:
        """All nodes that there are or were, in order: those that nobody can reach are passed over."""
        around = self.around
        first = range(around.first or around.nodes)
        return (*first, *sorted(around.joined)) if around.joined else first

    def step(
        self, node: int, peers: Sequence[int], degrees: Sequence[int], carried: Carried, random: Random
    ) -> tuple[int, Carried]:
        stop, shut, memory = way_in(carried.state, node)
        if carried.jumps:  # it is on its way
            stops: Iterable[tuple[int, bytes]] = chain([(stop, memory)], self.stops(stop, memory, random))
        else:
            stops, shut = self.stops(node, memory, random), ()
        for stop, remembered in islice(stops, len(self.everybody)):
            if stop == node or stop in peers:
                return stop, Carried(state=Way(stop, (), remembered).encode())
            if self.around.links is None or stop in shut:
                continue
            shut = (*shut, *(peer for peer in self.around.neighbours if peer not in (*peers, *shut)))
            far = distances(self.around.links, stop, frozenset(shut))
            nearer = [(far[peer], peer) for peer in peers if peer in far]
            if nearer:
                return min(nearer)[1], Carried(1, Way(stop, shut[-MOST_SHUT:], remembered).encode())
        return node, Carried(state=Way(node, (), memory).encode())

    def turned_back(self, carried: Carried) -> Carried:
        """It is still on its way to its stop, whoever was to hand it on."""
        return carried._replace(jumps=1)

    def changed(self, around: NetworkView) -> None:
        self.around = around


@lru_cache(maxsize=256)  # all that hand a walk on to the same stop ask for the same
def distances(links: Callable[[int], tuple[int, ...]], stop: int, shut: frozenset[int]) -> Mapping[int, int]:
    """How many hops each node is from a stop; those are left out from which no path leads there.

    Args:
        links: whom a node can send to; links go both ways.
        stop: where paths end.
        shut: nodes that no path may lead over.
    """
    found, rim, hops = {stop: 0}, [stop], 0
    while rim:
        hops += 1
        rim = [
            peer for each in rim for peer in links(each) if peer not in shut and found.setdefault(peer, hops) == hops
        ]
        rim = [*dict.fromkeys(rim)]
    return found


# -- Laps: all nodes in an order ---------------------------------------------------------------------------------------


class Lap(NamedTuple):
    """The nodes in the order of a lap."""

    order: Sequence[int]
    place: Mapping[int, int]  # node -> its place in that order

    def after(self, node: int) -> int:
        """Who comes after a node; the first of all after the last, and after one that is none of them."""
        return self.order[(self.place.get(node, -1) + 1) % len(self.order)]


@lru_cache(maxsize=64)  # every node of a run asks for the same
def shuffled_lap(seed: int, nodes: Sequence[int]) -> Lap:
    """All nodes by a hash, so that those who were there before stay in their order when somebody joins."""
    drawn = Seed(seed).child("lap")
    order = sorted(nodes, key=lambda node: drawn.child(node).integer)
    return Lap(order, {node: place for place, node in enumerate(order)})


@lru_cache(maxsize=64)
def cyclic_lap(order: Sequence[int], nodes: Sequence[int]) -> Lap:
    """The nodes that are named, and behind them the others by their numbers."""
    named = [*order, *sorted({*nodes} - {*order})]
    return Lap(named, {node: place for place, node in enumerate(named)})
