"""In CI the same examples every time, so that a change fails for its own sake; elsewhere new ones in every run.

Figures take most of the time of a small study: they are drawn only where a test asks for them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.drawing import drawing
from walktalk.core import cpu as core_cpu

settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(scope="session", autouse=True)
def undrawn() -> Iterator[None]:
    """Reports that are written in this process have no figures."""
    with drawing(False):
        yield


@pytest.fixture
def drawn() -> Iterator[None]:
    """But in this test they have."""
    with drawing():
        yield


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Pretends to be a Linux machine whose CPU says this of itself; nothing is set for it yet."""

    def be(**said: str) -> None:
        lines = "".join(f"{key}\t: {words}\n" for key, words in {"processor": "0", **said}.items())
        (tmp_path / "cpuinfo").write_text(lines)
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setattr(core_cpu, "FILE", tmp_path / "cpuinfo")

    for variable in (core_cpu.ONEDNN_VARIABLE, core_cpu.MKL_VARIABLE):
        monkeypatch.setenv(variable, "")  # so that what is set here goes away afterwards
        monkeypatch.delenv(variable)
    return be
