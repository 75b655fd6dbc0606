"""The algorithms of a study as plain data: whoever has this needs neither the protocols nor their labels.

It goes into a study's `summary.json`, so that figures and page know an algorithm again years later, when the plug-in
that it came with is gone.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from walktalk.core.errors import SettingError
from walktalk.core.plugins import REGISTRIES
from walktalk.protocols.machine import Machine, NetworkView, Protocol

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
    chosen = distinct({one.label: one.colour for one in titled})
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
