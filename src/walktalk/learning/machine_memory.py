"""How much memory this process may still take."""

from __future__ import annotations

from pathlib import Path


def machine_memory() -> float:
    """Bytes, of the machine and of the container; infinity where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    free = {line.split(":")[0]: 1024.0 * int(line.split()[1]) for line in lines}
    return min(free.get("MemAvailable", float("inf")), _container_limit())


def _container_limit() -> float:
    """What a container leaves this process."""
    folder = Path("/sys/fs/cgroup")
    try:
        return float((folder / "memory.max").read_text()) - float((folder / "memory.current").read_text())
    except (OSError, ValueError):
        return float("inf")
