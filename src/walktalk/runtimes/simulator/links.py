"""Transfers that share links max–min fairly, so that congestion appears by itself.

A transfer runs through resources: what its sender can send, the link (an edge of its own, or the path between two
sites, which all their transfers share), and what its receiver can receive. Rates are max–min fair: raised together
until a resource is full; those that cross it stop there, the others go on (progressive filling). When a transfer
starts or ends, only the transfers that are connected to it through shared resources get new rates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from walktalk.graphs import Graph
from walktalk.runtimes.simulator.timing import NetworkTiming

Resource = tuple[Any, ...]  # ("out", node), ("in", node), ("edge", node, node) or ("sites", site, site)
User = TypeVar("User", bound=Hashable)


class Transfer:
    """Bytes on their way."""

    __slots__ = ("content", "latency", "left", "rate", "resources", "since", "version")

    def __init__(self, bits: float, resources: tuple[Resource, ...], latency: float, content: object) -> None:
        self.left = bits  # still to go, as of `since`
        self.resources = resources
        self.latency = latency
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

    def __init__(self, timing: NetworkTiming, graph: Graph) -> None:
        self.timing = timing
        self.sites = graph.sites
        self.users: dict[Resource, dict[Transfer, None]] = {}  # ordered: ties must not depend on hashes
        self.slowed: dict[tuple[int, int], float] = {}  # links that are that many times slower than usual

    def start(self, sender: int, receiver: int, bits: float, now: float, content: object) -> list[Transfer]:
        """Begin a transfer; the transfers whose end has changed, this one among them."""
        transfer = Transfer(bits, self.resources(sender, receiver), self.latency(sender, receiver), content)
        transfer.since = now
        for resource in transfer.resources:
            self.users.setdefault(resource, {})[transfer] = None
        return self.share(self.connected(transfer.resources), now)

    def finish(self, transfer: Transfer, now: float) -> list[Transfer]:
        """A transfer is done; the transfers whose end has changed."""
        for resource in transfer.resources:
            users = self.users[resource]
            del users[transfer]
            if not users:
                del self.users[resource]
        return self.share(self.connected(transfer.resources), now)

    def resources(self, sender: int, receiver: int) -> tuple[Resource, ...]:
        link: Resource = ("edge", sender, receiver)
        if self.sites is not None:
            here, there = int(self.sites.site_of[sender]), int(self.sites.site_of[receiver])
            # Inside a site every pair has its own path through the switch; between sites all share the one path.
            link = ("edge", sender, receiver) if here == there else ("sites", here, there)
        if math.isinf(self.timing.node_bandwidth):
            return (link,)
        return (("out", sender), link, ("in", receiver))

    def latency(self, sender: int, receiver: int) -> float:
        factor = self.slowed.get((sender, receiver), 1.0)
        if self.sites is None:
            return self.timing.latency * factor
        return float(self.sites.latency[self.sites.site_of[sender], self.sites.site_of[receiver]]) * factor

    def capacity(self, resource: Resource) -> float:
        if resource[0] in ("out", "in"):
            return self.timing.node_bandwidth
        kind, here, there = resource
        factor = self.slowed.get((here, there), 1.0) if kind == "edge" else 1.0
        if self.sites is None:
            return self.timing.bandwidth / factor
        if kind == "edge":
            here, there = self.sites.site_of[here], self.sites.site_of[there]
        return float(self.sites.bandwidth[here, there]) / factor

    def connected(self, resources: Iterable[Resource]) -> list[Transfer]:
        """Every transfer that shares a resource with these, directly or through others."""
        found: dict[Transfer, None] = {}
        waiting = list(resources)
        seen = set(waiting)
        while waiting:
            for transfer in self.users.get(waiting.pop(), ()):
                if transfer not in found:
                    found[transfer] = None
                    fresh = [r for r in transfer.resources if r not in seen]
                    seen.update(fresh)
                    waiting += fresh
        return list(found)

    def share(self, transfers: list[Transfer], now: float) -> list[Transfer]:
        """Give these transfers their max–min fair rates from now on; those whose end has changed."""
        rates = max_min_fair({t: t.resources for t in transfers}, self.capacity)
        changed = []
        for transfer, rate in rates.items():
            if rate != transfer.rate:
                transfer.left -= transfer.rate * (now - transfer.since)
                transfer.since = now
                transfer.rate = rate
                transfer.version += 1
                changed.append(transfer)
        return changed


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
    rates: dict[User, float] = {}
    while users:
        bottleneck = min(users, key=lambda r: left[r] / len(users[r]))
        rate = left[bottleneck] / len(users[bottleneck])
        for user in list(users[bottleneck]):
            rates[user] = rate
            for resource in uses[user]:
                left[resource] = max(0.0, left[resource] - rate)
                del users[resource][user]
                if not users[resource]:
                    del users[resource]
    return rates
