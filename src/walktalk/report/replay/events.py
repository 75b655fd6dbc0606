"""A trace as the replay needs it: whole numbers in columns, texts as places in lists, and what belongs together linked.

Every row of the trace is one event here, in the same order. Kinds that look alike in a trace but not to a person are
told apart: a `combine` that adds an update, copies or mixes; a message with a model and one without; a message that is
lost and a neighbour that is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from walktalk.protocols import AGGREGATE, UPDATE

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
NONE = -1
SLOTS = ("combine", "encode", "decode")  # what sets a slot
STARTS = ("train", "differentiate")  # what `trained` ends


@dataclass(frozen=True)
class Events:
    """What happened, event by event; −1 where there is nothing to say."""

    kinds: tuple[str, ...]  # names; `kind` is a place in it
    kind: Ints
    time: Floats  # seconds
    node: Ints
    peer: Ints
    walk: Ints
    number: Ints  # the term, generation or round of what a protocol notes
    link: Ints  # of what ends (`trained`, `receive`, `lost`) the event with which it began
    text: Ints  # a place in `texts`: the slot of a combination, the kind and size of a message, a detail
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.kind)

    def of(self, *kinds: str) -> npt.NDArray[np.bool_]:
        """Which events are of these kinds; `send` stands for `send.control` too."""
        wanted = [i for i, name in enumerate(self.kinds) if name in kinds or name.split(".")[0] in kinds]
        return np.isin(self.kind, wanted)

    def counts(self) -> dict[str, int]:
        """How many events of each kind there are."""
        found = np.bincount(self.kind, minlength=len(self.kinds))
        return {name: int(count) for name, count in zip(self.kinds, found, strict=True) if count}

    def kept(self, which: npt.NDArray[np.bool_]) -> Events:
        """Only these; what began with an event that is left out has no link."""
        place = np.where(which, np.cumsum(which) - 1, NONE)
        link = np.where(self.link >= 0, place[self.link], NONE)
        columns = {name: getattr(self, name)[which] for name in ("kind", "time", "node", "peer", "walk", "number")}
        return Events(self.kinds, link=link[which], text=self.text[which], texts=self.texts, **columns)


def events_of(trace: pd.DataFrame) -> Events:
    """All events of a trace, simulated or real."""
    number = _ints(trace["number"])
    name = trace["event"].astype(str).to_numpy(object)
    slot, detail = trace["slot"].astype(str).to_numpy(object), trace["detail"].astype(str).to_numpy(object)
    link = _links(name, number)
    kind = _kinds(name, slot, detail, link)
    text = _texts(name, slot, detail, _ints(trace["bytes"]))
    kinds, kind_codes = np.unique(kind.astype(str), return_inverse=True)
    texts, text_codes = np.unique(text.astype(str), return_inverse=True)
    told = np.isin(name, [*STARTS, *SLOTS, "trained", "send", "receive", "record"]) | (link >= 0)
    return Events(
        kinds=tuple(str(word) for word in kinds),
        kind=kind_codes.astype(np.int64),
        time=np.maximum.accumulate(trace["time"].to_numpy(float)),  # clocks of machines differ
        node=_ints(trace["node"]),
        peer=_ints(trace["peer"]),
        walk=_walks(_ints(trace["walk"]), name, kind, link),
        number=np.where(told, NONE, number),
        link=link,
        text=np.where(text == "", NONE, text_codes).astype(np.int64),
        texts=tuple(str(word) for word in texts),
    )


def _ints(column: Any) -> Ints:
    values: Ints = column.to_numpy(np.int64)
    return values


def _links(name: Any, number: Ints) -> Ints:
    """The event with which each `trained`, `receive` and `lost` began: the last of its number before it."""
    link = np.full(len(name), NONE, dtype=np.int64)
    for first, last in ((STARTS, ("trained",)), (("send",), ("receive", "lost"))):
        begun: dict[int, int] = {}
        for index in np.flatnonzero(np.isin(name, [*first, *last])):
            if name[index] in first:
                begun[int(number[index])] = int(index)
            else:
                link[index] = begun.get(int(number[index]), NONE)
    return link


def _walks(walk: Ints, name: Any, kind: Any, link: Ints) -> Ints:
    """The walk that an event is about; walks are counted from 1, and what a record has there need not be one."""
    any_walk = bool((walk[np.isin(name, STARTS)] > 0).any())
    no_walk = (walk <= 0) | (kind == "record.aggregate") | ((name == "record") & (not any_walk))
    walk = np.where(no_walk, NONE, walk)
    return np.where((walk < 0) & (link >= 0), walk[link], walk)  # the event with which it began says which


def _kinds(name: Any, slot: Any, detail: Any, link: Ints) -> Any:
    kind = name.copy()
    kind[name == "combine"] = [f"combine.{_how(text)}" for text in detail[name == "combine"]]
    kind[name == "record"] = [
        f"record.{'aggregate' if text == AGGREGATE else 'member'}" for text in detail[name == "record"]
    ]
    kind[(name == "send") & (slot == "")] = "send.control"
    kind[(name == "receive") & (slot == "")] = "receive.control"
    kind[(name == "lost") & (link < 0)] = "lost.peer"
    return kind


@cache
def _how(detail: str) -> str:
    """What a combination of slots does; its detail says slot -> weight."""
    terms = [term for term in json.loads(detail) if ":" not in term] if detail.startswith("{") else []  # no statistics
    if UPDATE in terms:
        return "update"
    return "copy" if len(terms) <= 1 else "mix"


def _texts(name: Any, slot: Any, detail: Any, size: Ints) -> Any:
    """A combination's slot; a message's kind and bytes; of everything else the detail."""
    text = detail.copy()
    text[np.isin(name, [*STARTS, "trained", "receive", "record", "lost"])] = ""
    sets = np.isin(name, SLOTS)
    text[sets] = slot[sets]
    sent = np.flatnonzero(name == "send")
    text[sent] = [f"{_message(detail[i])}|{size[i]}" for i in sent]
    return text


@cache
def _message(detail: str) -> str:
    return str(json.loads(detail).get("kind", "")) if detail.startswith("{") else ""
