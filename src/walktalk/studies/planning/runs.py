"""One run of a study: under which conditions, as it is planned, how far it is, what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import Protocol
from walktalk.records import HistoryRow, TraceRow
from walktalk.runtimes.semantics import Evaluate, OptimizerState, Stop
from walktalk.runtimes.simulator import FaultPlan, RunSetup, Timing


@dataclass(frozen=True)
class AlgorithmPlan:
    """One algorithm of a study, ready to run."""

    label: str  # in tables, legends and folder names
    protocol: Protocol
    lr: float  # its own, or the study's
    optimizer_state: OptimizerState = "visit"  # likewise: where the optimizer's state lives between two visits


@dataclass(frozen=True)
class Conditions:
    """What all runs of a study have in common."""

    graph: Graph
    model_bytes: int  # of one model on the wire
    state_bytes: int  # of one optimizer state on the wire
    stop: Stop
    timing: Timing
    evaluate: Evaluate
    rate: Callable[[float], float]  # progress -> factor on the learning rate
    local_steps: int = 1  # of a training, where a protocol does not say
    statistics_bytes: int = 0  # of those of a model, that codecs leave as they are

    def setup(self, plan: AlgorithmPlan, root: Seed, repetition: int = 0, faults: FaultPlan | None = None) -> RunSetup:
        """One run under these conditions.

        Args:
            plan: The algorithm.
            root: The study's seed; the run's own is a child of it, by label and repetition.
            repetition: Counted from 0.
            faults: What goes wrong; nothing, if left out.
        """
        return RunSetup(
            protocol=plan.protocol,
            graph=self.graph,
            seed=root.child("run", plan.label, repetition),
            stop=self.stop,
            timing=self.timing,
            evaluate=self.evaluate,
            lr=plan.lr,
            schedule=self.rate,
            model_bytes=self.model_bytes,
            state_bytes=self.state_bytes,
            optimizer_state=plan.optimizer_state,
            local_steps=self.local_steps,
            statistics=self.statistics_bytes > 0,
            statistics_bytes=self.statistics_bytes,
            faults=faults or FaultPlan(),
        )


@dataclass(frozen=True)
class Progress:
    """How far a study is: what a progress bar shows."""

    done: int  # iterations over all runs
    total: int  # estimate where runs end by time or bits
    iteration: int  # of the run that is furthest
    time: float  # virtual seconds, of the run that is furthest
    bits: float  # of the run that has sent most
    loss: dict[str, float]  # algorithm -> last training loss, mean over repetitions
    phase: str  # what is being done
    rows: tuple[HistoryRow, ...] = ()  # evaluations since the report before
    words: tuple[str, ...] = ()  # what a person should know at once, since the report before


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study: one algorithm, one repetition."""

    label: str
    repetition: int
    setup: RunSetup
    initial: Tensor  # the model that it starts from, as a row


@dataclass
class RunRecord:
    """What one run leaves: history, trace, model, and how much it did."""

    label: str
    repetition: int
    history: list[HistoryRow] = field(default_factory=list)
    trace: list[TraceRow] = field(default_factory=list)  # empty where it went to a file
    output: Tensor | None = None  # the aggregated model at the end, as a row
    trainings: int = 0
    met_target: bool = False
    noted: int = 0  # lines of the trace until the target was met
    nodes: int = 0
    aggregated_at: int | None = None  # the iteration in which the aggregator's copy was last brought up to date
    family: str = ""  # of the protocol
