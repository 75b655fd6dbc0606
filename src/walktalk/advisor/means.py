"""How much measuring an advice can afford: on a small problem thousands of trainings take seconds.

Counted are operations, not seconds: nothing here reads a clock, so the same question gets the same advice everywhere.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from walktalk.advisor.local_gradients import LocalLoss
from walktalk.learning import Trainer
from walktalk.seeds import Seed

AROUND = 2e6  # operations that could be done in the time that a training takes beside its arithmetic, about 0.1 ms
CHEAP = 8e10  # operations that nobody minds: seconds of one core


def affordable(trainer: Trainer, batch_size: int, seed: Seed) -> float:
    """How many local trainings nobody minds: 40,000 of the smallest models, some of large ones, less than one of huge.

    Args:
        trainer: Of the task, which says how many steps a training has.
        batch_size: Samples of a step.
        seed: Of the batch that is looked at.
    """
    return CHEAP / (AROUND + trainer.local_steps * operations_of_a_step(trainer, batch_size, seed))


def operations_of_a_step(trainer: Trainer, batch_size: int, seed: Seed) -> float:
    """Of a forward and a backward pass: products, as torch counts them, and at least six a parameter and sample."""
    task = trainer.task
    model = copy.deepcopy(task.initial(seed.integer))
    local = LocalLoss(task, model, seed.numpy(), batch_size)
    few = np.concatenate(local.samples)[:2]  # batch normalization takes no single one
    with torch.enable_grad(), FlopCounterMode(display=False) as counted:
        local.gradient(few, "of the first samples")
    parameters = sum(parameter.numel() for parameter in local.parameters)
    return batch_size * max(float(counted.get_total_flops()) / len(few), 6.0 * parameters)
