"""How models are trained, as one object or keyword by keyword: what `train`, `compare`, `advise` and `forecast` share.

Each keyword is defined once, with its meaning and its default, as a field of a dataclass; the typed dictionaries below
name the same fields, so that editors and type checkers know every keyword of a function that takes `**keywords`.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

from walktalk.api.callbacks import CallbackLike
from walktalk.core.errors import SpecError, StudyError, UnavailableError, suggestion
from walktalk.core.settings import meanings_in, misfit
from walktalk.learning import Buffers, Schedule
from walktalk.learning.tasks import Weights
from walktalk.runtimes.semantics import Evaluate, OptimizerState, Stop
from walktalk.runtimes.simulator import Fault, Timing
from walktalk.studies import Progress
from walktalk.studies.spec import OptimizerLike

ObjectiveLike: TypeAlias = Literal["samples", "sites", "published"] | Mapping[str, Any]
Function = TypeVar("Function", bound=Callable[..., Any])
CountsLike: TypeAlias = int | Sequence[int] | Mapping[str, float]
"""A number for all nodes, a list with one for each, or numbers by the nodes' names."""


@dataclass(frozen=True)
class Training:
    """How the models of a run are trained, for how long, and when they are measured.

    It can be made once and given to `train`, `compare`, `advise` and `forecast`, which also take each of its fields as
    a keyword; a keyword that stands beside a `Training` replaces that field of it. A study in YAML has the same words.

    Args:
        optimizer: The optimizer of every local training: `wt.SGD(…)`, a name such as `"adam"`, a class of
            torch.optim, or a partial of one with its settings; `wt.SGD()`, the paper's, if left out.
        batch_size: Samples of a batch, drawn with replacement from the node's own; a list with one number for each
            node, or numbers by name.
        local_steps: Optimizer steps of one local training; likewise by node, or `{"epochs": 1}`, as many as the node's
            batches need to go over its data once.
        optimizer_state: Where momentum and the like live between two trainings: `visit`, nowhere; `walk`, they
            travel with the walk; `node`, they stay at the node.
        buffers: What becomes of BatchNorm's statistics: `travel`, sent and mixed with the model; `batch`, every
            batch has its own.
        precision: Precision of products and activations: `fp32`, `tf32`, `bf16`; weights are always 32 bits.
        clip_norm: A gradient that is longer is shortened to this norm; none is if left out.
        schedule: The learning rate over a run, by progress toward the stop: a `Schedule` or `"cosine"`; constant if
            left out.
        timing: How long things take in virtual time; `PoissonTiming()` with d = 1 second if left out.
        faults: What goes wrong in the simulator, and when: a list of `Fault`.
        stop: When a run ends: a number of iterations, or a `Stop`; after 1,000 iterations if left out, 3,000 for
            `advise`.
        evaluate: When models are measured: every so many iterations, or an `Evaluate`; every 100 if left out.
        init: Weights that every run starts from, in place of the task's: a safetensors file, a folder of `run.save`,
            a state dict, or a module such as `run.model`.
        seed: The root of all randomness: initial weights, batches, walks, times.
        objective: Whose loss is minimized: `"samples"`, every sample counts alike; `"sites"`, every node does; or keys
            as in a study, such as `{"weights": {"lyon": 2, "oslo": 1}, "cap": 2.0, "equal_pace": True}`. For your own
            data `samples` if left out. Of `advise` it is another keyword; give it a `Training` with this field.
    """

    optimizer: OptimizerLike | None = None
    batch_size: CountsLike = 32
    local_steps: CountsLike = 5
    optimizer_state: OptimizerState = "visit"
    buffers: Buffers = "travel"
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    clip_norm: float | None = None
    schedule: Schedule | Literal["cosine"] | Mapping[str, Any] | None = None
    timing: Timing | Mapping[str, Any] | None = None
    faults: Sequence[Fault | Mapping[str, Any]] = ()
    stop: int | Stop | Mapping[str, Any] | None = None
    evaluate: int | Evaluate | Mapping[str, Any] | None = None
    init: Weights | None = None
    seed: int = 0
    objective: ObjectiveLike | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """All fields by name, with None where nothing was said."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class RunOptions:
    """What executes a study, where its records go, and who watches.

    Args:
        engine: What runs it: `sim`, in virtual time, or `peers`, one real process a node on this machine.
        device: The device that trains: `auto`, `cpu` or `cuda`.
        out: A folder for the records, with checkpoints to go on from; without one the result is in memory only.
        workers: Processes that share the runs, as many as pay if left out; or `"ray"`.
        memory: Bytes to be used at most; what is free if left out.
        resume: Go on where an interrupted run stopped in `out`.
        overwrite: Replace what is in `out` when the new results are whole.
        callbacks: `Callback` objects, or functions of a row of the history, which end a run by returning True.
        progress: Whether to show a bar, where somebody can see it if left out; or a function that is called now and
            then with how far things are.
    """

    engine: Literal["sim", "peers"] = "sim"
    device: str = "auto"
    out: str | PathLike[str] | None = None
    workers: int | Literal["ray"] | None = None
    memory: float | None = None
    resume: bool = False
    overwrite: bool = False
    callbacks: CallbackLike | Sequence[CallbackLike] = ()
    progress: bool | Callable[[Progress], None] | None = None


@dataclass(frozen=True)
class AdviceOptions:
    """What an advice is to achieve, what it chooses among, and how its pilots are run.

    Args:
        objective: What to save: `iterations`, `time` or `bits`.
        target_loss: The training loss to reach; where a tenth of the excess is left, if left out.
        budget: In place of a target: find the lowest loss for so many iterations, seconds or bits.
        algorithms: What to choose among: `"all"`, or a list of names and protocols; walks and gossip if left out.
        model_bytes: Size of the model on the wire, where the pilots train a smaller one.
        device: The device that trains the pilots: `auto`, `cpu` or `cuda`.
        progress: A function that is called now and then with what is being done, and the share of all that is done.
    """

    objective: Literal["iterations", "time", "bits"] = "time"
    target_loss: float | None = None
    budget: float | None = None
    algorithms: str | Sequence[Any] | None = None
    model_bytes: int | None = None
    device: str = "auto"
    progress: Callable[[str, float], None] | None = None


class TrainingKeywords(TypedDict, total=False):
    """The fields of `Training` as keywords."""

    optimizer: OptimizerLike | None
    batch_size: CountsLike
    local_steps: CountsLike
    optimizer_state: OptimizerState
    buffers: Buffers
    precision: Literal["fp32", "tf32", "bf16"]
    clip_norm: float | None
    schedule: Schedule | Literal["cosine"] | Mapping[str, Any] | None
    timing: Timing | Mapping[str, Any] | None
    faults: Sequence[Fault | Mapping[str, Any]]
    stop: int | Stop | Mapping[str, Any] | None
    evaluate: int | Evaluate | Mapping[str, Any] | None
    init: Weights | None
    seed: int


class TrainKeywords(TrainingKeywords, total=False):
    """What `train` takes: the fields of `Training`, and those of `RunOptions` that a single run has."""

    objective: ObjectiveLike | None
    engine: Literal["sim", "peers"]
    device: str
    out: str | PathLike[str] | None
    resume: bool
    overwrite: bool
    callbacks: CallbackLike | Sequence[CallbackLike]
    progress: bool | Callable[[Progress], None] | None


class CompareKeywords(TrainKeywords, total=False):
    """What `compare` takes: the fields of `Training` and of `RunOptions`."""

    workers: int | Literal["ray"] | None
    memory: float | None


class AdviseKeywords(TrainingKeywords, total=False):
    """What `advise` takes: the fields of `Training` and of `AdviceOptions`."""

    objective: Literal["iterations", "time", "bits"]
    target_loss: float | None
    budget: float | None
    algorithms: str | Sequence[Any] | None
    model_bytes: int | None
    device: str
    progress: Callable[[str, float], None] | None


def lists_keywords(keywords: type, *options: type) -> Callable[[Function], Function]:
    """A decorator for functions of `**keywords`: `help` and `inspect.signature` show each keyword with its default.

    Args:
        keywords: The typed dictionary that names them.
        options: The dataclasses that define them: `Training`, and the function's own options.
    """

    def listed(function: Function) -> Function:
        known = {one.name: one for kind in options for one in fields(kind) if one.name in keywords.__annotations__}
        own = inspect.signature(function)
        kept = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
            for name, one in known.items()
        ]
        meanings = {name: text for kind in options for name, text in meanings_in(kind.__doc__).items()}
        lines = [f"{name}: {meanings[name]}." for name in known]
        wrapped = [
            textwrap.fill(line, 112, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False)
            for line in lines
        ]
        made: Any = function
        made.__signature__ = own.replace(parameters=[*kept, *added])
        made.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), *wrapped])
        return function

    return listed


def split_keywords(
    function: Callable[..., Any], training: Training | None, keywords: Mapping[str, Any]
) -> tuple[Training, dict[str, Any]]:
    """The training that a call says, and the other keywords of that call, which are for the function's own options.

    Args:
        function: What was called, by whose signature keywords are checked.
        training: A training that was given as an object; keywords replace its fields.
        keywords: All keywords of the call.
    """
    if training is not None and not isinstance(training, Training):
        raise misfit("training", training, "wt.Training(…), or its fields as keywords", SpecError)
    known = [name for name, one in inspect.signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY]
    for name in keywords:
        if name not in known:
            near = suggestion(name, known) or f"; allowed: {', '.join(known)}"
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{near}")
    of_training = {field.name for field in fields(Training)}
    made = replace(training or Training(), **{name: keywords[name] for name in keywords if name in of_training})
    return made, {name: keywords[name] for name in keywords if name not in of_training}


OPTIONS_AS_ARGUMENTS = {
    r"another --out\b": "another folder",
    r"--engine (\w+)": r'engine="\1"',
    r"--(resume|overwrite)\b": r"\1=True",
    r"--(out|memory|workers|device)\b": r"\1",
}


@contextmanager
def errors_name_arguments() -> Iterator[None]:
    """Makes errors that name options of the command line name the arguments of Python that do the same."""
    try:
        yield
    except (StudyError, UnavailableError) as error:
        said = str(error)
        for option, argument in OPTIONS_AS_ARGUMENTS.items():
            said = re.sub(option, argument, said)
        if said == str(error):
            raise
        raise type(error)(said) from error
