"""Runs of a study, side by side: simulations in virtual time, and one executor for all their arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from walktalk.chains import metropolis_hastings
from walktalk.records import TraceRow
from walktalk.runtimes.semantics import FLOAT_BYTES
from walktalk.runtimes.simulator import INITIAL_VALUE, Chunk, RunSetup, Simulation
from walktalk.runtimes.stacked.executor import Executor
from walktalk.runtimes.stacked.measurements import Measurement, RowTrainer, averaging_of, parameters_of, steps_of
from walktalk.runtimes.stacked.waves import Planner, Step, TrainStep, WavePolicy


@dataclass(frozen=True)
class Advance:
    """What a stretch of all runs has brought."""

    measurements: list[Measurement]
    traces: dict[int, list[TraceRow]]  # run -> what happened in it
    trainings: int


@dataclass(frozen=True)
class Plan:
    """A stretch of all runs that is still to be carried out."""

    chunks: dict[int, Chunk]  # run -> its part of the schedule
    steps: list[Step]
    models: int  # rows that there must be
    states: int
    placed: dict[tuple[int, int], int]  # (run, value) -> row, of all that live when it is done
    reached: dict[int, float]  # run -> share of its way by then


class Engine:
    """All runs of a study, moved on together."""

    def __init__(
        self,
        trainer: RowTrainer,
        setups: list[RunSetup],
        initial: list[Tensor],
        policy: WavePolicy | None = None,
        watched: Collection[int] = (),
    ) -> None:
        """`watched`: runs that may end at any evaluation, so that the models measured are kept for the moment."""
        self.trainer = trainer
        setups = [self.fitted(setup) for setup in setups]
        self.simulations = [Simulation(setup) for setup in setups]
        self.active = dict.fromkeys(range(len(setups)))  # runs that are not over, in order
        self.planner = Planner(policy)
        targets = {
            run: setup.stop.target_loss for run, setup in enumerate(setups) if setup.stop.target_loss is not None
        }
        self.executor = Executor(trainer, self.mixing, targets, watched)
        self.planner.sees_through = self.executor.has_wide_kernels
        self.initial = initial
        self.chunks: dict[int, Chunk] = {}
        # As of the last plan that was carried out: another one may have been made since.
        self.placed: dict[tuple[int, int], int] = {}
        self.reached: dict[int, float] = {}
        self._matrices: dict[int, Tensor] = {}
        self.put([(run, INITIAL_VALUE, initial[run]) for run in self.active])

    def fitted(self, setup: RunSetup) -> RunSetup:
        """A run with what the trainer knows of the models and the data."""
        beside = self.trainer.width - parameters_of(self.trainer)
        sizes = getattr(self.trainer, "samples", ())[: setup.graph.nodes]
        samples = setup.objective.counts(sizes, setup.graph.names) if sizes else setup.samples
        steps, size = self.trainer.local_steps, FLOAT_BYTES * beside
        averages = averaging_of(self.trainer, setup.protocol) is not None
        known = replace(setup, local_steps=steps, statistics=beside > 0, statistics_bytes=size, samples=samples)
        known = replace(known, averages=averages, private=getattr(self.trainer, "private", None) is not None)
        if setup.protocol.pools_data:  # what is trained is on everybody's data, not on a node's
            return known
        work = tuple(getattr(self.trainer, "work_of", ()))
        return replace(known, steps_of=steps_of(self.trainer), work=work)

    def put(self, values: list[tuple[int, int, Tensor]]) -> None:
        """Give values from outside a row, (run, value, content)."""
        rows = [self.planner.place(run, value) for run, value, _ in values]
        self.executor.models.reserve(self.planner.models.size)
        self.executor.states.reserve(self.planner.states.size)
        for row, (_, value, content) in zip(rows, values, strict=True):
            matrix = self.executor.models if value >= 0 else self.executor.states
            matrix.data[row] = content.to(matrix.data.device)

    def advance(self, progress: float, after_step: Callable[[Step], None] | None = None) -> Advance:
        """Move every run on to this share of its way."""
        return self.carry_out(self.plan(progress), after_step)

    def plan(self, progress: float) -> Plan:
        """All that is to be done until every run is at this share of its way; no model is touched.

        The next one may be made while this one is carried out, also by another thread, as long as no run ends early.
        """
        running = [run for run in list(self.active) if not self.simulations[run].finished]  # else all is planned
        chunks = {run: self.simulations[run].advance(progress) for run in running}
        steps = self.planner.plan(chunks)
        reached = {run: simulation.advanced_to for run, simulation in enumerate(self.simulations)}
        return Plan(chunks, steps, self.planner.models.size, self.planner.states.size, dict(self.planner.rows), reached)

    def carry_out(self, plan: Plan, after_step: Callable[[Step], None] | None = None) -> Advance:
        """The arithmetic of a plan, in the order in which plans were made."""
        self.executor.models.reserve(plan.models)
        self.executor.states.reserve(plan.states)
        measurements = self.executor.carry_out(plan.steps, after_step)
        self.placed, self.reached = plan.placed, plan.reached
        for run, chunk in plan.chunks.items():
            self.chunks[run] = replace(chunk, ops=[], trace=[])  # of what was done nothing more is needed
            if chunk.finished:
                del self.active[run]
        trainings = sum(len(step.outs) for step in plan.steps if isinstance(step, TrainStep))
        return Advance(measurements, {run: chunk.trace for run, chunk in plan.chunks.items()}, trainings)

    def end(self, run: int) -> None:
        """Leave a run where it is, e.g. because it has met its target."""
        self.active.pop(run, None)

    def output(self, run: int) -> Tensor:
        """The aggregated model of a run, as a row."""
        simulation = self.simulations[run]
        return self.executor.blend([(self.planner.rows[run, value], weight) for value, weight in simulation.output()])

    def members(self, run: int) -> dict[int, Tensor]:
        """The model of every member of a run, a node or a walk, by its number."""
        found = self.simulations[run].interpreter.output.members
        rows = self.planner.rows
        return {
            key: self.executor.blend([(rows[run, value], weight) for value, weight in found[key]])
            for key in sorted(found)
        }

    def living(self, run: int) -> tuple[dict[str, Tensor], dict[str, list[int]]]:
        """Everything that the rest of a run depends on: its living models and optimizer states, and their numbers.

        Of the moment to which plans were carried out (`reached`): no row is written before the next one is.
        """
        models, states = self.needed(run, self.chunks[run])
        tensors = {"models": self.contents(run, models)}
        if states:
            tensors["states"] = self.contents(run, states)
        return tensors, {"models": models, "states": states}

    def needed(self, run: int, chunk: Chunk) -> tuple[list[int], list[int]]:
        """Which models and states those are: all that live; once a run is over, only what its own model is made of."""
        if chunk.finished:
            return sorted({value for value, _ in self.simulations[run].output()}), []
        return chunk.live, [-1 - state for state in chunk.live_states]

    def contents(self, run: int, values: list[int]) -> Tensor:
        matrix = self.executor.models if not values or values[0] >= 0 else self.executor.states
        rows = torch.tensor([self.placed[run, value] for value in values], dtype=torch.int64)
        return matrix.read(rows.to(matrix.data.device)).cpu()

    def restore(self, run: int, progress: float, tensors: dict[str, Tensor], numbers: dict[str, list[int]]) -> Chunk:
        """Bring a fresh run to where `living` was taken: the events are run again, the arithmetic is not."""
        chunk = self.simulations[run].advance(progress)
        if (numbers["models"], numbers["states"]) != self.needed(run, chunk):
            raise ValueError("the checkpoint belongs to another schedule")
        self.planner.release(run)
        models = list(zip(numbers["models"], tensors["models"], strict=True))
        states = list(zip(numbers["states"], tensors.get("states", torch.zeros(0)), strict=True))
        self.put([(run, value, content) for value, content in (*models, *states)])
        self.chunks[run] = replace(chunk, ops=[], trace=[])
        self.placed, self.reached[run] = dict(self.planner.rows), self.simulations[run].advanced_to
        if chunk.finished:
            self.active.pop(run, None)
        return chunk

    def mixing(self, run: int) -> Tensor:
        """The matrix P of a run's graph, on the device."""
        if run not in self._matrices:
            matrix = metropolis_hastings(self.simulations[run].setup.graph).matrix
            self._matrices[run] = torch.from_numpy(np.asarray(matrix.toarray(), dtype=np.float32)).to(
                self.executor.device
            )
        return self._matrices[run]
