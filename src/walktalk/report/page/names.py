"""What an algorithm is called on the page, and what it is in a line: for somebody who has never heard of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from walktalk.protocols import Described


class Name(NamedTuple):
    """An algorithm in words."""

    name: str  # "4 walks"
    label: str  # in files and folders
    description: str  # what it does, in a sentence


def names_of(algorithms: Mapping[str, Described]) -> dict[str, Name]:
    """A name for each algorithm of a study, by its label; no two the same."""
    return {label: Name(one.heading, label, one.description) for label, one in algorithms.items()}


def within(name: str) -> str:
    """The name as it stands within a sentence: "one walk", but "ADMM" and "FedAdam"."""
    first = name.partition(" ")[0]
    return name[0].lower() + name[1:] if first[1:].islower() else name
