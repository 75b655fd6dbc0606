"""Names of walktalk 0.1 that have changed: they work for one more release, each with one line that says the new one.

Modules that moved are found by an importer at the end of Python's own; names inside of front doors by the door
(`lazy.front_door`). To end it, delete this file and the two places that ask it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULES = {
    "walktalk.bench": "walktalk.testing.bench",
    "walktalk.codecs": "walktalk.transforms.codecs",
    "walktalk.doctor": "walktalk.testing.doctor",
    "walktalk.errors": "walktalk.core.errors",
    "walktalk.interactive": "walktalk.api",
    "walktalk.paper": "walktalk.reproduction.paper",
    "walktalk.plots": "walktalk.report.figures",
    "walktalk.plugins": "walktalk.core.plugins",
    "walktalk.protocols.multi_walk": "walktalk.protocols.walks",
    "walktalk.published.ceca_code": "walktalk.reproduction.published.sorted_mnist",
    "walktalk.published.lost_weights": "walktalk.reproduction.published.lost_messages",
    "walktalk.published": "walktalk.reproduction.published",
    "walktalk.runtimes.meaning": "walktalk.runtimes.semantics",
    "walktalk.screens": "walktalk.transforms.rules",
    "walktalk.seeds": "walktalk.core.seeds",
    "walktalk.settings": "walktalk.core.settings",
    "walktalk.studies.building": "walktalk.studies.planning",
    "walktalk.studies.chaos": "walktalk.testing.chaos",
    "walktalk.studies.driving": "walktalk.studies.execution",
}
"""Where a module of walktalk 0.1 is now."""

NAMES = {
    "walktalk.testing": {"Blow": "walktalk.testing:Outage"},
    "walktalk.report": {"Window": "walktalk.report:TimelineWindow", "in_words": "walktalk.report:as_yaml"},
    "walktalk.report.figures": {
        "Along": "walktalk.report.figures:SharedAxis",
        "along": "walktalk.report.figures:shared_axis",
        "in_words": "walktalk.report.figures:with_unit",
        "scale_along": "walktalk.report.figures:scale_shared_axis",
    },
    "walktalk": {"plots": "walktalk:figures"},
    "walktalk.advisor": {"Ground": "walktalk.advisor:Survey"},
    "walktalk.protocols": {"Outside": "walktalk.protocols:Context", "Surroundings": "walktalk.protocols:NetworkView"},
    "walktalk.studies": {
        "Forecast": "walktalk:Forecast",
        "GivenAlgorithm": "walktalk.studies:AlgorithmLike",
        "GivenGraph": "walktalk.studies:NetworkLike",
        "GivenTask": "walktalk.studies:TaskLike",
        "forecast": "walktalk:forecast",
        "given_foundation": "walktalk.studies:foundation_from_python",
    },
}
"""For each front door: names of walktalk 0.1, and what they are called now (`module:name`)."""


def renamed(package: str, name: str) -> Callable[[], Any] | None:
    """Gives what an old name of a front door stands for, and warns; None where the name is no old one."""
    new = NAMES.get(package, {}).get(name)
    if new is None:
        return None
    module, _, now = new.partition(":")

    def found() -> Any:
        _warn(f"{package}.{name}", f"{module}.{now}")
        return getattr(import_module(module), now)

    return found


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is now {new}; the old name goes with the next release", FutureWarning, stacklevel=4)


class _Moved(MetaPathFinder, Loader):
    """Finds modules under their old names; what they give is the very module of the new name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        old = next((old for old in MODULES if fullname == old or fullname.startswith(old + ".")), None)
        if old is None:
            return None
        new = MODULES[old] + fullname.removeprefix(old)
        _warn(fullname, new)
        module = import_module(new)
        spec = ModuleSpec(fullname, self, is_package=hasattr(module, "__path__"))
        spec.loader_state = (module, module.__spec__)
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return spec.loader_state[0]  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__].__spec__ = module.__spec__ = self._own(module)

    def _own(self, module: ModuleType) -> ModuleSpec | None:
        """The module's specification, which Python has just replaced by that of its old name."""
        spec = module.__spec__
        return spec.loader_state[1] if spec is not None and isinstance(spec.loader, _Moved) else spec


def find_moved_modules() -> None:
    """Let modules be imported under their old names, too."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())
