"""What `walktalk theory` prints: tables of what `walktalk.theory.summary` found, and what it means in words."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from walktalk.errors import SpecError
from walktalk.theory import TABLES, TORUS_H2


def print_summary(found: dict[str, Any]) -> None:
    """All of it, as tables and a few sentences."""
    console = Console()
    for made in (
        _network(found),
        _messages(found),
        *([_constants(found)] if "constants" in found else []),
        _bounds(found),
        _others(found),
        *([_weighted(found)] if "weighted_walk" in found else []),
    ):
        console.print(made)
    for line in _sentences(found):
        console.print(line, highlight=False)


def _rich(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return made


def _network(found: dict[str, Any]) -> Table:
    made = _rich(f"The network: {found['graph']}", "quantity", "value")
    time, degree = found["return_time"], found["degree"]
    rows = [
        ("nodes V", f"{found['nodes']:,}"),
        ("edges", f"{found['edges']:,}"),
        ("neighbours: fewest, mean, most", f"{degree['min']}, {degree['mean']:.3g}, {degree['max']}"),
        ("diameter", "not computed" if found["diameter"] is None else f"{found['diameter']}"),
        ("spectral gap of P, p'", _number(found["p_prime"])),
        ("spectral gap of PᵀP, p", _number(found["p"])),
        (f"return time to node {time['node']}: mean", _number(time["mean"])),
        ("   second moment H²", _number(time["second_moment"])),
        ("   H", _number(time["second_moment"] ** 0.5)),
        (
            "‖P‖₀ with and without the diagonal",
            f"{found['nonzeros']['with_diagonal']:,}, {found['nonzeros']['without_diagonal']:,}",
        ),
    ]
    if found["aggregators"]:
        best, worst = found["aggregators"]["best"], found["aggregators"]["worst"]
        rows.append(("best aggregator: node, H²", f"{best['node']}, {_number(best['second_moment'])}"))
        rows.append(("worst aggregator: node, H²", f"{worst['node']}, {_number(worst['second_moment'])}"))
    for row in rows:
        made.add_row(*row)
    return made


def _messages(found: dict[str, Any]) -> Table:
    made = _rich("Models sent per iteration", "algorithm", "sent", "as the paper counts")
    counted = found["paper_messages_per_iteration"]
    for name, sent in found["messages_per_iteration"].items():
        made.add_row(name, _number(sent), _number(counted[name]) if name in counted else "")
    return made


def _constants(found: dict[str, Any]) -> Table:
    made = _rich("Constants of the study's task", "constant", "estimate", "error", "from")
    made.columns[-1].justify, made.columns[-1].no_wrap = "left", False
    symbols = {"F": "F", "L": "L", "sigma2": "σ²", "zeta2": "ζ²"}
    for name, entry in found["constants"].items():
        made.add_row(symbols[name], _short(entry["value"]), _short(entry["error"]), entry["how"])
    return made


def _bounds(found: dict[str, Any]) -> Table:
    question = found["question"]
    made = _rich(
        f"Bounds on the mean of E‖∇f‖² over T = {question['iterations']:,} iterations, R = {question['walks']}",
        "theorem",
        "start",
        "mixing",
        "noise",
        "deviation",
        "total",
        "η",
    )
    names = {"theorem1": "1 Multi-Walk", "by_age": "  by age, ours"}
    names |= {"theorem2": "2 Gossip", "theorem3": "3 with E = {}"}
    for key, name in names.items():
        entry = found["bounds"][key]
        if key == "theorem3" and not entry["failures"]:
            continue
        for kind, label in (("with_constants", name.format(entry.get("failures"))), ("order", "   order")):
            if kind not in entry:
                continue
            bound = entry[kind]
            if not bound["applicable"]:
                made.add_row(label, *["n/a"] * 5, f"{bound['step_size']:.3g} > {bound['largest_step_size']:.3g}")
                continue
            parts = [_short(bound[part]) for part in ("start", "mixing", "noise", "deviation", "total")]
            made.add_row(label, *parts, _short(bound["step_size"]) if "step_size" in bound else "")
    return made


def _others(found: dict[str, Any]) -> Table:
    papers = {entry["paper"]: None for entry in found["others"].values()}
    made = _rich(f"Orders of others ({', '.join(papers)})", "algorithm", "start", "noise", "deviation", "total")
    for name, entry in found["others"].items():
        made.add_row(name, *(_short(entry[part]) for part in ("start", "noise", "deviation", "total")))
    return made


def _weighted(found: dict[str, Any]) -> Table:
    made, walk = _rich("The weighted walk, in the long run", "quantity", "value"), found["weighted_walk"]
    visits, counts = walk["stationary"], walk["counts"]
    rows = [
        ("share of its visits: least, most", f"{_number(min(visits))}, {_number(max(visits))}"),
        ("what a node counts for, 1 if all alike: least, most", f"{_number(min(counts))}, {_number(max(counts))}"),
        ("   bias", _number(walk["bias"])),
        ("spectral gap", "not computed" if walk["gap"] is None else _number(walk["gap"])),
        ("steps until it is back where it is least", _number(walk["longest_return"])),
        (f"visits in a row at node {walk['stays_at']}, which holds it longest", _number(walk["longest_stay"])),
    ]
    for row in rows:
        made.add_row(*row)
    return made


def _sentences(found: dict[str, Any]) -> list[str]:
    """What it means, in words."""
    crossover, nodes = found["crossover_walks"], found["nodes"]
    names = {"multi_walk": "Multi-Walk", "async_gossip_matrix": "gossip"}
    lines = [f"{found['graph']}: {note}." for note in found["notes"]]
    if found["others_not_here"]:
        lines.append(
            f"Orders are known, too, of {', '.join(found['others_not_here'])}, which cannot run on this graph."
        )
    for key, data in (("iid", "With iid data"), ("this_problem", "With these σ² and ζ²")):
        limit = crossover[key]
        if limit is None or limit > nodes:
            lines.append(f"{data}, Multi-Walk has the better bound per iteration for every number of walks.")
        elif limit < 1:
            lines.append(f"{data}, gossip has the better bound per iteration, whatever the number of walks.")
        else:
            lines.append(f"{data}, Multi-Walk has the better bound per iteration below R = {limit:.3g} walks.")
    axes = ", ".join(f"{axis}: {names[entry['winner']]}" for axis, entry in found["axes"].items())
    lines.append(f"Smaller order at the same budget: {axes}.")
    lines.append("Gossip's bound is generous, not tight; theory compares orders, `walktalk advise` measures.")
    return lines


def print_paper_table(number: int, found: dict[str, Any]) -> None:
    """One of the paper's tables, and the same with this graph's numbers."""
    if number not in TABLES:
        raise SpecError(f"--table {number}, but it must be 1, 2, 3 or 4")
    caption, rows = TABLES[number]
    console = Console()
    console.print(f"[bold]Table {number} of the paper.[/] {caption}", highlight=False)
    for row in rows:
        where = f"{row.topology}: " if row.topology else ""
        wins = f"   {row.wins}" if row.wins else ""
        console.print(f"\n{where}{row.algorithm}{wins}", highlight=False)
        console.print(f"    O( {row.rate} )", highlight=False, soft_wrap=True)
        console.print(f"    communication {row.communication}, computation {row.computation}", highlight=False)
    numbers = _rich(f"\nThe same for {found['graph']}", "algorithm", "rate", "communication", "of it sent", "trainings")
    for line in found["tables"][str(number)]:
        values = [line[key] for key in ("rate", "communication", "communication_sent", "computation")]
        numbers.add_row(line["algorithm"], *map(_number, values))
    console.print(numbers)
    if number == 2:
        console.print(f"The paper leaves H² of the 2-D torus open. It is {TORUS_H2}.", highlight=False)
        console.print(f"Here H² = {_number(found['return_time']['second_moment'])}.", highlight=False)


def _short(value: float) -> str:
    return f"{value:.3g}"


def _number(value: float) -> str:
    """Six digits, without an exponent where it reads well."""
    if value == 0 or 1e-3 <= abs(value) < 1e9:
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return f"{value:.5e}"
