"""What this machine can do for walktalk, and what is missing: each finding with what to do about it."""

from walktalk.doctor.checkup import checkup
from walktalk.doctor.finding import Finding, State
from walktalk.lazy import listing

__all__ = ["Finding", "State", "checkup"]

__dir__ = listing(__all__)
