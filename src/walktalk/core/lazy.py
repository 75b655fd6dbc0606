"""What is imported only when it is asked for: front doors and libraries. So commands without torch start at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import lazy_loader

from walktalk.core.old_names import renamed
from walktalk.core.settings import says_what_is_allowed


def front_door(
    package: str, file: str, *, public: bool = False
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """A package's `__getattr__`, `__dir__` and `__all__` (PEP 562), as the stub beside its `__init__.py` lists them.

    Names that changed are still found for one release, with a warning that says the new one. A function may stand in a
    file of its own name: lazy_loader sees to it that the module does not hide it once it is imported.

    Args:
        package: the package's `__name__`.
        file: its `__file__`; the stub is the file of the same name with the ending `.pyi`.
        public: whether people call what it offers: then an argument of a wrong type is one line, no traceback.
    """
    load, listing, offered = lazy_loader.attach_stub(package, file)

    def getattr_(name: str) -> Any:
        new = renamed(package, name, offered)
        found = load(name) if new is None else new()
        if not public:
            return found
        made = _answering(found)
        if vars(sys.modules[package]).get(name) is found:  # as lazy_loader keeps what a file of its own name has
            setattr(sys.modules[package], name, made)
        return made

    return getattr_, listing, offered


def _answering(found: Any) -> Any:
    """A thing of a public door; its own module has it in the same form: it is one thing, wherever it is found."""
    made = says_what_is_allowed(found)
    home = sys.modules.get(getattr(found, "__module__", ""))
    name = getattr(found, "__name__", "")
    if made is not found and getattr(home, name, None) is found:
        setattr(home, name, made)
    return made


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


def listing(offered: Sequence[str]) -> Callable[[], list[str]]:
    """A package's `__dir__` (PEP 562): a prompt completes what the package offers, not the files that it lies in.

    Args:
        offered: The package's `__all__`.
    """
    return lambda: sorted(offered)
