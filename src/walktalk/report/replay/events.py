"""A trace as the replay needs it: whole numbers in columns, texts as places in lists, and what belongs together linked.

Every row of the trace is one event here, in the same order. Kinds that look alike in a trace but not to a person are
told apart: a `combine` that adds an update, copies or mixes; a message with a model and one without; a message that is
lost and a neighbour that is.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
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


# -- events as bytes: about five each in place of a hundred as JSON, so that a whole run fits into a page --------------
#
# An event is the place of its kind, in one byte; the highest bit says that time and node are those of the event before.
# Else follow the ticks since then and the node. Then come the fields of its form, all as variable-length integers
# (seven bits a byte, the lowest first), numbers that may be −1 one higher. The page's script reads the same
# (`web/replay/decode.js`).

TICKS_A_GAP = 64  # what a mean time between two events is cut into: finer than anybody can see
SAME = 0x80  # same time and node as the event before
FORMS: dict[str, tuple[str, ...]] = {
    "train": ("walk",),
    "differentiate": ("walk",),
    "trained": ("back",),
    "send": ("peer", "walk", "text"),
    "receive": ("back",),
    "lost": ("back",),
    "combine": ("text",),
    "encode": ("text",),
    "decode": ("text",),
    "record": ("walk",),
}
FORM = ("peer", "walk", "number", "text")  # of all others


def form_of(kind: str) -> tuple[str, ...]:
    """Which fields an event of this kind has; `back` is how many events ago it began."""
    return FORM if kind == "lost.peer" else FORMS.get(kind.split(".")[0], FORM)


def encode(events: Events) -> dict[str, Any]:
    """The events as JSON can hold them: `bytes` in base64, and what is needed to read them."""
    if len(events.kinds) >= SAME:
        raise ValueError(f"{len(events.kinds)} kinds of events, but at most {SAME - 1} can be told apart")
    gaps = int(np.count_nonzero(np.diff(events.time, prepend=0.0)))
    span = float(events.time[-1]) if len(events) else 0.0
    tick = max(span / max(gaps, 1) / TICKS_A_GAP, span / 2**40, 1e-12)
    return {
        "count": len(events),
        "tick": tick,
        "kinds": [{"name": name, "form": list(form_of(name))} for name in events.kinds],
        "texts": list(events.texts),
        "bytes": base64.b64encode(_bytes(events, tick)).decode(),
    }


def _bytes(events: Events, tick: float) -> bytes:
    out = bytearray()
    ticks = np.maximum.accumulate(np.round(events.time / tick).astype(np.int64)).tolist()
    forms = [form_of(name) for name in events.kinds]
    columns = {name: getattr(events, name).tolist() for name in ("peer", "walk", "number", "text", "link")}
    now, here = 0, NONE
    for index, (kind, at, node) in enumerate(zip(events.kind.tolist(), ticks, events.node.tolist(), strict=True)):
        if at == now and node == here and index:
            out.append(kind | SAME)
        else:
            out.append(kind)
            _put(out, at - now)
            _put(out, node + 1)
        now, here = at, node
        for field in forms[kind]:
            if field != "back":
                _put(out, columns[field][index] + 1)
                continue
            link = columns["link"][index]
            _put(out, index - link if link >= 0 else 0)
            if link < 0:  # its beginning is not here: it says itself what that would have said
                _put(out, columns["peer"][index] + 1)
                _put(out, columns["walk"][index] + 1)
    return bytes(out)


def _put(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def decode(coded: dict[str, Any]) -> Events:
    """The events again; times to the nearest tick."""
    names = [kind["name"] for kind in coded["kinds"]]
    rows = list(_rows(base64.b64decode(coded["bytes"]), [kind["form"] for kind in coded["kinds"]], coded["count"]))
    table = np.array(rows, dtype=np.int64).reshape(-1, 8).T
    kind, ticks, node, peer, walk, number, link, text = table
    return Events(
        tuple(names), kind, ticks * coded["tick"], node, peer, walk, number, link, text, tuple(coded["texts"])
    )


def _rows(data: bytes, forms: Sequence[Sequence[str]], count: int) -> Iterator[list[int]]:
    stream = iter(data)
    seen: list[list[int]] = []
    now, here = 0, NONE
    for index in range(count):
        first = next(stream)
        kind = first & ~SAME
        if not first & SAME:
            now += _take(stream)
            here = _take(stream) - 1
        said = dict.fromkeys(("peer", "walk", "number", "link", "text"), NONE)
        for field in forms[kind]:
            value = _take(stream)
            if field != "back":
                said[field] = value - 1
            elif value:
                begun = seen[index - value]
                said["link"], said["walk"] = index - value, begun[4]
                said["peer"] = begun[2] if begun[3] >= 0 else NONE  # the other end of a message; a training has none
            else:
                said["peer"], said["walk"] = _take(stream) - 1, _take(stream) - 1
        row = [kind, now, here, *(said[name] for name in ("peer", "walk", "number", "link", "text"))]
        seen.append(row)
        yield row


def _take(stream: Iterator[int]) -> int:
    value = shift = 0
    for byte in stream:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise ValueError("the events end too early")
