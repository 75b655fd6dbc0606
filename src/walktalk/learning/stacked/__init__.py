"""Many models of one architecture, computed at once."""

from walktalk.learning.stacked import fused
from walktalk.learning.stacked.alone import LoneModel
from walktalk.learning.stacked.by_numpy import one_thread
from walktalk.learning.stacked.chain import ChainModel
from walktalk.learning.stacked.choice import EachByItself, active_dropouts, stack, use
from walktalk.learning.stacked.joined import JoinedModel
from walktalk.learning.stacked.laid import Pass
from walktalk.learning.stacked.layout import RowLayout
from walktalk.learning.stacked.model import RowByRow, StackedModel, TracedModel, VmapModel, row_losses
from walktalk.learning.stacked.sequential import SequentialModel, seeded
from walktalk.learning.stacked.written import WrittenModel

__all__ = [
    "ChainModel",
    "EachByItself",
    "JoinedModel",
    "LoneModel",
    "Pass",
    "RowByRow",
    "RowLayout",
    "SequentialModel",
    "StackedModel",
    "TracedModel",
    "VmapModel",
    "WrittenModel",
    "active_dropouts",
    "fused",
    "one_thread",
    "row_losses",
    "seeded",
    "stack",
    "use",
]
