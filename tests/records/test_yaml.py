"""YAML of anybody: values, or one line with the place of the mistake; never more work than its length is worth."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walktalk.core.errors import SpecError
from walktalk.records import yaml_text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: !!int x", "line 1, column 4: not valid YAML: x is no int"),
        ("a: 2020-13-01", "2020-13-01 is no timestamp: month must be in 1..12"),
        ("a: !!timestamp x", "x is no timestamp"),
        ("b: 1\na: " + "[" * 5000, "line 2, column 68: .*at most 64 are possible"),
        ("- " * 5000, "at most 64 are possible"),
        ("a: &a [*a]", "more than 100,000 values"),
        ("\n".join(["a0: &a0 [1]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40))]), "100,000 values"),
        ("x" * (1 << 21), "2,097,152 characters of YAML; at most 1,048,576"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
    ],
)
def test_what_cannot_be_is_said_in_one_line_and_at_once(text: str, said: str) -> None:
    began = time.process_time()
    with pytest.raises(SpecError, match=said) as error:
        yaml_text.parse(text, "study.yaml")
    assert "\n" not in str(error.value)
    assert time.process_time() - began < 0.2


def test_aliases_are_what_they_stand_for() -> None:
    assert yaml_text.parse("a: &x {b: 1e-4}\nc: [*x, *x]", "study.yaml") == {"a": {"b": 1e-4}, "c": [{"b": 1e-4}] * 2}


@given(st.text(st.sampled_from("ab1-:[]{}&*!|>?,'\"#\n %@`\\\t"), max_size=60))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    with contextlib.suppress(SpecError):
        yaml_text.parse(text, "study.yaml")
