"""Who may be advised: Multi-Walk with 1, 2, 4, … V walks at the best aggregator, gossip, what else the study names; or
whatever a person asks for, up to every algorithm that is registered and can run on the graph.

What an iteration costs in seconds and bits needs no training: when things happen never depends on a model, so a
simulation without arithmetic tells it for every algorithm in a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from walktalk.chains import ReturnTime, aggregators, metropolis_hastings
from walktalk.core.errors import SpecError, UserError
from walktalk.graphs import Graph
from walktalk.protocols import PROTOCOLS, AsyncGossip, MultiWalk, Private, Protocol, private
from walktalk.runtimes.simulator import Rates

LR_FACTORS = (0.3, 1.0, 3.0)  # of the study's own learning rate: further apart than pilots can tell them apart


@dataclass(frozen=True)
class Candidate:
    """One algorithm with one learning rate."""

    protocol: Protocol  # the algorithm
    lr: float  # its learning rate
    rates: Rates  # what an iteration of it costs
    active: int  # models that train at the same time: R or V

    @property
    def algorithm(self) -> str:
        return self.protocol.label

    @property
    def label(self) -> str:
        return f"{self.protocol.label}-lr{self.lr:g}"


def best_aggregator(graph: Graph) -> ReturnTime:
    """The node that walks come back to soonest and most evenly: the smallest H²."""
    return aggregators(metropolis_hastings(graph)).best


def walk_counts(nodes: int) -> list[int]:
    """Numbers of walks to consider: 1, 2, 4, … and V itself."""
    counts = [2**k for k in range(nodes.bit_length()) if 2**k < nodes]
    return [*counts, nodes]


@dataclass(frozen=True)
class World:
    """What an algorithm has to cope with."""

    graph: Graph
    momentum: float = 0.0  # of the optimizer, with which some go astray
    failures: bool = False  # whether nodes or messages are lost

    def check(self, protocol: Protocol) -> None:
        """Raise `SpecError` where a protocol cannot run here."""
        protocol.check_graph(self.graph)
        protocol.check_momentum(self.momentum)
        if self.failures and not protocol.survives_failures:
            raise SpecError(f"faults: {protocol.label} knows no failures; take {protocol.instead}, or no faults")
        if "peers" not in protocol.runtimes or protocol.pools_data:
            raise SpecError(f"algorithms: no real nodes can run {protocol.label}, so it is no advice; take another")


def algorithms(
    world: World, aggregator: int, named: Sequence[Protocol] = (), wanted: str | Sequence[Any] | None = None
) -> list[Protocol]:
    """Every protocol to consider, each once.

    Args:
        world: In which it has to run.
        aggregator: The best node to mix walks at; those that name none get it.
        named: By the study; considered beside walks and gossip.
        wanted: What a person wants to choose among instead: "all", names of algorithms, or protocols.

    Where all that the study names protect the nodes' data in the same way, so do all others, or they are left out: what
    protects nothing is no advice to somebody who asked for protection.
    """
    if wanted is None:
        found = usable([*walks(world.graph.nodes), AsyncGossip(), *named], world)
    else:
        found = [protocol for one in separate(wanted) for protocol in asked_for(one, world, is_all(wanted))]
    if not found:
        raise SpecError(f"algorithms: none of these can run on {world.graph.name}; take others, or another graph")
    placed = dict.fromkeys(at_the_best(protocol, aggregator) for protocol in found)
    return list(dict.fromkeys(guarded(list(placed), named)))


def guarded(found: Sequence[Protocol], named: Sequence[Protocol]) -> list[Protocol]:
    """All of them with the privacy that all named ones have; those that cannot have it are left out."""
    asked = {protocol.privacy for protocol in named}
    given = next(iter(asked)) if len(asked) == 1 else None
    if given is None:
        return list(found)
    made = []
    for protocol in found:
        with suppress(UserError):
            made.append(protocol if protocol.privacy is not None else private(protocol, **asdict(given)))
    return made


def at_the_best(protocol: Protocol, aggregator: int) -> Protocol:
    """Multi-Walk mixes at the best node unless somebody says where."""
    if isinstance(protocol, MultiWalk) and protocol.aggregator == 0:
        return replace(protocol, aggregator=aggregator)
    if isinstance(protocol, Private):
        return replace(protocol, inner=at_the_best(protocol.inner, aggregator))
    return protocol


def is_all(wanted: str | Sequence[Any]) -> bool:
    """Whether everything that is registered is meant."""
    return "all" in ([wanted] if isinstance(wanted, str) else wanted)


def separate(wanted: str | Sequence[Any]) -> list[Any]:
    """Names and protocols, one by one."""
    if is_all(wanted):
        return list(PROTOCOLS)
    return [wanted] if isinstance(wanted, (str, Protocol)) else list(wanted)


def walks(nodes: int) -> list[Protocol]:
    """Multi-Walk with 1, 2, 4, … V walks."""
    return [MultiWalk(count) for count in walk_counts(nodes)]


def asked_for(one: Any, world: World, lenient: bool) -> list[Protocol]:
    """What a person wants to choose among; of Multi-Walk every number of walks, of others the usual settings.

    Args:
        one: A protocol, or an algorithm's name.
        world: In which it has to run.
        lenient: Whether one that cannot is left out; else it is an error that says why.
    """
    kind = type(one) if isinstance(one, Protocol) else PROTOCOLS.find(one, "algorithms")
    nodes = world.graph.nodes
    each = [one] if isinstance(one, Protocol) else walks(nodes) if kind is MultiWalk else list(kind.usual())
    found = usable(each, world)
    for protocol in each if not found and not lenient else ():
        world.check(protocol)
    return found


def usable(found: Sequence[Protocol], world: World) -> list[Protocol]:
    """Those that can run: what nobody could run is no advice."""
    return [one for one in found if fits(one, world)]


def fits(protocol: Protocol, world: World) -> bool:
    """Whether a protocol can run in a world."""
    try:
        world.check(protocol)
    except UserError:
        return False
    return True


def learning_rates(base: float, factors: Sequence[float] = LR_FACTORS) -> list[float]:
    """Around the study's own, to three digits so that they read well."""
    return sorted({rounded(base * factor) for factor in factors})


def rounded(rate: float) -> float:
    """A learning rate rounded to three digits."""
    return float(f"{rate:.3g}")
