"""What Linux says of the CPU, for whoever must know before torch does."""

from __future__ import annotations

import sys
from pathlib import Path

FILE = Path("/proc/cpuinfo")


def cpu_says(key: str) -> str:
    """What stands behind this word in the first line that begins with it; "" where nobody tells.

    key: such as `vendor_id` or `flags`.
    """
    if not sys.platform.startswith("linux"):
        return ""
    try:
        with FILE.open() as lines:
            found = next((line for line in lines if line.startswith(key)), "")
    except OSError:
        return ""
    return found.partition(":")[2].strip()
