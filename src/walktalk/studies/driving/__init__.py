"""Drives runs to their end: in groups that fit into memory, in this process, in several, or on a Ray cluster."""

from walktalk.studies.driving.forecasting import Forecast, forecast
from walktalk.studies.driving.groups import fitting_groups, parse_memory, run_in_groups
from walktalk.studies.driving.optimizers import SGD, Adam, AdamW, Optimizer
from walktalk.studies.driving.process import Interrupted
from walktalk.studies.driving.run import run_foundation, run_study
from walktalk.studies.driving.runner import Runner, estimated_trainings, wave_policy
from walktalk.studies.driving.several import run_studies, sharing

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Forecast",
    "Interrupted",
    "Optimizer",
    "Runner",
    "estimated_trainings",
    "fitting_groups",
    "forecast",
    "parse_memory",
    "run_foundation",
    "run_in_groups",
    "run_studies",
    "run_study",
    "sharing",
    "wave_policy",
]
