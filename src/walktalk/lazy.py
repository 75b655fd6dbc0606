"""What is imported only when it is asked for: front doors and libraries. So commands without torch start at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any


def attributes(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """A package's `__getattr__` (PEP 562).

    Args:
        package: The package's `__name__`.
        homes: For each module of the package, the names that the package offers from it; under `""`, its modules.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def getattr_(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = home_of[name]
        if not home:
            return import_module(f"{package}.{name}")
        return getattr(import_module(f"{package}.{home}"), name)

    return getattr_


def listing(offered: Sequence[str]) -> Callable[[], list[str]]:
    """A package's `__dir__` (PEP 562): a prompt completes what the package offers, not the files that it lies in.

    Args:
        offered: The package's `__all__`.
    """
    return lambda: sorted(offered)


class _Later(ModuleType):
    """Stands for a module that is imported when something of it is used for the first time."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self.__name__), name)
        setattr(self, name, found)  # the next time it is as quick as any other module
        return found


def later(name: str) -> Any:
    """A library that takes long to import, such as torch, where most who import the module at hand never need it.

        if TYPE_CHECKING:
            import torch
        else:
            torch = later("torch")

    Args:
        name: The library's module, as after `import`.
    """
    return _Later(name)
