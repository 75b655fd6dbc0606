"""Tile sizes of the fused convolution kernels on this GPU: every kernel and shape of ResNet-20, the best ones last.

    python benchmarks/fused_convolutions.py [--rows 64] [--batch 32] [--json FILE]

What it prints last goes into `walktalk/learning/kernels/launch.py`. Kernels are compiled by all cores ahead of
the measurement.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk.learning.kernels import Normalized, Tile, launch

SHAPES = {4: (16, 32), 16: (16, 32), 32: (32, 16), 64: (64, 8)}  # channels: channels after, pixels a side
TAPS = {4: (4,), 16: (1, 4), 32: (1, 4), 64: (1, 4)}
PIXELS, WARPS, STAGES = (64, 128, 256, 512), (4, 8), (2, 3, 4)
KINDS = ("forward", "backward", "backward_shortcut", "weights")


def candidates(channels: int, kind: str) -> list[Tile]:
    taps = (*TAPS[channels], 12) if kind == "weights" else TAPS[channels]
    found = [Tile(*one) for one in itertools.product(taps, PIXELS, WARPS, STAGES)]
    found = [t for t in found if (t.warps == 4) != (t.pixels == 512)]  # more warps only for the largest tiles
    return [t for t in found if t.pixels * min(t.taps, 4) * channels <= 2**14]


def work(kind: str, channels: int, tile: Tile, rows: int, batch: int):
    """A call of one kernel on random data."""
    leaving, side = SHAPES[channels]
    draw = lambda *shape: torch.randn(shape, device="cuda").to(torch.bfloat16)  # noqa: E731
    x, dy = draw(rows, batch, side, side, channels), draw(rows, batch, side, side, leaving)
    taps = draw(rows, 9, channels, leaving)
    norm = Normalized(*torch.randn(4, rows, channels, device="cuda"))
    if kind == "forward":
        launch.FORWARD[channels] = tile
        return lambda: launch.forward(x, taps, 1, True)
    if kind == "weights":
        launch.WEIGHTS[channels] = tile
        return lambda: launch.for_weights(x, dy, 1, torch.Size((rows, leaving, channels, 3, 3)))
    launch.BACKWARD[channels] = tile
    if kind == "backward":
        return lambda: launch.for_input(dy, taps, x.shape, 1, before=(x, norm))
    return lambda: launch.for_input(dy, taps, x.shape, 1, around=(x, x, 0))


def is_wanted(kind: str, channels: int) -> bool:
    return channels > 4 or kind in ("forward", "weights")


def compile_one(job: tuple[str, int, Tile]) -> None:
    try:
        work(*job, 2, 4)()
        torch.cuda.synchronize()
    except Exception:  # too much shared memory, say: it is reported when it is measured
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    from triton.testing import do_bench

    jobs = [(kind, c, tile) for kind in KINDS for c in SHAPES if is_wanted(kind, c) for tile in candidates(c, kind)]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        pool.map(compile_one, jobs, chunksize=4)
    results: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        for channels in SHAPES:
            times: dict[Tile, float] = {}
            for tile in candidates(channels, kind) if is_wanted(kind, channels) else []:
                try:
                    times[tile] = do_bench(work(kind, channels, tile, options.rows, options.batch), 5, 15) * 1e3
                except Exception as error:
                    print(kind, channels, tuple(tile), "fails:", type(error).__name__)
            ranked = sorted(times.items(), key=lambda item: item[1])
            results[f"{kind} {channels}"] = {str(tuple(tile)): time / options.rows for tile, time in ranked}
            for tile, time in ranked[:4] + ranked[-1:]:
                print(f"{kind:20} {channels:3} {tuple(tile)!s:20} {time / options.rows:7.3f} µs a row")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
