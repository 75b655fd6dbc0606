"""Learning: tasks, their data and how it is split, and the training of many models at once."""

from walktalk.learning import data, partition, tasks
from walktalk.learning.arithmetic import Arithmetic
from walktalk.learning.optimizers import OptimizerSpec
from walktalk.learning.schedule import Schedule
from walktalk.learning.split import split
from walktalk.learning.task import Loss, Task
from walktalk.learning.trainer import Buffers, Trainer

__all__ = [
    "Arithmetic",
    "Buffers",
    "Loss",
    "OptimizerSpec",
    "Schedule",
    "Task",
    "Trainer",
    "data",
    "partition",
    "split",
    "tasks",
]
