"""`train`: one run, in Python; it takes a task, a protocol and a graph, and gives back what happened and a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from walktalk.errors import SpecError
from walktalk.interactive.arguments import as_arguments
from walktalk.interactive.asking import Driving, asked, driven, name_from
from walktalk.interactive.callbacks import Audience, GivenCallback
from walktalk.interactive.run import Run
from walktalk.learning import Buffers, Schedule
from walktalk.learning.tasks import Weights
from walktalk.runtimes.meaning import Evaluate, OptimizerState, Stop
from walktalk.runtimes.simulator import Fault, Timing
from walktalk.studies import GivenAlgorithm, GivenGraph, GivenTask, Progress
from walktalk.studies.spec import Optimizer


def train(
    task: GivenTask,
    protocol: GivenAlgorithm,
    graph: GivenGraph,
    *,
    optimizer: Optimizer | None = None,
    batch_size: int = 32,
    local_steps: int = 5,
    optimizer_state: OptimizerState = "visit",
    buffers: Buffers = "travel",
    precision: Literal["fp32", "tf32", "bf16"] = "fp32",
    clip_norm: float | None = None,
    schedule: Schedule | Literal["cosine"] | Mapping[str, Any] | None = None,
    timing: Timing | Mapping[str, Any] | None = None,
    faults: Sequence[Fault | Mapping[str, Any]] = (),
    stop: int | Stop | Mapping[str, Any] | None = None,
    evaluate: int | Evaluate | Mapping[str, Any] | None = None,
    init: Weights | None = None,
    seed: int = 0,
    engine: Literal["sim", "peers"] = "sim",
    device: str = "auto",
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: GivenCallback | Sequence[GivenCallback] = (),
    progress: bool | Callable[[Progress], None] | None = None,
) -> Run:
    """Train one model with a protocol on a graph.

    Args:
        task: What is learned, and who has which samples; one part for each node of the graph. Or its name.
        protocol: The algorithm: `MultiWalk`, `AsyncGossip`, `SyncGossip`, `Centralized` or one of your own; any
            other by its name in `walktalk algorithms`, `"d2"`, or with settings, `{"name": "fedavg", "steps": 10}`.
        graph: Who may talk to whom: a graph of ours or networkx's, or a topology's name.
        optimizer: The optimizer of every local training: `wt.SGD(…)`, a name such as `"adam"`, a class of
            torch.optim, or a partial of one with its settings; `wt.SGD()`, the paper's, if left out.
        batch_size: Samples of a batch; drawn with replacement from the node's own.
        local_steps: Optimizer steps of one local training.
        optimizer_state: Where momentum and the like live between two trainings: `visit`, nowhere; `walk`, they
            travel with the walk; `node`, they stay at the node.
        buffers: What becomes of BatchNorm's statistics: `travel`, sent and mixed with the model; `batch`, every
            batch has its own.
        precision: Of products and activations: `fp32`, `tf32`, `bf16`; weights are always 32 bits.
        clip_norm: A gradient that is longer is shortened to this norm; none is if left out.
        schedule: The learning rate over the run, by progress toward the stop; constant if left out.
        timing: How long things take in virtual time; `PoissonTiming()` with d = 1 second if left out.
        faults: What goes wrong, and when.
        stop: When the run ends: a number of iterations, or a `Stop`; after 1,000 iterations if left out.
        evaluate: When the model is measured: every so many iterations, or an `Evaluate`; every 100 if left out.
        init: Weights to start from, in place of the task's: a safetensors file, a folder of `run.save`, a state
            dict, or a module such as `run.model`.
        seed: The root of all randomness: initial weights, batches, walks, times.
        engine: What runs it: `sim`, in virtual time, or `peers`, one real process a node on this machine.
        device: `auto`, `cpu` or `cuda`.
        out: A folder for the records, with checkpoints to go on from; without one the run is in memory only.
        resume: Go on where an interrupted run stopped in `out`.
        overwrite: Replace what is in `out` when the new results are whole.
        callbacks: `Callback` objects, or functions of a row of the history, which end a run by returning True.
        progress: Whether to show a bar, where somebody can see it if left out; or a function that is called now
            and then with how far the run is.
    """
    if not isinstance(protocol, (str, Mapping)) and isinstance(protocol, Sequence):
        raise SpecError("protocol: train runs one algorithm; wt.compare takes a list of them")
    keys = {
        "name": name_from(out, "run"),
        "seed": seed,
        "batch_size": batch_size,
        "local_steps": local_steps,
        "optimizer_state": optimizer_state,
        "buffers": buffers,
        "precision": precision,
        "clip_norm": clip_norm,
        "optimizer": optimizer,
        "schedule": schedule,
        "timing": timing,
        "faults": faults,
        "stop": stop,
        "evaluate": evaluate,
    }
    base = asked(task, protocol, graph, init, keys)
    audience = Audience(callbacks)
    with audience.seated(base.spec), as_arguments():
        result = driven(base, Driving(out, engine, device, None, None, resume, overwrite, progress, audience))
        assert result.trainer is not None
        run = Run(result.runs[0], result.trainer, base, result.folder, engine)
        audience.ended(run)
    return run
