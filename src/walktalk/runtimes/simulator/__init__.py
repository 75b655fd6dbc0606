"""The simulator: events in virtual time, and the schedule of arithmetic that they call for."""

from walktalk.runtimes.simulator.availability import absences, knows_everybody, lines_of
from walktalk.runtimes.simulator.fault_plan import Fault, FaultKind, FaultPlan
from walktalk.runtimes.simulator.garbage import no_garbage_collection
from walktalk.runtimes.simulator.rates import Rates, measured_rates, planned_run
from walktalk.runtimes.simulator.run_setup import RunSetup
from walktalk.runtimes.simulator.schedule import (
    INITIAL_VALUE,
    NO_STATE,
    NO_VALUE,
    Chunk,
    CombineOp,
    EncodeOp,
    EvaluateOp,
    MixOp,
    Notebook,
    Op,
    ScreenOp,
    Terms,
    TrainOp,
    mean_of,
)
from walktalk.runtimes.simulator.simulation import Simulation
from walktalk.runtimes.simulator.surroundings import all_surroundings
from walktalk.runtimes.simulator.timing import NetworkTiming, PoissonTiming, Timing

__all__ = [
    "INITIAL_VALUE",
    "NO_STATE",
    "NO_VALUE",
    "Chunk",
    "CombineOp",
    "EncodeOp",
    "EvaluateOp",
    "Fault",
    "FaultKind",
    "FaultPlan",
    "MixOp",
    "NetworkTiming",
    "Notebook",
    "Op",
    "PoissonTiming",
    "Rates",
    "RunSetup",
    "ScreenOp",
    "Simulation",
    "Terms",
    "Timing",
    "TrainOp",
    "absences",
    "all_surroundings",
    "knows_everybody",
    "lines_of",
    "mean_of",
    "measured_rates",
    "no_garbage_collection",
    "planned_run",
]
