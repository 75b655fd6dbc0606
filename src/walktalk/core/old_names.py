"""Names of walktalk 0.1 that have changed: they work for one more release, each with one line that says the new one.

Modules that moved are found by an importer before Python's own; names inside of front doors by the door
(`lazy.front_door`). To end it, delete this file and whatever imports it.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Container, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_GRAPHS = ["barbell", "complete", "cycle", "erdos_renyi", "hypercube", "path", "random_regular", "small_world"]
_GRAPHS += ["star", "torus"]
_IMAGES = ["cifar10", "digits", "fashion_mnist", "mnist"]

MODULES = {
    "walktalk.amx": "walktalk.core.cpu",
    "walktalk.bench": "walktalk.testing.bench",
    "walktalk.chains.metropolis_hastings": "walktalk.chains.chain",
    "walktalk.chains.return_time": "walktalk.chains.spectrum",
    "walktalk.codecs": "walktalk.transforms.codecs",
    "walktalk.cpuinfo": "walktalk.core.cpu",
    "walktalk.doctor": "walktalk.testing.doctor",
    "walktalk.errors": "walktalk.core.errors",
    **{f"walktalk.graphs.{name}": "walktalk.graphs.classic" for name in _GRAPHS},
    "walktalk.graphs.edge_list": "walktalk.graphs.sites",
    "walktalk.graphs.us_five_sites": "walktalk.graphs.sites",
    "walktalk.interactive": "walktalk.api",
    "walktalk.lazy": "walktalk.core.lazy",
    "walktalk.learning.given": "walktalk.learning.user_data",
    "walktalk.learning.memory": "walktalk.learning.arithmetic",
    "walktalk.learning.stacked.written": "walktalk.learning.stacked.compiled",
    **{f"walktalk.learning.tasks.{name}": "walktalk.learning.tasks.images" for name in _IMAGES},
    "walktalk.mkl": "walktalk.core.cpu",
    "walktalk.paper": "walktalk.reproduction.paper",
    "walktalk.plots": "walktalk.report.figures",
    "walktalk.plots.failures": "walktalk.report.figures.curves",
    "walktalk.plots.partition": "walktalk.report.figures.network",
    "walktalk.plugins": "walktalk.core.plugins",
    "walktalk.protocols.async_gossip": "walktalk.protocols",
    "walktalk.protocols.asynchronous": "walktalk.protocols",
    "walktalk.protocols.asynchronous.swarm_sgd": "walktalk.protocols.gossip.swarm_sgd",
    "walktalk.protocols.compression": "walktalk.protocols",
    "walktalk.protocols.multi_walk": "walktalk.protocols.walks",
    "walktalk.protocols.rounds": "walktalk.protocols",
    "walktalk.protocols.sync_gossip": "walktalk.protocols",
    "walktalk.published": "walktalk.reproduction.published",
    "walktalk.published.ceca_code": "walktalk.reproduction.published.sorted_mnist",
    "walktalk.published.lost_weights": "walktalk.reproduction.published.relay_sgd",
    "walktalk.records.checkpoint": "walktalk.records.atomic",
    "walktalk.runtimes.meaning": "walktalk.runtimes.semantics",
    "walktalk.screens": "walktalk.transforms.rules",
    "walktalk.seeds": "walktalk.core.seeds",
    "walktalk.settings": "walktalk.core.settings",
    "walktalk.studies.building": "walktalk.studies.planning",
    "walktalk.studies.chaos": "walktalk.testing.chaos",
    "walktalk.studies.driving": "walktalk.studies.execution",
    "walktalk.testing.check_protocol": "walktalk.testing.conformance",
    "walktalk.theory.momentum": "walktalk.theory.exact",
    "walktalk.theory.network": "walktalk.theory.problem",
}
"""Where a module of walktalk 0.1 is now; what was below it, too, where no longer line says otherwise."""

_GIVEN = {
    "GivenAlgorithm": "walktalk.studies:AlgorithmLike",
    "GivenGraph": "walktalk.studies:NetworkLike",
    "GivenTask": "walktalk.studies:TaskLike",
    "given_foundation": "walktalk.studies:foundation_from_python",
    "lay_foundation": "walktalk.studies:build_foundation",
}
_FORECAST = {"Forecast": "walktalk:Forecast", "forecast": "walktalk:forecast"}
NAMES = {
    "walktalk": {"plots": "walktalk:figures"},
    "walktalk.advisor": {"Ground": "walktalk.advisor:Survey", "name_of": "walktalk.advisor:Candidate.protocol.title"},
    "walktalk.learning": {"fused": "walktalk.learning:kernels"},
    "walktalk.learning.stacked": {
        "EachByItself": "walktalk.learning.stacked:OpaqueLoss",
        "JoinedModel": "walktalk.learning.stacked:SharedBaseModel",
        "LoneModel": "walktalk.learning.stacked:SingleRowModel",
        "RowByRow": "walktalk.learning.stacked:RowByRowLoss",
        "WrittenModel": "walktalk.learning.stacked:CompiledModel",
        "seeded": "walktalk.learning.samples:seeded",
    },
    "walktalk.learning.user_data": {
        "Given": "walktalk.learning.user_data:NamedColumns",
        "split": "walktalk.learning:split",
    },
    "walktalk.protocols": {
        "ELSEWHERE": "walktalk.protocols:PROTOCOLS.aliases",
        "Outside": "walktalk.protocols:Context",
        "Surroundings": "walktalk.protocols:NetworkView",
    },
    "walktalk.report": {"Window": "walktalk.report:TimelineWindow", "in_words": "walktalk.report:as_yaml"},
    "walktalk.report.figures": {
        "Along": "walktalk.report.figures:SharedAxis",
        "along": "walktalk.report.figures:shared_axis",
        "in_words": "walktalk.report.figures:with_unit",
        "scale_along": "walktalk.report.figures:scale_shared_axis",
    },
    "walktalk.runtimes.peers": {
        "BLOCKED": "walktalk.testing:BLOCKED",
        "Caller": "walktalk.runtimes.peers:OperatorConnection",
        "Diary": "walktalk.runtimes.peers:EventLog",
        "Newcomer": "walktalk.runtimes.peers:JoinRequest",
        "Replayed": "walktalk.runtimes.peers:ReplayResult",
        "SPOILS": "walktalk.testing:SPOILS",
        "SWALLOWS": "walktalk.testing:SWALLOWS",
        "described": "walktalk.runtimes.peers:describe_certificates",
        "knock": "walktalk.runtimes.peers:ask_to_join",
        "opened_part": "walktalk.runtimes.peers:open_part",
        "read_diary": "walktalk.runtimes.peers:read_event_log",
        "set_aside": "walktalk.runtimes.peers:archive_earlier_run",
        "surroundings": "walktalk.runtimes.peers:network_view",
        "written_roster": "walktalk.runtimes.peers:roster_on_disk",
    },
    "walktalk.runtimes.simulator": {
        "Notebook": "walktalk.runtimes.simulator:ScheduleRecorder",
        "all_surroundings": "walktalk.runtimes.simulator:all_network_views",
    },
    "walktalk.studies": {**_GIVEN, **_FORECAST},
    "walktalk.studies.execution": {
        **_FORECAST,
        **{name: f"walktalk:{name}" for name in ("SGD", "Adam", "AdamW", "Optimizer")},
    },
    "walktalk.studies.planning": _GIVEN,
    "walktalk.testing": {"Blow": "walktalk.testing:Outage"},
    "walktalk.testing.chaos": {
        "Blow": "walktalk.testing.chaos:ChaosFault",
        "Storm": "walktalk.testing.chaos:ChaosPlan",
        "blows_of": "walktalk.testing.chaos:faults_of",
    },
    "walktalk.theory": {"PROVED": "walktalk.protocols:Protocol.proved"},
}
"""For each front door: names of walktalk 0.1, and what they are called now (`module:name`)."""


def _aliases() -> dict[str, str]:
    registry = import_module("walktalk.protocols").PROTOCOLS
    return {**registry.elsewhere, **{alias: name for alias, (name, _) in registry.aliases.items()}}


def _proved() -> dict[str, str]:
    registry = import_module("walktalk.protocols").PROTOCOLS
    return {name: protocol.proved for name, protocol in registry.items() if protocol.proved}


# Names of what is told in another form now: made as they were.
_MADE: dict[str, Callable[[], Any]] = {
    "walktalk.advisor.name_of": lambda: lambda candidate: candidate.protocol.title,
    "walktalk.protocols.ELSEWHERE": _aliases,
    "walktalk.theory.PROVED": _proved,
}


def renamed(package: str, name: str, offered: Container[str] = ()) -> Callable[[], Any] | None:
    """Gives what an old name of a front door stands for, and warns; None where the name is no old one.

    Args:
        package: the front door's name.
        name: what is asked of it.
        offered: the names that it has now.
    """
    old = f"{package}.{name}"
    new = NAMES.get(package, {}).get(name)
    if new is None:
        moved = old in MODULES and name not in offered
        return functools.partial(import_module, old) if moved else None
    module, _, now = new.partition(":")

    def found() -> Any:
        warn_of(old, f"{module}.{now}")
        make = _MADE.get(old)
        return getattr(import_module(module), now) if make is None else make()

    return found


def renamed_keywords(**now: str) -> Callable[[Function], Function]:
    """A decorator for functions whose keywords have other names now: the old ones are taken, too.

    Args:
        now: The new name of each old keyword.
    """

    def with_old_ones(function: Function) -> Function:
        @functools.wraps(function)
        def called(*arguments: Any, **keywords: Any) -> Any:
            for old in now.keys() & keywords.keys():
                warn_of(f"{function.__name__}: {old}", now[old])
                keywords.setdefault(now[old], keywords.pop(old))
            return function(*arguments, **keywords)

        return called  # type: ignore[return-value]

    return with_old_ones


def warn_of(old: str, new: str) -> None:
    """Say in one line what an old name is called now, at the line of whoever used it: not Python's importer, nor us."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and _is_between(frame.f_code.co_filename):
        frame = frame.f_back
    said = f"{old} is now {new}; the old name goes with the next release"
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__")
    warnings.warn_explicit(said, FutureWarning, frame.f_code.co_filename, frame.f_lineno, module, registry)


def _is_between(file: str) -> bool:
    return file.startswith((_OURS, "<frozen")) or file == importlib.__file__


class _Moved(MetaPathFinder, Loader):
    """Finds modules under their old names; what they give is the very module of the new name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("walktalk."):
            return None
        old = max((old for old in MODULES if f"{fullname}.".startswith(f"{old}.")), key=len, default=None)
        if old is None:
            return None
        new = MODULES[old] + fullname.removeprefix(old)
        module = import_module(new)
        warn_of(fullname, new)
        spec = ModuleSpec(fullname, self, is_package=hasattr(module, "__path__"))
        spec.loader_state = (module, module.__spec__)
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return spec.loader_state[0]  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        sys.modules[module.__name__].__spec__ = module.__spec__ = self._own(module)
        if spec is not None:
            _keep_function(*spec.name.rpartition(".")[::2])

    def _own(self, module: ModuleType) -> ModuleSpec | None:
        """The module's specification, which Python has just replaced by that of its old name."""
        spec = module.__spec__
        return spec.loader_state[1] if spec is not None and isinstance(spec.loader, _Moved) else spec


def _keep_function(package: str, name: str) -> None:
    """Keeps what a front door offers under a moved module's name: Python puts a module there once it is imported."""
    door = sys.modules[package]
    if name not in getattr(door, "__all__", ()):
        return
    function, kind = getattr(door, name), type(door)

    class Door(kind):  # type: ignore[misc, valid-type]
        """The front door as it was, but for one name, which stays a function's."""

        def __setattr__(self, one: str, value: Any) -> None:
            super().__setattr__(one, function if one == name and isinstance(value, ModuleType) else value)

    door.__class__ = Door


def find_moved_modules() -> None:
    """Let modules be imported under their old names, too."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Moved())  # before Python's, which would load what lies below a moved package again
