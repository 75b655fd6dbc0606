"""All algorithms that are registered, as they describe themselves: for `walktalk algorithms` and its page.

What an iteration sends is counted in a run without arithmetic: when things happen never depends on a model.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from walktalk.core.errors import UserError
from walktalk.core.lazy import later
from walktalk.core.settings import REQUIRED, Setting, settings_of
from walktalk.graphs import Graph, build
from walktalk.protocols import BEGIN_WITH, FACTS, PROTOCOLS, Protocol

if TYPE_CHECKING:
    from walktalk.runtimes import simulator
else:
    simulator = later("walktalk.runtimes.simulator")  # pandas and more, for those who count

FAMILIES = {"walks": "Walks", "gossip": "Gossip", "server": "With a server", "reference": "Reference"}
"""In the order in which they are listed; others come behind them."""

ENGINES = {"sim": "the simulator", "peers": "real peers"}


@dataclass(frozen=True)
class Entry:
    """One registered algorithm as it describes itself, and what it sends on a graph where that was counted."""

    protocol: Protocol  # with its usual settings
    bits: float | None = None  # that an iteration sends on average, all nodes together, where that was counted
    not_here: str = ""  # why it cannot run on the graph for which that was counted

    @property
    def family(self) -> str:
        """The heading under which it is listed, such as "Walks" or "Gossip"."""
        return FAMILIES.get(self.protocol.family, self.protocol.family.capitalize())

    @property
    def graphs(self) -> str:
        """On which graphs it runs, in words."""
        needs = "; ".join(demand.words for demand in self.protocol.demands)
        base = "links may be one-way" if self.protocol.on_directed_graphs else "links go both ways"
        return f"{base}; needs {needs}" if needs else base

    @property
    def where(self) -> str:
        """In which runtimes, whether it survives failures there, and whether nodes may come and go."""
        usual = _abilities(self.protocol)
        forms = [
            f"with {_difference(self.protocol, form)}: {'; '.join(said)}"
            for form in type(self.protocol).other_forms()
            if (said := [one for one in _abilities(form) if one not in usual])
        ]
        return "; ".join([*usual, *forms])

    @property
    def theory(self) -> str:
        """What is proved of it that `walktalk theory` knows."""
        known = self.protocol.proved
        return f"{known}: `walktalk theory`" if known else "none here: the advisor tries it"

    @property
    def also_called(self) -> list[str]:
        """Other names that it is accepted by, each with the settings which that one means, if any."""
        forms = self.protocol.known_forms.items()
        meant = [f"{name} ({', '.join(f'{key}: {value}' for key, value in means.items())})" for name, means in forms]
        return [*self.protocol.also_known_as, *meant]

    @property
    def keys(self) -> dict[str, Setting]:
        """The settings it takes in a specification, by name, with type, default and meaning."""
        return settings_of(type(self.protocol))

    def plain(self) -> dict[str, Any]:
        """All of it as plain data, for JSON."""
        protocol = self.protocol
        defaults = {name: None if one.default is REQUIRED else one.default for name, one in self.keys.items()}
        keys = {
            name: {"default": defaults[name], "allowed": one.allowed, "meaning": one.meaning}
            for name, one in self.keys.items()
        }
        return {
            "name": protocol.name,
            "also_called": self.also_called,
            "title": protocol.title,
            "family": protocol.family,
            "description": protocol.description,
            **{fact: getattr(protocol, fact) for fact in FACTS},
            "graphs": self.graphs,
            "runtimes": list(protocol.runtimes),
            "theory": protocol.proved,
            "survives_failures": protocol.survives_failures,
            "why_failures_end_it": protocol.why_failures_end_it,
            "nodes_come_and_go": protocol.nodes_come_and_go,
            "why_nodes_stay": protocol.why_nodes_stay,
            "keys": keys,
            **({} if self.bits is None else {"bits_per_iteration": self.bits}),
            **({"not_here": self.not_here} if self.not_here else {}),
        }


def _abilities(protocol: Protocol) -> list[str]:
    """Where it runs, and what it does there when nodes fail, come and go; or why it does not."""
    said = [" and ".join(ENGINES[one] for one in protocol.runtimes)]
    if protocol.survives_failures:
        said.append("survives failures")
    elif protocol.why_failures_end_it:
        said.append(f"knows no failures, because {protocol.why_failures_end_it}")
    if protocol.nodes_come_and_go:
        where = ", where links go both ways and are the same in all rounds" if protocol.on_directed_graphs else ""
        said.append(f"nodes may join and leave{where}")
    elif protocol.why_nodes_stay:
        said.append(f"nodes stay the same, because {protocol.why_nodes_stay}")
    return said


def _difference(usual: Protocol, form: Protocol) -> str:
    """The settings in which a form differs from the usual one, as they stand in a specification."""
    before = usual.settings
    changed = {name: value for name, value in form.settings.items() if value != before[name]}
    return ", ".join(f"{name}: {str(value).lower()}" for name, value in changed.items())


def algorithm_entries(names: list[str] | None = None, graph: Graph | None = None, parameters: int = 0) -> list[Entry]:
    """Every algorithm that is registered, by families.

    Args:
        names: Only these; an unknown one is an error that says what there is.
        graph: Where to count what an iteration sends; nothing is counted without one.
        parameters: How many the model has, 32 bits each, for that count.
    """
    kinds = PROTOCOLS.values() if names is None else [PROTOCOLS.find(name, "NAME") for name in names]
    usual = [found[0] for kind in kinds if (found := kind.usual())]
    made = [counted(protocol, graph, parameters) if graph is not None else Entry(protocol) for protocol in usual]
    order = {family: place for place, family in enumerate(FAMILIES)}
    return sorted(made, key=lambda one: order.get(one.protocol.family, len(order)))


def counted(protocol: Protocol, graph: Graph, parameters: int) -> Entry:
    """The entry of an algorithm with the bits of an iteration on a graph, or why there are none."""
    if refusal := _refusal(protocol, graph):
        return Entry(protocol, not_here=refusal)
    return Entry(protocol, bits=simulator.measured_rates(simulator.planned_run(protocol, graph, 4 * parameters)).bits)


def why_not_on(name: str, graph: Graph) -> str:
    """Why an algorithm cannot run on a graph: as usual, nor along a tree if it knows trees; "" where it can.

    Args:
        name: The algorithm's name.
        graph: Who may talk to whom.
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


def beginners(entries: list[Entry]) -> list[Entry]:
    """Those of some algorithms that people begin with, in the order in which they are best read."""
    by_name = {entry.protocol.name: entry for entry in entries}
    return [by_name[name] for name in BEGIN_WITH if name in by_name]


HEAD = """\
# All algorithms

The eight that people begin with come first, the whole family is behind them. `walktalk algorithms` prints the same,
also for plug-ins that are installed; `walktalk algorithms NAME` one in full; and with a graph, what an iteration sends
on it, counted in a run without arithmetic.

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
    """Write `docs/algorithms.md`: the eight to begin with in full, all others by family with their details folded."""
    entries = algorithm_entries()
    return "\n\n".join([HEAD.rstrip("\n"), *_to_begin_with(entries), *_families(entries), *_what_is_sent()]) + "\n"


def _to_begin_with(entries: list[Entry]) -> Iterator[str]:
    chosen = beginners(entries)
    yield "## To begin with"
    rows = ["| algorithm | take it when |", "| --- | --- |"]
    rows += [f"| [`{one.protocol.name}`](#{one.protocol.name}) | {BEGIN_WITH[one.protocol.name]} |" for one in chosen]
    yield "\n".join(rows)
    for entry in chosen:
        yield f"### `{entry.protocol.name}` {{ #{entry.protocol.name} }}"
        yield entry.protocol.description
        yield _details(entry)


def _families(entries: list[Entry]) -> Iterator[str]:
    yield "## The family"
    yield "All others; a click on one shows its rule, what it keeps and sends, and its keys."
    family = ""
    for entry in entries:
        protocol = entry.protocol
        if protocol.name in BEGIN_WITH:
            continue
        if entry.family != family:
            family = entry.family
            yield f"### {family}"
        folded = f"In tables and figures: {protocol.title}.\n{{ #{protocol.name} }}\n\n{_details(entry)}"
        what = protocol.description.replace('"', "'")
        yield f'??? note "`{protocol.name}`: {what}"\n\n' + textwrap.indent(folded, "    ")


def _details(entry: Entry) -> str:
    protocol = entry.protocol
    facts = [("also called", ", ".join(entry.also_called))] if entry.also_called else []
    facts += [("from", protocol.paper), ("keeps", protocol.keeps), ("sends", protocol.sends)]
    facts += [("guarantees", protocol.guarantees), ("graphs", entry.graphs), ("runs in", entry.where)]
    facts += [("theory", entry.theory)]
    facts += [("keys", ", ".join(f"`{name}`" for name in entry.keys) or "none")]
    table = "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {_cell(text)} |" for name, text in facts)])
    return f"```text\n{protocol.update_rule}\n```\n\n{table}"


def _what_is_sent() -> Iterator[str]:
    tables = [algorithm_entries(None, build(name, nodes, 0), PAGE_PARAMETERS) for name, nodes in PAGE_GRAPHS]
    yield "## What an iteration sends"
    yield f"Models of {PAGE_PARAMETERS:,} parameters, so 40 kB each; kB an iteration, all nodes together, as counted."
    heads = " | ".join(f"{name}, {nodes} nodes" for name, nodes in PAGE_GRAPHS)
    head = [f"| algorithm | {heads} |", f"| --- |{' ---: |' * len(PAGE_GRAPHS)}"]
    rows = {}
    for each in zip(*tables, strict=True):
        sent = " | ".join("–" if one.bits is None else f"{one.bits / 8e3:,.1f}" for one in each)
        name = each[0].protocol.name
        rows[name] = f"| [`{name}`](#{name}) | {sent} |"
    yield "\n".join([*head, *(rows[name] for name in BEGIN_WITH if name in rows)])
    others = "\n".join([*head, *(row for name, row in rows.items() if name not in BEGIN_WITH)])
    yield '??? note "All others"\n\n' + textwrap.indent(others, "    ")
    yield "–: it cannot run there."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(algorithms_page(), end="")
