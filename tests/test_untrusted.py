"""Whatever strangers send is taken, or refused, counted and named; nothing else comes of it."""

from __future__ import annotations

import contextlib
import json
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walktalk.core.untrusted import Boundary, Limits, Refused, parsed_json, shown

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=30,
)


@given(VALUES)
def test_what_keeps_to_the_limits_is_read_as_it_is(value: object) -> None:
    assert parsed_json(json.dumps(value)) == value
    assert parsed_json(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.binary(max_size=300) | st.text(max_size=300))
def test_anything_else_is_refused_and_raises_nothing_else(data: bytes | str) -> None:
    said: list[str] = []
    boundary = Boundary(lambda source, what, why: said.append(why))
    boundary("lyon", "anything", lambda: parsed_json(data), None)
    assert all(why.isprintable() for why in said)
    with contextlib.suppress(Refused):  # and no other exception
        parsed_json(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[" * 700 + b"]" * 700, "more than 32 brackets in brackets"),
        (b"[" * 500_000, "500,000 entries; at most 100,000"),
        (b"[" * 90_000, "brackets in brackets"),
        (b'{"a":' * 100_000, "brackets in brackets"),
        (b"[[]" + b",1" * 200_000 + b"]", "entries; at most 100,000"),
        (b"1" * 5000, "a number of 5,000 digits; at most 40"),
        (b"[NaN]", "NaN is no number"),
        (b'"' + b"x" * (1 << 21) + b'"', "bytes; at most 1,048,576"),
        (b"\xff\xfe", "no JSON"),
        (b"", "no JSON"),
    ],
)
def test_limits_come_before_any_work_and_are_named(data: bytes, said: str) -> None:
    began = time.process_time()
    with pytest.raises(Refused, match=said):
        parsed_json(data)
    assert time.process_time() - began < 0.5


def test_brackets_and_commas_in_strings_count_for_nothing() -> None:
    text = json.dumps(["[" * 1000 + ',"' * 50_000, "\\", "{"])
    assert parsed_json(text, Limits(depth=2, items=5)) == json.loads(text)


class Rude(Exception):
    """An error whose own words raise."""

    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    "error", [struct.error("x"), RecursionError(), KeyError("k"), MemoryError(), Exception("y"), Rude()]
)
def test_every_exception_is_refused_counted_and_named(error: Exception) -> None:
    said: list[tuple[str, str, str]] = []
    boundary = Boundary(lambda *words: said.append(words))

    def call() -> int:
        raise error

    assert boundary("lyon", "hello", call, 7) == 7
    assert boundary("lyon", "hello", lambda: 8, 7) == 8
    assert boundary.refused == {("lyon", "hello"): 1}
    assert boundary.by_source() == {"lyon": 1}
    assert [(source, what) for source, what, _ in said] == [("lyon", "hello")]


def test_a_planned_stop_goes_through() -> None:
    def call() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Boundary()("lyon", "hello", call, 0)


def test_what_takes_long_is_counted() -> None:
    boundary = Boundary()
    boundary("lyon", "hello", lambda: time.sleep(0.11), None)
    assert boundary.slow == {"lyon": 1}


def test_nothing_that_moves_a_terminal_is_shown() -> None:
    assert shown("\x1b[2Jgone\nfor\rever\u202e") == "[2Jgone for ever"
    assert len(shown("x" * 5000)) == 201
