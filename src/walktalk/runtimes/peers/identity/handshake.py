"""What two nodes compare when they meet: their studies, their lives, and whether two have one name.

A node of another model's width would swallow walks, and one of another learning rate, task or seed would go unnoticed.
So the first words between two lives of neighbours are a *hello*: the facts that must be the same on both sides (the
model's width and a few numbers of the initial one, the algorithm and its settings, graph, data, optimizer), and the
versions of messages that the node speaks (`wire.versions`). What follows from it is in `neighbours`.

A node's life is a number that grows with every start, whatever the clock of its machine says. Neighbours tell a new
message from a replayed one by it, so a node whose clock was set back would be mute if it were the time alone. The last
one is written down in the node's folder; where that is gone, the time will do.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walktalk import __version__
from walktalk.core.errors import StudyError
from walktalk.core.untrusted import Limits, parsed_json, shown
from walktalk.core.wall_clock import wall_nanoseconds
from walktalk.records import write_text
from walktalk.runtimes.peers.wire.versions import MESSAGES, SETTINGS, Span, span_in, why_not_understood

HELLO_KIND = "hello"
FACTS_AT_MOST = 1 << 16  # bytes of facts
LONGEST_PROOF = 2048  # characters of a signed life
HELLO = Limits(size=FACTS_AT_MOST, depth=16, items=4096)
LONGEST_FACT = 60  # characters of a fact that is said in full
ABOUT_AT_MOST = 16  # things that a node says of itself which need not be the same
LONGEST_ABOUT = 100  # characters of each
CLOSE = 1e-3  # by how much numbers of the initial model may differ: not every processor adds up in the same order
IN_CHECKPOINT = ("width", "algorithm", "network", "task")  # what a node's own past must have in common with it


class Hello(NamedTuple):
    """The first message of a node to a neighbour; keys of a later version beside these are no error."""

    facts: dict[str, Any]
    met: bool = False  # whether it has heard the other's
    knows: bool = False  # whether it knows of an earlier life of the other
    life: str = ""  # its own life, signed, in hexadecimal digits; "" without certificates
    speaks: Span | None = None  # the versions that it speaks; None: that of its facts alone
    about: Mapping[str, str] = {}  # what it says of itself and need not be the same, such as its `walktalk`
    schema: Mapping[str, Any] = {}  # the form of its data (`learning.schema`); empty where it is not known


def facts_of(study: Mapping[str, Any], initial: Tensor, frozen: Sequence[float] | None = None) -> dict[str, Any]:
    """All that must be the same on the nodes of a cluster, by name.

    - `study`: what the study says, key by key; what is long is said by its digest.
    - `initial`: the initial model.
    - `frozen`: a few numbers of what is frozen and never sent; adapters to one base are nothing to another.
    """
    waves = torch.cos(torch.arange(initial.numel(), dtype=torch.float64))
    numbers = [float(initial.norm()), float(initial.double() @ waves)]
    told: dict[str, Any] = {"version": MESSAGES.oldest, "width": initial.numel(), "initial model": numbers}
    if frozen is not None:
        told["frozen weights"] = list(frozen)
    known = {key: value for key, value in study.items() if key not in SETTINGS or value != SETTINGS[key]}
    return told | {key: _short(value) for key, value in known.items()}


def about_this_node(**more: str) -> dict[str, str]:
    """What a node says of itself that need not be the same on both sides.

    - `more`: beside its version of walktalk.
    """
    return {"walktalk": __version__, **more}


def encode_hello(hello: Hello) -> bytes:
    """Write a hello as the note of a message."""
    said = hello._asdict()
    if hello.speaks is None:
        del said["speaks"]
    return zlib.compress(json.dumps(said, sort_keys=True).encode(), 9)


def decode_hello(note: bytes) -> Hello:
    """Read a hello; `ValueError` where the note is none."""
    try:
        content = parsed_json(zlib.decompressobj().decompress(note, FACTS_AT_MOST), HELLO, nan=math.nan)
        facts, met, knows = content["facts"], content["met"], content["knows"]
        life = str(content.get("life", ""))[:LONGEST_PROOF]
        speaks, about = span_in({**facts, **content}), _about(content.get("about"))
    except Exception as error:  # a stranger has sent it
        raise ValueError(f"not a hello: {shown(error)}") from error
    if not isinstance(facts, dict):
        raise ValueError("not a hello: it has no facts")
    schema = content.get("schema")
    return Hello(facts, bool(met), bool(knows), life, speaks, about, schema if isinstance(schema, dict) else {})


def _about(said: Any) -> dict[str, str]:
    """What a neighbour says of itself, as far as it is texts."""
    pairs = said.items() if isinstance(said, dict) else ()
    texts = [(shown(key, LONGEST_ABOUT), shown(text, LONGEST_ABOUT)) for key, text in pairs if isinstance(text, str)]
    return dict(texts[:ABOUT_AT_MOST])


def objections(facts: Mapping[str, Any], hello: Hello) -> list[str]:
    """Say in words why a node cannot work with whoever says such a hello: its versions, or another study.

    - `facts`: the node's own.
    """
    why = why_not_understood(MESSAGES, hello.speaks, hello.about.get("walktalk", ""))
    return [why] if why else differences(facts, hello.facts)


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """Say in words what of two studies is not the same here and there; versions are no part of them."""
    keys = [key for key in (*here, *(key for key in there if key not in here)) if key != "version"]
    return [
        f"{key} is {_shown(there.get(key))} there and {_shown(here.get(key))} here"
        for key in keys
        if not _same(here.get(key), there.get(key))
    ]


def differences_of_the_past(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """Say what a checkpoint has not in common with the study of now; learning rate and end may differ."""
    keys = [key for key in now if key.partition(".")[0] in IN_CHECKPOINT and key in then]
    return [
        f"{key} was {_shown(then[key])} and is {_shown(now[key])}" for key in keys if not _same(now[key], then[key])
    ]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE) or one == other
    return bool(one == other)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value[:4])) + "]"
    return f"{value:g}" if isinstance(value, float) else "nothing" if value is None else shown(value, 2 * LONGEST_FACT)


def _short(value: Any) -> Any:
    if isinstance(value, bool | int | float) or value is None:
        return repr(value) if isinstance(value, float) else value  # a learning rate is the same or it is not
    text = str(value)
    for name, default in SETTINGS.items():  # of an algorithm, those that older versions do not know
        kind, _, setting = name.partition(".")
        if kind == type(value).__name__:
            text = text.replace(f", {setting}={default!r}", "").replace(f"({setting}={default!r}, ", "(")
    if len(text) <= LONGEST_FACT:
        return text
    return f"{text[: LONGEST_FACT // 2]}… ({hashlib.blake2b(text.encode(), digest_size=4).hexdigest()})"


# -- lives ------------------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

NAME = "life"


def next_life(folder: Path) -> int:
    """The number of a new life: one more than the last in this folder, and no less than the time in nanoseconds."""
    life = wall_nanoseconds()
    with suppress(OSError, ValueError):
        life = max(life, int((folder / NAME).read_text()) + 1)
    remember_life(folder, life)
    return life


def remember_life(folder: Path, life: int) -> None:
    """Write down a life that was begun here, or that neighbours have heard of: the next one will be later."""
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, f"{life}\n")
    except (OSError, StudyError) as error:
        log.warning("%s cannot be written (%s): after the clock is set back, neighbours may not listen", path, error)


# -- two nodes of one name --------------------------------------------------------------------------------------------

STRAY = 3.0  # seconds in which words of a node that was started again may still be on their way
LATELY = 10.0  # seconds after the last of them in which it counts
PAUSE = 1.0  # seconds between two answers to one name


def duplicate_name(name: str) -> str:
    """The complaint that two nodes have one name."""
    return f"two nodes are called {name}, and the one that began first is not heard; stop both, and start the right one"


@dataclass
class _Heard:
    first: float
    last: float
    answered: float = 0.0


class DuplicateNames:
    """What one link hears of nodes with the same name; callable from any thread.

    A machine was copied, or a node was started twice in two places. Neighbours listen to the one that began later and
    drop what the other says as of a life that is over. So nobody is confused for long, but the older one is mute, and
    what is sent to the name comes to both. A walk goes on with the one that is heard: only its acknowledgement counts,
    and what the older one passes on is dropped; so none is lost, and none doubled.

    Who drops such messages complains, and tells the name; the node that hears of a later life of its own complains too.
    So does one whose folder is gone and whose clock was set back. Nobody is believed further than that: one lie is a
    complaint, no more. But a node of which most neighbours say so stands aside, as if it were gone: those that reach it
    alone would send it walk after walk, and none would ever go on. With certificates they must show what the later life
    has signed with this node's own key, so that no number of lies makes it stand aside.
    """

    def __init__(self, own: int) -> None:
        """own: the number of this node's life."""
        self._own = own
        self._older: dict[int, _Heard] = {}  # by neighbour: words of an earlier life
        self._behind = -LATELY  # when this node was last told of a later life of its own
        self.later = 0  # that life
        self.proved = 0  # the latest life of this node that was signed with its key
        self._told: dict[int, float] = {}  # by neighbour: when it said so last

    def dropped(self, sender: int) -> bool:
        """A message of an earlier life of this neighbour was dropped; returns whether to tell it."""
        now = time.monotonic()
        heard = self._older.get(sender)
        if heard is None or now > heard.last + LATELY:
            heard = self._older[sender] = _Heard(now, now)
        heard.last = now
        if now < max(heard.first + STRAY, heard.answered + PAUSE):
            return False
        heard.answered = now
        return True

    def told(self, life: int, sender: int = -1) -> bool:
        """A neighbour has heard of such a life of this node; returns whether that is news."""
        if life <= self._own or life >= 1 << 63:
            return False
        self._told[sender] = time.monotonic()
        new = not self.is_behind
        self._behind, self.later = time.monotonic(), max(self.later, life)
        return new

    @property
    def is_behind(self) -> bool:
        """Whether neighbours have lately said that they listen to a later life of this node."""
        return time.monotonic() < self._behind + LATELY

    @property
    def sayers(self) -> list[int]:
        """Neighbours that have lately said so."""
        return sorted(peer for peer, at in tuple(self._told.items()) if time.monotonic() < at + LATELY)

    def is_outvoted(self, alive: Collection[int]) -> bool:
        """Whether most of these neighbours have lately said that they listen to a later life."""
        since = time.monotonic() - LATELY
        saying = sum(self._told.get(peer, -math.inf) > since for peer in alive)
        return 2 * saying > len(alive)

    def doubled(self) -> list[int]:
        """Neighbours whose name two nodes have."""
        since = time.monotonic() - LATELY
        lately = {peer: heard for peer, heard in tuple(self._older.items()) if heard.last > since}
        return [peer for peer, heard in lately.items() if heard.last >= heard.first + STRAY]
