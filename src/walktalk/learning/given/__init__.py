"""Data as people have it: arrays, frames, datasets, loaders, dictionaries; each becomes a `Part`."""

from walktalk.learning.given.adapter import (
    Adapter,
    accepted_by,
    inner,
    loss_and_rest,
    named_output,
    names_of_labels,
    way_to_call,
)
from walktalk.learning.given.forms import is_columns, is_frame, part_of
from walktalk.learning.given.gaps import Gap, gap_in, named_target
from walktalk.learning.given.outputs import Form
from walktalk.learning.given.packing import Packing
from walktalk.learning.given.part import Choice, Given, InMemory, OnDemand, Part
from walktalk.learning.given.sites import Source, chosen, sources_of

__all__ = [
    "Adapter",
    "Choice",
    "Form",
    "Gap",
    "Given",
    "InMemory",
    "OnDemand",
    "Packing",
    "Part",
    "Source",
    "accepted_by",
    "chosen",
    "gap_in",
    "inner",
    "is_columns",
    "is_frame",
    "loss_and_rest",
    "named_output",
    "named_target",
    "names_of_labels",
    "part_of",
    "sources_of",
    "way_to_call",
]
