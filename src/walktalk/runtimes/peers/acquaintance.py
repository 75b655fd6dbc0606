"""Two nodes that meet: each says what its study is, and neither listens to one whose study is another.

A node of another model's width would swallow walks, and one of another learning rate, task or seed would go unnoticed.
So the first words between two lives of neighbours are a *hello*: the facts that must be the same on both sides (the
version of what nodes say to each other, the model's width and a few numbers of the initial one, the algorithm and its
settings, graph, data, optimizer). What follows from it is in `neighbours`.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

KIND = "hello"
VERSION = 6
"""Of all that nodes say to each other, but for this message: it goes up where another version would not understand."""

AT_MOST = 1 << 16  # bytes of facts
LONGEST = 60  # characters of a fact that is said in full
CLOSE = 1e-3  # by how much numbers of the initial model may differ: not every processor adds up in the same order
IN_CHECKPOINT = (
    "version",
    "width",
    "algorithm",
    "network",
    "task",
)  # what a node's own past must have in common with it


class Hello(NamedTuple):
    """What a node says first."""

    facts: dict[str, Any]
    met: bool = False  # whether it has heard the other's
    knows: bool = False  # whether it knows of an earlier life of the other


def facts_of(study: Mapping[str, Any], initial: Tensor, frozen: Sequence[float] | None = None) -> dict[str, Any]:
    """All that must be the same.

    - `study`: what the study says, key by key; what is long is said by its digest.
    - `initial`: the initial model.
    - `frozen`: a few numbers of what is frozen and never sent; adapters to one base are nothing to another.
    """
    waves = torch.cos(torch.arange(initial.numel(), dtype=torch.float64))
    numbers = [float(initial.norm()), float(initial.double() @ waves)]
    told: dict[str, Any] = {"version": VERSION, "width": initial.numel(), "initial model": numbers}
    if frozen is not None:
        told["frozen weights"] = list(frozen)
    return told | {key: _short(value) for key, value in study.items()}


def encode(hello: Hello) -> bytes:
    """As the note of a message."""
    return zlib.compress(json.dumps(hello._asdict(), sort_keys=True).encode(), 9)


def decode(note: bytes) -> Hello:
    """Back again; `ValueError` where it is none."""
    try:
        text = zlib.decompressobj().decompress(note, AT_MOST)
        content = json.loads(text)
        facts, met, knows = content["facts"], content["met"], content["knows"]
    except (zlib.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not a hello: {error}") from error
    if not isinstance(facts, dict):
        raise ValueError("not a hello: it has no facts")
    return Hello(facts, bool(met), bool(knows))


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """What is not the same, in words."""
    keys = [*here, *(key for key in there if key not in here)]
    return [
        f"{key} is {_said(there.get(key))} there and {_said(here.get(key))} here"
        for key in keys
        if not _same(here.get(key), there.get(key))
    ]


def differences_of_the_past(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """What a checkpoint has not in common with the study of now; it may have been another's learning rate, or end."""
    keys = [key for key in now if key.partition(".")[0] in IN_CHECKPOINT and key in then]
    return [f"{key} was {_said(then[key])} and is {_said(now[key])}" for key in keys if not _same(now[key], then[key])]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE) or one == other
    return bool(one == other)


def _said(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_said, value[:4])) + "]"
    return f"{value:g}" if isinstance(value, float) else "nothing" if value is None else str(value)[: 2 * LONGEST]


def _short(value: Any) -> Any:
    if isinstance(value, bool | int | float) or value is None:
        return repr(value) if isinstance(value, float) else value  # a learning rate is the same or it is not
    text = str(value)
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}… ({hashlib.blake2b(text.encode(), digest_size=4).hexdigest()})"
