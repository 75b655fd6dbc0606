"""Somebody else's training loop as a task: a function from state to state, at one node's data."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from walktalk.core.errors import DataError, ModelError, suggestion
from walktalk.core.plugins import of_the_person
from walktalk.core.settings import misfit
from walktalk.learning.state_tree import MergedStates, PackedForm, StateForm, TreeForm, packed
from walktalk.learning.task import Task
from walktalk.learning.user_data import chosen, sources_of

ASKED_FOR = {
    "lr": "the learning rate of this training, by the study's schedule and the node's weight",
    "steps": "how many local steps it should make",
    "batch_size": "samples of a step, as the study says",
    "rng": "a generator of numpy, of this training alone",
    "seed": "a whole number below 2**31 of this training alone, as random_state of scikit-learn",
    "node": "the node's name, or its number where nodes have none",
    "memory": "what its optimizer remembers, by the study's optimizer_state",
    "correction": "a state that is to be added to every gradient, or None",
    "anchor": "a state that every step is to be pulled back to, or None",
    "pull": "times which the difference to the anchor is added to every gradient",
    "gradient": "whether the mean gradient over `steps` batches is to be given back, not a trained state",
}
"""What a step may name among its arguments, behind the state and the data."""


class StateModel(nn.Module):
    """A state as a module, to be kept, saved and loaded as any other model; `state` is the person's own tree."""

    def __init__(self, layout: StateForm, row: Tensor) -> None:
        super().__init__()
        self.layout = layout
        self.row = nn.Parameter(row)

    @property
    def state(self) -> Any:
        """The state: a tree of arrays in memory of its own."""
        return self.layout.state(self.row)

    def state_dict(self, *args: Any, **keywords: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """Its arrays by name, each as a tensor of its own type."""
        return self.layout.named(self.row)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Takes arrays by name, as `state_dict` gives them."""
        try:
            row = self.layout.row_of(state_dict, "state")
        except ModelError as error:
            raise RuntimeError(str(error)) from error
        with torch.no_grad():
            self.row.copy_(row)
        return [], []

    def extra_repr(self) -> str:
        """What it is made of."""
        if not isinstance(self.layout, TreeForm):
            return f"{self.layout.width} numbers"
        return ", ".join(f"{leaf.name}: {leaf.kind}" for leaf in self.layout.leaves)

    def forward(self, *inputs: Any) -> Any:
        """Puts out nothing: what a state means only its own loop knows."""
        raise ModelError("the model of a loop is a state, which is not called; give run.model.state to your own code")


class Loop(NamedTuple):
    """A person's functions, how states lie in rows, and the data that the functions are given."""

    step: Callable[..., Any]  # (state, data of a node, …) -> state
    wants: frozenset[str]  # what else it is given, by name
    evaluate: Callable[[Any, Any], Any]  # (state, data) -> its loss, or numbers by name with a loss among them
    layout: StateForm
    start: Callable[[int], Tensor]  # the row that a run starts from, by the run's seed
    mixing: MergedStates | None  # how means are made, where that is more than a sum of numbers
    memory: TreeForm | None  # how what the optimizer remembers lies in a row; None: it remembers nothing
    memory_start: Any  # what it begins with
    data: tuple[Any, ...]  # of each node
    tests: tuple[Any, ...]  # that nobody trains on: one for all, or each node's own

    @property
    def changes_gradients(self) -> bool:
        """Whether its step takes what some algorithms add to gradients, or gives gradients back."""
        return bool(self.wants & {"correction", "anchor", "gradient"})

    @property
    def is_carried(self) -> bool:
        """Whether states are bytes, which only whole can be copied and merged."""
        return isinstance(self.layout, PackedForm)


@dataclass(repr=False)
class LoopTask(Task):
    """A task whose training is a function of the person's; its samples are counted and never looked at."""

    loop: Loop = field(kw_only=True)

    def __repr__(self) -> str:
        """Describes the task in one line."""
        sizes = [len(part) for part in self.parts]
        of_each = f"{sizes[0]:,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
        return (
            f"LoopTask({self.name}: a state of {self.loop.layout.width:,} numbers, {self.nodes} nodes with {of_each} "
            "samples each)"
        )

    def initial(self, seed: int) -> nn.Module:
        """The state that a run starts from, as a module."""
        if self.pretrained:
            assert isinstance(self.model, StateModel)
            return StateModel(self.loop.layout, self.model.row.detach().clone())
        return StateModel(self.loop.layout, self.loop.start(seed))

    def only(self, node: int) -> Task:
        """The task with this node's data and nobody else's."""
        alone = super().only(node)
        assert isinstance(alone, LoopTask)
        tests = self.loop.tests if self.test_parts is None else (self.loop.tests[node],)
        return replace(alone, loop=self.loop._replace(data=(self.loop.data[node],), tests=tests))

    def ordered(self, names: Sequence[str]) -> Task:
        """The task with its nodes in the order of these names."""
        before, found = self.names, super().ordered(names)
        if before is None or before == found.names:
            return found
        assert isinstance(found, LoopTask)
        order = [before.index(name) for name in names]
        tests = self.loop.tests if self.test_parts is None else tuple(self.loop.tests[k] for k in order)
        return replace(found, loop=self.loop._replace(data=tuple(self.loop.data[k] for k in order), tests=tests))

    def add_identity(self, add: Callable[[bytes], None]) -> None:
        """Hands over what tells it from other tasks: its functions as they are written, its data and its state."""
        loop = self.loop
        merge = None if loop.mixing is None else loop.mixing.merge
        for function in (loop.step, loop.evaluate, merge):
            add(source_of(function).encode())
        for part in (*loop.data, *loop.tests):
            add(identity_of(part))
        add(loop.start(0).numpy().tobytes())


def loop(
    step: Callable[..., Any],
    state: Any,
    partitions: Any,
    *,
    evaluate: Callable[[Any, Any], Any],
    test: Any = None,
    samples: Callable[[Any], int] | None = None,
    merge: Callable[[list[Any], list[float]], Any] | None = None,
    room: int | None = None,
    memory: Any = None,
    name: str = "loop",
    part: str | int | None = None,
    names: Sequence[str] | None = None,
) -> Task:
    """Your own training loop as a task, of whatever library: a function from state to state.

    A run calls `step(state, data)` in place of a local training, model after model, in the order and with the data
    that the algorithm asks for. All else is as for any other task: `train`, `compare`, `run_study`, `advise`, the page.

    Args:
        step: `step(state, data)` trains a state on one node's data and returns the new one. What else it names among
            its arguments it is given: `lr`, `steps`, `batch_size`, `rng`, `seed`, `node`; `memory`; and, for
            algorithms that change gradients, `correction`, `anchor`, `pull` and `gradient`. All that is random in it
            has to come from `rng` or `seed`: then the same study gives the same history. If it takes no `lr`, and the
            study's schedule or the node's weight changes that, its way from the old state to the new one is lengthened
            by as much.
        state: What is trained: a tree of arrays (nested dictionaries, lists and tuples; numpy, torch or JAX), such as
            a module's `state_dict()`, or a function of a seed that makes one for every repetition. Floats are mixed
            and sent in 32 bits and given back in their own; a single whole number is a counter, and means of it are
            rounded. Other whole numbers, truth values, strings and bytes need `merge` or an algorithm with one model,
            and `room`.
        partitions: The data of each node, anything that `step` takes: a list, a dictionary by node name, or a function
            of a name; an entry may be a function that gives it.
        evaluate: `evaluate(state, data)` returns the mean loss, or a dictionary of numbers by name with a `loss`. The
            training loss is that of all nodes, weighed by the study's objective.
        test: Data that nobody trains on, or a dictionary by node name, each node's own. `loss` becomes `test_loss`,
            `accuracy` `test_accuracy`, and others keep their names.
        samples: How many samples a node's data has; its length if left out, of a tuple or dictionary that of its first
            entry.
        merge: `merge(states, weights)` makes one state of several, where a mean of their numbers means nothing: trees
            of boosting, components of a mixture in any order. Only algorithms that average whole models can use it:
            `multi_walk`, and for states of fixed shapes `async_gossip`.
        room: Bytes that a state may take at most, where it is not a tree of numbers of fixed shapes. A model on the
            wire counts as so many.
        memory: What your optimizer remembers between two trainings, a tree as `state` is: `step` is given it as
            `memory`, and returns `(state, memory)`. The study's `optimizer_state` says where it lives.
        name: How the task is called in tables and folders.
        part: A node's name or number: only that node's data is asked for.
        names: The nodes' names, where `partitions` is a function.
    """
    wants = wanted_by(step)
    check_functions(evaluate, merge)
    if samples is not None and not callable(samples):
        raise misfit("samples", samples, "a function samples(data)", ModelError)
    if ("memory" in wants) != (memory is not None):
        given = "step takes no argument memory" if memory is not None else "step takes one, and none is given"
        raise ModelError(f"memory: {given}; it needs both, or neither")
    make = seeded_start(state)
    first = make(0)
    layout = form_of_states(first, room)
    start = layout.row(first, "state")
    if room is None and not bool(torch.isfinite(start).all()):
        raise ModelError("state: it begins with a number that is not finite, or beyond 3.4e38 (numbers have 32 bits)")
    memory_layout = None if memory is None else TreeForm(memory, "memory")
    sources = chosen(sources_of(partitions, names), part)
    data = tuple(source.load() for source in sources)
    counts = [counted(one, source.where, samples) for one, source in zip(data, sources, strict=True)]
    known = tuple(source.name for source in sources if source.name is not None)
    by_name = known if len(known) == len(sources) else None
    own_tests = by_name is not None and isinstance(test, Mapping) and all(one in test for one in by_name)
    tests = () if test is None else tuple(test[one] for one in by_name or ()) if own_tests else (test,)
    test_counts = [counted(one, "test", samples) for one in tests]
    mixing = MergedStates(layout, merge) if merge is not None or isinstance(layout, PackedForm) else None
    numbers = torch.arange(sum(counts))
    tested = torch.arange(sum(test_counts))
    return LoopTask(
        name,
        StateModel(layout, start),
        evaluate,
        numbers,
        numbers,
        consecutive(counts),
        (tested, tested) if tests else None,
        pretrained=not callable(state),
        names=by_name,
        test_parts=consecutive(test_counts) if own_tests else None,
        loop=Loop(step, wants, evaluate, layout, started_by(make, layout), mixing, memory_layout, memory, data, tests),
    )


def wanted_by(step: Any) -> frozenset[str]:
    """What a step names among its arguments behind the state and the data; a `ModelError` where it cannot be called."""
    if not callable(step):
        raise misfit("step", step, "a function step(state, data)", ModelError)
    try:
        parameters = list(inspect.signature(step).parameters.values())
    except (TypeError, ValueError):  # nothing is known of it, as of some that are written in C
        return frozenset()
    by_place = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    called = getattr(step, "__name__", type(step).__name__)
    if not any(one.kind is one.VAR_POSITIONAL for one in parameters) and len(by_place) < 2:
        raise ModelError(f"step: {called} has to take a state and a node's data: {called}(state, data)")
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    others = [one for one in parameters if one.kind in named and one not in by_place[:2]]
    for one in others:
        if one.name not in ASKED_FOR and one.default is one.empty:
            raise ModelError(
                f"step: nothing is known to give as {one.name!r}; known are {', '.join(ASKED_FOR)}"
                f"{suggestion(one.name, ASKED_FOR)}; give anything else a default"
            )
    wants = frozenset(one.name for one in others if one.name in ASKED_FOR)
    if not wants and any(one.kind is one.VAR_KEYWORD for one in parameters):
        raise ModelError(
            f"step: {called} takes any keyword, so what it asks for is not known; name its arguments (of "
            f"{', '.join(ASKED_FOR)}), or let a wrapper say whom it wraps (functools.wraps)"
        )
    if ("anchor" in wants) != ("pull" in wants):
        raise ModelError("step: anchor and pull belong together; take both as arguments, or neither")
    return wants


def check_functions(evaluate: Any, merge: Any) -> None:
    """Checks that the other functions can be called with what they are given."""
    known = (("evaluate", evaluate, "(state, data)"), ("merge", merge, "(states, weights)"))
    for name, function, arguments in known:
        if function is None and name == "merge":
            continue
        if not callable(function):
            raise misfit(name, function, f"a function {name}{arguments}", ModelError)
        try:
            inspect.signature(function).bind(None, None)
        except ValueError:
            continue
        except TypeError as error:
            raise ModelError(f"{name}: it is called as {name}{arguments}, which it cannot be: {error}") from error


def seeded_start(state: Any) -> Callable[[int], Any]:
    """What makes the first state of a run, by the run's seed."""
    if not callable(state):
        return lambda seed: state
    try:
        count = len(inspect.signature(state).parameters)
    except (TypeError, ValueError):
        count = 1
    if count > 1:
        raise ModelError("state: it is called as state(seed), or without arguments; leave out the others")

    def make(seed: int) -> Any:
        with of_the_person("state", state, ModelError), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            return state(seed % 2**31) if count else state()

    return make


def started_by(make: Callable[[int], Any], layout: StateForm) -> Callable[[int], Tensor]:
    """The first state of a run as a row, by the run's seed."""
    return lambda seed: layout.row(make(seed), "state")


def form_of_states(state: Any, room: int | None) -> StateForm:
    """How states like this one lie in rows: number by number, or as bytes where they are given room."""
    if room is None:
        return TreeForm(state, "state")
    if isinstance(room, bool) or not isinstance(room, int) or room < 1:
        raise misfit("room", room, "a number of bytes, 1 or more", ModelError)
    return PackedForm(room)


def counted(data: Any, where: str, samples: Callable[[Any], int] | None) -> int:
    """How many samples some data has."""
    if samples is not None:
        with of_the_person("samples", samples, DataError):
            count = samples(data)
    else:
        first = data
        if isinstance(data, tuple) and data:
            first = data[0]
        elif isinstance(data, Mapping) and data:
            first = next(iter(data.values()))
        if not hasattr(first, "__len__") and not getattr(first, "shape", ()):
            raise DataError(f"{where}: how many samples it has is not known; say samples=, a function of it")
        count = first.shape[0] if getattr(first, "shape", ()) else len(first)
    if not isinstance(count, (int, float, np.number)) or not np.isfinite(count):
        raise misfit("samples", count, "a function that gives a whole number, 1 or more", DataError)
    if int(count) != count or count < 1:
        raise DataError(f"{where}: it has {count} samples; every node needs at least one")
    return int(count)


def consecutive(counts: Iterable[int]) -> list[np.ndarray]:
    """Numbers of samples, one node's behind the other's."""
    sizes = list(counts)
    ends = np.cumsum(sizes)
    return [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def source_of(function: Any) -> str:
    """How a function is written, as far as that can be known."""
    try:
        return inspect.getsource(inspect.unwrap(function)) if function is not None else ""
    except (OSError, TypeError):
        return getattr(function, "__qualname__", type(function).__qualname__)


LOOKED_AT = 1 << 24  # bytes of an array that are looked at whole; of larger ones as many numbers, evenly spread
LISTED = 1000  # entries of a list that are looked at, of a longer one the first


def numbers_of(data: Any, way: str = "data", level: int = 0) -> dict[str, int]:
    """What tells whether data was changed in place: a sum over every array in it, by the way to it.

    Cheap, as it is made before and after the first training of every node: of what is no array, it knows nothing.
    """
    found: dict[str, int] = {}
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(data, Mapping):
        parts = list(data.items())
    elif isinstance(data, (list, tuple)):
        parts = list(enumerate(data[:LISTED]))
        found[way] = len(data)
    if level < 5:
        for key, value in parts:
            found |= numbers_of(value, f"{way}[{key!r}]", level + 1)
    if isinstance(data, Tensor):
        data = data.detach().cpu().view(torch.uint8).numpy() if data.is_contiguous() and data.dim() else None
    data = getattr(data, "values", data) if hasattr(data, "iloc") else data  # a frame of pandas
    if isinstance(data, np.ndarray) and data.dtype.kind in "biufcSU":
        flat = data.reshape(-1)  # a copy where it does not lie in one piece
        every = max(1, flat.nbytes // LOOKED_AT)
        found[way] = zlib.crc32(np.ascontiguousarray(flat[::every]).view(np.uint8).data)
    return found


def identity_of(data: Any) -> bytes:
    """Bytes that differ where data does, as far as it consists of arrays, numbers and strings."""
    if isinstance(data, Mapping):
        return b"".join(str(key).encode() + identity_of(value) for key, value in data.items())
    if isinstance(data, (list, tuple)):
        return b"".join(identity_of(value) for value in data)
    if isinstance(data, np.ndarray) and data.dtype.kind in "OUS":
        return repr(data.tolist()).encode()
    try:
        return packed(data, "")
    except ModelError:
        pass
    if hasattr(data, "__array__"):  # a frame, a sparse matrix that can be one, a tensor of another library
        return repr(np.asarray(data).tolist()).encode()
    return type(data).__qualname__.encode()
