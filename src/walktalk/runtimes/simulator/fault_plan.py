"""What goes wrong in a run, and when: by the clock, or at random rates."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed

FaultKind: TypeAlias = Literal[
    "kill", "revive", "pause", "hang", "partition", "slow", "lose", "swallow", "corrupt", "join", "leave"
]
How: TypeAlias = Literal["flip", "scale", "noise"]
AGGREGATOR, RANDOM = "aggregator", "random"


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong. Give `at`, a time, or `rate`, how often a second on average.

    Every fault stands for itself: a node is dead, or hangs, while any that hit it lasts. Only `revive` ends all that
    killed a node; and a node that dies hangs no longer.
    """

    kind: FaultKind  # what goes wrong
    at: float | None = None  # seconds of virtual time
    rate: float | None = None  # times a second
    seconds: float | None = None  # how long until it is undone; None: for good
    node: int | str | None = None  # kill, pause, hang, leave and others: a node, "aggregator" or "random"; join: a node
    nodes: tuple[int, ...] = ()  # partition: one side; the others are the other. corrupt: all of them, for node
    link: tuple[int, int] | None = None  # slow: a link, in place of a node
    factor: float = 10.0  # slow: how many times slower; corrupt: how many times larger models or their noise are
    share: float | None = None  # lose: of the messages, a tenth unless given; swallow: of the walks, all unless given
    how: How = "flip"  # corrupt: the signs of what is sent, its scale, or noise on it

    def __post_init__(self) -> None:
        if self.kind not in get_args(FaultKind):
            raise SpecError(f"kind: {self.kind!r} is unknown; allowed: {', '.join(get_args(FaultKind))}")
        if (self.at is None) == (self.rate is None):
            raise SpecError(f"at: {self.kind} needs either at, a time, or rate, how often a second")
        if self.at is not None and self.at < 0:
            raise SpecError(f"at: {self.at} is not possible; a number, 0 or more, is needed")
        for name in ("rate", "seconds", "factor"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SpecError(f"{name}: {value} is not possible; a number above 0 is needed")
        if self.share is not None and not 0 <= self.share <= 1:
            raise SpecError(f"share: {self.share} is not possible; a number from 0 to 1 is needed")
        self._check_target()

    def _check_target(self) -> None:
        named = self.node in (AGGREGATOR, RANDOM) or self.node is None
        if not named and (not isinstance(self.node, int) or isinstance(self.node, bool)):
            raise SpecError(f"node: {self.node!r} is not possible; allowed: a number, {AGGREGATOR}, {RANDOM}")
        if self.kind == "partition" and not self.nodes:
            raise SpecError("nodes: is missing; a partition needs the nodes of one side")
        if self.kind == "slow" and (self.node is None) == (self.link is None):
            raise SpecError("node: slow needs either node or link")
        if self.link is not None and self.link[0] == self.link[1]:
            raise SpecError(f"link: {list(self.link)} is not a link; two different nodes are needed")
        if self.kind == "join" and (not isinstance(self.node, int) or self.at is None):
            raise SpecError("node: join needs a node's number, and at, a time: until then it is not there")
        if self.kind in ("join", "leave") and self.seconds is not None:
            raise SpecError(f"seconds: {self.kind} is for good; leave it out")
        if self.kind in ("kill", "revive", "pause", "hang", "swallow", "leave") and self.node is None:
            raise SpecError(f"node: is missing; {self.kind} needs a number, {AGGREGATOR} or {RANDOM}")
        if self.kind == "corrupt" and (self.node is None) == (not self.nodes):
            raise SpecError("node: corrupt needs either node or nodes")
        if self.how not in get_args(How):
            raise SpecError(f"how: {self.how!r} is not possible; allowed: {', '.join(get_args(How))}")
        if self.kind == "pause" and self.seconds is None:
            raise SpecError("seconds: is missing; a paused node goes on after a while, or it is killed")

    @property
    def chance(self) -> float:
        """The share that it hits."""
        return self.share if self.share is not None else 1.0 if self.kind == "swallow" else 0.1

    def check(self, nodes: int | None, links: bool) -> None:
        """Raise `SpecError` where it names something that is not there.

        nodes: how many the graph has; None where that is not known yet. links: whether messages take time of their own.
        """
        if self.link is not None and not links:
            raise SpecError(
                f"link: {list(self.link)} cannot be slow in Poisson timing, where messages take no time; "
                "use timing.model: network, or slow a node"
            )
        if nodes is not None:
            self._check_nodes(nodes)

    @property
    def is_failure(self) -> bool:
        """Whether anything is lost or late by it: then protocols must be of the kind that survives that."""
        return self.kind != "corrupt"

    @property
    def spoils(self) -> str:
        """How a corrupt node spoils what it sends, as the interpreter takes it."""
        return self.how if self.how == "flip" else f"{self.how}({self.factor:g})"

    def _check_nodes(self, nodes: int) -> None:
        alone = (self.node,) if isinstance(self.node, int) else ()
        for key, named in (("nodes", self.nodes), ("link", self.link or ()), ("node", alone)):
            for node in named:
                if not 0 <= node < nodes:
                    raise SpecError(f"{key}: there is no node {node}; allowed: 0 to {nodes - 1}")


@dataclass(frozen=True)
class FaultPlan:
    """All faults of a run, and the rng for those that happen at random: the same for all algorithms of a study."""

    faults: tuple[Fault, ...] = ()
    seed: Seed = Seed(0)  # noqa: RUF009 - immutable

    @property
    def has_failures(self) -> bool:
        """Whether anything is lost or late: where nothing is, protocols need no hardening."""
        return any(fault.is_failure for fault in self.faults)

    def __bool__(self) -> bool:
        return bool(self.faults)


# Who is there when, from a file: laptops that are closed at night, sites that are switched off, volunteers.
#
# A CSV file with the columns `node`, `from` and `to`, seconds of virtual time: a line for every stretch in which a node
# is there. A node without a line is always there; without a `to` it stays. Whoever is away is as good as killed, and
# comes back as one that was killed does (`faults`): what it was doing is lost, its neighbours hear of it.

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
    """The stretches of time, merged where they overlap."""
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
