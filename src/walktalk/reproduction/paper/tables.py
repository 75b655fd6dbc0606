"""Tables 1 to 4 in numbers for the paper's graphs of 20 nodes, Tables 5 and 6 as the settings that the studies use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from walktalk import graphs, theory
from walktalk.reproduction.paper.figures import settings
from walktalk.reproduction.paper.panels import Scale

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
