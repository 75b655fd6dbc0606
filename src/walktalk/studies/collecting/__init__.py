"""From a cluster to one folder with its model, as any study leaves it: what `walktalk collect` does. Needs Zenoh."""

from walktalk.studies.collecting.at_the_end import run_and_collect
from walktalk.studies.collecting.collect import Collected, collect
from walktalk.studies.collecting.taking_part import Participant

__all__ = ["Collected", "Participant", "collect", "run_and_collect"]
