"""Learning: tasks, their data and how it is split, and the training of many models at once."""

from walktalk.learning import partition, tasks
from walktalk.learning.optimizers import OptimizerSpec
from walktalk.learning.schedule import Schedule
from walktalk.learning.task import Loss, Task
from walktalk.learning.trainer import Trainer

__all__ = ["Loss", "OptimizerSpec", "Schedule", "Task", "Trainer", "partition", "tasks"]
