"""What a study is: network, task, training, algorithms, when to stop and when to look. The YAML of the README, typed.

Every key has a default. An unknown key, a wrong type or an impossible value is a `SpecError` that names the key.
Every number has bounds: within them nothing overflows or stands still, and far beyond them nothing is meant.
`load_spec` and `make_spec` (in `load`) are the ways in; the classes here say what is allowed.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict, model_validator

from walktalk.core.errors import SpecError
from walktalk.core.settings import misfit
from walktalk.learning import tasks
from walktalk.protocols import Described, together
from walktalk.records import folder_name
from walktalk.runtimes.semantics import CAP, BestBy, Objective, OptimizerState
from walktalk.runtimes.simulator import lines_of
from walktalk.studies.spec.algorithm import AlgorithmSpec
from walktalk.studies.spec.sections import (
    Counts,
    FaultSpec,
    NetworkSpec,
    Numbers,
    OptimizerSpec,
    Section,
    TaskSpec,
    Whole,
    allowed_text,
    key,
)

COUNT = "a whole number from 1 to 1e15"  # beyond it a float, as times and bits are, no longer counts by ones
SECONDS = "a number from 1e-9 to 1e9 (seconds)"
WHOLE_EACH = "a whole number from 1 to 1e6, a list with one for each node, or numbers by node"
SECONDS_EACH = "a number from 1e-9 to 1e9 (seconds), a list with one for each node, or numbers by node"
RATE = "a number from 1e-3 to 1e18 (bit/s)"


RATES = "a number from 1e-3 to 1e18 (bit/s), or a list with one for each node"


def _listed(given: Any) -> list[float]:
    return given if isinstance(given, list) else list(given.values()) if isinstance(given, dict) else [given]


class EpochsSpec(Section):
    """Local steps by how much data a node has: as many as its batches need to go over it that often."""

    epochs: float = key(1.0, "a number from 1e-6 to 1e6", "how often", ge=1e-6, le=1e6)


class TrainingSpec(Section):
    """One local training: what a node does between two messages."""

    batch_size: Counts = key(32, WHOLE_EACH, "samples per step, at all nodes or at each")
    local_steps: Counts | EpochsSpec = key(
        5, f"{WHOLE_EACH}, or {{epochs: 1}}", "optimizer steps in one iteration; epochs: as many as a node's data needs"
    )
    optimizer_state: OptimizerState = key(
        "visit", "visit, walk, node", "where its memory lives: nowhere, with the walk, at the node"
    )
    buffers: Literal["travel", "batch"] = key(
        "travel", "travel, batch", "BatchNorm's statistics: part of a model, sent and mixed; or those of each batch"
    )
    precision: Literal["fp32", "tf32", "bf16"] = key(
        "fp32", "fp32, tf32, bf16", "of products and activations; weights and what is sent are always 32 bits"
    )
    clip_norm: float | None = key(
        None,
        "a number above 0, at most 1e30",
        "a longer gradient is shortened to this norm; none if left out",
        gt=0,
        le=1e30,
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """A mapping with the one key epochs is no number of a node that is called so."""
        steps = given.get("local_steps") if isinstance(given, dict) else None
        if not isinstance(steps, dict) or set(steps) != {"epochs"}:
            return given
        over = steps["epochs"]
        if isinstance(over, bool) or not isinstance(over, (int, float)) or not 1e-6 <= over <= 1e6:
            raise misfit("local_steps.epochs", over, allowed_text(EpochsSpec, "epochs"))
        return {**given, "local_steps": EpochsSpec(epochs=over)}

    @model_validator(mode="after")
    def _fits(self) -> TrainingSpec:
        for name in ("batch_size", "local_steps"):
            given = getattr(self, name)
            if isinstance(given, EpochsSpec):
                continue
            if not all(1 <= count <= 1e6 for count in _listed(given) or [0]):
                raise misfit(name, given, allowed_text(type(self), name))
        return self

    @property
    def usual_batch(self) -> int:
        """Samples per step, mean over nodes."""
        return round(float(np.mean(_listed(self.batch_size))))

    @property
    def usual_steps(self) -> int | None:
        """Optimizer steps in one iteration, mean over nodes; None where data says how many."""
        if isinstance(self.local_steps, EpochsSpec):
            return None
        return round(float(np.mean(_listed(self.local_steps))))


class ObjectiveSpec(Section):
    """Whose loss is minimized, by every algorithm: Σ w_i f_i, f_i being the mean loss over the samples of node i."""

    weights: str | dict[str, Any] | None = key(
        None,
        "published, samples, sites, or a number for each node by its name",
        "what nodes count: by their samples, alike, as declared, or as each algorithm was published; if left out "
        "samples, and published for the tasks of walktalk itself",
    )
    cap: float = key(
        CAP,
        "a number above 0, at most 1e6",
        "the most that a node's learning rate is multiplied by; where it would be more, all rates are smaller alike",
        gt=0,
        le=1e6,
    )
    equal_pace: bool = key(
        False, "true or false", "nodes that train more often than others make smaller steps, so that they count no more"
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """A word alone says the weights; a node may be called by its number."""
        given = {"weights": given} if isinstance(given, str) else given
        if isinstance(given, dict) and isinstance(given.get("weights"), dict):
            return {**given, "weights": {str(name): weight for name, weight in given["weights"].items()}}
        return given

    @model_validator(mode="after")
    def _fits(self) -> ObjectiveSpec:
        try:
            Objective("samples" if self.weights is None else self.weights, self.cap, self.equal_pace)  # type: ignore[arg-type]
        except SpecError as error:
            raise ValueError(str(error).removeprefix("objective.")) from error
        return self


class ScheduleSpec(Section):
    """The learning rate over a run, by progress from 0 to 1 toward the stop."""

    warmup: float = key(
        0.0, "a number from 0 to below 1", "share of the run in which the rate grows from 0", ge=0, lt=1
    )
    decay_at: list[float] = key(
        [], "rising numbers between 0 and 1", "progress at which the rate is multiplied by factor"
    )
    factor: float = key(0.1, "a number above 0, at most 1", "what the rate is multiplied by each time", gt=0, le=1)
    cosine_to: float | None = key(
        None,
        "a number from 0 to 1",
        "in place of decay_at: the share of the rate that half a cosine wave leaves in the end",
        ge=0,
        le=1,
    )

    @model_validator(mode="after")
    def _fits(self) -> ScheduleSpec:
        at = self.decay_at
        if not all(0 < share < 1 for share in at) or sorted(set(at)) != at:
            raise misfit("decay_at", at, "rising numbers between 0 and 1, such as [0.75, 0.9]")
        if self.cosine_to is not None and at:
            raise ValueError(f"cosine_to: {self.cosine_to} and decay_at: {at} exclude each other; leave one out")
        return self


class StragglersSpec(Section):
    """Nodes that are slower than the others all the time."""

    share: float = key(0.0, "a number from 0 to 1", "share of the nodes that are slow", ge=0, le=1)
    slowdown: float = key(1.0, "a number from 1 to 1e6", "how many times longer they take", ge=1, le=1e6)


class TimingSpec(Section):
    """How long things take. `poisson` is Section 4.3 of the paper; `network` has computers and links."""

    model: Literal["poisson", "network"] = key("poisson", "poisson, network", "the timing model")
    d: float = key(1.0, SECONDS, "poisson: mean time of one iteration of a walk or node", ge=1e-9, le=1e9)
    compute: Numbers = key(1.0, SECONDS_EACH, "network: time of one local training, of all nodes or of each")
    spread: float = key(0.0, "a number from 0 to 10", "network: σ of the logarithm of that time", ge=0, le=10)
    stragglers: StragglersSpec = key({}, "share and slowdown", "network: slow nodes")
    latency: float | None = key(
        None,
        "a number from 0 to 1e6 (seconds)",
        "network: one way; between sites as they say, else 0.01, if left out",
        ge=0,
        le=1e6,
    )
    bandwidth: float | None = key(
        None, RATE, "network: of a link; between sites as they say, else 1e9, if left out", ge=1e-3, le=1e18
    )
    node_bandwidth: float | None = key(
        None, RATE, "network: of each node, in and out; unlimited if left out", ge=1e-3, le=1e18
    )
    up: float | list[float] | None = key(None, RATES, "network: what nodes can send; node_bandwidth if left out")
    down: float | list[float] | None = key(None, RATES, "network: what nodes can receive; node_bandwidth if left out")
    jitter: float | None = key(
        None,
        "a number from 0 to 1e6 (seconds)",
        "network: mean of a random time, exponential, that a message takes longer; none if left out",
        ge=0,
        le=1e6,
    )
    slow_start: float | None = key(
        None,
        "a number from 1 to 1e12 (bytes)",
        "network: what a transfer may send in its first round trip, twice as much in each that follows; TCP's is 14600",
        ge=1,
        le=1e12,
    )

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True)

    @model_validator(mode="after")
    def _fits(self) -> TimingSpec:
        for name in self.model_fields_set - {"model"}:
            value = getattr(self, name)
            if (name == "d") != (self.model == "poisson") and value != type(self).model_fields[name].default:
                raise ValueError(f"{name}: {value!r} has no meaning for timing model {self.model}")
        for name, low, high, allowed in (
            ("compute", 1e-9, 1e9, SECONDS_EACH),
            ("up", 1e-3, 1e18, RATES),
            ("down", 1e-3, 1e18, RATES),
        ):
            given = getattr(self, name)
            if given is not None and not all(low <= value <= high for value in _listed(given) or [0.0]):
                raise misfit(name, given, allowed)
        return self


HOPES = ("target_loss", "target_accuracy", "patience")  # ends that need not come


class StopSpec(Section):
    """When a run ends: at the first that is met."""

    iterations: Whole | None = key(None, COUNT, "local trainings completed", ge=1, le=1e15)
    time: float | None = key(None, "a number from 1e-9 to 1e12 (seconds)", "virtual or real time", ge=1e-9, le=1e12)
    bits: float | None = key(None, "a number from 1 to 1e24", "bits sent between nodes", ge=1, le=1e24)
    target_loss: float | None = key(
        None, "a number from −1e9 to 1e9", "training loss of the evaluated model", ge=-1e9, le=1e9
    )
    target_accuracy: float | None = key(
        None, "a number from 0 to 1", "its accuracy on the test samples; in the simulator", ge=0, le=1
    )
    patience: Whole | None = key(
        None,
        COUNT,
        "evaluations in a row without a lower loss: on test samples, where there are any; in the simulator",
        ge=1,
        le=1e15,
    )

    @model_validator(mode="after")
    def _fits(self) -> StopSpec:
        if self.iterations is self.time is self.bits is None:
            hope = next((name for name in HOPES if getattr(self, name) is not None), None)
            if hope is None:
                raise ValueError("iterations: is missing; at least one of iterations, time, bits is needed")
            raise ValueError(f"{hope}: may never be reached; give iterations, time or bits beside it")
        return self


class EvaluateSpec(Section):
    """When and on what the models are measured."""

    every: Whole | None = key(None, COUNT, "iterations between evaluations; 100 unless seconds", ge=1, le=1e15)
    seconds: float | None = key(
        None, "a number from 1e-6 to 1e12 (seconds)", "time between evaluations, in place of every", ge=1e-6, le=1e12
    )
    model: Literal["aggregated", "mean", "node"] = key(
        "aggregated", "aggregated, mean, node", "what is measured: the algorithm's output, the members' mean, node 0"
    )
    samples: Whole | None = key(None, COUNT, "training samples for the loss; 10,000 or all if left out", ge=1, le=1e15)
    nodes: list[Whole] | None = key(
        None,
        "a list of nodes' numbers, such as [1, 2]",
        "whose training samples the loss is measured on; everybody's if left out; in the simulator",
        min_length=1,
    )
    validation: float | None = key(
        None,
        "a number above 0, below 1",
        "share of every node's samples that is not trained on, but measured on",
        gt=0,
        lt=1,
    )
    best: BestBy | None = key(
        None,
        "valid_loss, valid_accuracy, test_loss, test_accuracy, train_loss",
        "by what the best model is kept beside the last; valid_loss with validation, else train_loss",
    )
    members: bool | None = key(
        None, "true or false", "measure every node's or walk's model, too: worst, mean and spread; false if left out"
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("every") is None and given.get("seconds") is None:
            return {**given, "every": 100}
        return given

    @model_validator(mode="after")
    def _fits(self) -> EvaluateSpec:
        if self.every is not None and self.seconds is not None:
            raise ValueError(f"seconds: {self.seconds} and every: {self.every} exclude each other; leave one out")
        if self.best is not None and self.best.startswith("valid_") and self.validation is None:
            raise ValueError(f"best: {self.best} needs samples to validate on; give validation: 0.1, or take test_loss")
        return self

    @property
    def best_asked(self) -> BestBy | None:
        """The measure by which somebody wants the best model to be kept; None where nobody has said so."""
        return self.best or ("valid_loss" if self.validation is not None else None)

    @property
    def best_by(self) -> BestBy:
        """The measure by which the best model is kept: it is measured anyway, so that costs a copy now and then.

        Not by the test set unless somebody asks: a model that was chosen by it cannot be judged by it any more.
        """
        return self.best_asked or "train_loss"


MOST_EVALUATIONS = 1_000_000  # of one run; each is a row of its history
DEFAULT_ALGORITHMS: list[dict[str, Any]] = [
    {"name": "multi_walk", "walks": 1},
    {"name": "multi_walk", "walks": 4},
    {"name": "async_gossip"},
]


class StudySpec(Section):
    """A whole study: every algorithm, every repetition, on one graph and one split of the data."""

    name: str = key(
        "study",
        "letters, digits, dots, dashes and underscores",
        "names the output folder",
        pattern=r"^[A-Za-z0-9][\w.-]{0,99}$",
    )
    seed: Whole = key(0, "a whole number from 0 to 2⁶³ − 1", "the root of all randomness", ge=0, le=2**63 - 1)
    repetitions: Whole = key(
        1, "a whole number from 1 to 100,000", "runs per algorithm, with different randomness", ge=1, le=100_000
    )
    network: NetworkSpec = key({}, "a section", "who may talk to whom")
    task: TaskSpec = key({}, "a section", "what is learned, and how the data is split")
    training: TrainingSpec = key({}, "a section", "one local training")
    objective: ObjectiveSpec = key({}, "a section, or the weights alone", "whose loss is minimized")
    optimizer: OptimizerSpec = key({}, "a section", "the optimizer")
    schedule: ScheduleSpec = key({}, "a section", "the learning rate over a run")
    timing: TimingSpec = key({}, "a section", "how long things take")
    algorithms: list[AlgorithmSpec] = key(
        DEFAULT_ALGORITHMS, "a list with at least one algorithm", "what is compared", min_length=1
    )
    faults: list[FaultSpec] = key([], "a list of sections", "what goes wrong in the simulator, and when")
    availability: str | None = key(
        None,
        "a CSV file with the columns node, from, to",
        "who is there when, in the simulator; all always if left out",
    )
    stop: StopSpec = key({"iterations": 3000}, "a section", "when a run ends")
    evaluate: EvaluateSpec = key({}, "a section", "when the models are measured")

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True)

    @property
    def described(self) -> dict[str, Described]:
        """What its algorithms say of themselves, by label; no two have the same title or colour."""
        return together(algorithm.described() for algorithm in self.algorithms)

    @property
    def minimizes(self) -> Objective:
        """What every algorithm aims at. If nothing is said: every sample counts alike.

        The tasks of this package have the papers' objectives; and where nodes go over their data so many times
        (`local_steps: {epochs: 1}`), every sample is trained on alike already.
        """
        given, task = self.objective, self.task
        ours = str(task.settings.get("called", task.name)) in tasks.OURS
        by_data = isinstance(self.training.local_steps, EpochsSpec)
        weights = given.weights or ("published" if ours or by_data else "samples")
        return Objective(weights, given.cap, given.equal_pace)  # type: ignore[arg-type]

    @model_validator(mode="after")
    def _fits(self) -> StudySpec:
        self._check_algorithms()
        self._check_faults()
        self._check_evaluations()
        return self

    def _check_evaluations(self) -> None:
        seconds, end = self.evaluate.seconds, self.stop.time
        if seconds is not None and end is not None and end / seconds > MOST_EVALUATIONS:
            least = f"{end / MOST_EVALUATIONS:g} or more for a run of {end:g} seconds"
            raise ValueError(f"evaluate.seconds: {seconds:g} is not possible; allowed: {least}")

    def _check_faults(self) -> None:
        for place, entry in enumerate(self.faults):
            try:
                entry.fault().check(self.network.nodes, links=self.timing.model == "network")
            except SpecError as error:
                raise ValueError(f"faults.{place}.{error}") from error
        self._check_availability()
        name = "faults" if self.faults else "availability"
        failing = any(entry.fault().is_failure for entry in self.faults) or self.availability is not None
        for algorithm in self.algorithms if failing else []:
            protocol = algorithm.protocol()
            if not protocol.survives_failures:
                raise ValueError(f"{name}: {algorithm.title} knows no failures; take {protocol.instead}, or no {name}")

    def _check_availability(self) -> None:
        """Whether there is such a file; who the nodes are is known when the graph is there."""
        if self.availability is not None:
            try:
                lines_of(self.availability)
            except SpecError as error:
                raise ValueError(str(error)) from error

    def _check_algorithms(self) -> None:
        seen: set[str] = set()
        for place, algorithm in enumerate(self.algorithms):
            folder = folder_name(algorithm.title)
            if folder in seen:
                repeated = f"{algorithm.title!r} is there already"
                raise ValueError(f"algorithms.{place}: {repeated}; remove one or give it another label")
            seen.add(folder)
            self._check_nodes(place, algorithm)
            self._check_momentum(algorithm)
            self._check_end(place, algorithm)
            self._check_memory(place, algorithm)

    def _check_memory(self, place: int, algorithm: AlgorithmSpec) -> None:
        if algorithm.protocol().privacy is None or self.state_of(algorithm) != "walk":
            return
        where = "training" if algorithm.optimizer_state is None else f"algorithms.{place}"
        raise ValueError(
            f"{where}.optimizer_state: walk would send what optimizers remember of the data, which privacy "
            "does not protect; use visit or node"
        )

    def state_of(self, algorithm: AlgorithmSpec) -> OptimizerState:
        """Where the optimizer's memory lives between two trainings of this algorithm: its own place, or the study's."""
        return algorithm.optimizer_state or self.training.optimizer_state

    def _check_nodes(self, place: int, algorithm: AlgorithmSpec) -> None:
        if self.network.nodes is None:  # a file or a dimension says; checked again when the graph is there
            return
        try:
            algorithm.protocol().check(self.network.nodes)
        except SpecError as error:
            raise ValueError(f"algorithms.{place}.{error}") from error

    def _check_momentum(self, algorithm: AlgorithmSpec) -> None:
        try:
            algorithm.protocol().check_momentum(self.optimizer.momentum or 0.0)
        except SpecError as error:
            raise ValueError(str(error)) from error

    def _check_end(self, place: int, algorithm: AlgorithmSpec) -> None:
        silent = algorithm.protocol().pools_data or self.network.nodes == 1
        if silent and self.stop.iterations is None and self.stop.time is None:
            raise ValueError(f"stop.bits: {algorithm.title!r} sends nothing, so it would never end; add iterations")
