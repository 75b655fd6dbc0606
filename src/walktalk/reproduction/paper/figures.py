"""What each figure of Section 6 compares, and the paper's tables in numbers.

A panel is one study; figures that show the same runs share them. Tables 1 to 4 are for the paper's graphs of 20
nodes, Tables 5 and 6 the settings that the studies use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from walktalk import graphs, theory
from walktalk.core.errors import SpecError, suggestion
from walktalk.core.plugins import REGISTRIES
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import Protocol
from walktalk.records import yaml_text
from walktalk.reproduction.paper.panels import (
    ALPHAS,
    COMPLETE,
    CYCLE,
    ERDOS_RENYI,
    FAMILY,
    SCALES,
    Figure,
    Panel,
    Scale,
    fitting,
    merged,
    refuse_what_is_varied,
)

if TYPE_CHECKING:
    from walktalk.studies.spec import StudySpec


# -- The whole family: every algorithm that is registered, on one graph, one split of the data and the same seeds ------
#
# What cannot run on that graph has the one that it is made for, with the same data and seeds; a panel is one graph.
# What is registered when it is asked for is what is run, plug-ins included.

COMMON: Mapping[str, Any] = {"topology": "erdos_renyi", "nodes": 20, "p": 0.3}  # the graph of all that can run on it
FORMS: Mapping[str, tuple[Mapping[str, Any], ...]] = {"multi_walk": ({"walks": 1}, {"walks": 4})}
"""Settings to compare, by name of the protocol, where there is more than one form to look at; else the defaults."""


def family() -> Figure:
    """The study of all of them: a panel a graph."""
    title = "All algorithms on one graph, data and seeds: loss against iterations, time and data"
    return Figure(FAMILY, title, FAMILY, FAMILY, panels(), tuned=True)


def panels() -> tuple[Panel, ...]:
    """The common graph, and one for each other graph that somebody needs."""
    placed: dict[str, list[dict[str, Any]]] = {}
    known = {topology: _graph(topology) for topology in (COMMON["topology"], *_others())}
    for entry, protocol in members():
        placed.setdefault(home(protocol, known), []).append(entry)
    return tuple(
        Panel(topology, _title(topology), _network(topology), algorithms=tuple(entries))
        for topology, entries in placed.items()
    )


def members() -> list[tuple[dict[str, Any], Protocol]]:
    """Every registered algorithm that has defaults, as an entry of a study and as a protocol."""
    found = []
    for name, kind in REGISTRIES["algorithm"].items():
        for form in FORMS.get(name, ({},)):
            try:
                found.append(({"name": name, **form}, kind(**form)))
            except TypeError:  # a setting without a default: nobody can say what is meant
                continue
    return found


def home(protocol: Protocol, known: Mapping[str, Graph]) -> str:
    """The first graph on which it can run, the one that it is made for before the rest."""
    common = next(iter(known))
    for topology in (common, protocol.made_for, *known):
        if topology in known and _fits(protocol, known[topology]):
            return topology
    raise SpecError(f"{FAMILY}: {protocol.label} runs on none of {', '.join(known)}; leave it out of the registry")


def _others() -> Iterable[str]:
    """Topologies of this many nodes that need no settings and that some protocol is made for."""
    made_for = dict.fromkeys(protocol.made_for for _, protocol in members())
    return [topology for topology in made_for if topology in graphs.TOPOLOGIES]


def _graph(topology: str) -> Graph:
    return graphs.build(topology, COMMON["nodes"], seed=Seed(0).child("graph"), **_settings(topology))


def _settings(topology: str) -> dict[str, Any]:
    given = COMMON if topology == COMMON["topology"] else {}
    return {name: value for name, value in given.items() if name not in ("topology", "nodes")}


def _network(topology: str) -> dict[str, Any]:
    return {"topology": topology, "nodes": COMMON["nodes"], **_settings(topology)}


def _title(topology: str) -> str:
    return (
        f"Erdős–Rényi ({COMMON['p']:g})" if topology == COMMON["topology"] else topology.replace("_", " ").capitalize()
    )


def _fits(protocol: Protocol, graph: Graph) -> bool:
    try:
        protocol.check_graph(graph)
    except SpecError:
        return False
    return True


# -- The figures of Section 6 ------------------------------------------------------------------------------------------

TOPOLOGIES = (
    Panel("cycle", "Cycle", CYCLE, 1.0),
    Panel("complete", "Complete graph", COMPLETE, 1.0),
    Panel("erdos_renyi", "Erdős–Rényi (0.3)", ERDOS_RENYI, 1.0),
)
# At α = 0.1 the paper trains twice as long: 30 minutes in place of 15 (Table 5).
HETEROGENEITY = tuple(
    Panel(f"{name}-alpha{alpha:g}", f"α = {alpha:g}, {title}", network, alpha, 2.0 if alpha == 0.1 else 1.0)
    for alpha in ALPHAS
    for name, title, network in (("erdos_renyi", "Erdős–Rényi (0.3)", ERDOS_RENYI), ("cycle", "cycle", CYCLE))
)
SPLITS = tuple(Panel(f"alpha{alpha:g}", f"α = {alpha:g}", ERDOS_RENYI, alpha) for alpha in ALPHAS)
CIFAR = "CIFAR-10 (walktalk data get cifar10) and a GPU"

FIGURES: dict[str, Figure] = {
    one.name: one
    for one in (
        Figure("fig3", "Dirichlet splits over 20 nodes", "image", "", SPLITS, "CIFAR-10"),
        Figure("fig4", "Topologies: loss and accuracy against iterations", "image", "fig4", TOPOLOGIES, CIFAR),
        Figure("fig5", "Heterogeneity: loss against iterations", "image", "fig5-7", HETEROGENEITY, CIFAR),
        Figure("fig6", "Heterogeneity: loss against wall-clock time", "image", "fig5-7", HETEROGENEITY, CIFAR),
        Figure("fig7", "Heterogeneity: loss against transmitted data", "image", "fig5-7", HETEROGENEITY, CIFAR),
        Figure(
            "fig8",
            "A language model under congestion: loss against data and time",
            "language",
            "fig8",
            (Panel("erdos_renyi", "Erdős–Rényi (0.3)"),),
            "MultiNLI, OPT-125M, transformers, and a GPU",
        ),
        Figure(
            "fig9",
            "Two aggregators die: loss and accuracy against time",
            "failures",
            "fig9",
            (Panel("erdos_renyi", "Erdős–Rényi (0.3)", ERDOS_RENYI, 1.0),),
            CIFAR,
        ),
        Figure("tables", "Tables 1 to 4 in numbers, Tables 5 and 6 as settings", "", "", ()),
    )
}


def figure(name: str) -> Figure:
    """The figure of that name, or the family of all algorithms."""
    if name == FAMILY:
        return family()  # looks at all protocols, and builds their graphs
    if name not in FIGURES:
        names = (*FIGURES, FAMILY)
        raise SpecError(
            f"there is no study {name!r} of the paper; allowed: {', '.join(names)}{suggestion(name, names)}"
        )
    return FIGURES[name]


def only_panels(one: Figure, names: Sequence[str]) -> Figure:
    """The figure with those of its panels alone; its runs lie where they lie for the whole figure."""
    known = [panel.name for panel in one.panels]
    for name in names:
        if name not in known:
            allowed = f"allowed: {', '.join(known)}{suggestion(name, known)}" if known else "it has none"
            raise SpecError(f"--panel {name} is no panel of {one.name}; {allowed}")
    if not names:
        return one
    before = one.kept or tuple(range(len(known)))
    chosen = [(k, panel) for k, panel in zip(before, one.panels, strict=True) if panel.name in names]
    kept, panels = (tuple(column) for column in zip(*chosen, strict=True))
    return replace(one, panels=panels, kept=kept, part="-".join(panel.name for panel in panels))


def panel_specs(one: Figure, scale: Scale, changes: Mapping[str, Any] | None = None) -> dict[str, StudySpec]:
    """The study of each panel; `changes` are made in every one that they fit, key by key."""
    changes = changes or {}
    refuse_what_is_varied(one, changes)
    return {panel.name: _panel_spec(one, panel, scale, fitting(one, panel, changes)) for panel in one.panels}


def titled(panel: Panel, spec: StudySpec) -> Panel:
    """The panel with a title that is true of its study, where p was changed."""
    p = spec.network.parameters.get("p")
    if p is None or "p" not in panel.network:
        return panel
    return replace(panel, title=panel.title.replace(f"({panel.network['p']:g})", f"({p:g})"))


def settings(base: str, scale: Scale) -> dict[str, Any]:
    """The settings that all panels share, as they are written."""
    if scale not in SCALES:
        raise SpecError(f"--scale {scale} is unknown; allowed: {', '.join(SCALES)}")
    name = f"{base}-{scale}.yaml"
    text = (files("walktalk.reproduction.paper") / "presets" / name).read_text(encoding="utf-8")
    return yaml_text.as_mapping(yaml_text.parse(text, name), name)


def _panel_spec(one: Figure, panel: Panel, scale: Scale, changes: Mapping[str, Any]) -> StudySpec:
    from walktalk.studies import make_spec  # imports torch, which who only lists the figures need not wait for

    content = settings(one.base, scale)
    content["name"] = f"{one.runs or one.name}-{panel.name}"
    content["network"] = dict(panel.network)
    if panel.algorithms:
        content["algorithms"] = [dict(entry) for entry in panel.algorithms]
    if panel.alpha is not None:
        content["task"] = {**content["task"], "alpha": panel.alpha}
    if "iterations" in content["stop"]:
        content["stop"] = {"iterations": round(panel.longer * content["stop"]["iterations"])}
    if not one.runs:
        content["algorithms"] = [{"name": "multi_walk", "walks": 1}]  # of no meaning, but it fits any number of nodes
    content = merged(content, changes)
    if "faults" in content:
        content["faults"] = _who_dies(content)
    for change in one.changed_by:
        change(content, panel, scale)
    if one.changed_by:  # what a person says counts; faults are there, with numbers of nodes in them
        content = merged(content, {name: value for name, value in changes.items() if name != "faults"})
    return make_spec(content)


def _who_dies(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The faults, with a number in place of `aggregator`: gossip, which has none, is to lose the same nodes.

    Elected is the node with most living neighbours, and of equal ones the lowest (Section 5). This is known ahead as
    long as nodes die for good at given times; what comes after anything else is left to the simulator.
    """
    from walktalk.studies import build_graph, make_spec

    make_spec(content)  # a mistake in the faults is said here, in one line
    graph = build_graph(make_spec({**content, "faults": []}))
    faults = [dict(fault) for fault in content["faults"]]
    aggregator, dead = 0, set[int]()  # node 0 begins
    for fault in sorted(faults, key=lambda fault: fault.get("at") or 0.0):
        known = fault.get("kind", "kill") == "kill" and fault.get("at") is not None and fault.get("seconds") is None
        if not known or fault["node"] == "random":
            break
        if fault["node"] == "aggregator":
            fault["node"] = aggregator
        dead.add(fault["node"])
        living = [v for v in range(graph.nodes) if v not in dead]
        if aggregator in dead and living:
            aggregator = max(living, key=lambda v: (len(set(graph.neighbours(v)) - dead), -v))
    return faults


# -- The paper's tables ------------------------------------------------------------------------------------------------

NODES, WALKS = 20, 4
IID = 1  # the table for iid data, whose rates have no ζ²
MODEL_BITS = 32.0 * 269_722  # ResNet-20
BUDGETS = {1: 3000.0, 2: 3000.0, 3: 8e10, 4: 900.0}  # iterations, iterations, bits, seconds
UNITS = {1: "T = 3,000 iterations", 2: "T = 3,000 iterations", 3: "B = 8·10¹⁰ bits (10 GB)", 4: "Z = 900 s, d = 1 s"}
TITLES = {"multi_walk": f"Multi-Walk, R = {WALKS}", "async_gossip_matrix": "Asynchronous Gossip"}


def tables_text(scale: Scale) -> str:
    """All six, as Markdown."""
    parts = ["# The paper's tables\n"]
    parts += [_theory_table(number) for number in theory.TABLES]
    parts += [_settings_table(5, "image", scale), _settings_table(6, "language", scale)]
    return "\n".join(parts)


def _theory_table(number: int) -> str:
    title, rows = theory.TABLES[number]
    printed = markdown(
        ("topology", "algorithm", "rate, O(·)", "communication", "computation", "wins"),
        [(r.topology, r.algorithm, r.rate, r.communication, r.computation, r.wins) for r in rows],
    )
    return f"## Table {number}: {title}\n\nAs printed:\n\n{printed}\n{_numbers(number)}"


def _numbers(number: int) -> str:
    """The tables' orders in numbers for graphs of 20 nodes, with all constants 1 (iid data: ζ² = 0): the
    expression inside the O(·).
    """
    rows = []
    for graph in (graphs.cycle(NODES), graphs.torus(rows=4, cols=5), graphs.complete(NODES)):
        lines = theory.table(number, theory.network(graph), theory.Problem(), WALKS, BUDGETS[number], MODEL_BITS)
        rows += [
            (
                graph.name,
                TITLES.get(line.algorithm, line.algorithm),
                f"{line.rate.total:.4g}",
                f"{line.communication:,.4g}",
                f"{line.communication_sent:,.4g}",
                f"{line.computation:,.4g}",
            )
            for line in lines
        ]
    head = ("graph", "algorithm", "rate", "communication", "of it sent", "trainings")
    constants = "F = L = σ² = 1, ζ² = 0" if number == IID else "F = L = σ² = ζ² = 1"
    return f"In numbers: V = {NODES}, {constants}, {UNITS[number]}:\n\n{markdown(head, rows)}"


def _settings_table(number: int, base: str, scale: Scale) -> str:
    content = settings(base, scale)
    rows = [
        (key, ", ".join(map(str, value)) if isinstance(value, list) else _flat(value)) for key, value in content.items()
    ]
    return f"## Table {number}: settings of the {base} studies, at scale {scale}\n\n{markdown(('key', 'value'), rows)}"


def _flat(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {inner}" for key, inner in value.items())
    return str(value)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
