"""The algorithms that a specification can name: a new one is a file of its own and a line here.

What else the field calls it, the class says itself (`also_known_as`, `known_forms`).
"""

from __future__ import annotations

import colorsys
import functools
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from walktalk.core.errors import SettingError
from walktalk.core.plugins import REGISTRIES, Registry
from walktalk.protocols.machine import Machine, NetworkView, Protocol

# -- The algorithms of a study as plain data: whoever has this needs neither the protocols nor their labels -----------
# It goes into a study's `summary.json`, so that figures and page know an algorithm again years later, when the plug-in
# that it came with is gone.

# Of Tol's muted and bright sets. No protocol of ours has one of them, so one without keeps its own beside any of ours.
FREE_COLOURS = ("#117733", "#44AA99", "#6699CC", "#661100", "#EE6677", "#CCBB44", "#997700", "#994455")


@dataclass(frozen=True)
class Described:
    """One algorithm of a study.

    Args:
        label: in tables and folder names.
        name: of the protocol.
        title: what people call it; no two of a study the same.
        family: one word for all that work alike.
        colour: in every figure, "#rrggbb"; no two of a study the same.
        description: what it does, in one line.
        settings: of the protocol.
    """

    label: str
    name: str = ""
    title: str = ""
    family: str = "other"
    colour: str = ""
    description: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The title as it begins a line: "One walk"; a label that a person chose is left as it is."""
        return self.title if self.title == self.label else self.title[:1].upper() + self.title[1:]

    @property
    def is_reference(self) -> bool:
        """Whether it is there to compare with, such as all data in one place: it cannot win."""
        return self.family == "reference"


def described(label: str, protocol: Protocol, title: str | None = None) -> Described:
    """What a protocol says of itself, under a label of the study's; the colour is "" where it has none of its own."""
    says = (protocol.family, protocol.colour or "", protocol.description, protocol.settings)
    return Described(label, protocol.name, title or protocol.title, *says)


def absent_protocol(error: SettingError) -> type[Protocol]:
    """What stands for a protocol that is not here; its label is not known, so the study has to say it."""

    class Absent(Protocol):
        """A protocol that is not here."""

        def __init__(self, **settings: Any) -> None:
            self.given = settings

        @property
        def label(self) -> str:
            return "-".join(["absent", *(f"{name}{value}" for name, value in self.given.items())])

        def machine(self, network_view: NetworkView) -> Machine:
            raise error

    return Absent


def together(found: Iterable[Described]) -> dict[str, Described]:
    """The algorithms of one study by label: with a title and a colour each that no other has."""
    titled = _told_apart(list(found))
    chosen = distinct(_wanted_colours(titled))
    return {one.label: replace(one, colour=chosen[one.label]) for one in titled}


def known(labels: Iterable[str], algorithms: Mapping[str, Described] | None = None) -> dict[str, Described]:
    """What is known of these labels, in the order in which every legend lists them: as a study says, or as usual.

    Args:
        labels: of algorithms, each as often as one likes.
        algorithms: what the study's folder says of its own.
    """
    given = dict(algorithms or {})
    wanted = list(dict.fromkeys(labels))
    usual = _usual() if any(label not in given for label in wanted) else {}
    found = [given.get(label) or usual.get(label) or Described(label, title=label) for label in wanted]
    return together(sorted(found, key=_place))


def _usual() -> dict[str, Described]:
    """The usual settings of every protocol by label, for what has nothing but labels."""
    each = (protocol for one in REGISTRIES["algorithm"].values() for protocol in one.usual())
    return {protocol.label: described(protocol.label, protocol) for protocol in each}


def _place(one: Described) -> tuple[int, float]:
    """Walks by their number, anything else, gossip, and the reference last."""
    families = {"walks": 0, "gossip": 2, "reference": 3}
    return families.get(one.family, 1), float(one.settings.get("walks", 0)) if one.family == "walks" else 0.0


def distinct(wanted: Mapping[str, str]) -> dict[str, str]:
    """A colour for each label: the one wanted unless another has it, else a free one; by the label, so that it stays.

    Colours repeat when all are used up.
    """
    chosen: dict[str, str] = {}
    for label, colour in wanted.items():
        if colour and colour not in chosen.values():
            chosen[label] = colour
    for label in sorted(set(wanted) - set(chosen)):
        first = zlib.crc32(label.encode()) % len(FREE_COLOURS)
        order = [*FREE_COLOURS[first:], *FREE_COLOURS[:first]]
        chosen[label] = next((colour for colour in order if colour not in chosen.values()), order[0])
    return {label: chosen[label] for label in wanted}


LIGHTNESS = (0.24, 0.68)  # of the first and the last setting of a sweep
DRIFT = 0.12  # of the circle of hues, from the first to the last: lightness alone tells few apart


def _wanted_colours(each: list[Described]) -> dict[str, str]:
    """Its own colour for each; where all settings of an algorithm have the same, shades of it, lighter by setting."""
    wanted = {one.label: one.colour for one in each}
    for name in {one.name for one in each if one.name}:
        alike = [one for one in each if one.name == name]
        own = [one.colour for one in alike if one.colour]
        if len(alike) > 1 and len(set(own)) <= 1:
            base = own[0] if own else FREE_COLOURS[zlib.crc32(name.encode()) % len(FREE_COLOURS)]
            in_order = sorted(alike, key=functools.partial(_setting_key, alike=alike))
            wanted |= dict(zip([one.label for one in in_order], shades(base, len(alike)), strict=True))
    return wanted


def _setting_key(one: Described, alike: list[Described]) -> tuple[tuple[bool, float, str], ...]:
    """What it is sorted by among settings of one algorithm: numbers by their size, anything else as it is written."""
    varied = [key for key in one.settings if len({str(other.settings.get(key)) for other in alike}) > 1]
    values = [one.settings[key] for key in varied]
    numbers = [isinstance(value, (int, float)) for value in values]
    return tuple(
        (not is_number, float(value) if is_number else 0.0, str(value))
        for is_number, value in zip(numbers, values, strict=True)
    )


def shades(colour: str, count: int) -> list[str]:
    """So many shades around the hue of a colour, from dark to light; the one that is nearest to it is that colour."""
    hue, own, saturation = colorsys.rgb_to_hls(*(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)))
    low, high = LIGHTNESS
    places = [low + (high - low) * k / max(count - 1, 1) for k in range(count)]
    nearest = min(range(count), key=lambda k: abs(places[k] - own))
    found = []
    for k, lightness in enumerate(places):
        turned = (hue - DRIFT * (k - nearest) / max(count - 1, 1)) % 1.0
        red, green, blue = colorsys.hls_to_rgb(turned, lightness, saturation)
        found.append(f"#{round(255 * red):02X}{round(255 * green):02X}{round(255 * blue):02X}")
    return [*found[:nearest], colour, *found[nearest + 1 :]]


def _told_apart(each: list[Described]) -> list[Described]:
    """Put the settings behind a title in which it differs from others of that title; the label where that is all."""
    alike = {one.label: [other for other in each if other.title == one.title] for one in each}
    said = [replace(one, title=", ".join([one.title, *_differences(one, alike[one.label])])) for one in each]
    often = Counter(one.title for one in said)
    return [replace(one, title=one.label) if often[one.title] > 1 else one for one in said]


def _differences(one: Described, alike: list[Described]) -> list[str]:
    return [
        f"{name} {_value(value)}"
        for name, value in one.settings.items()
        if value is not None and any(other.settings.get(name) != value for other in alike)
    ]


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


# -- The algorithms that a specification can name: a new one is a file of its own and a line here ---------------------

OURS = {  # name -> its file in here, and its class there; in the order in which they are listed
    "multi_walk": "walks.multi_walk:MultiWalk",
    "async_gossip": "gossip.async_gossip:AsyncGossip",
    "swarm_sgd": "gossip.swarm_sgd:SwarmSGD",
    "swift": "gossip.swift:SWIFT",
    "agraf": "gossip.agraf:AGRAF",
    "a2cid2": "gossip.a2cid2:A2CiD2",
    "divshare": "gossip.divshare:DivShare",
    "sync_gossip": "gossip.sync_gossip:SyncGossip",
    "centralized": "centralized:Centralized",
    "local_dsgd": "gossip.local_dsgd:LocalDSGD",
    "qg_dsgdm": "gossip.qg_dsgdm:QGDSGDm",
    "slowmo": "outer.slowmo:SlowMo",
    "gradient_tracking": "gossip.gradient_tracking:GradientTracking",
    "momentum_tracking": "gossip.momentum_tracking:MomentumTracking",
    "k_gt": "gossip.k_gt:KGT",
    "d2": "gossip.d2:D2",
    "extra": "gossip.extra:EXTRA",
    "sgp": "gossip.sgp:SGP",
    "osgp": "gossip.osgp:OSGP",
    "relay_sgd": "gossip.relay_sgd:RelaySGD",
    "push_pull": "gossip.push_pull:PushPull",
    "ceca": "gossip.ceca:CECA",
    "choco_sgd": "gossip.choco_sgd:ChocoSGD",
    "epidemic_learning": "gossip.epidemic:EpidemicLearning",
    "teleportation": "gossip.teleportation:Teleportation",
    "noloco": "outer.noloco:NoLoCo",
    "fedavg": "server.fedavg:FedAvg",
    "fedopt": "server.fedopt:FedOpt",
    "fedprox": "server.fedprox:FedProx",
    "scaffold": "server.scaffold:Scaffold",
    "fedtm": "server.fedtm:FedTM",
    "fedbuff": "server.fedbuff:FedBuff",
    "fedasync": "server.fedasync:FedAsync",
    "async_sgd": "server.async_sgd:AsyncSGD",
    "diloco": "outer.diloco:DiLoCo",
    "streaming_diloco": "outer.streaming_diloco:StreamingDiLoCo",
    "ring_all_reduce": "outer.ring_all_reduce:RingAllReduce",
    "token_saga": "walks.token_saga:TokenSaga",
    "digest": "walks.digest:Digest",
    "walkman": "walks.walkman:Walkman",
    "weighted_walk": "walks.weighted_walk:WeightedWalk",
    "tour": "walks.tour:Tour",
    "tram_fl": "walks.tram_fl:TramFL",
}

HINTS = {  # what may mean several of ours, or one with settings of the study: an error names the nearest
    "walk": "multi_walk",
    "gossip": "async_gossip",
    "dsgdm": "local_dsgd",
    "dfedavgm": "local_dsgd",
    "qg_dsgd": "qg_dsgdm",
    "bmuf": "slowmo",
    "mhlj": "weighted_walk",
}

BEGIN_WITH = {
    "multi_walk": "data sent is what counts: a walk sends one model an iteration",
    "async_gossip": "time is what counts, and nobody should wait for the slow",
    "sync_gossip": "rounds are wanted, as in most theory and most comparisons",
    "local_dsgd": "rounds are wanted, but seldom: several steps between two of them",
    "gradient_tracking": "nodes have very different data, and the exact optimum is wanted",
    "fedavg": "there is a server, and nodes train for a while between two rounds",
    "diloco": "models are large and rounds rare: hundreds of steps between two",
    "centralized": "you want to know what there is to gain: all data in one place",
}
"""The eight to begin with, and when to take each: one of each way to train together, known to most who compare."""

PROTOCOLS: Registry[type[Protocol]] = Registry(
    "algorithm",
    "an algorithm is a class that inherits walktalk.Protocol",
    lambda thing: isinstance(thing, type) and issubclass(thing, Protocol) and thing is not Protocol,
    absent=absent_protocol,
    elsewhere=HINTS,
    first=BEGIN_WITH,
)
"""The protocols that a specification can name."""
PROTOCOLS.add_unread({name: f"walktalk.protocols.{place}" for name, place in OURS.items()})


def class_called(name: str) -> type[Protocol] | None:
    """The class of ours of that name, such as AsyncGossip; None where there is none."""
    found = [key for key, place in OURS.items() if place.partition(":")[2] == name]
    return PROTOCOLS[found[0]] if found else None
