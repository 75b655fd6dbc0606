"""Images channels first or last: VGG-11 at several widths, row by row on a CPU, by turns in one process.

    python results/2026-11-18-executor-cpu/channels_first.py > channels_first.csv

One thread, one local step, SGD with momentum. Least time of four rounds each, in ms a step; `weights_to_outputs` is
how many weights of convolutions there are for each number that they put out for a batch.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # also runs where nothing is installed

from walktalk.learning import Arithmetic, OptimizerSpec, Trainer, tasks
from walktalk.learning.models import vgg11
from walktalk.learning.stacked import SequentialModel
from walktalk.learning.stacked.cpu import outputs_of_one_sample

WIDTHS, BATCHES, PRECISIONS, ROUNDS = (0.25, 0.5, 0.75, 1.0), (4, 8, 16, 32, 64), ("fp32", "bf16"), 4
IMAGES = torch.randn(200, 3, 32, 32, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(200) % 10


def main() -> None:
    torch.set_num_threads(1)
    print("width,batch,precision,last_ms,first_ms,first_to_last,weights_to_outputs")
    for width in WIDTHS:
        for batch in BATCHES:
            for precision in PRECISIONS:
                last, first, share = measured(width, batch, precision)
                print(
                    f"{width},{batch},{precision},{1e3 * last:.2f},{1e3 * first:.2f},{first / last:.2f},{share:.2f}",
                    flush=True,
                )


def measured(width: float, batch: int, precision: str) -> tuple[float, float, float]:
    """Seconds of a step with channels last and first, and weights for each output of a batch."""
    task = tasks.torch(vgg11(width=width), functional.cross_entropy, [(IMAGES, LABELS)])
    trainer = Trainer(
        task,
        batch_size=batch,
        local_steps=1,
        optimizer=OptimizerSpec(name="sgd", lr=0.01, momentum=0.9),
        arithmetic=Arithmetic(precision),  # type: ignore[arg-type]
    )
    model = trainer.model
    assert isinstance(model, SequentialModel)
    row, wave = trainer.initial_row(0)[None], (torch.tensor([0]), torch.tensor([1]), torch.tensor([0.01]))
    assert model.images is not None
    model.images.small_up_to, best = 0, {True: 1.0, False: 1.0}
    for turn in range(2 * (ROUNDS + 1)):
        first = bool(turn % 2)
        model.images.heavy_up_to = batch if first else 0
        times = max(1, int(0.1 / best[first]))
        began = time.perf_counter()
        for _ in range(times):
            trainer.train_on_loan(row, *wave)
        took = (time.perf_counter() - began) / times
        best[first] = took if turn < 2 else min(best[first], took)
    layers = [part for part in model.worker.modules() if isinstance(part, torch.nn.Conv2d)]
    weights = sum(layer.weight.numel() for layer in layers)
    return best[False], best[True], weights / (batch * outputs_of_one_sample(model.worker, IMAGES[:1]))


if __name__ == "__main__":
    main()
