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
    at_least: all                # nodes that must be there before any begins; later, fewer are a complaint. Or a number
    keep_traces: 500             # megabytes of old parts of its trace that a node keeps, compressed; all unless given
    metrics: 9100                # the port of /metrics and /health, on 127.0.0.1; or HOST:PORT. None unless given
    relay: relay.org:7446        # where nodes meet that can only dial out, and the operator comes (`walktalk relay`)
    nodes:                       # in the order of the graph's numbers
      ca-1: {address: 10.0.1.1:7447, site: CA}
      ca-2: {address: 10.0.1.2}  # no port: a free one is found, and ca-2 does the connecting
      il-1: {reachable: false}   # behind NAT or a firewall: it dials out, and others meet it at the relay

Of two neighbours the one with the lower number connects; one whose port was found connects to all that it knows of
(`with_own_port`). The site is for the person who reads `walktalk status`.

Nodes that were given no port find a free one, and write it into the cluster's folder. A node writes down its own port
before it reads those of the others, so of two neighbours without a port at least one finds the other, whichever starts
first. A node that comes back takes the port that it had, if it is still free. This works where nodes share the folder,
as on one machine; on different machines one of two neighbours needs a port.

Free ports are taken from below the range that the system gives to whoever connects somewhere. Twenty nodes that start
make a hundred connections, and one of those may get the very port on which a slower node is about to listen.
"""

from __future__ import annotations

import logging
import random
import socket
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from walktalk.core.errors import SpecError, StudyError
from walktalk.records import write_text, yaml_text
from walktalk.runtimes.peers.identity.certificates import (
    AUTHORITY,
    NAME,
    OPERATOR,
    PORTS,
    RELAY,
    Credentials,
    check_name,
    credentials,
)
from walktalk.runtimes.peers.node.roster import Entry, Roster, Standing
from walktalk.runtimes.peers.relay.tunnels import DIRECT, RelayPlace
from walktalk.runtimes.peers.wire.session import LARGEST_NORM, Endpoint, Tuning

if TYPE_CHECKING:
    from walktalk.graphs import Graph

log = logging.getLogger(__name__)

OPERATORS_PATIENCE = 2.0  # seconds until a node that does not open a connection is taken for hung


class Place(BaseModel):
    """The place of one node in the cluster file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str = Field("127.0.0.1", description="host:port that others connect to; without a port, nobody does")
    listen: str = Field("", description="host:port to listen on, where it differs, e.g. in a container")
    site: str = Field("", description="the site's name, as `walktalk status` shows it")
    part: str | int | None = Field(None, description="whose data it has: what its task calls it, unless its own name")
    metrics: str | int | None = Field(None, description="where its metrics are, in place of the cluster's `metrics`")
    reachable: bool = Field(True, description="whether nodes of other sites can connect to it; if not, see `relay`")
    found: bool = Field(False, description="whether its port was found, not given", exclude=True)

    @property
    def host(self) -> str:
        """The address without the port."""
        return self.address.rsplit(":", 1)[0] if self.has_port else self.address

    @property
    def has_port(self) -> bool:
        """Whether others know where to connect."""
        return self.address.rsplit(":", 1)[-1].isdecimal() and ":" in self.address

    def reaches(self, other: Place) -> bool:
        """Whether a node here can connect to one there: its port is known, and nothing is in between."""
        return other.has_port and self._is_open(other)

    def surely_reaches(self, other: Place) -> bool:
        """Whether a node here can connect to one there by what is in the file alone, whichever ports were found."""
        return other.has_port and not other.found and self._is_open(other)

    def shares_machine(self, other: Place) -> bool:
        """Whether both are on one machine, where each finds the other's port."""
        return self.host == other.host and (self._is_open(other) and other._is_open(self))

    def _is_open(self, other: Place) -> bool:
        return other.reachable or bool(self.site and self.site == other.site)

    @property
    def listening(self) -> str:
        """Where to listen; port 0 is any that is free."""
        return self.listen or (self.address if self.has_port else f"{self.address}:0")


class Cluster(BaseModel):
    """The content of a cluster file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("walktalk", pattern=NAME)
    study: str | dict[str, Any] = Field(default_factory=dict)
    algorithm: str = ""
    repetition: int = Field(0, ge=0)
    certificates: Path | None = None
    folder: Path = Path("out/peers")
    lease: float = Field(10.0, gt=0)
    pace: float = Field(0.0, ge=0)
    wait: float = Field(30.0, ge=0)
    largest: float = Field(LARGEST_NORM, gt=1)
    stay: float = Field(0.0, ge=0)
    relay: str = Field("", pattern=r"^(.+:\d{1,5})?$")
    metrics: str | int | None = None
    keep_traces: float | None = Field(None, ge=0)
    at_least: int | Literal["all"] | None = None
    nodes: dict[str, Place]
    joined: dict[str, int] = Field(default_factory=dict, exclude=True)  # numbers of those that are not in the file

    _left_out: frozenset[str] = PrivateAttr(frozenset())
    _home: Path | None = PrivateAttr(None)

    @property
    def home(self) -> Path | None:
        """The folder of the cluster's file; None where it was made otherwise."""
        return self._home

    @property
    def left_out(self) -> frozenset[str]:
        """Names of nodes that an operator does not ask."""
        return self._left_out

    def without(self, names: Iterable[str]) -> Cluster:
        """The cluster for an operator who does not ask some nodes, because what they answer is not to be trusted."""
        cluster = self.model_copy()
        cluster._left_out = frozenset(names)
        return cluster

    def number(self, name: str) -> int:
        """The number of the node with this name."""
        if name not in self.nodes:
            raise SpecError(f"--name {name!r} is not in the cluster; its nodes are {', '.join(self.nodes)}")
        return self.joined[name] if name in self.joined else list(self.nodes).index(name)

    @property
    def file_names(self) -> tuple[str, ...]:
        """The nodes of the file, in the order of the graph's numbers."""
        return tuple(name for name in self.nodes if name not in self.joined)

    def roster(self, graph: Graph) -> Roster:
        """Who belongs to the cluster, before anybody has joined or left."""
        if graph.nodes != len(self.file_names):
            raise SpecError(f"nodes: the cluster has {len(self.file_names)}, but the study's graph has {graph.nodes}")
        authority = self.certificates / f"{AUTHORITY}.pem" if self.certificates is not None else None
        return Roster(self.name, graph, self.file_names, authority, OPERATOR)

    def with_joined(self, entries: Iterable[Entry], gone: bool = False) -> Cluster:
        """The cluster with those who joined, in the order of ranks; `gone`: also those of them who left since."""
        wanted = [e for e in entries if gone or e.standing is not Standing.LEFT]
        there = sorted((e for e in wanted if e.name not in self.file_names), key=lambda e: (e.rank, e.name))
        files = {name: self.nodes[name] for name in self.file_names}
        places: dict[str, Place] = {}
        for e in there:
            try:
                said = {"address": e.address, "site": e.site, "reachable": bool(e.address)}
                places[e.name] = Place.model_validate(said)
            except ValidationError:  # nobody could connect to it
                log.warning("%s: its address %r cannot be one", e.name, e.address)
        joined = {entry.name: entry.number for entry in there if entry.name in places}
        return self.model_copy(update={"nodes": files | places, "joined": joined})

    def part(self, name: str) -> str | None:
        """What the task calls a node: its name unless told otherwise; None where it has a number only."""
        called = self.nodes[name].part
        return name if called is None else called if isinstance(called, str) else None

    def metrics_of(self, name: str) -> str | int | None:
        """Where a node shows its metrics; None: nowhere."""
        own = self.nodes[name].metrics
        return self.metrics if own is None else own

    def endpoint(self, name: str, graph: Graph, roster: Roster | None = None) -> Endpoint:
        """A node's place: whom it talks to, and whom it connects to, by the file or a roster that says more."""
        roster = roster if roster is not None else self.roster(graph)
        number = self.number(name)
        contacts = roster.neighbours(name) if roster.changed else graph.contacts(number)
        neighbours = {roster.known[peer]: peer for peer in contacts}
        return Endpoint(
            self.name,
            name,
            number,
            self.nodes[name].listening,
            neighbours,
            self._connects(name, neighbours, roster),
            self.own_credentials(name),
            Tuning(lease=self.lease),
            {other: self.nodes[other].address for other in neighbours if self.nodes[name].reaches(self.nodes[other])},
            self._relay_of(name, neighbours, roster),
            tuple(other for other in roster.present() if other != name and other not in neighbours),
        )

    def told(self, place: Place) -> str:
        """The address that one that joins tells others; "": they meet it at the relay."""
        return place.address if place.reachable or not self.relay else ""

    def dialled(self, name: str, other: str, roster: Roster) -> str | None:
        """Where a node connects to another that becomes its neighbour while they run; this is decided here alone.

        "": it calls it at the relay. None: it does not: the other connects, as it does by the file, or nothing says
        where that one listens, and there is no relay.
        """
        said = roster.entries[other].address if other in roster.entries else ""
        if said or other not in roster.names:
            return said if said or self.relay else None
        if self.relay and self._meet_at_relay(name, other, roster):
            return ""
        place = self.nodes[other]
        return place.address if place.has_port and (not self.relay or self.nodes[name].reaches(place)) else None

    def operator(self) -> Endpoint:
        """The place of `status` and `stop`: connects to everybody it can, straight or through the relay."""
        asked = {name: place for name, place in self.nodes.items() if name not in self.left_out}
        straight = {name: place.address for name, place in asked.items() if place.has_port and place.reachable}
        everyone = {name: self.number(name) for name in asked}
        files, patience = self.own_credentials(OPERATOR), OPERATORS_PATIENCE
        connect, relay = tuple(straight.values()), None
        if self.relay:  # it tries the straight way first: nodes need not be reachable for the operator
            connect, relay = (), RelayPlace(self.relay, {name: straight.get(name, "") for name in asked})
            patience += DIRECT
        quick = Tuning(opening=patience)
        return Endpoint(self.name, OPERATOR, len(everyone), "", everyone, connect, files, quick, relay=relay)

    def hosts(self) -> dict[str, list[str]]:
        """Who may have a certificate, and for which host names and addresses: nodes, operator and relay."""
        hosts = {name: [place.host] for name, place in self.nodes.items()}
        relay = {RELAY: [self.relay.rpartition(":")[0]]} if self.relay else {}
        return {**hosts, **relay, OPERATOR: []}

    def relay_credentials(self) -> Credentials | None:
        """The certificate and key of the relay."""
        return self.own_credentials(RELAY)

    def _connects(self, name: str, neighbours: Mapping[str, int], roster: Roster) -> tuple[str, ...]:
        own, number = self.nodes[name], self.number(name)
        addresses = []
        for other, peer in neighbours.items():
            place = self.nodes[other]
            if roster.is_first_edge(number, peer):
                dials = not place.surely_reaches(own) or (number < peer and not place.found)
            else:  # they became neighbours since: who was there before connects
                dials = roster.before(name, other) and not (self.relay and self._meet_at_relay(name, other, roster))
            if own.reaches(place) and dials:
                addresses.append(place.address)
        return tuple(addresses)

    def _relay_of(self, name: str, neighbours: Mapping[str, int], roster: Roster) -> RelayPlace | None:
        """Where this one is called, and whom it calls: of two that meet there, the one that was there before does."""
        met = [other for other in neighbours if self._meet_at_relay(name, other, roster)]
        if met and not self.relay:
            raise SpecError(
                f"nodes: {name} and {met[0]} are neighbours and neither has a port that the other can connect to; give "
                "one a port, or name a `relay: HOST:PORT` where they meet"
            )
        calls = {other: "" for other in met if roster.before(name, other)}
        return RelayPlace(self.relay, calls) if self.relay else None

    def _meet_at_relay(self, name: str, other: str, roster: Roster) -> bool:
        """Whether neither reaches the other, nor will when ports are found on the machine that they share.

        Of two that became neighbours while they ran, whether the one that was there before does not reach the other: it
        alone connects, as the other's name was not known when it began to listen.
        """
        one, two = self.nodes[name], self.nodes[other]
        if self.relay and not roster.is_first_edge(roster.number(name), roster.number(other)):
            one, two = (one, two) if roster.before(name, other) else (two, one)
            return not (one.surely_reaches(two) or one.shares_machine(two))
        return not (one.surely_reaches(two) or two.surely_reaches(one) or one.shares_machine(two))

    def own_credentials(self, name: str) -> Credentials | None:
        """A node's certificate and key; None where there are none."""
        return credentials(self.certificates, name) if self.certificates is not None else None


STUDY_KEYS = frozenset({"network", "task", "algorithms"})  # of a study: somebody gave that in a cluster's place


def load_cluster(path: Path) -> Cluster:
    """The cluster in a file; relative paths in it are relative to it. A `SpecError` names what is wrong."""
    cluster = make_cluster(yaml_text.read(path), str(path))
    here = path.resolve().parent
    changes: dict[str, Any] = {"folder": here / cluster.folder}
    if cluster.certificates is not None:
        changes["certificates"] = here / cluster.certificates
    if isinstance(cluster.study, str) and (here / cluster.study).is_file():
        changes["study"] = str(here / cluster.study)
    elif isinstance(cluster.study, dict):
        changes["study"] = _with_files_near(cluster.study, here)
    loaded = cluster.model_copy(update=changes)
    loaded._home = here
    return loaded


FILES = {"task": ("state", "optimizer"), "network": ("file",)}
"""Settings of a study, by section, that may name a file which all sites have alike."""


def _with_files_near(study: dict[str, Any], here: Path) -> dict[str, Any]:
    """A study whose own files are found beside the cluster's, whichever folder somebody is in."""
    found = dict(study)
    for section, keys in FILES.items():
        said = study.get(section)
        if not isinstance(said, dict):
            continue
        given = {key: said[key] for key in keys if isinstance(said.get(key), str) and said[key]}
        outside = said.get("name") == "outside"  # what it names is there or is missing
        near = {key: str(here / value) for key, value in given.items() if outside or (here / value).is_file()}
        found[section] = {**said, **near}
    return found


def study_of(cluster: Cluster) -> str | dict[str, Any]:
    """A cluster's study, key by key, its files found beside the cluster's; the name of a preset where it is one."""
    if isinstance(cluster.study, dict) or not Path(cluster.study).is_file():
        return cluster.study
    return _with_files_near(yaml_text.read(Path(cluster.study)), cluster.home or Path.cwd())


def make_cluster(content: Mapping[str, Any], source: str = "cluster") -> Cluster:
    """A cluster from its keys."""
    if "nodes" not in content and not STUDY_KEYS.isdisjoint(content):
        raise SpecError(
            f"{source} is a study, not a cluster: a cluster's file says nodes: {{lyon: {{}}, nice: {{}}}}, and names a "
            f"study's file with study: {source}"
        )
    try:
        cluster = Cluster.model_validate(content)
    except ValidationError as error:
        raise SpecError(f"{source}: {_in_words(error)}") from error
    for name in cluster.nodes:
        check_name(name, f"{source}: nodes: ")
    if not cluster.nodes:
        raise SpecError(f"{source}: nodes: there are none")
    if isinstance(cluster.at_least, int) and not 1 <= cluster.at_least <= len(cluster.nodes):
        raise SpecError(
            f"{source}: at_least must be all, or 1 to {len(cluster.nodes)}, as many as there are nodes (you gave "
            f"{cluster.at_least})"
        )
    return cluster


def _in_words(error: ValidationError) -> str:
    """The first mistake in words: where it is, and what is possible there."""
    first = error.errors()[0]
    *above, _ = first["loc"]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        known = Place if above else Cluster
        allowed = ", ".join(key for key in known.model_fields if key not in ("found", "joined"))
        return f"{where}: there is no such key; allowed: {allowed}"
    if first["type"] == "missing":
        return f"{where}: is missing"
    if first["loc"][0] == "at_least":
        return f"at_least must be a whole number or all (you gave {first['input']!r})"
    if where == "relay":
        return f"relay: {first['input']!r} is not possible; give host:port, e.g. relay.example.org:7446"
    if first["type"] == "string_pattern_mismatch":
        return f"{where}: {first['input']!r} is not possible; use a-z, 0-9, - and ."
    if first["type"] == "model_type":
        return f"{where}: should hold key: value pairs such as {{address: 10.0.1.1:7447}}; {{}} for none"
    return f"{where}: {first['msg']}"


# -- ports ------------------------------------------------------------------------------------------------------------

LOWEST = 10_000
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIES = 50


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Find so many unused ports, held all at once so that no two are the same. `OSError`: the host is not here."""
    with ExitStack() as stack:
        servers = [stack.enter_context(_server(host)) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]


def _server(host: str) -> socket.socket:
    dice, end = random.SystemRandom(), _first_of_the_system()
    for _ in range(TRIES if end > LOWEST else 0):
        try:
            return socket.create_server((host, dice.randrange(LOWEST, end)))
        except OSError:
            continue
    return socket.create_server((host, 0))


def _first_of_the_system() -> int:
    """The lowest port that the system gives away by itself; 32768 is what Linux has unless somebody changed it."""
    try:
        return int(RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def with_own_port(cluster: Cluster, name: str) -> Cluster:
    """The cluster as this node should see it: its own port found and written down, those of others read."""
    place = cluster.nodes[name]
    changed = dict(cluster.nodes)
    if not place.has_port and not place.listen:
        port = _free_port(place.host, _noted(cluster, name))
        if port is not None:
            _write_down(cluster.folder / PORTS / name, port)
            changed[name] = _at(place, port)
    return _filled(cluster, changed)


def with_known_ports(cluster: Cluster) -> Cluster:
    """The cluster with all ports that were found so far, as the operator needs it."""
    return _filled(cluster, dict(cluster.nodes))


def _filled(cluster: Cluster, nodes: dict[str, Place]) -> Cluster:
    for name, place in nodes.items():
        noted = None if place.has_port else _noted(cluster, name)
        if noted is not None:
            nodes[name] = _at(place, noted)
    return cluster.model_copy(update={"nodes": nodes})


def _at(place: Place, port: int) -> Place:
    return place.model_copy(update={"address": f"{place.address}:{port}", "found": True})


def _write_down(path: Path, port: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, f"{port}\n")
    except OSError as error:
        raise StudyError(f"folder: {path.parent} cannot be written: {error.strerror}; name another") from error


def _noted(cluster: Cluster, name: str) -> int | None:
    try:
        return int((cluster.folder / PORTS / name).read_text())
    except (OSError, ValueError):
        return None


def _free_port(host: str, wanted: int | None) -> int | None:
    """The wanted port, or any; None where the host is not this machine."""
    if wanted is not None:
        with suppress(OSError), socket.create_server((host, wanted)):
            return wanted
    with suppress(OSError):
        return free_ports(1, host)[0]
    return None
