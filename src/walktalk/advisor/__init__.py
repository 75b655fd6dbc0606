"""The advisor: what a task is like, and so which algorithm, with how many walks, where and how fast."""

from walktalk.advisor.constants import QUICK, Constants, Effort, Estimate, estimate_constants

__all__ = ["QUICK", "Constants", "Effort", "Estimate", "estimate_constants"]
