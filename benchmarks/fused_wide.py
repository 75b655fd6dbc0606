"""Tile sizes of the convolution kernels for many channels on this GPU: every layer of VGG-11, the best ones first.

    python benchmarks/fused_wide.py [--rows 96] [--batch 32] [--milliseconds 8]

What it prints goes into `walktalk/learning/kernels/wide.py`. Kernels are compiled by all cores ahead of the
measurement.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk.learning.kernels import Block, wide

LAYERS = ((64, 128, 16), (128, 256, 8), (256, 256, 8), (256, 512, 4), (512, 512, 4), (512, 512, 2))
KINDS = ("forward", "backward", "weights")
BLOCKS = [
    Block(128, 128, 64, 8, 3),
    Block(128, 128, 64, 8, 2),
    Block(128, 128, 64, 4, 3),
    Block(128, 128, 32, 4, 4),
    Block(128, 256, 64, 8, 3),
    Block(64, 256, 64, 4, 3),
    Block(64, 128, 64, 4, 3),
    Block(256, 128, 64, 8, 3),
]


def work(kind: str, layer: tuple[int, int, int], block: Block, rows: int, batch: int) -> Callable[[], object]:
    """A call of one kernel on random data."""
    entering, leaving, side = layer
    draw = lambda *shape: torch.randn(shape, device="cuda").to(torch.bfloat16)  # noqa: E731
    taps = draw(rows, 9, entering, leaving)
    if kind == "forward":
        wide.FORWARD, x, bias = block, draw(rows, batch, side, side, entering), torch.randn(rows, leaving).cuda()
        return lambda: wide.forward(x, taps, bias, True, False)
    dy = draw(rows, batch, side, side, leaving)
    if kind == "backward":
        wide.BACKWARD = block
        return lambda: wide.for_input(dy, taps)
    wide.WEIGHTS, x = block, draw(rows, batch, side, side, entering)
    return lambda: wide.for_weights(x, dy)


def compile_one(job: tuple[str, tuple[int, int, int], Block]) -> None:
    try:
        work(*job, 2, 32)()
        torch.cuda.synchronize()
    except Exception:  # too much shared memory, say: it is reported when it is measured
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=96)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--milliseconds", type=int, default=8)
    options = parser.parse_args()
    from triton.testing import do_bench

    jobs = [(kind, layer, block) for kind in KINDS for layer in LAYERS for block in BLOCKS]
    with multiprocessing.get_context("spawn").Pool(min(12, os.cpu_count() or 1)) as pool:
        pool.map(compile_one, jobs, chunksize=4)
    for kind in KINDS:
        for layer in LAYERS:
            entering, leaving, side = layer
            operations = 2 * 9 * entering * leaving * side * side * options.batch * options.rows
            times: dict[Block, float] = {}
            for block in BLOCKS:
                try:
                    call = work(kind, layer, block, options.rows, options.batch)
                    times[block] = do_bench(call, 3, options.milliseconds) * 1e-3
                except Exception as error:
                    print(kind, layer, tuple(block), "fails:", type(error).__name__)
            ranked = sorted(times.items(), key=lambda item: item[1])
            told = ", ".join(f"{tuple(b)} {operations / t / 1e12:.0f}" for b, t in ranked)
            print(
                f"{kind:9} {layer!s:15} {ranked[0][1] / options.rows * 1e6:6.2f} µs a row; Tflop/s: {told}", flush=True
            )


if __name__ == "__main__":
    main()
