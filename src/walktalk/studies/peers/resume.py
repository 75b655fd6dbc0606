"""An interrupted run on real peers goes on: everybody begins again from the model that the run had put out.

What nodes held when they were stopped is of different moments, and walks may have been under way; the output is one
model, and the trace says exactly which. So a resumed run starts its protocol anew from there, with the iterations, bits
and seconds of before: Multi-Walk has lost what walks had learned since their last visit to the aggregator, gossip
nothing but the differences between its nodes. A line in the trace says so, and the arithmetic can be done again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from walktalk.records import RunFolder, TraceRow, load_checkpoint, save_checkpoint
from walktalk.runtimes.peers import Diary, ReplaySetup, merge, read_diary, replay
from walktalk.studies.building import PlannedRun, Preparation, build_evaluate

LAUNCHER = "launcher"  # the folder of its diary, beside those of the nodes
BEGINNING = "beginning.safetensors"


@dataclass(frozen=True)
class Beginning:
    """Where a resumed run starts from."""

    model: Tensor
    seconds: float
    iterations: list[int]  # by node
    bytes: list[int]  # by node


def whole_trace(here: RunFolder, nodes: int) -> list[TraceRow]:
    """All that nodes wrote down in a run, and what the launcher did."""
    names = [*(f"node-{number}" for number in range(nodes)), LAUNCHER]
    return merge(read_diary(here.nodes / name) for name in names)


def write_beginning(ready: Preparation, run: PlannedRun, here: RunFolder) -> Path | None:
    """Sum up an interrupted run for its nodes; None where it had not begun."""
    nodes, folder = run.setup.graph.nodes, here.nodes
    trace = whole_trace(here, nodes)
    if not any(row.event == "trained" for row in trace):
        return None
    setup = ReplaySetup.of(run.setup, run.initial.cpu(), build_evaluate(ready.spec))
    facts = {
        "seconds": trace[-1].time,
        "iterations": [sum(row.node == node and row.event == "trained" for row in trace) for node in range(nodes)],
        "bytes": [sum(row.bytes for row in trace if row.node == node and row.event == "send") for node in range(nodes)],
    }
    save_checkpoint(folder / BEGINNING, {"model": replay(trace, setup, ready.trainer).output}, facts)
    diary = Diary(folder / LAUNCHER, time.time_ns())
    diary.note(TraceRow(time.time(), -1, "resumed"))
    diary.close()
    return folder / BEGINNING


def read_beginning(path: Path) -> Beginning:
    """As a node reads it."""
    tensors, facts = load_checkpoint(path)
    return Beginning(tensors["model"], facts["seconds"], facts["iterations"], facts["bytes"])
