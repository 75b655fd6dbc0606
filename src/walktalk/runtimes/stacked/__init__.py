"""The stacked executor: the arithmetic of many runs, as waves over the rows of one matrix."""

from walktalk.runtimes.stacked.album import Measurement
from walktalk.runtimes.stacked.engine import Advance, Engine, Plan
from walktalk.runtimes.stacked.executor import Executor
from walktalk.runtimes.stacked.row_trainer import Averaging, RowTrainer, averaging_of, parameters_of
from walktalk.runtimes.stacked.waves import EvaluateStep, Planner, Step, TrainStep, WavePolicy

__all__ = [
    "Advance",
    "Averaging",
    "Engine",
    "EvaluateStep",
    "Executor",
    "Measurement",
    "Plan",
    "Planner",
    "RowTrainer",
    "Step",
    "TrainStep",
    "WavePolicy",
    "averaging_of",
    "parameters_of",
]
