"""All algorithms that are registered, as they describe themselves: for `walktalk algorithms` and its page.

What an iteration sends is counted in a run without arithmetic: when things happen never depends on a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from walktalk.errors import UserError
from walktalk.graphs import Graph
from walktalk.protocols import FACTS, PROTOCOLS, Protocol
from walktalk.settings import REQUIRED, Setting, settings_of

FAMILIES = {"walks": "Walks", "gossip": "Gossip", "server": "With a server", "reference": "Reference"}
"""In the order in which they are listed; others come behind them."""

ENGINES = {"sim": "the simulator", "peers": "real peers"}


@dataclass(frozen=True)
class Entry:
    """One algorithm."""

    protocol: Protocol  # with its usual settings
    bits: float | None = None  # that an iteration sends on average, all nodes together, where that was counted
    not_here: str = ""  # why it cannot run on the graph for which that was counted

    @property
    def family(self) -> str:
        """The heading under which it stands."""
        return FAMILIES.get(self.protocol.family, self.protocol.family.capitalize())

    @property
    def graphs(self) -> str:
        """On which graphs it runs, in words."""
        needs = "; ".join(demand.words for demand in self.protocol.demands)
        base = "links may be one-way" if self.protocol.on_directed_graphs else "links go both ways"
        return f"{base}; needs {needs}" if needs else base

    @property
    def where(self) -> str:
        """In which runtimes, and whether it survives failures there."""
        engines = " and ".join(ENGINES[one] for one in self.protocol.runtimes)
        return f"{engines}; survives failures" if self.protocol.survives_failures else engines

    @property
    def theory(self) -> str:
        """What is proved of it that `walktalk theory` knows."""
        known = self.proved
        return f"{known}: `walktalk theory`" if known else "none here: the advisor tries it"

    @property
    def proved(self) -> str:
        """The theorem or the paper; "" for none."""
        from walktalk.theory import PROVED  # brings eigenvalues along, for which a list need not wait

        return PROVED.get(self.protocol.name, "")

    @property
    def keys(self) -> dict[str, Setting]:
        """Its keys in a specification."""
        return settings_of(type(self.protocol))

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        protocol = self.protocol
        defaults = {name: None if one.default is REQUIRED else one.default for name, one in self.keys.items()}
        keys = {
            name: {"default": defaults[name], "allowed": one.allowed, "meaning": one.meaning}
            for name, one in self.keys.items()
        }
        return {
            "name": protocol.name,
            "title": protocol.title,
            "family": protocol.family,
            "description": protocol.description,
            **{fact: getattr(protocol, fact) for fact in FACTS},
            "graphs": self.graphs,
            "runtimes": list(protocol.runtimes),
            "theory": self.proved,
            "survives_failures": protocol.survives_failures,
            "keys": keys,
            **({} if self.bits is None else {"bits_per_iteration": self.bits}),
            **({"not_here": self.not_here} if self.not_here else {}),
        }


def algorithm_entries(names: list[str] | None = None, graph: Graph | None = None, parameters: int = 0) -> list[Entry]:
    """Everything that is registered, by families.

    Args:
        names: Only these; an unknown one is an error that says what there is.
        graph: Where to count what an iteration sends; nothing is counted without one.
        parameters: Of the model, 32 bits each, for that count.
    """
    kinds = PROTOCOLS.values() if names is None else [PROTOCOLS.find(name, "NAME") for name in names]
    usual = [found[0] for kind in kinds if (found := kind.usual())]
    made = [counted(protocol, graph, parameters) if graph is not None else Entry(protocol) for protocol in usual]
    order = {family: place for place, family in enumerate(FAMILIES)}
    return sorted(made, key=lambda one: order.get(one.protocol.family, len(order)))


def counted(protocol: Protocol, graph: Graph, parameters: int) -> Entry:
    """With the bits of an iteration on a graph, or why there are none."""
    from walktalk.runtimes.simulator import measured_rates, planned_run  # pandas and more, for those who count

    if refusal := _refusal(protocol, graph):
        return Entry(protocol, not_here=refusal)
    return Entry(protocol, bits=measured_rates(planned_run(protocol, graph, 4 * parameters)).bits)


def why_not_on(name: str, graph: Graph) -> str:
    """Why an algorithm cannot run on a graph: as usual, nor along a tree if it knows trees; "" where it can.

    Args:
        name: Of the algorithm.
        graph: The graph.
    """
    kind = PROTOCOLS.find(name, "NAME")
    forms = [*kind.usual()[:1], *([kind(**{"tree": True})] if "tree" in settings_of(kind) else [])]
    reasons = [reason for form in forms if (reason := _refusal(form, graph))]
    return reasons[0] if len(reasons) == len(forms) else ""


def _refusal(protocol: Protocol, graph: Graph) -> str:
    try:
        protocol.check_graph(graph)
    except UserError as error:
        return str(error)
    return ""


HEAD = """\
# All algorithms

Each by its name in a study: what it does, then what an iteration of it sends, then what it keeps and guarantees, where
it runs, and its keys. `walktalk algorithms` prints the same, also for plug-ins that are installed; `walktalk algorithms
NAME` one in full; and with a graph, what an iteration sends on it, counted in a run without arithmetic.

```
walktalk algorithms
walktalk algorithms d2
walktalk algorithms --graph cycle --nodes 20 --parameters 10000
```

"Unlike nodes" have different data; "exact" is said of what comes to the optimum then, and "a rest" of what stays beside
it unless the learning rate falls. An iteration is one local training at one node.

This page is made from what the algorithms say of themselves by `make docs`, and a test holds it to that.
"""
PAGE_GRAPHS = (("cycle", 20), ("complete", 20), ("star", 20))
PAGE_PARAMETERS = 10_000


def algorithms_page() -> str:
    """`docs/algorithms.md`."""
    return "\n\n".join([HEAD.rstrip("\n"), *_at_a_glance(), *_overview(), *_in_full()]) + "\n"


def _at_a_glance() -> Iterator[str]:
    yield "## At a glance"
    rows, family = ["| algorithm | what it does | from |", "| --- | --- | --- |"], ""
    for entry in algorithm_entries():
        if entry.family != family:
            family = entry.family
            rows.append(f"| **{family}** | | |")
        one = entry.protocol
        rows.append(f"| [`{one.name}`](#{one.name}) | {_cell(one.description)} | {_cell(one.paper)} |")
    yield "\n".join(rows)


def _overview() -> Iterator[str]:
    from walktalk.graphs import build

    tables = [algorithm_entries(None, build(name, nodes, 0), PAGE_PARAMETERS) for name, nodes in PAGE_GRAPHS]
    yield "## What an iteration sends"
    yield f"Models of {PAGE_PARAMETERS:,} parameters, so 40 kB each; kB an iteration, all nodes together, as counted."
    heads = " | ".join(f"{name}, {nodes} nodes" for name, nodes in PAGE_GRAPHS)
    rows = [f"| algorithm | {heads} |", f"| --- |{' ---: |' * len(PAGE_GRAPHS)}"]
    for each in zip(*tables, strict=True):
        sent = " | ".join("–" if one.bits is None else f"{one.bits / 8e3:,.1f}" for one in each)
        rows.append(f"| [`{each[0].protocol.name}`](#{each[0].protocol.name}) | {sent} |")
    yield "\n".join(rows)
    yield "–: it cannot run there."


def _in_full() -> Iterator[str]:
    family = ""
    for entry in algorithm_entries():
        if entry.family != family:
            family = entry.family
            yield f"## {family}"
        protocol = entry.protocol
        yield f"### `{protocol.name}` {{ #{protocol.name} }}"
        yield protocol.description
        yield f"```text\n{protocol.update_rule}\n```"
        told = [("from", protocol.paper), ("keeps", protocol.keeps), ("sends", protocol.sends)]
        told += [("guarantees", protocol.guarantees), ("graphs", entry.graphs), ("runs in", entry.where)]
        told += [("theory", entry.theory)]
        told += [("keys", ", ".join(f"`{name}`" for name in entry.keys) or "none")]
        yield "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {_cell(text)} |" for name, text in told)])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(algorithms_page(), end="")
