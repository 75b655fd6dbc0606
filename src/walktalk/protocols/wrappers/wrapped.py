"""A protocol around another: what it says of itself is what the one inside says, but for what it changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from walktalk.graphs import Graph
from walktalk.protocols.effects import Arrival, Effect, Message
from walktalk.protocols.machine import Context, Machine, Protocol
from walktalk.protocols.self_description import Demand, Law, Runtime
from walktalk.transforms.rules import Privacy


@dataclass(frozen=True)
class Wrapped(Protocol):
    """Whatever is wrapped around a protocol. It says what differs in `settings`, `label`, `title` and `machine`.

    Args:
        inner: the protocol.
    """

    inner: Protocol

    def __getattr__(self, name: str) -> Any:
        """The settings of the protocol inside, such as `aggregator`."""
        if name.startswith("__") or name not in self.inner.settings:
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def core(self) -> Protocol:
        return self.inner.core

    @property
    def weighs_nodes(self) -> bool:
        return self.inner.weighs_nodes

    @property
    def privacy(self) -> Privacy | None:
        return self.inner.privacy

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return self.inner.messages

    @property
    def family(self) -> str:
        return self.inner.family

    @property
    def colour(self) -> str | None:
        return self.inner.colour

    @property
    def paper(self) -> str:
        return self.inner.paper

    @property
    def update_rule(self) -> str:
        return self.inner.update_rule

    @property
    def keeps(self) -> str:
        return self.inner.keeps

    @property
    def sends(self) -> str:
        return self.inner.sends

    @property
    def guarantees(self) -> str:
        return self.inner.guarantees

    @property
    def runtimes(self) -> tuple[Runtime, ...]:
        return self.inner.runtimes

    @property
    def survives_failures(self) -> bool:
        return self.inner.survives_failures

    @property
    def instead(self) -> str:
        return self.inner.instead

    @property
    def conserves(self) -> tuple[Law, ...]:
        return tuple(law for law in self.inner.conserves if law != "sum")  # what one takes is not what another gives

    @property
    def means_of_models(self) -> bool:  # type: ignore[override]
        return self.inner.means_of_models

    @property
    def averages_at_once(self) -> bool:  # type: ignore[override]
        return self.inner.averages_at_once

    @property
    def models_travel(self) -> bool:  # type: ignore[override]
        return self.inner.models_travel

    @property
    def on_directed_graphs(self) -> bool:  # type: ignore[override]
        return self.inner.on_directed_graphs

    @property
    def why_failures_end_it(self) -> str:
        return self.inner.why_failures_end_it

    @property
    def nodes_come_and_go(self) -> bool:
        return self.inner.nodes_come_and_go

    @property
    def why_nodes_stay(self) -> str:
        return self.inner.why_nodes_stay

    @property
    def there_at_first(self) -> Collection[int]:
        return self.inner.there_at_first

    @property
    def made_for(self) -> str:
        return self.inner.made_for

    @property
    def demands(self) -> tuple[Demand, ...]:
        return self.inner.demands

    @property
    def plain_sgd_only(self) -> str:
        return self.inner.plain_sgd_only

    @property
    def needs_own_gradients(self) -> str:
        return self.inner.needs_own_gradients

    @property
    def meets_newcomers(self) -> tuple[int, ...]:
        return self.inner.meets_newcomers

    def irreplaceable(self, node: int) -> str:
        return self.inner.irreplaceable(node)

    def check(self, nodes: int) -> None:
        self.inner.check(nodes)

    def check_graph(self, graph: Graph) -> None:
        self.inner.check_graph(graph)

    def active_models(self, nodes: int) -> int:
        return self.inner.active_models(nodes)


class WrappedNode(Machine):
    """A node around another: all that is asked of it, it asks the node inside."""

    __slots__ = ("inner",)

    def __init__(self, inner: Machine) -> None:
        self.inner = inner

    @abstractmethod
    def changed(self, effects: list[Effect]) -> list[Effect]:
        """What becomes of the effects that the node inside asks for."""

    def kept(self, memory: bytes) -> bytes:
        """What the node inside keeps for a later life, with what this one has to add."""
        return memory

    def has_work(self) -> bool:
        return self.inner.has_work()

    def refused(self, sender: int, message: Message, context: Context) -> list[Effect]:
        return self.changed(self.inner.refused(sender, message, context))

    def may_go(self) -> bool:
        return self.inner.may_go()

    def missed(self, sender: int, message: Message, context: Context) -> list[Effect]:
        return self.changed(self.inner.missed(sender, message, context))

    def keepsake(self) -> bytes:
        return self.kept(self.inner.keepsake())

    def farewell(self) -> bytes:
        return self.kept(self.inner.farewell())
