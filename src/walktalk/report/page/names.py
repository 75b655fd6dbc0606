"""What an algorithm is called on the page, and what it is in a line: for somebody who has never heard of it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from walktalk.plots import title_of
from walktalk.protocols import Protocol
from walktalk.studies import StudySpec

GOSSIP = {
    "pairwise": ("Gossip in pairs", "Every node trains its own model and averages it with one random neighbour."),
    "neighbourhood": ("Gossip with neighbours", "Every node trains its own model and averages it with all neighbours."),
    "matrix": ("Gossip with everybody", "After every single training all nodes mix their models; for theory only."),
}


class Name(NamedTuple):
    """An algorithm in words."""

    name: str  # "4 walks"
    paper: str  # "MW, R=4"
    description: str  # what it does, in a sentence


def names_of(spec: StudySpec) -> dict[str, Name]:
    """A name for each algorithm of a study, by its label; no two the same."""
    named = {a.title: _name(a.protocol(), a.title, a.label, a.lr) for a in spec.algorithms}
    often = Counter(name.name for name in named.values())
    return {
        label: name._replace(name=f"{name.name} ({name.paper})") if often[name.name] > 1 else name
        for label, name in named.items()
    }


def within(name: str) -> str:
    """The name as it stands within a sentence: "one walk", but "ADMM"."""
    return name[0].lower() + name[1:] if name[1:2].islower() else name


def _name(protocol: Protocol, title: str, label: str | None, lr: float | None) -> Name:
    name, description = _words(protocol)
    if lr is not None:
        name = f"{name}, learning rate {lr:g}"
    return Name(label or name, title_of(title), description)


def _words(protocol: Protocol) -> tuple[str, str]:
    walks = getattr(protocol, "walks", None)
    if walks == 1:
        return "One walk", "One model wanders from node to node and is trained on the data of each."
    if walks is not None:
        mixed = f"{walks} models wander from node to node, trained on the data of each and mixed at one node."
        return f"{walks} walks", mixed
    mixing = getattr(protocol, "mixing", None)
    if mixing in GOSSIP:
        return GOSSIP[mixing]
    if protocol.name == "sync_gossip":
        return "Gossip in rounds", "Every node trains, then all wait for their neighbours and average with them."
    if protocol.pools_data:
        return "All data in one place", "No network at all: one model is trained on everybody's data, to compare with."
    return title_of(protocol.label), (type(protocol).__doc__ or "").partition("\n")[0]
