"""The one boundary for what comes from outside: neighbours, operators' answers, files, certificates, a person's YAML.

Whatever strangers say is decoded and handled inside of a `Boundary`, which turns every exception into "refused,
counted, named". Nobody behind it has to list exceptions, nobody in front of it handles bytes. An exception that is
raised by what a stranger sent says nothing about us, whatever its type: a library for certificates raises plain
`Exception`, `struct.error` is no `ValueError`, deep nesting ends in a `RecursionError`. How long something takes cannot
be limited from within, so it follows from limits of size, depth and number, which come before any work; what still
took long is counted.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from walktalk.core.errors import WalktalkError

T = TypeVar("T")
LONG = 0.1  # seconds: what a stranger sent has to be handled by then
# A string, or what follows a quotation mark that is never closed, so that each byte is looked at once.
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
BRACKET = re.compile(rb"[\[\]{}]")


class Refused(WalktalkError, ValueError):
    """What a stranger sent is not what it has to be; the message says in one printable line what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large what comes from outside may be, before it is looked at more closely."""

    size: int = 1 << 20  # bytes
    depth: int = 32  # of brackets in brackets
    items: int = 100_000  # lists, objects and commas in them
    digits: int = 40  # of a whole number: Python's own take quadratic time


USUAL = Limits()


REFUSE = object()


def parsed_json(data: bytes | str, limits: Limits = USUAL, nan: Any = REFUSE) -> Any:
    """What a text in JSON says, where it keeps to the limits; `Refused` where it does not, or is no JSON.

    Args:
        data: The text as it came.
        limits: How large it may be.
        nan: What NaN and the infinities become, which are no JSON; refused if left out.
    """
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if len(raw) > limits.size:
        raise Refused(f"{len(raw):,} bytes; at most {limits.size:,} are taken")
    _check_shape(raw, limits)
    try:
        constant = _no_number if nan is REFUSE else lambda word: nan
        return json.loads(raw, parse_int=lambda digits: _whole(digits, limits.digits), parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, Refused) else Refused(f"no JSON: {shown(error)}") from None


def _check_shape(raw: bytes, limits: Limits) -> None:
    """Raise `Refused` where brackets outside of strings stand too deep, or commas divide too many entries."""
    bare = STRING.sub(b"", raw)
    items = bare.count(b",") + bare.count(b"[") + bare.count(b"{")
    if items > limits.items:
        raise Refused(f"{items:,} entries; at most {limits.items:,} are taken")
    depth = 0
    for bracket in BRACKET.finditer(bare):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > limits.depth:
            raise Refused(f"more than {limits.depth} brackets in brackets, which is as deep as is taken")


def _whole(digits: str, most: int) -> int:
    if len(digits) > most:
        raise Refused(f"a number of {len(digits):,} digits; at most {most} are taken")
    return int(digits)


def _no_number(word: str) -> NoReturn:
    raise Refused(f"{word} is no number")


def shown(text: object, most: int = 200) -> str:
    """Somebody else's words as one printable line for a log, a complaint or a terminal: no escape sequences.

    Args:
        text: What came.
        most: How many characters of it are shown.
    """
    try:
        whole = (
            text
            if isinstance(text, str)
            else f"{type(text).__name__}: {text}"
            if isinstance(text, Exception) and not str(text)
            else str(text)
        )
    except Exception:  # whatever its own words raise
        whole = type(text).__name__
    line = "".join(sign if sign.isprintable() else " " for sign in whole[: most + 1]).strip()
    return f"{line[:most]}…" if len(whole) > most else line


def reading(what: str, call: Callable[[], T]) -> T:
    """What a call returns that reads a stranger's bytes; any exception becomes a `Refused` that names what it was.

    Args:
        what: What is read, as in "a certificate".
        call: Reads it.
    """
    try:
        return call()
    except Refused:
        raise
    except Exception as error:  # libraries raise what they like
        raise Refused(f"{what} that cannot be read: {shown(error)}") from error


class Boundary:
    """Calls what decodes and handles strangers' words; an exception is refused, counted and named, and goes no further.

    Args:
        refuse: Called with who sent it, what it was and why it was refused, as one printable line.
    """

    __slots__ = ("_refuse", "refused", "slow")

    def __init__(self, refuse: Callable[[str, str, str], None] | None = None) -> None:
        self._refuse = refuse
        self.refused: Counter[tuple[str, str]] = Counter()  # (who sent it, what it was) -> how often
        self.slow: Counter[str] = Counter()  # who sent what took longer than `LONG` -> how often

    def __call__(self, source: str, what: str, call: Callable[[], T], otherwise: T) -> T:
        """What a call returns; where it raises anything at all, that is noted and `otherwise` is returned."""
        began = time.perf_counter()
        try:
            return call()
        except Exception as error:
            self.refuse(source, what, error)
            return otherwise
        finally:
            if time.perf_counter() - began > LONG:
                self.slow[source] += 1

    def refuse(self, source: str, what: str, why: object) -> None:
        """Count and name something that was refused."""
        self.refused[source, what] += 1
        if self._refuse is not None:
            self._refuse(source, what, shown(why))

    def by_source(self) -> dict[str, int]:
        """How much was refused of everybody, by who sent it."""
        total: Counter[str] = Counter()
        for (source, _), times in self.refused.items():
            total[source] += times
        return dict(total)
