"""From a specification to the things that it names, and the runs that are made of them."""

from walktalk.studies.building.build import (
    build_evaluate,
    build_faults,
    build_graph,
    build_protocols,
    build_rate,
    build_stop,
    build_task,
    build_timing,
    build_trainer,
    check_links,
    pick_device,
)
from walktalk.studies.building.foundation import (
    Foundation,
    Preparation,
    lay_foundation,
    planned_runs,
    prepare,
    prepare_on,
)
from walktalk.studies.building.given import GivenAlgorithm, GivenGraph, GivenTask, given_foundation
from walktalk.studies.building.match import matched
from walktalk.studies.building.runs import AlgorithmPlan, Conditions, PlannedRun, Progress, RunRecord
from walktalk.studies.building.travel import check_travels, travels

__all__ = [
    "AlgorithmPlan",
    "Conditions",
    "Foundation",
    "GivenAlgorithm",
    "GivenGraph",
    "GivenTask",
    "PlannedRun",
    "Preparation",
    "Progress",
    "RunRecord",
    "build_evaluate",
    "build_faults",
    "build_graph",
    "build_protocols",
    "build_rate",
    "build_stop",
    "build_task",
    "build_timing",
    "build_trainer",
    "check_links",
    "check_travels",
    "given_foundation",
    "lay_foundation",
    "matched",
    "pick_device",
    "planned_runs",
    "prepare",
    "prepare_on",
    "travels",
]
