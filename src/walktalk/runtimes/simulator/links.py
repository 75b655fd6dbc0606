"""Transfers that share links max–min fairly, so that congestion appears by itself.

A transfer runs through resources: what its sender can send, the link (an edge of its own, or the path between two
sites, which all their transfers share), and what its receiver can receive. Rates are max–min fair: raised together
until a resource is full; those that cross it stop there, the others go on (progressive filling).

When a transfer starts or ends, only those get new rates whose share has changed: rates are max–min fair exactly if
every transfer crosses a full resource on which nobody has more (Bertsekas and Gallager, Data Networks, 6.5.2), so the
users of the changed resources are shared anew, and then whoever has lost this property through them, and so on.

With a slow start (as TCP's, RFC 5681, after an idle moment) a transfer has a resource of its own: a window of bits a
round trip, which doubles every round trip until something else holds the transfer back; from then on it is not limited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import Send, control_bytes
from walktalk.runtimes.semantics import Packed, made
from walktalk.runtimes.simulator.recording import Recording
from walktalk.runtimes.simulator.schedule import ARRIVED, ROUND_TRIP, TRANSFERRED, Agenda, Envelope
from walktalk.runtimes.simulator.timing import NetworkTiming, RunSetup

# ("out", node), ("in", node), ("edge", node, node), ("sites", site, site) or ("window", transfer)
Resource = tuple[Any, ...]
User = TypeVar("User", bound=Hashable)

ALMOST = 1e-9  # relative; rates that differ by less are equal


class Transfer:
    """Bytes on their way."""

    __slots__ = ("content", "delay", "ends", "latency", "left", "rate", "resources", "since", "version", "window")

    def __init__(
        self, ends: tuple[int, int], bits: float, resources: tuple[Resource, ...], latency: float, content: object
    ) -> None:
        self.ends = ends  # sender, receiver
        self.left = bits  # still to go, as of `since`
        self.resources = resources
        self.latency = latency
        self.delay = 0.0  # of this one alone, beside the latency
        self.window = 0.0  # bits a round trip, while it starts slowly; 0: not limited
        self.content = content  # what arrives in the end
        self.rate = 0.0  # bit/s
        self.since = 0.0
        self.version = 0  # a planned end of an older version does not count any more

    def end(self) -> float:
        """When the last bit is sent, at the present rate."""
        if self.left <= 0.0:
            return self.since
        return self.since + self.left / self.rate if self.rate > 0 else math.inf


class Links:
    """All transfers of one run."""

    def __init__(self, timing: NetworkTiming, graph: Graph, seed: Seed = Seed(0)) -> None:
        timing.check(graph.nodes)
        self.timing = timing
        self.sites = graph.sites
        self.up, self.down = timing.rates("up", graph.nodes), timing.rates("down", graph.nodes)
        self.limited = any(map(math.isfinite, (*self.up, *self.down)))  # whether nodes are
        self.dice = seed.child("jitter").python()
        self.users: dict[Resource, dict[Transfer, None]] = {}  # ordered: ties must not depend on hashes
        self.slowed: dict[tuple[int, int], float] = {}  # links that are that many times slower than usual
        self.changed: dict[Resource, None] = {}  # resources with other users, or another capacity, since `settle`

    def start(self, sender: int, receiver: int, bits: float, now: float, content: object) -> list[Transfer]:
        """Begin a transfer; the transfers whose end has changed, this one among them."""
        self.add(sender, receiver, bits, now, content)
        return self.settle(now)

    def add(self, sender: int, receiver: int, bits: float, now: float, content: object) -> Transfer:
        """Begin a transfer; its rate, and what it changes for others, comes with the next `settle`."""
        ends = (sender, receiver)
        transfer = Transfer(ends, bits, self.resources(sender, receiver), self.latency(sender, receiver), content)
        transfer.since = now
        if self.timing.jitter:
            transfer.delay = self.dice.expovariate(1.0 / self.timing.jitter)
        if self.timing.slow_start is not None and transfer.latency > 0.0:
            transfer.window = self.timing.slow_start * 8.0
            transfer.resources = (*transfer.resources, ("window", transfer))
        self._enter(transfer)
        return transfer

    def widen(self, transfer: Transfer, now: float) -> list[Transfer]:
        """A round trip of a slow start is over; the transfers whose end has changed."""
        self._leave(transfer)
        if nearly(transfer.rate, self.capacity(("window", transfer))):
            transfer.window *= 2.0
        else:  # something else holds it back
            transfer.window = 0.0
            transfer.resources = transfer.resources[:-1]
        self._enter(transfer)
        return self.settle(now)

    def finish(self, transfer: Transfer, now: float) -> list[Transfer]:
        """A transfer is done; the transfers whose end has changed."""
        self._leave(transfer)
        transfer.window = 0.0
        return self.settle(now)

    def slow_down(self, a: int, b: int, factor: float, now: float) -> list[Transfer]:
        """The link between two nodes is from now on that many times slower than usual, in both directions.

        What is on it goes on more slowly, too, and what is left of it arrives with the new latency. Returns the
        transfers whose end has changed.
        """
        for ends in ((a, b), (b, a)):
            if factor == 1.0:
                self.slowed.pop(ends, None)
            else:
                self.slowed[ends] = factor
        under_way = dict.fromkeys(t for users in self.users.values() for t in users if t.ends in ((a, b), (b, a)))
        for transfer in under_way:
            self._leave(transfer)
            own = (("window", transfer),) if transfer.window else ()
            transfer.resources = (*self.resources(*transfer.ends), *own)
            transfer.latency = self.latency(*transfer.ends)
            self._enter(transfer)
        return self.settle(now)

    def _enter(self, transfer: Transfer) -> None:
        for resource in transfer.resources:
            self.users.setdefault(resource, {})[transfer] = None
            self.changed[resource] = None

    def _leave(self, transfer: Transfer) -> None:
        for resource in transfer.resources:
            users = self.users[resource]
            del users[transfer]
            if not users:
                del self.users[resource]
            self.changed[resource] = None

    def settle(self, now: float) -> list[Transfer]:
        """Fair rates again after changes at some resources; the transfers whose end has changed."""
        free = dict.fromkeys(transfer for resource in self.changed for transfer in self.users.get(resource, ()))
        self.changed.clear()
        while True:
            rates = max_min_fair({t: t.resources for t in free}, lambda r: self.capacity_beside(r, free))
            unsettled = self.unsettled(rates)
            if not unsettled:
                return self.apply(rates, now)
            free.update(unsettled)

    def apply(self, rates: dict[Transfer, float], now: float) -> list[Transfer]:
        """Let transfers go on at these rates; those whose end has changed."""
        changed = []
        for transfer, rate in rates.items():
            if transfer.version == 0 or not nearly(rate, transfer.rate):
                transfer.left -= transfer.rate * (now - transfer.since)
                transfer.since = now
                transfer.rate = rate
                transfer.version += 1
                changed.append(transfer)
        return changed

    def unsettled(self, rates: dict[Transfer, float]) -> dict[Transfer, None]:
        """The transfers without a new rate that could not keep theirs beside these."""
        found: dict[Transfer, None] = {}
        state: dict[Resource, tuple[bool, float]] = {}  # resource -> whether it is full, the highest rate on it
        for transfer, rate in rates.items():
            if not self.is_settled(transfer, rates, state):
                higher = (u for r in transfer.resources for u in self.users[r] if u.rate > rate and u not in rates)
                found.update(dict.fromkeys(higher))
            elif nearly(rate, transfer.rate):
                continue  # nobody notices
            for resource in transfer.resources:
                for other in self.users[resource]:
                    if other not in rates and other not in found and not self.is_settled(other, rates, state):
                        found[other] = None
        return found

    def is_settled(
        self, transfer: Transfer, rates: dict[Transfer, float], state: dict[Resource, tuple[bool, float]]
    ) -> bool:
        """Whether it crosses a full resource on which nobody has more."""
        most = rates.get(transfer, transfer.rate) * (1 + ALMOST)
        for resource in transfer.resources:
            if resource not in state:
                there = [rates.get(user, user.rate) for user in self.users[resource]]
                state[resource] = (sum(there) >= self.capacity(resource) * (1 - ALMOST), max(there))
            full, highest = state[resource]
            if full and highest <= most:
                return True
        return False

    def resources(self, sender: int, receiver: int) -> tuple[Resource, ...]:
        link: tuple[Resource, ...] = (("edge", sender, receiver),)
        if self.sites is not None:
            here, there = int(self.sites.site_of[sender]), int(self.sites.site_of[receiver])
            # Inside a site every pair has its own path through the switch; between sites all share the one path, and
            # a pair whose link is slow has that before it: the others do not feel it.
            if here != there:
                shared: Resource = ("sites", here, there)
                link = (*link, shared) if (sender, receiver) in self.slowed else (shared,)
        if not self.limited:
            return link
        out: tuple[Resource, ...] = (("out", sender),) if math.isfinite(self.up[sender]) else ()
        into: tuple[Resource, ...] = (("in", receiver),) if math.isfinite(self.down[receiver]) else ()
        return (*out, *link, *into)

    def latency(self, sender: int, receiver: int) -> float:
        """Seconds from node to node for next to nothing."""
        usual = self.timing.latency if self.sites is None else self.sites.latency_between(sender, receiver)
        return usual * self.slowed.get((sender, receiver), 1.0)

    def capacity(self, resource: Resource) -> float:
        """Bits a second that go through a resource at most."""
        if resource[0] == "window":
            transfer: Transfer = resource[1]
            return transfer.window / (2.0 * transfer.latency)  # a round trip is there and back
        if resource[0] in ("out", "in"):
            return (self.up if resource[0] == "out" else self.down)[resource[1]]
        kind, here, there = resource
        if kind == "sites" and self.sites is not None:
            return float(self.sites.bandwidth[here, there])
        usual = self.timing.bandwidth if self.sites is None else self.sites.bandwidth_between(here, there)
        return usual / self.slowed.get((here, there), 1.0)

    def capacity_beside(self, resource: Resource, free: Mapping[Transfer, None]) -> float:
        """What a resource has for these, beside the transfers that keep their rates."""
        kept = sum(transfer.rate for transfer in self.users[resource] if transfer not in free)
        return max(0.0, self.capacity(resource) - kept)


def nearly(a: float, b: float) -> bool:
    return abs(a - b) <= ALMOST * max(a, b)


def max_min_fair(uses: Mapping[User, tuple[Resource, ...]], capacity: Callable[[Resource], float]) -> dict[User, float]:
    """Progressive filling: the rate of every user of shared resources.

    `uses` maps each user to its resources, `capacity` gives what a resource has. Again and again the resource with
    the least left for each of its users is the bottleneck: its users get that share, and are taken out.
    """
    users: dict[Resource, dict[User, None]] = {}
    for user, resources in uses.items():
        for resource in resources:
            users.setdefault(resource, {})[user] = None
    left = {resource: capacity(resource) for resource in users}
    order = {resource: number for number, resource in enumerate(users)}
    # What a resource has for each of its users only grows as others are served, so an old entry is never too late.
    shares = [(left[resource] / len(users[resource]), order[resource], resource) for resource in users]
    heapify(shares)
    rates: dict[User, float] = {}
    while shares:
        known, number, bottleneck = heappop(shares)
        if bottleneck not in users:
            continue
        rate = left[bottleneck] / len(users[bottleneck])
        if rate > known:
            heappush(shares, (rate, number, bottleneck))
            continue
        for user in list(users[bottleneck]):
            rates[user] = rate
            for resource in uses[user]:
                left[resource] = max(0.0, left[resource] - rate)
                del users[resource][user]
                if not users[resource]:
                    del users[resource]
    return rates


# -- Messages of one run in virtual time: how they leave, which links they share, and when they arrive ----------------

MOST_ENVELOPES = 2**16


class Transport:
    """Takes messages to their receivers: at once, or over links that have latencies and bandwidths."""

    def __init__(self, setup: RunSetup, agenda: Agenda, recording: Recording) -> None:
        """
        - `setup`: the run's.
        - `agenda`: where arrivals are put.
        - `recording`: writes down what goes along.
        """
        self.links = Links(setup.timing, setup.graph, setup.seed) if isinstance(setup.timing, NetworkTiming) else None
        self.messages = 0  # how many were sent
        self._agenda, self._recording, self._interpreter = agenda, recording, recording.interpreter
        self._written, self._traffic = recording.written, recording.interpreter.traffic
        self._envelopes: dict[tuple[str, int, int, int] | None, Packed] = {}  # see `_planned`

    def send(self, node: int, effect: Send) -> None:
        """Carry out a `Send`."""
        number = self.messages
        self.messages += 1
        if self._written:
            packed, size = self._recording.send(node, effect, number)
        else:
            packed, traffic = self._planned(node, effect), self._traffic
            size = control_bytes(effect.message) + packed.payload
            traffic.bytes += size  # `Traffic.add`, without a call for each of millions
            traffic.payload_bytes += packed.payload
        envelope = made(Envelope, (node, effect.to, effect.message, packed, number))
        if self.links is None:
            self._agenda.put(0.0, ARRIVED, envelope)
        else:
            transfer = self.links.add(node, effect.to, size * 8.0, self._agenda.now, envelope)
            if transfer.window:
                self._agenda.put(2.0 * transfer.latency, ROUND_TRIP, transfer)

    def _planned(self, node: int, effect: Send) -> Packed:
        """A machine looks at the slot of what has arrived, so it is named where nothing is in it; few come often."""
        slot, (kind, walk, round_, _, _) = effect.slot, effect.message
        name = (kind, node, walk, round_) if slot else None
        packed = self._envelopes.get(name)
        if packed is None:
            if len(self._envelopes) >= MOST_ENVELOPES:
                self._envelopes.clear()
            into = self._interpreter.arrives_in(node, effect.message) if slot else ""
            packed = self._envelopes[name] = Packed(into, None, None, self._interpreter.size(effect))
        return packed

    def settle(self) -> None:
        """Share the links anew, once for all that was sent at a time."""
        if self.links is not None and self.links.changed:
            self._plan_ends(self.links.settle(self._agenda.now))

    def _plan_ends(self, transfers: list[Transfer]) -> None:
        for transfer in transfers:
            self._agenda.put_at(transfer.end(), TRANSFERRED, (transfer, transfer.version))

    def transfer_ends(self, planned: tuple[Transfer, int]) -> None:
        """The last byte has left, unless the transfer's rate has changed since; then a later entry tells the end."""
        transfer, version = planned
        if self.links is None or version != transfer.version:
            return
        self._agenda.put(transfer.latency + transfer.delay, ARRIVED, transfer.content)
        self._plan_ends(self.links.finish(transfer, self._agenda.now))

    def round_trip_ends(self, transfer: Transfer) -> None:
        """Widens a transfer that starts slowly, unless it is done."""
        if self.links is not None and transfer.window:
            self._plan_ends(self.links.widen(transfer, self._agenda.now))
            if transfer.window:
                self._agenda.put(2.0 * transfer.latency, ROUND_TRIP, transfer)

    def slow_down(self, one: int, other: int, factor: float) -> None:
        """A link is slower by a factor from now on."""
        if self.links is not None:
            self._plan_ends(self.links.slow_down(one, other, factor, self._agenda.now))

    def latency(self, sender: int, receiver: int) -> float:
        """Seconds from node to node for next to nothing."""
        return self.links.latency(sender, receiver) if self.links is not None else 0.0
