"""What a study cost: time, speed and memory. Nothing of it is in the records, which are the same bytes everywhere."""

from __future__ import annotations

import sys
import time


class Took:
    """Looks at the clock when it is made."""

    def __init__(self) -> None:
        self.began = time.perf_counter()

    def words(self, steps: int) -> str:
        """So many steps of models since then, and the most memory that one process here had."""
        seconds = time.perf_counter() - self.began
        speed = f"{steps:,} steps of models in {seconds:,.1f} s, {steps / seconds:,.0f} a second"
        return ", ".join((speed, *memory()))


def memory() -> list[str]:
    """The most at a time: of this process or of one that it started and that has ended; and of this one's GPU."""
    import torch

    said = []
    if sys.platform != "win32":
        import resource

        unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
        most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        said.append(f"{most * unit / 1e9:.2f} GB of memory in a process")
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        said.append(f"{torch.cuda.max_memory_allocated() / 1e9:.2f} GB of the GPU's")
    return said
