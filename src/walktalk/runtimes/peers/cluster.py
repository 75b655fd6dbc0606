"""`cluster.yaml`: which nodes there are, where they listen, and what they train.

    name: five-sites
    study: study.yaml            # or the study itself, key by key
    algorithm: multi_walk-4      # one of the study's; the first if left out
    certificates: certs          # a folder of `walktalk certs`; without it nothing is encrypted
    folder: out/five-sites       # where each node writes, in a folder of its name
    pace: 0.0                    # seconds that a training takes at least: many nodes on few processors take turns
    wait: 30.0                   # seconds that a node waits for its neighbours before it starts without them
    largest: 100.0               # times the usual norm that a model from a neighbour may have, or it is refused
    stay: 0.0                    # seconds that it stays after the end, unless somebody collects what it has before
    nodes:                       # in the order of the graph's numbers
      ca-1: {address: 10.0.1.1:7447, site: CA}
      ca-2: {address: 10.0.1.2}  # no port: a free one is found, and ca-2 does the connecting

Of two neighbours the one with the lower number connects; one whose port was found connects to all that it knows of
(`ports`). The site is for the person who reads `walktalk status`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from walktalk.errors import SpecError
from walktalk.records import yaml_text
from walktalk.runtimes.peers.certificates import AUTHORITY, OPERATOR, Credentials, credentials
from walktalk.runtimes.peers.session import ALIVE, Endpoint, Tuning

if TYPE_CHECKING:
    from walktalk.graphs import Graph

LARGEST = 100.0
"""Times the usual norm. Models grow by a few times while they are trained; what is sent to do harm is larger."""

OPERATORS_PATIENCE = 2.0  # seconds until a node that does not open a connection is taken for hung
PORTS = "ports"  # in the cluster's folder: see there
_NAME = r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"  # as host names: they become keys, file names and common names

RESERVED = {  # they would share keys or files with something else
    OPERATOR: "the name of whoever asks for status",
    ALIVE: "part of the keys that say who lives",
    AUTHORITY: "the name of the authority's own files among the certificates",
    PORTS: "the folder for ports that were found",
    "launcher": "the folder of whoever starts all nodes of a run",
}


class Place(BaseModel):
    """Where a node is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str = Field("127.0.0.1", description="host:port that others connect to; without a port, nobody does")
    listen: str = Field("", description="host:port to listen on, where it differs, e.g. in a container")
    site: str = Field("", description="the site's name, as `walktalk status` shows it")
    part: str | int | None = Field(None, description="whose data it has: what its task calls it, unless its own name")
    found: bool = Field(False, description="whether its port was found, not given", exclude=True)

    @property
    def host(self) -> str:
        """The address without the port."""
        return self.address.rsplit(":", 1)[0] if self.has_port else self.address

    @property
    def has_port(self) -> bool:
        """Whether others know where to connect."""
        return self.address.rsplit(":", 1)[-1].isdecimal() and ":" in self.address

    @property
    def listening(self) -> str:
        """Where to listen; port 0 is any that is free."""
        return self.listen or (self.address if self.has_port else f"{self.address}:0")


class Cluster(BaseModel):
    """A whole deployment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("walktalk", pattern=_NAME)
    study: str | dict[str, Any] = Field(default_factory=dict)
    algorithm: str = ""
    repetition: int = Field(0, ge=0)
    certificates: Path | None = None
    folder: Path = Path("out/peers")
    lease: float = Field(10.0, gt=0)
    pace: float = Field(0.0, ge=0)
    wait: float = Field(30.0, ge=0)
    largest: float = Field(LARGEST, gt=1)
    stay: float = Field(0.0, ge=0)
    nodes: dict[str, Place]

    def number(self, name: str) -> int:
        """The node of that name."""
        if name not in self.nodes:
            raise SpecError(f"--name {name!r} is not in the cluster; its nodes are {', '.join(self.nodes)}")
        return list(self.nodes).index(name)

    def part(self, name: str) -> str | None:
        """What the task calls a node: its name unless told otherwise; None where it has a number only."""
        called = self.nodes[name].part
        return name if called is None else called if isinstance(called, str) else None

    def endpoint(self, name: str, graph: Graph) -> Endpoint:
        """A node's place: whom it talks to, and whom it connects to."""
        names, number = list(self.nodes), self.number(name)
        if graph.nodes != len(names):
            raise SpecError(f"nodes: the cluster has {len(names)}, but the study's graph has {graph.nodes}")
        neighbours = {names[peer]: peer for peer in graph.contacts(number)}
        return Endpoint(
            self.name,
            name,
            number,
            self.nodes[name].listening,
            neighbours,
            self._connects(name, neighbours),
            self._credentials(name),
            Tuning(lease=self.lease),
            {other: self.nodes[other].address for other in neighbours if self.nodes[other].has_port},
        )

    def operator(self) -> Endpoint:
        """The place of `status` and `stop`: connects to everybody it can."""
        reachable = tuple(place.address for place in self.nodes.values() if place.has_port)
        everyone = {name: number for number, name in enumerate(self.nodes)}
        files, quick = self._credentials(OPERATOR), Tuning(opening=OPERATORS_PATIENCE)
        return Endpoint(self.name, OPERATOR, len(everyone), "", everyone, reachable, files, quick)

    def _connects(self, name: str, neighbours: Mapping[str, int]) -> tuple[str, ...]:
        own, number = self.nodes[name], self.number(name)
        addresses = []
        for other, peer in neighbours.items():
            place = self.nodes[other]
            given = own.has_port and not own.found
            if not given and not place.has_port and place.host != own.host:
                raise SpecError(
                    f"nodes: {name} and {other} are neighbours on two machines and neither has a port; give one a port"
                )
            if place.has_port and (not given or (number < peer and not place.found)):
                addresses.append(place.address)
        return tuple(addresses)

    def _credentials(self, name: str) -> Credentials | None:
        return credentials(self.certificates, name) if self.certificates is not None else None


def load_cluster(path: Path) -> Cluster:
    """The cluster in a file; relative paths in it are relative to it. A `SpecError` names what is wrong."""
    cluster = make_cluster(yaml_text.read(path), str(path))
    here = path.resolve().parent
    changes: dict[str, Any] = {"folder": here / cluster.folder}
    if cluster.certificates is not None:
        changes["certificates"] = here / cluster.certificates
    if isinstance(cluster.study, str) and (here / cluster.study).is_file():
        changes["study"] = str(here / cluster.study)
    return cluster.model_copy(update=changes)


def make_cluster(content: Mapping[str, Any], source: str = "cluster") -> Cluster:
    """A cluster from its keys."""
    try:
        cluster = Cluster.model_validate(content)
    except ValidationError as error:
        raise SpecError(f"{source}: {_in_words(error)}") from error
    for name in cluster.nodes:
        if not re.fullmatch(_NAME, name):
            raise SpecError(f"{source}: nodes: {name!r} cannot be a node's name; use a-z, 0-9, - and .")
        if name in RESERVED:
            raise SpecError(f"{source}: nodes: {name!r} cannot be a node's name: it is {RESERVED[name]}; take another")
    if not cluster.nodes:
        raise SpecError(f"{source}: nodes: there are none")
    return cluster


def _in_words(error: ValidationError) -> str:
    """The first mistake: where it is, and what is possible there."""
    first = error.errors()[0]
    *above, _ = first["loc"]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        known = Place if above else Cluster
        return f"{where}: there is no such key; allowed: {', '.join(n for n in known.model_fields if n != 'found')}"
    if first["type"] == "missing":
        return f"{where}: is missing"
    if first["type"] == "string_pattern_mismatch":
        return f"{where}: {first['input']!r} is not possible; use a-z, 0-9, - and ."
    if first["type"] == "model_type":
        return f"{where}: should hold key: value pairs such as {{address: 10.0.1.1:7447}}; {{}} for none"
    return f"{where}: {first['msg']}"
