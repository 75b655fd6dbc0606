"""Events as few bytes: about five each in place of a hundred as JSON, so that a whole run fits into a page.

An event is the place of its kind, in one byte; the highest bit says that time and node are those of the event before.
Else follow the ticks since then and the node. Then come the fields of its form, all as variable-length integers (seven
bits a byte, the lowest first), numbers that may be −1 one higher. The page's script reads the same (`web/replay`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from walktalk.report.replay.events import NONE, Events

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
