"""One run of a study: as it is planned, how far it is, what it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from walktalk.records import HistoryRow
from walktalk.runtimes.simulator import RunSetup


@dataclass(frozen=True)
class Progress:
    """What a progress bar shows."""

    done: int  # iterations over all runs
    total: int  # estimate where runs end by time or bits
    iteration: int  # of the run that is furthest
    time: float  # virtual seconds, of the run that is furthest
    bits: float  # of the run that has sent most
    loss: dict[str, float]  # algorithm -> last training loss, mean over repetitions
    phase: str  # what is being done
    rows: tuple[HistoryRow, ...] = ()  # evaluations since the report before


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study: one algorithm, one repetition."""

    label: str
    repetition: int
    setup: RunSetup
    initial: Tensor  # the model that it starts from, as a row


@dataclass
class RunRecord:
    """What one run leaves."""

    label: str
    repetition: int
    history: list[HistoryRow] = field(default_factory=list)
    trace: list[tuple[object, ...]] = field(default_factory=list)  # empty where it went to a file
    output: Tensor | None = None  # the aggregated model at the end, as a row
    trainings: int = 0
    met_target: bool = False
    noted: int = 0  # lines of the trace until the target was met
