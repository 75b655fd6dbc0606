"""Tasks, one a file; `torch` takes one's own."""

from walktalk.learning.tasks.digits import digits
from walktalk.learning.tasks.own import torch
from walktalk.learning.tasks.quadratic import QuadraticFacts, quadratic
from walktalk.learning.tasks.registry import TASKS, build, settings_of

__all__ = ["TASKS", "QuadraticFacts", "build", "digits", "quadratic", "settings_of", "torch"]
