"""What a person hands over in Python, as sections of a specification: then one place says what is allowed.

Each function takes what `walktalk.train` and `walktalk.compare` take for one argument, and gives the section's keys; a
wrong type is a `SpecError` that says what would do.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from walktalk import learning
from walktalk.core.errors import SpecError
from walktalk.core.settings import Setting, misfit, settings_of, typed
from walktalk.graphs import Graph
from walktalk.learning import OptimizerSpec, Schedule
from walktalk.protocols import Protocol
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import Fault, NetworkTiming, PoissonTiming
from walktalk.studies.spec.algorithm import AlgorithmSpec

OptimizerLike: TypeAlias = learning.OptimizerSpec | str | type[torch.optim.Optimizer] | partial[Any] | Mapping[str, Any]
MOST_EDGES = 5000  # that a specification lists; with more it would be slow to read


def _no(key: str, value: object, allowed: str) -> Exception:
    return misfit(key, value, allowed, SpecError)


def optimizer_section(given: Any) -> Mapping[str, Any]:
    """An optimizer of ours, a name, a class of torch.optim, or a partial of one with its settings."""
    if isinstance(given, str):
        return {"name": given}
    if isinstance(given, Mapping):
        return given
    if isinstance(given, learning.OptimizerSpec):
        return _of_spec(given)
    kind, settings = (given.func, dict(given.keywords)) if isinstance(given, partial) else (given, {})
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer):
        if isinstance(given, partial) and given.args:
            raise _no("optimizer", given, "a class of torch.optim with settings by name, such as lr=0.1")
        if getattr(torch.optim, kind.__name__, object) is not kind:
            raise SpecError(
                f"optimizer: {kind.__name__} is not torch's own; give it with the task: wt.tasks.torch(…, optimizers="
                f"{{'*': functools.partial({kind.__name__}, lr=…)}})"
            )
        return _of_class(kind, settings)
    if isinstance(given, torch.optim.Optimizer):
        name = type(given).__name__
        raise SpecError(
            f"optimizer: this {name} belongs to one model, and many are trained here; give its class and its settings, "
            f"functools.partial(torch.optim.{name}, lr=…), or wt.SGD(lr=…), wt.Adam(lr=…)"
        )
    raise _no("optimizer", given, "wt.SGD(), wt.Adam(), a name such as 'adam', or a class of torch.optim")


def _of_spec(given: learning.OptimizerSpec) -> dict[str, Any]:
    section = {"name": given.name, "lr": given.lr, "weight_decay": given.weight_decay, **given.extra}
    if given.name == "sgd":
        section |= {"momentum": given.momentum, "nesterov": given.nesterov}
    elif given.momentum:
        section["momentum"] = given.momentum
    section |= {} if given.betas is None else {"betas": list(given.betas)}
    return section | ({} if given.eps is None else {"eps": given.eps})


def _of_class(kind: type[torch.optim.Optimizer], settings: dict[str, Any]) -> dict[str, Any]:
    """The section of a class of torch.optim, with torch's own defaults, not ours: a class means itself."""
    takes = inspect.signature(kind).parameters
    usual = {name: takes[name].default for name in ("lr", "momentum", "nesterov", "weight_decay") if name in takes}
    usual = {name: value for name, value in usual.items() if isinstance(value, (bool, int, float))}
    given = {**usual, **settings}
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    return {"name": kind.__name__.lower(), **{k: float(v) if k == "lr" else v for k, v in given.items()}}


def schedule_section(given: Any) -> Mapping[str, Any]:
    """A schedule, the word cosine, or the keys of one."""
    if isinstance(given, Mapping):
        return given
    if given == "cosine":
        return {"cosine_to": 0.0}
    if not isinstance(given, Schedule):
        raise _no("schedule", given, "'cosine', wt.Schedule(…)")
    return _without_none({**asdict(given), "decay_at": list(given.decay_at)})


def timing_section(given: Any) -> Mapping[str, Any]:
    """A timing model, or the keys of one."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, PoissonTiming):
        return {"model": "poisson", "d": given.d}
    if not isinstance(given, NetworkTiming):
        raise _no("timing", given, "wt.PoissonTiming(…), wt.NetworkTiming(…)")
    stragglers = {"share": given.straggler_share, "slowdown": given.straggler_slowdown}
    plain = {name: _plain(getattr(given, name)) for name in ("compute", "spread", "latency", "bandwidth")}
    limit = {} if math.isinf(given.node_bandwidth) else {"node_bandwidth": given.node_bandwidth}
    ends = {name: _plain(rates) for name, rates in given.ends().items()}
    more = _without_none({**ends, "jitter": given.jitter or None, "slow_start": given.slow_start})
    return {"model": "network", **plain, "stragglers": stragglers, **limit, **more}


def _plain(given: Any) -> Any:
    """A number, numbers in a list, or numbers by name, as YAML holds them."""
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    values = np.asarray(given)
    return given if values.ndim == 0 else values.tolist()


def stop_section(given: Any) -> Mapping[str, Any]:
    """A number of iterations, a `Stop`, or the keys of one."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return {"iterations": given}
    if not isinstance(given, Stop):
        raise _no("stop", given, "a number of iterations, or wt.Stop(…)")
    return _without_none(asdict(given))


def evaluate_section(given: Any) -> Mapping[str, Any]:
    """Iterations between two evaluations, an `Evaluate`, or the keys of one."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return {"every": given}
    if not isinstance(given, Evaluate):
        raise _no("evaluate", given, "iterations between two evaluations, or wt.Evaluate(…)")
    found = _without_none(asdict(given))
    if given.seconds is not None and given.every == Evaluate().every:
        del found["every"]  # its default stands for nothing where seconds are given
    return found if given.members else {name: value for name, value in found.items() if name != "members"}


def faults_section(given: Any) -> list[Mapping[str, Any]]:
    """Faults, or the keys of each."""
    if isinstance(given, (str, Mapping, Fault)) or not isinstance(given, Sequence):
        raise _no("faults", given, "a list of wt.Fault(…)")
    return [_fault(one, place) for place, one in enumerate(given)]


def _fault(one: Any, place: int) -> Mapping[str, Any]:
    if isinstance(one, Mapping):
        return one
    if not isinstance(one, Fault):
        raise _no(f"faults.{place}", one, "wt.Fault(…)")
    found = _without_none(asdict(one))
    found |= {name: list(found[name]) for name in ("nodes", "link") if name in found}
    return found


def algorithms_section(given: Any) -> list[Any]:
    """Protocols, names of algorithms, or the keys of an entry each."""
    if isinstance(given, (str, Mapping, Protocol, type)):
        given = [given]
    if not isinstance(given, Sequence) or not given:
        raise _no("algorithms", given, "a list with at least one, such as [wt.MultiWalk(walks=4), wt.AsyncGossip()]")
    return [entry for place, one in enumerate(given) for entry in _algorithm(one, place)]


def _algorithm(one: Any, place: int) -> list[Any]:
    if isinstance(one, Mapping):
        return [one]
    if isinstance(one, str):
        return [{"name": one}]
    if isinstance(one, type) and issubclass(one, Protocol):
        raise _no(f"algorithms.{place}", one, f"an object, as in {one.__name__}()")
    if not isinstance(one, Protocol):
        raise _no(f"algorithms.{place}", one, "an algorithm such as wt.MultiWalk(walks=4), or its name")
    return [AlgorithmSpec.of(_checked(single, place)) for single in _singles(one)]


def _checked(protocol: Protocol, place: int) -> Protocol:
    """The protocol, if each setting is of the type and within the bounds that its class says, as in a specification."""
    kinds: dict[str, Setting] = settings_of(type(protocol.core)) if is_dataclass(protocol.core) else {}
    for name, value in protocol.core.settings.items():
        if isinstance(value, (bool, int, float, str)) and name in kinds:  # what else there is, its class has to judge
            typed(f"algorithms.{place}.{name}", value, kinds[name])
    return protocol


def _singles(protocol: Protocol) -> list[Protocol]:
    """One for each combination of the values in lists, as in a specification; a setting that is a list stays one."""
    kinds: dict[str, Setting] = settings_of(type(protocol)) if is_dataclass(protocol) else {}
    lists = {
        name: value
        for name, value in protocol.settings.items()
        if isinstance(value, list) and value and not kinds[name].is_list
    }
    if not lists:
        return [protocol]
    make: Any = replace
    return [make(protocol, **dict(zip(lists, chosen, strict=True))) for chosen in itertools.product(*lists.values())]


def network_section(graph: Graph) -> dict[str, Any]:
    """A graph edge by edge; one that has sites, rounds or very many edges can only be named."""
    if graph.sites is not None or graph.rounds is not None or graph.edges > MOST_EDGES:
        digest = hashlib.blake2b(graph.indptr.tobytes() + graph.indices.tobytes(), digest_size=8).hexdigest()
        return {"topology": "given", "nodes": graph.nodes, "called": graph.name, "digest": digest}
    section: dict[str, Any] = {
        "topology": "edges",
        "nodes": graph.nodes,
        "called": graph.name,
        "directed": graph.directed,
        "edges": graph.edge_list().tolist(),
    }
    return section if graph.names is None else {**section, "names": list(graph.names)}


def _without_none(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value is not None}


# Optimizers, as a person writes them in Python.

Optimizer = learning.OptimizerSpec  # its public name


def SGD(lr: float = 0.05, momentum: float = 0.9, nesterov: bool = True, weight_decay: float = 0.0) -> OptimizerSpec:
    """Stochastic gradient descent; the defaults are the paper's (Table 5).

    Args:
        lr: Learning rate.
        momentum: Share of the last step that is kept; 0 for none.
        nesterov: Nesterov's form of momentum.
        weight_decay: Weight decay, as torch.optim has it.
    """
    return OptimizerSpec(
        name="sgd", lr=lr, momentum=momentum, nesterov=nesterov and momentum > 0, weight_decay=weight_decay
    )


def Adam(
    lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0
) -> OptimizerSpec:
    """The Adam optimizer, with the settings and defaults of torch.optim.Adam.

    Args:
        lr: Learning rate.
        betas: How slowly the two running means forget.
        eps: Added to the denominator.
        weight_decay: Weight decay, as torch.optim has it.
    """
    return OptimizerSpec(name="adam", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


def AdamW(
    lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2
) -> OptimizerSpec:
    """The AdamW optimizer, with the settings and defaults of torch.optim.AdamW.

    Args:
        lr: Learning rate.
        betas: How slowly the two running means forget.
        eps: Added to the denominator.
        weight_decay: Weight decay, as torch.optim has it.
    """
    return OptimizerSpec(name="adamw", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
