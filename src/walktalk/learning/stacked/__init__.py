"""Many models of one architecture, computed at once."""

from walktalk.learning.stacked.layout import RowLayout
from walktalk.learning.stacked.model import StackedModel, TracedModel, VmapModel, row_losses, stack

__all__ = ["RowLayout", "StackedModel", "TracedModel", "VmapModel", "row_losses", "stack"]
