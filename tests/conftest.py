"""In CI the same examples every time, so that a change fails for its own sake; elsewhere new ones in every run.

Figures take most of the time of a small study: they are drawn only where a test asks for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.drawing import drawing

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
