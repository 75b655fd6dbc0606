"""Learning: tasks, their data and how it is split, and the training of many models at once."""

from walktalk.lazy import listing
from walktalk.learning import adapters, data, models, partition, tasks
from walktalk.learning.adapters import lora
from walktalk.learning.arithmetic import Arithmetic
from walktalk.learning.extras import Extras
from walktalk.learning.frozen import frozen_numbers
from walktalk.learning.machine_memory import machine_memory
from walktalk.learning.memory import is_out_of_memory
from walktalk.learning.optimizers import OptimizerSpec
from walktalk.learning.schedule import Schedule
from walktalk.learning.split import split
from walktalk.learning.stacked import fused
from walktalk.learning.task import Loss, Task
from walktalk.learning.trainer import Buffers, Trainer

__all__ = [
    "Arithmetic",
    "Buffers",
    "Extras",
    "Loss",
    "OptimizerSpec",
    "Schedule",
    "Task",
    "Trainer",
    "adapters",
    "data",
    "frozen_numbers",
    "fused",
    "is_out_of_memory",
    "lora",
    "machine_memory",
    "models",
    "partition",
    "split",
    "tasks",
]

__dir__ = listing(__all__)
