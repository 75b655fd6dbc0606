"""Which algorithms somebody else's loop can be trained by: found out before anything is trained.

A loop is a function from state to state. Whether an algorithm asks for more is not a matter of its name: its first
events are run in virtual time, without any arithmetic, and what they would have trained and added up is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from walktalk.core.errors import ModelError
from walktalk.learning import LoopTrainer, lacks
from walktalk.runtimes.simulator import NO_VALUE, CombineOp, EncodeOp, Op, RunSetup, ScreenOp, Simulation, TrainOp

LOOKED_AT = 4  # trainings of every node that are looked at; algorithms that begin plainly show by then what they are


def check_that_loops_can(trainer: LoopTrainer, setup: RunSetup) -> None:
    """Refuse, in one line, an algorithm that asks for more than the loop gives or its states bear."""
    label = setup.protocol.label
    few = replace(setup.stop, iterations=min(setup.stop.iterations or 10**9, LOOKED_AT * setup.graph.nodes + 20))
    averages = trainer.averaging is not None
    if averages and not setup.protocol.means_of_models:
        raise ModelError(trainer.averaging.refusal(label))
    simulation = Simulation(replace(setup, stop=few, averages=averages, keep_trace=False))
    for op in simulation.advance().ops:
        why = why_not(trainer, op, setup.graph.nodes)
        if why:
            raise ModelError(f"{label}: {why}")


def why_not(trainer: LoopTrainer, op: Op, nodes: int) -> str:
    """Why this cannot be done with the states of a loop; "" where it can."""
    if isinstance(op, TrainOp):
        return lacking(trainer, op, nodes)
    if not trainer.loop.is_carried:
        return ""
    if isinstance(op, EncodeOp | ScreenOp):
        what = "compressed" if isinstance(op, EncodeOp) else "screened"
        return f"models are {what} number by number, and this state is bytes; leave that out"
    if isinstance(op, CombineOp) and is_mixed(op):
        if not op.averaged:
            return str(trainer.averaging.refusal("it")).removeprefix("merge: ")
        if trainer.averaging.merge is None:
            return "it averages models, and nothing says how states of bytes are merged; give merge=, or take one walk"
    return ""


def is_mixed(op: CombineOp) -> bool:
    """Whether a value is made of more than a copy of another."""
    return len(op.terms) > 1 or abs(op.terms[0][1] - 1.0) > 1e-6


def lacking(trainer: LoopTrainer, op: TrainOp, nodes: int) -> str:
    """What a training asks for that the step does not take."""
    if op.part >= nodes:
        return "it trains on everybody's data at once, and a loop is given one node's; take another algorithm"
    asked = {"gradient": op.gradient, "correction": op.correction != NO_VALUE, "anchor": op.anchor != NO_VALUE}
    missing = next((name for name, is_asked in asked.items() if is_asked and name not in trainer.loop.wants), None)
    return "" if missing is None else lacks(trainer.task.name, missing)


def check_loops(trainer: LoopTrainer, setups: Iterable[RunSetup]) -> None:
    """Check every algorithm once."""
    seen = set()
    for setup in setups:
        if setup.protocol.label not in seen:
            seen.add(setup.protocol.label)
            check_that_loops_can(trainer, setup)
