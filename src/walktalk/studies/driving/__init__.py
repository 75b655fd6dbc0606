"""Drives runs to their end: in groups that fit into memory, in this process, in several, or on a Ray cluster."""

from walktalk.studies.driving.forecasting import Forecast, forecast
from walktalk.studies.driving.groups import fitting_groups, parse_memory
from walktalk.studies.driving.one_run import SGD, Adam, AdamW, Optimizer, Run, train
from walktalk.studies.driving.run import (
    Preparation,
    StudyResult,
    build_trainer,
    pick_device,
    planned_runs,
    prepare,
    run_study,
    write_results,
)
from walktalk.studies.driving.runner import Runner, estimated_trainings, named_tensors
from walktalk.studies.driving.surroundings import Interrupted

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Forecast",
    "Interrupted",
    "Optimizer",
    "Preparation",
    "Run",
    "Runner",
    "StudyResult",
    "build_trainer",
    "estimated_trainings",
    "fitting_groups",
    "forecast",
    "named_tensors",
    "parse_memory",
    "pick_device",
    "planned_runs",
    "prepare",
    "run_study",
    "train",
    "write_results",
]
