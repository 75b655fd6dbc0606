"""From a specification to the things that it names, and the runs that are made of them."""

from walktalk.studies.building.build import (
    AlgorithmPlan,
    build_evaluate,
    build_faults,
    build_graph,
    build_protocols,
    build_schedule,
    build_stop,
    build_task,
    build_timing,
    check_links,
)
from walktalk.studies.building.runs import PlannedRun, Progress, RunRecord

__all__ = [
    "AlgorithmPlan",
    "PlannedRun",
    "Progress",
    "RunRecord",
    "build_evaluate",
    "build_faults",
    "build_graph",
    "build_protocols",
    "build_schedule",
    "build_stop",
    "build_task",
    "build_timing",
    "check_links",
]
