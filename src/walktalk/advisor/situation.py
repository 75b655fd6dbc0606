"""What the advice is about: a task on a graph and how it is trained; of a study, or of things in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Any, Literal, get_args

import torch

from walktalk.chains import ReturnTime, aggregators, metropolis_hastings
from walktalk.core.errors import SpecError, UserError
from walktalk.core.seeds import Seed
from walktalk.core.settings import misfit
from walktalk.graphs import Graph
from walktalk.learning import OptimizerSpec, Task, Trainer
from walktalk.protocols import PROTOCOLS, AsyncGossip, MultiWalk, Private, Protocol, Tour, private
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Rates, RunSetup
from walktalk.studies import Foundation, StudySpec, build_foundation, prepare_on


@dataclass(frozen=True)
class InPython:
    """Where the task and the graph are things in Python: what runs them, and what else was said."""

    train: Callable[..., Any]  # (task, protocol, graph, **arguments) -> a run
    task: Any  # as it was given
    graph: Any  # as it was given
    arguments: Mapping[str, Any]  # of `train`, those that are not the usual ones


@dataclass(frozen=True)
class Situation:
    """A task on a graph, how it is trained, and what of that a person said."""

    trainer: Trainer  # of the task
    setup: RunSetup  # of any run in it: graph, timing, stop, evaluations; protocol, seed and rate are a candidate's
    named: Sequence[Protocol]  # algorithms that the person names
    spec: StudySpec  # what it says of all else
    in_python: InPython | None = field(default=None)  # where it is not from a study

    @property
    def task(self) -> Task:
        return self.trainer.task

    @property
    def graph(self) -> Graph:
        return self.setup.graph

    @property
    def optimizer(self) -> OptimizerSpec:
        """The optimizer of every local training; candidates have their learning rates around its own."""
        return self.spec.optimizer.build()

    @property
    def seed(self) -> Seed:
        """The root of all randomness."""
        return Seed(self.spec.seed)

    @property
    def stop(self) -> Stop:
        """When a run ends that reaches no target."""
        return self.setup.stop

    @property
    def constant_rate(self) -> bool:
        """Whether the learning rate is the same all the way: then a run may be as long as one likes."""
        return self.spec.schedule == type(self.spec.schedule)()


def of_study(spec: StudySpec, device: str = "auto") -> Situation:
    """The situation of a study; every mistake in it shows here.

    Args:
        spec: The study.
        device: auto, cpu or cuda, for the pilots.
    """
    return of_foundation(build_foundation(spec), device)


def of_foundation(base: Foundation, device: str = "auto", in_python: InPython | None = None) -> Situation:
    """The situation of a study whose graph, and perhaps task, are there.

    Args:
        base: What the study stands on.
        device: auto, cpu or cuda, for the pilots.
        in_python: Where that was handed over in Python; then no algorithm was named.
    """
    ready = prepare_on(base, device)
    named = [] if in_python is not None else list(dict.fromkeys(run.setup.protocol for run in ready.runs))
    return Situation(ready.trainer, ready.runs[0].setup, named, base.spec, in_python)


# What the person wants: the cheapest way to a loss, or the lowest loss for a budget.

Objective = Literal["iterations", "time", "bits"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


@dataclass(frozen=True)
class Goal:
    """Reach `target_loss` at the least cost; or, with a budget, the lowest loss within it."""

    objective: Objective = "time"  # what to save: iterations, time or bits
    target_loss: float | None = None  # None: chosen from the task, see `advise`
    budget: float | None = None  # iterations, seconds or bits

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise misfit("objective", self.objective, ", ".join(OBJECTIVES), SpecError)
        if self.budget is not None and not (isfinite(self.budget) and self.budget > 0):
            raise misfit("budget", self.budget, "a number above 0", SpecError)
        if self.target_loss is not None and not isfinite(self.target_loss):
            raise misfit("target_loss", self.target_loss, "a finite number", SpecError)


def amount(objective: str, value: float) -> str:
    """A cost with its unit; bits as bytes, which people compare with a data plan."""
    if not isfinite(value):
        return "unknown"
    if objective == "iterations":
        return f"{value:,.0f} iterations"
    units = (
        (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))
        if objective == "time"
        else (("TB", 8e12), ("GB", 8e9), ("MB", 8e6), ("kB", 8e3), ("bytes", 8.0))
    )
    unit, size = next((u for u in units if abs(value) >= u[1]), units[-1])
    return f"{value / size:,.3g} {unit}"


WIDE = 30.0  # times the low end: an interval so wide says no more than its high end


def interval(objective: str, low: float, high: float) -> str:
    """Both ends of a predicted interval, each with its unit; only the high one where the low one says nothing."""
    if not isfinite(high):
        return f"{amount(objective, low)} or more"
    if high > WIDE * low:
        return f"up to {amount(objective, high)}"
    return f"{amount(objective, low)} to {amount(objective, high)}"


# Columns of very different size: the commonest reason why own data trains badly, and one that no advice can mend.

ODD_SIZE = 30.0  # from 1: a column's curvature is the square of its size, and rates and initial weights are made for 1


def unscaled(task: Task) -> str:
    """What to do about it, to be put at the end of a sentence; nothing where columns are of about the same size."""
    sizes = sizes_of(task.inputs, task.inputs.dim() == 2 if isinstance(task.inputs, torch.Tensor) else False)
    if sizes is not None:
        return (
            f"; the input columns are of size {sizes[0]:.2g} to {sizes[1]:.2g}: bring each to mean 0 and deviation 1, "
            "by numbers that all sites share, and ask again"
        )
    sizes = sizes_of(task.targets, True)
    if sizes is not None:
        return f"; the targets are of size {sizes[1]:.2g}: divide them by a number that all sites share, and ask again"
    return ""


def sizes_of(samples: object, in_columns: bool) -> tuple[float, float] | None:
    """The least and the largest size of a column, where the largest is far from 1; None where it is not."""
    if not in_columns or not isinstance(samples, torch.Tensor) or not samples.is_floating_point():
        return None
    sizes = samples.reshape(len(samples), -1).double().square().mean(0).sqrt()
    sizes = sizes[sizes > 0]
    if len(sizes) == 0 or not bool(torch.isfinite(sizes).all()):
        return None
    least, largest = float(sizes.min()), float(sizes.max())
    # Smaller ones beside them are common, as rare words or the corners of pictures are.
    return None if 1 / ODD_SIZE <= largest <= ODD_SIZE else (least, largest)


# -- Who may be advised ------------------------------------------------------------------------------------------------
# Multi-Walk with 1, 2, 4, … V walks at the best aggregator, gossip, what else the study names; or whatever a person
# asks for, up to every algorithm that is registered and can run on the graph.
#
# What an iteration costs in seconds and bits needs no training: when things happen never depends on a model, so a
# simulation without arithmetic tells it for every algorithm in a moment.

LR_FACTORS = (0.3, 1.0, 3.0)  # of the study's own learning rate: further apart than pilots can tell them apart


@dataclass(frozen=True)
class Candidate:
    """One algorithm with one learning rate."""

    protocol: Protocol  # the algorithm
    lr: float  # its learning rate
    rates: Rates  # what an iteration of it costs
    active: int  # models that train at the same time: R or V

    @property
    def algorithm(self) -> str:
        return self.protocol.label

    @property
    def label(self) -> str:
        return f"{self.protocol.label}-lr{self.lr:g}"


def best_aggregator(graph: Graph) -> ReturnTime:
    """The node that walks come back to soonest and most evenly: the smallest H²."""
    return aggregators(metropolis_hastings(graph)).best


def walk_counts(nodes: int) -> list[int]:
    """Numbers of walks to consider: 1, 2, 4, … and V itself."""
    counts = [2**k for k in range(nodes.bit_length()) if 2**k < nodes]
    return [*counts, nodes]


@dataclass(frozen=True)
class World:
    """The conditions an algorithm has to cope with: the graph, the optimizer's momentum, and failures."""

    graph: Graph
    momentum: float = 0.0  # of the optimizer, with which some go astray
    failures: bool = False  # whether nodes or messages are lost

    def check(self, protocol: Protocol) -> None:
        """Raise `SpecError` where a protocol cannot run here."""
        protocol.check_graph(self.graph)
        protocol.check_momentum(self.momentum)
        if self.failures and not protocol.survives_failures:
            raise SpecError(f"faults: {protocol.label} knows no failures; take {protocol.instead}, or no faults")
        if "peers" not in protocol.runtimes or protocol.pools_data:
            raise SpecError(f"algorithms: no real nodes can run {protocol.label}, so it is no advice; take another")


def algorithms(
    world: World, aggregator: int, named: Sequence[Protocol] = (), wanted: str | Sequence[Any] | None = None
) -> list[Protocol]:
    """Every protocol to consider, each once.

    Args:
        world: In which it has to run.
        aggregator: The best node to mix walks at; those that name none get it.
        named: By the study; considered beside walks and gossip.
        wanted: What a person wants to choose among instead: "all", names of algorithms, or protocols.

    Where all that the study names protect the nodes' data in the same way, so do all others, or they are left out: what
    protects nothing is no advice to somebody who asked for protection.
    """
    if wanted is None:
        found = usable([*walks(world.graph.nodes), AsyncGossip(), *named], world)
    else:
        found = [protocol for one in separate(wanted) for protocol in asked_for(one, world, is_all(wanted))]
    if not found:
        raise SpecError(f"algorithms: none of these can run on {world.graph.name}; take others, or another graph")
    placed = dict.fromkeys(at_the_best(protocol, aggregator) for protocol in found)
    return list(dict.fromkeys(guarded(list(placed), named)))


def guarded(found: Sequence[Protocol], named: Sequence[Protocol]) -> list[Protocol]:
    """All of them with the privacy that all named ones have; those that cannot have it are left out."""
    asked = {protocol.privacy for protocol in named}
    given = next(iter(asked)) if len(asked) == 1 else None
    if given is None:
        return list(found)
    made = []
    for protocol in found:
        with suppress(UserError):
            made.append(protocol if protocol.privacy is not None else private(protocol, **asdict(given)))
    return made


def at_the_best(protocol: Protocol, aggregator: int) -> Protocol:
    """Multi-Walk mixes at the best node unless somebody says where."""
    if isinstance(protocol, MultiWalk) and protocol.aggregator == 0:
        return replace(protocol, aggregator=aggregator)
    if isinstance(protocol, Private):
        return replace(protocol, inner=at_the_best(protocol.inner, aggregator))
    return protocol


def is_all(wanted: str | Sequence[Any]) -> bool:
    """Whether everything that is registered is meant."""
    return "all" in ([wanted] if isinstance(wanted, str) else wanted)


def separate(wanted: str | Sequence[Any]) -> list[Any]:
    """Names and protocols, one by one."""
    if is_all(wanted):
        return list(PROTOCOLS)
    return [wanted] if isinstance(wanted, (str, Protocol)) else list(wanted)


def walks(nodes: int, kind: type[MultiWalk] | type[Tour] = MultiWalk) -> list[Protocol]:
    """Multi-Walk, or tours: 1, 2, 4, … V of them."""
    return [kind(walks=count) for count in walk_counts(nodes)]


def asked_for(one: Any, world: World, lenient: bool) -> list[Protocol]:
    """What a person wants to choose among; of Multi-Walk and tours every number, of others the usual settings.

    Args:
        one: A protocol, or an algorithm's name.
        world: In which it has to run.
        lenient: Whether one that cannot is left out; else it is an error that says why.
    """
    kind = type(one) if isinstance(one, Protocol) else PROTOCOLS.find(one, "algorithms")
    nodes = world.graph.nodes
    counted = walks(nodes, kind) if issubclass(kind, (MultiWalk, Tour)) else list(kind.usual())
    each = [one] if isinstance(one, Protocol) else counted
    found = usable(each, world)
    for protocol in each if not found and not lenient else ():
        world.check(protocol)
    return found


def usable(found: Sequence[Protocol], world: World) -> list[Protocol]:
    """Those that can run: what nobody could run is no advice."""
    return [one for one in found if fits(one, world)]


def fits(protocol: Protocol, world: World) -> bool:
    """Whether a protocol can run in a world."""
    try:
        world.check(protocol)
    except UserError:
        return False
    return True


def learning_rates(base: float, factors: Sequence[float] = LR_FACTORS) -> list[float]:
    """Around the study's own, to three digits so that they read well."""
    return sorted({rounded(base * factor) for factor in factors})


def rounded(rate: float) -> float:
    """A learning rate rounded to three digits."""
    return float(f"{rate:.3g}")
