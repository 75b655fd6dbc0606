"""A node's seat in its cluster: by the file, by what it remembers of who joined and left, or as one that joins."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from walktalk.errors import SpecError, StudyError
from walktalk.graphs import Graph
from walktalk.learning import tasks
from walktalk.protocols import Surroundings
from walktalk.records import write_unless_there
from walktalk.runtimes.peers import (
    MEMBERS_FILE,
    Cluster,
    Newcomer,
    Place,
    Roster,
    Standing,
    check_name,
    from_text,
    knock,
    surroundings,
    with_known_ports,
    with_own_port,
)
from walktalk.runtimes.simulator import all_surroundings

log = logging.getLogger(__name__)

PLACE = "place.json"  # in the folder of one that joined: what was said when it did


@dataclass(frozen=True)
class Seat:
    """Where a node belongs.

    Args:
        cluster: with all that are known to have joined, and this node's own port.
        roster: who belongs.
        graph: that of the file.
        name: the node's.
        place: where it is.
        joins: what it asks for, where it has still to join.
        joined_now: whether it has just joined.
    """

    cluster: Cluster
    roster: Roster
    graph: Graph
    name: str
    place: Place
    joins: Newcomer | None = None
    joined_now: bool = False

    @property
    def folder(self) -> Path:
        """The node's own."""
        return self.cluster.folder / self.name

    @property
    def number(self) -> int:
        """The node's."""
        return self.roster.number(self.name)

    @property
    def data(self) -> tasks.Node:
        """Whose data it has. One that joins has its own, under its name, or those of the number that it was told."""
        part = self.place.part
        if self.name in self.cluster.file_names:
            return tasks.Node(self.cluster.part(self.name), self.cluster.file_names.index(self.name))
        return tasks.Node(None, part) if isinstance(part, int) else tasks.Node(part or self.name, tasks.NEWCOMER)

    @property
    def around(self) -> Surroundings:
        """What it knows of the network at first."""
        known = all_surroundings(self.graph)
        one = known[self.number] if self.number < len(known) else Surroundings(self.number, len(known), (), ())
        return surroundings(one, self.roster, self.name)

    def dials(self, other: str) -> str | None:
        """Where it connects to one that becomes its neighbour, as far as is known now (`Cluster.dialled`)."""
        return with_known_ports(self.cluster).dialled(self.name, other, self.roster)

    def join(self, facts: Mapping[str, Any]) -> Seat:
        """Join a cluster that runs; `UnavailableError` where it does not let this node in.

        - `facts`: of its study.
        """
        assert self.joins is not None
        knock(self.cluster, self.name, self.place, self.joins, facts, self.roster)
        neighbours = ", ".join(self.roster.known[peer] for peer in self.roster.neighbours(self.name))
        log.info("%s: has joined; its neighbours are %s", self.name, neighbours)
        cluster = _with_own(self.cluster.with_joined(self.roster.entries.values()), self.name, self.place)
        return replace(self, cluster=cluster, joins=None, joined_now=True)

    def remember(self) -> None:
        """For a later life of one that joined: where it is. Who belongs the node writes down itself."""
        if self.name not in self.cluster.file_names:
            place = self.place
            if place.found and not self.cluster.told(place):  # nobody needs to know its port: any will do the next time
                place = place.model_copy(update={"address": place.host})
            write_unless_there(self.folder / PLACE, place.model_dump_json() + "\n")


def take_seat(
    cluster: Cluster, graph: Graph, name: str, rejoin: bool, join: Newcomer | None, place: Place | None
) -> Seat:
    """Where a node belongs.

    Args:
        cluster: as in the file.
        graph: the study's.
        name: the node's.
        rejoin: whether it remembers an earlier life.
        join: what it asks for, where it is to join a cluster that runs.
        place: where one is that is not in the file; what it said when it joined, if left out.
    """
    check_name(name)
    folder, roster = cluster.folder / name, cluster.roster(graph)
    if rejoin:
        _recall(folder / MEMBERS_FILE, roster)
    belongs = roster.has(name) and roster.standing(name) is Standing.MEMBER
    if not belongs and join is None:
        raise SpecError(_not_in(cluster, name, left=roster.has(name)))
    if belongs and join is not None and name in cluster.file_names:
        raise SpecError(f"--name {name} is in the cluster's file, so it need not join; leave --join out")
    if name in cluster.file_names:
        own = cluster.nodes[name]
    else:
        own = place or _earlier_place(folder) or Place.model_validate({})
        if cluster.relay and "address" not in own.model_fields_set:  # it does not say that it can be reached
            own = own.model_copy(update={"reachable": False})
    cluster = with_own_port(_with_own(cluster.with_joined(roster.entries.values()), name, own), name)
    own = cluster.nodes[name]
    if not own.has_port and cluster.told(own) and name not in cluster.file_names:
        raise SpecError(f"--address {own.address}: one that joins needs a port there, e.g. {own.address}:7447")
    moved = belongs and name in roster.entries and name not in cluster.file_names
    moved = moved and roster.entries[name].address != cluster.told(own)
    asks = (join or Newcomer()) if not belongs or moved else None
    return Seat(cluster, roster, graph, name, own, asks)


def _with_own(cluster: Cluster, name: str, place: Place) -> Cluster:
    joined = cluster.joined if name in cluster.file_names else {**cluster.joined, name: cluster.joined.get(name, -1)}
    return cluster.model_copy(update={"nodes": {**cluster.nodes, name: place}, "joined": joined})


def _recall(path: Path, roster: Roster) -> None:
    """What an earlier life knew of who belongs."""
    if not path.is_file():
        return
    try:
        roster.join(from_text(path.read_text()))
    except (OSError, ValueError) as error:
        raise StudyError(f"{path} cannot be read: {error}; begin anew with --fresh") from error


def _earlier_place(folder: Path) -> Place | None:
    with suppress(OSError, ValueError):
        return Place.model_validate(json.loads((folder / PLACE).read_text()))
    return None


def _not_in(cluster: Cluster, name: str, left: bool) -> str:
    if left:
        return f"--name {name}: it has left the cluster for good; --join lets it come again"
    names = ", ".join(cluster.file_names)
    return (
        f"--name {name!r} is not in the cluster; its nodes are {names}; --join {cluster.file_names[0]} joins it while "
        "it runs"
    )
