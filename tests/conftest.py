"""In CI the same examples every time, so that a change fails for its own sake; elsewhere new ones in every run."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")
