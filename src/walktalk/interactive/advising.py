"""`advise`: which algorithm for a task on a graph, in Python, and what it will cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from walktalk.advisor import Advice, Goal, InPython, advise_in, of_foundation
from walktalk.errors import SpecError
from walktalk.interactive.asking import asked
from walktalk.interactive.training import train
from walktalk.learning import Buffers, Schedule
from walktalk.learning.tasks import Weights
from walktalk.runtimes.meaning import Evaluate, OptimizerState, Stop
from walktalk.runtimes.simulator import Fault, Timing
from walktalk.studies import GivenGraph, GivenTask
from walktalk.studies.spec import Optimizer

USUAL = Stop(iterations=3000)  # where nobody says how long a run may be
DEFAULTS = {"batch_size": 32, "local_steps": 5, "optimizer_state": "visit", "buffers": "travel", "precision": "fp32"}


def advise(
    task: GivenTask,
    graph: GivenGraph,
    *,
    objective: Literal["iterations", "time", "bits"] = "time",
    target_loss: float | None = None,
    budget: float | None = None,
    algorithms: str | Sequence[Any] | None = None,
    optimizer: Optimizer | None = None,
    batch_size: int = 32,
    local_steps: int = 5,
    optimizer_state: OptimizerState = "visit",
    buffers: Buffers = "travel",
    precision: Literal["fp32", "tf32", "bf16"] = "fp32",
    schedule: Schedule | Mapping[str, Any] | None = None,
    timing: Timing | Mapping[str, Any] | None = None,
    faults: Sequence[Fault | Mapping[str, Any]] = (),
    stop: int | Stop | Mapping[str, Any] | None = None,
    evaluate: int | Evaluate | Mapping[str, Any] | None = None,
    init: Weights | None = None,
    model_bytes: int | None = None,
    seed: int = 0,
    device: str = "auto",
    told: Callable[[str, float], None] | None = None,
) -> Advice:
    """Which algorithm, how many walks, which aggregator, which learning rate: by theory, then by short pilots.

    Args:
        task: What is learned, and who has which samples: yours, one of ours, or its name.
        graph: Who may talk to whom: a graph of ours or networkx's, or a topology's name.
        objective: What to save: `iterations`, `time` or `bits`.
        target_loss: The training loss to reach; where a tenth of the excess is left, if left out.
        budget: Instead: the lowest loss for so many iterations, seconds or bits.
        algorithms: What to choose among: `"all"`, or a list of names and protocols; walks and gossip if left out.
        optimizer: As for `train`; its learning rate is where candidates begin.
        batch_size: Samples of a batch.
        local_steps: Optimizer steps of one local training.
        optimizer_state: Where momentum and the like live between two trainings: `visit`, `walk`, `node`.
        buffers: What becomes of BatchNorm's statistics: `travel` or `batch`.
        precision: Of products and activations: `fp32`, `tf32`, `bf16`.
        schedule: The learning rate over a run; constant if left out.
        timing: How long things take in virtual time; `PoissonTiming()` if left out.
        faults: What goes wrong, and when.
        stop: The longest that a run may be; 3,000 iterations if left out.
        evaluate: When a run is measured, every 100 iterations if left out: it stops at the first evaluation that
            shows the target.
        init: Weights to start from, in place of the task's.
        model_bytes: Size of the model on the wire, where the pilots train a smaller one.
        seed: The root of all randomness.
        device: `auto`, `cpu` or `cuda`, for the pilots.
        told: Called now and then with what is being done, and the share of all that is done.
    """
    if budget is not None and target_loss is not None:
        raise SpecError("budget and target_loss exclude each other: the lowest loss, or the cheapest way to a loss")
    goal = Goal(objective, target_loss, budget)
    keys: dict[str, Any] = {
        "batch_size": batch_size,
        "local_steps": local_steps,
        "optimizer_state": optimizer_state,
        "buffers": buffers,
        "precision": precision,
        "schedule": schedule,
        "timing": timing,
        "faults": faults or None,
        "evaluate": evaluate,
    }
    more = {"name": "advice", "seed": seed, "optimizer": optimizer, "stop": USUAL if stop is None else stop}
    base = asked(task, "multi_walk", graph, init, {**keys, **more})  # every candidate puts its own in its place
    said = {name: value for name, value in keys.items() if value is not None and value != DEFAULTS.get(name)}
    said |= {} if init is None else {"init": init}
    given = InPython(train, task, graph, said)
    return advise_in(of_foundation(base, device, given), goal, algorithms, model_bytes, told)
