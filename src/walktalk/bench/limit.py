"""What a device could do at most: the rate of a large matrix product there, over the operations of a training step."""

from __future__ import annotations

import copy
import time
import warnings

import torch
from torch.utils.flop_counter import FlopCounterMode

from walktalk.learning import Task

SIDE = {"cpu": 1024, "cuda": 8192}  # of the matrices


def operations_per_step(task: Task, batch_size: int = 32) -> int:
    """Floating-point operations of one step's products and convolutions, forwards and backwards."""
    model = copy.deepcopy(task.model).train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch speaks of Intel's GPUs here
        # Without oneDNN: its recurrent layers are one operation, whose products nobody counts.
        with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
            loss = task.loss(model(task.inputs[:batch_size]), task.targets[:batch_size])
            loss.backward()
    return int(counter.get_total_flops())


def peak_rate(device: str, repeats: int = 10) -> float:
    """Operations/s of a product of two large matrices: in bf16 on a GPU, in float32 with torch's threads on a CPU."""
    side = SIDE[device]
    a, b = torch.randn(2, side, side, device=device, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
    best = float("inf")
    # CPU seconds of a single thread: what else runs on a machine would make its limit lower than it is.
    clock = time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    for _ in range(repeats):
        began = clock()
        a @ b
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, clock() - began)
    return float(2 * side**3 / best)
