"""`compare`: several algorithms on one task and one graph, in Python; what comes out is a study like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from walktalk.interactive.arguments import as_arguments
from walktalk.interactive.asking import Driving, asked, driven, name_from
from walktalk.interactive.callbacks import Audience, GivenCallback
from walktalk.interactive.compared import Compared
from walktalk.learning import Buffers, Schedule
from walktalk.learning.tasks import Weights
from walktalk.runtimes.meaning import Evaluate, OptimizerState, Stop
from walktalk.runtimes.simulator import Fault, Timing
from walktalk.studies import GivenAlgorithm, GivenGraph, GivenTask, Progress
from walktalk.studies.spec import Optimizer


def compare(
    task: GivenTask,
    algorithms: GivenAlgorithm | Sequence[GivenAlgorithm],
    graph: GivenGraph,
    *,
    repetitions: int = 1,
    out: str | PathLike[str] | None = None,
    name: str | None = None,
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
    workers: int | Literal["ray"] | None = None,
    memory: float | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: GivenCallback | Sequence[GivenCallback] = (),
    progress: bool | Callable[[Progress], None] | None = None,
) -> Compared:
    """Compare algorithms on one task, one graph and the same seeds: a study, as `walktalk run` makes one.

    Args:
        task: What is learned: the object that `train` takes, or its name, as in a specification; with a name
            (`"my_tasks:hospital"`) the study can also travel to other processes.
        algorithms: Protocols, names, or entries as in a specification. A list as a setting stands for one
            algorithm each: `wt.MultiWalk(walks=[1, 4])`.
        graph: Who may talk to whom: a graph of ours or networkx's, or a topology's name.
        repetitions: Runs of each algorithm, with different randomness.
        out: The study's folder: specification, history, summary, runs, figures and page; without one the result
            is in memory only.
        name: Of the study; its folder's unless given.
        optimizer: `wt.SGD(…)`, a name such as `"adam"`, a class of torch.optim, or a partial of one with its
            settings; `wt.SGD()`, the paper's, if left out.
        batch_size: Samples of a batch; drawn with replacement from the node's own.
        local_steps: Optimizer steps of one local training.
        optimizer_state: Where momentum and the like live between two trainings: `visit`, nowhere; `walk`, they
            travel with the walk; `node`, they stay at the node.
        buffers: What becomes of BatchNorm's statistics: `travel` or `batch`.
        precision: Of products and activations: `fp32`, `tf32`, `bf16`.
        clip_norm: A gradient that is longer is shortened to this norm; none is if left out.
        schedule: The learning rate over a run; constant if left out.
        timing: How long things take in virtual time; `PoissonTiming()` if left out.
        faults: What goes wrong, and when.
        stop: When a run ends: a number of iterations or a `Stop`; 1,000 iterations if left out.
        evaluate: When models are measured: every so many iterations, or an `Evaluate`; every 100 if left out.
        init: Weights that every run starts from, in place of the task's: a safetensors file, a state dict, a module.
        seed: The root of all randomness.
        engine: What runs it: `sim`, in virtual time, or `peers`, one real process a node on this machine.
        device: `auto`, `cpu` or `cuda`.
        workers: Processes that share the runs, as many as pay if left out; or `"ray"`.
        memory: Bytes to be used at most; what is free if left out.
        resume: Go on where an interrupted comparison stopped in `out`.
        overwrite: Replace what is in `out` when the new results are whole.
        callbacks: `Callback` objects, or functions of a row of the history, which end a run by returning True.
        progress: Whether to show a bar, where somebody can see it if left out; or a function to be called.
    """
    keys = {
        "name": name or name_from(out, "compared"),
        "seed": seed,
        "repetitions": repetitions,
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
    base = asked(task, algorithms, graph, init, keys)
    audience = Audience(callbacks)
    with audience.seated(base.spec), as_arguments():
        result = driven(base, Driving(out, engine, device, workers, memory, resume, overwrite, progress, audience))
        compared = Compared(result, base)
        audience.ended(compared)
    return compared
