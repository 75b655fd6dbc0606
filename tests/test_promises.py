"""Each promise of docs/security.md and docs/failures.md names tests that hold it, and these tests are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("security.md", "failures.md")
SECTION = "## The test behind each promise"


def rows(page: str) -> dict[str, list[tuple[str, str]]]:
    """By promise, the tests that are named: file and function; `::name` is of the file before."""
    section = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(SECTION)[2].partition("\n## ")[0]
    found: dict[str, list[tuple[str, str]]] = {}
    for line in section.splitlines():
        if not line.startswith("| ") or line.startswith(("| promise", "| ---")):
            continue
        _, promise, told, _ = (cell.strip() for cell in line.split("|"))
        tests, file = [], ""
        for word in re.findall(r"`([^`]+)`", told):
            place, _, name = word.partition("::")
            file = place or file
            tests.append((file, name))
        found[promise] = tests
    return found


@cache
def functions(file: str) -> frozenset[str]:
    """The tests in a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(one.name for one in tree.body if isinstance(one, ast.FunctionDef))


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_has_a_test_and_every_test_is_there(page: str) -> None:
    promises = rows(page)
    assert len(promises) >= 20
    for promise, tests in promises.items():
        assert tests, promise
        for file, name in tests:
            assert name in functions(file), f"{promise}: {file} has no {name}"
