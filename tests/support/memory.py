"""How much memory this process has."""

from __future__ import annotations

import os
from pathlib import Path


def resident() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
