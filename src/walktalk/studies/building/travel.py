"""Whether other processes can find what a study names: nobody can import what was written in a notebook."""

from __future__ import annotations

import sys
from typing import Any

from walktalk.errors import SettingError, UnavailableError
from walktalk.graphs import TOPOLOGIES
from walktalk.learning import tasks
from walktalk.plugins import Registry
from walktalk.protocols import PROTOCOLS
from walktalk.studies.spec import StudySpec


def check_travels(spec: StudySpec, where: str) -> None:
    """Raise an `UnavailableError` where a process of its own could not find something that this one knows.

    Args:
        spec: The study.
        where: Who has to find it, as in "worker processes".
    """
    named: list[tuple[str, Registry[Any], str]] = [
        ("network.topology", TOPOLOGIES, spec.network.topology),
        ("task.name", tasks.TASKS, spec.task.name),
    ]
    named += [(f"algorithms.{k}.name", PROTOCOLS, one.name) for k, one in enumerate(spec.algorithms)]
    for key, registry, name in named:
        try:
            thing = registry.find(name)
        except SettingError:  # said elsewhere, with what is allowed
            continue
        if _only_here(thing):
            own = getattr(thing, "__qualname__", str(thing))
            raise UnavailableError(
                f"{key}: {name} is defined in this notebook or prompt, so {where} cannot find it; put it into a file "
                f"and name it as module:{own.rpartition('.')[2]}"
            )


def travels(spec: StudySpec) -> bool:
    """Whether other processes can find all that it names."""
    try:
        check_travels(spec, "others")
    except UnavailableError:
        return False
    return True


def _only_here(thing: Any) -> bool:
    """Whether it lies in what was typed in; a script's file, which `__main__` is otherwise, is read again there."""
    return getattr(thing, "__module__", "") == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
