"""Drives runs to their end: in groups that fit into memory, in this process, in several, or on a Ray cluster."""

from walktalk.studies.driving.groups import fitting_groups, parse_memory
from walktalk.studies.driving.one_run import SGD, Adam, AdamW, Forecast, Optimizer, Run, forecast, train
from walktalk.studies.driving.process import Interrupted
from walktalk.studies.driving.run import run_study
from walktalk.studies.driving.runner import Runner, estimated_trainings, wave_policy

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Forecast",
    "Interrupted",
    "Optimizer",
    "Run",
    "Runner",
    "estimated_trainings",
    "fitting_groups",
    "forecast",
    "parse_memory",
    "run_study",
    "train",
    "wave_policy",
]
