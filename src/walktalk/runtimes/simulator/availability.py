"""Who is there when, from a file: laptops that are closed at night, sites that are switched off, volunteers.

A CSV file with the columns `node`, `from` and `to`, seconds of virtual time: a line for every stretch in which a node
is there. A node without a line is always there; without a `to` it stays. Whoever is away is as good as killed, and
comes back as one that was killed does (`faults`): what it was doing is lost, its neighbours hear of it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

from walktalk.errors import SpecError
from walktalk.runtimes.simulator.fault_plan import Fault

COLUMNS = ("node", "from", "to")
Stretch = tuple[float, float]  # from, to


def absences(file: str | PathLike[str], nodes: int, names: Sequence[str] | None = None) -> tuple[Fault, ...]:
    """The deaths and returns that the file tells of, in time; `SpecError` where it is not possible.

    Args:
        file: The CSV file.
        nodes: How many there are.
        names: What they are called, where they have names; numbers do, too.
    """
    present = presence(file, nodes, names)
    _check_somebody(file, present, nodes)
    gone = [(start, end, node) for node, there in sorted(present.items()) for start, end in between(there)]
    return tuple(
        Fault("kill", at=start, node=node, seconds=None if math.isinf(end) else end - start)
        for start, end, node in sorted(gone)
    )


def knows_everybody(file: str | PathLike[str], names: Sequence[str] | None) -> bool:
    """Whether all nodes of the file are numbers or called by one of these names: data brings others.

    Args:
        file: The CSV file.
        names: What nodes are called, as far as it is known.
    """
    called = {(row["node"] or "").strip() for row in lines_of(file)}
    return all(one.isdecimal() or one in (names or ()) for one in called)


def presence(file: str | PathLike[str], nodes: int, names: Sequence[str] | None = None) -> dict[int, list[Stretch]]:
    """When each node of the file is there, in order and without overlaps."""
    found: dict[int, list[Stretch]] = {}
    for number, row in enumerate(lines_of(file), 2):
        where = f"availability: line {number} of {Path(file).name}"
        start, end = _seconds(row["from"], 0.0, where), _seconds(row["to"], math.inf, where)
        if not 0 <= start < end:
            raise SpecError(f"{where} is from {start:g} to {end:g}; times of 0 or more, in order, are needed")
        found.setdefault(_node(row["node"], nodes, names, where), []).append((start, end))
    return {node: merged(stretches) for node, stretches in found.items()}


def lines_of(file: str | PathLike[str]) -> list[dict[str, str | None]]:
    """The lines of the file, by column; `SpecError` where it has not the columns that are needed."""
    path = Path(file)
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows: list[dict[str, str | None]] = list(csv.DictReader(lines, skipinitialspace=True))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise SpecError(f"availability: {str(file)!r} cannot be read: {reason}") from error
    if not rows or any(name not in rows[0] for name in COLUMNS):
        raise SpecError(f"availability: {path.name} needs a first line with {','.join(COLUMNS)}, and lines below it")
    return rows


def merged(stretches: Iterable[Stretch]) -> list[Stretch]:
    """The same without overlaps."""
    done: list[Stretch] = []
    for start, end in sorted(stretches):
        if done and start <= done[-1][1]:
            done[-1] = (done[-1][0], max(end, done[-1][1]))
        else:
            done.append((start, end))
    return done


def between(there: Sequence[Stretch]) -> list[Stretch]:
    """The stretches that these leave out, from 0 to the end of time."""
    starts, ends = [0.0, *(end for _, end in there)], [*(start for start, _ in there), math.inf]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def _check_somebody(file: str | PathLike[str], present: dict[int, list[Stretch]], nodes: int) -> None:
    """Somebody must be there at any time: without anybody there is no run."""
    if len(present) < nodes:
        return  # who has no line is always there
    together = between(merged(stretch for there in present.values() for stretch in there))
    if together:
        start, end = together[0]
        raise SpecError(f"availability: by {Path(file).name} nobody is there from {start:g} to {end:g} s")


def _seconds(text: str | None, missing: float, where: str) -> float:
    if text is None or not text.strip():
        return missing
    try:
        return float(text)
    except ValueError:
        raise SpecError(f"{where}: {text!r} is not a number of seconds") from None


def _node(text: str | None, nodes: int, names: Sequence[str] | None, where: str) -> int:
    given = (text or "").strip()
    if names is not None and given in names:
        return list(names).index(given)
    if not given.isdecimal() or int(given) >= nodes:
        known = "" if names is None else f", or a name such as {names[0]}"
        raise SpecError(f"{where}: there is no node {given!r}; allowed: 0 to {nodes - 1}{known}")
    return int(given)
