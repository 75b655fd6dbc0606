"""Things by name: our own, those that a person registers, those of installed packages, and `module:object`.

Each kind of thing (algorithms, tasks, topologies …) has one `Registry`, made where the kind is at home. `register` puts
a thing into the registry that its kind says. An installed package names its things in the entry-point group `walktalk`:

    [project.entry-points.walktalk]
    push_sum = "my_package.push_sum:PushSum"

They are imported when a name is asked for that nobody else has, or when all names are wanted.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import os
import re
import sys
import sysconfig
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from walktalk.core.errors import SettingError, SpecError, UserError, suggestion
from walktalk.core.seeds import Seed
from walktalk.core.settings import misfit, shown

GROUP = "walktalk"
# Where registries are made.
HOMES = (
    "walktalk.graphs.registry",
    "walktalk.transforms.codecs",
    "walktalk.transforms.rules",
    "walktalk.protocols.registry",
    "walktalk.learning.tasks.registry",
)
# Where code lies that is not the person's: Python, installed packages, walktalk itself.
NOT_THEIRS = (
    *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")},
    os.path.join(os.path.dirname(os.path.dirname(__file__)), ""),
    "<frozen",
)
T = TypeVar("T")


@dataclass(frozen=True)
class Unread:
    """Stands for a thing of ours that nobody has asked for yet: what has many of them starts at once."""

    place: str  # module:object

    def read(self) -> Any:
        """Import the thing that this entry stands for."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(module), name)


class Registry(Mapping[str, T], Generic[T]):
    """The things of one kind, by name. As a mapping it holds those that have a name of their own.

    Args:
        kind: what one of them is called, as in "algorithm".
        wanted: what it is, in words that end an error.
        fits: whether something is one; None where it cannot be told before it is used.
        absent: what stands for one that is not here, from the error that says so; a function that raises it unless
            given.
        elsewhere: what people know them by from other tools and papers, and their names here; for errors alone.
        first: the names that people begin with, which errors list before all others, which then go by the alphabet.

    A thing may say what else it is called: `also_known_as`, names that mean exactly it, and `known_forms`, names that
    mean it with certain settings.
    """

    def __init__(
        self,
        kind: str,
        wanted: str,
        fits: Callable[[Any], bool | None],
        absent: Callable[[SettingError], T] | None = None,
        elsewhere: Mapping[str, str] | None = None,
        first: Iterable[str] = (),
    ) -> None:
        self.kind, self.wanted, self.fits = kind, wanted, fits
        self.elsewhere = {} if elsewhere is None else elsewhere
        self.first = tuple(first)
        self.absent: Callable[[SettingError], Any] = absent or _absent
        self._things: dict[str, T | Unread] = {}
        self._aliases: dict[str, tuple[str, Mapping[str, Any]]] = {}
        REGISTRIES[kind] = self

    def add_unread(self, places: Mapping[str, str]) -> None:
        """Take in things by name that are imported when they are asked for, each from its `module:object`."""
        self._things.update({name: Unread(place) for name, place in places.items()})

    @property
    def aliases(self) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        """Other names of things, and for each the name here and the settings that it means."""
        for name in [name for name, thing in self._things.items() if isinstance(thing, Unread)]:
            self[name]  # each says its own
        return self._aliases

    def add(self, name: str, thing: T) -> None:
        """Take a thing in; a name is another's only if it is the same thing, defined again."""
        if not re.fullmatch(r"[A-Za-z]\w*", name):
            raise SettingError(f"{self.kind} {name!r}: a name is letters, digits and underscores; give register a name")
        there = self._things.get(name)
        if there is not None and _home(there) != _home(thing) and _lines(there) != _lines(thing):
            raise SettingError(f"{self.kind} {name!r}: is {_home(there)} already, so {_home(thing)} needs another name")
        self._things[name] = thing
        said = getattr(thing, "__dict__", {})  # its own, not what it inherits
        exactly: list[tuple[str, Mapping[str, Any]]] = [(alias, {}) for alias in said.get("also_known_as", ())]
        for alias, settings in (*exactly, *said.get("known_forms", {}).items()):
            self._aliases.setdefault(alias, (name, settings))

    def known_as(self, name: str) -> tuple[str, Mapping[str, Any]]:
        """The name of a thing here and the settings that are meant, from a name that the field has for it.

        A name that is no alias is given back as it is. For an alias a warning of one line says what is taken.
        """
        if name in self or name not in self.aliases:
            return name, {}
        here, settings = self.aliases[name]
        warnings.warn(f"{self.kind} {name}: here called {_with(here, settings)}", stacklevel=3)
        return here, settings

    def find(self, name: object, key: str = "name", offered: Callable[[], Iterable[str]] | None = None) -> T:
        """The thing of that name, or the `module:object`; an error that begins with the key and says what to do.

        - `offered`: the names that the error lists, where not all that are here may stand at the key.
        """
        try:
            return self._found(name, key, offered or self.keys)
        except SettingError as error:
            if _without_plugins.get():
                return self.absent(error)  # type: ignore[no-any-return]
            raise

    def _found(self, name: object, key: str, offered: Callable[[], Iterable[str]]) -> T:
        if isinstance(name, str) and ":" in name:
            return self._imported(name, key)
        if isinstance(name, str) and name in self:
            return self[name]
        if isinstance(name, str) and name in self.aliases and not self.aliases[name][1]:
            return self[self.known_as(name)[0]]
        there = sorted(offered()) if self.first else list(offered())
        names = [*(one for one in self.first if one in there), *(one for one in there if one not in self.first)]
        raise misfit(key, name, f"{', '.join(names)} or module:object{self._near(name, names)}")

    def _near(self, name: object, names: list[str]) -> str:
        """What may have been meant: the same but for capitals and hyphens, what others call so, or a similar word."""
        word = _letters(str(name))
        known = {
            **{alias: repr(one) for alias, one in self.elsewhere.items()},
            **{alias: _with(repr(one), means) for alias, (one, means) in self.aliases.items()},
        }
        meant = [repr(one) for one in names if _letters(one) == word]
        meant += [found for one, found in known.items() if _letters(one) == word]
        if meant:
            return f"; did you mean {meant[0]}?"
        return suggestion(name, [*names, *known])

    def __getitem__(self, name: str) -> T:
        if name not in self._things:
            load_installed(name)
        thing = self._things[name]
        if isinstance(thing, Unread):
            self.add(name, thing.read())
            return self[name]
        return thing

    def __contains__(self, name: object) -> bool:
        if name not in self._things and isinstance(name, str):
            load_installed(name)
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        load_installed()
        return iter(self._things)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _imported(self, name: str, key: str) -> T:
        module, _, path = name.partition(":")
        if not module or not path:
            raise misfit(key, name, "module:object, as in my_package.tasks:mine")
        found: Any = _module(module, key)
        for part in path.split("."):
            if not hasattr(found, part):
                here = [n for n, thing in vars(found).items() if self.fits(thing) and not n.startswith("_")]
                has = f"; it has {', '.join(here)}" if here else ""
                raise SettingError(f"{key}: {module} has no {part!r}{has}{suggestion(part, dir(found))}")
            found = getattr(found, part)
        if self.fits(found) is False:
            raise SettingError(f"{key}: {name!r} is {_words(found)}, but {self.wanted}")
        return found  # type: ignore[no-any-return]


def _with(name: str, settings: Mapping[str, Any]) -> str:
    """A name as people read it with the settings that go with it."""
    said = ", ".join(f"{key}: {value}" for key, value in settings.items())
    return f"{name} with {said}" if said else name


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_without_plugins: ContextVar[bool] = ContextVar("without_plugins", default=False)


@contextmanager
def plugins_may_be_absent() -> Iterator[None]:
    """Within it, what cannot be found is something that takes any settings and cannot be run.

    So the records of a study can be read where its plug-ins are not.
    """
    token = _without_plugins.set(True)
    try:
        yield
    finally:
        _without_plugins.reset(token)


def _absent(error: SettingError) -> Callable[..., Any]:
    def absent(**settings: Any) -> Any:
        """Stands for a plug-in that is not installed: any use raises the error that says what to install."""
        raise error

    return absent


REGISTRIES: dict[str, Registry[Any]] = {}
"""One for each kind of thing."""

_WITH_NUMBERS = re.compile(r"([\w.:-]+)(?:\(([^()]*)\))?")


def made_by_name(
    registry: Registry[type[T]], text: str, key: str, offered: Callable[[], Iterable[str]] | None = None
) -> T:
    """A thing made from its name with numbers behind it, as in "top_k(0.01)"; `SpecError` where that cannot be.

    - `offered`: as in `Registry.find`.
    """
    found = _WITH_NUMBERS.fullmatch(text.strip())
    make = registry.find(found[1] if found else text, key, offered)
    numbers = (found[2] or "").split(",") if found else []
    try:
        return make(*(float(number) for number in numbers if number.strip()))
    except (TypeError, ValueError) as error:
        raise SpecError(f"{key}: {text!r} is not possible: {error}") from error


@overload
def register(thing: T, *, name: str | None = None) -> T: ...
@overload
def register(thing: None = None, *, name: str | None = None) -> Callable[[T], T]: ...
def register(thing: Any = None, *, name: str | None = None) -> Any:
    """Make a `Protocol` class, a task's or a topology's function, or a codec known by name; also a decorator.

    From then on its name stands in specifications, errors, listings and figures like our own.

    Args:
        thing: what to register. A function says by its return annotation what it makes: `-> wt.Task` or `-> wt.Graph`.
        name: its name in specifications; its own (`name`, or that of the function) if left out.
    """
    if thing is None:
        return functools.partial(register, name=name)
    own = getattr(thing, "name", None)
    registry_for(thing).add(name or (own if isinstance(own, str) else thing.__name__), thing)
    return thing


def registered(kind: str) -> Registry[Any]:
    """The registry of a kind, such as "algorithm"; for rooms below the one where the kind is at home."""
    for home in HOMES if kind not in REGISTRIES else ():
        importlib.import_module(home)
    return REGISTRIES[kind]


def registry_for(thing: Any) -> Registry[Any]:
    """The registry of a thing's kind."""
    for homes in ((), HOMES):  # what a thing is made with has mostly been imported for it
        for home in homes:
            importlib.import_module(home)
        for registry in REGISTRIES.values():
            if registry.fits(thing):
                return registry
    kinds = "; ".join(one.wanted for one in REGISTRIES.values())
    raise SettingError(f"{_home(thing)}: {_words(thing)} cannot be registered; {kinds}")


def returns(function: Any, kind: type) -> bool | None:
    """Whether a function says that it makes this kind of thing; None if it does not say."""
    if isinstance(function, type) or not callable(function):
        return False
    said = getattr(function, "__annotations__", {}).get("return")
    if said is None:
        return None
    return said.rpartition(".")[2] == kind.__name__ if isinstance(said, str) else said is kind


_tried: set[tuple[str, str]] = set()


def seed_for(make: Callable[..., Any], seed: int | Seed) -> int | Seed:
    """A study's seed as a function takes it: a `Seed` where the type of its `seed` says so, else a whole number.

    Below 2³¹, as numpy's and scikit-learn's `random_state` have to be; the same one for the same study.
    """
    parameter = inspect.signature(make).parameters.get("seed")
    if isinstance(seed, int) or (parameter is not None and "Seed" in str(parameter.annotation)):
        return seed
    return seed.integer % 2**31


def load_installed(name: str | None = None) -> None:
    """Import what installed packages bring: those of this name if there are any, else all; each once."""
    entries = [one for one in importlib.metadata.entry_points(group=GROUP) if (one.name, one.value) not in _tried]
    for entry in [one for one in entries if one.name == name] or entries:
        _tried.add((entry.name, entry.value))
        try:
            thing = entry.load()
            if not isinstance(thing, types.ModuleType):  # a module's decorators have done it
                register(thing, name=entry.name)
        except (Exception, SystemExit) as error:
            whose = f" of {entry.dist.name} {entry.dist.version}" if entry.dist is not None else ""
            message = f"plug-in {entry.name}{whose} ({entry.value}) is left out: {reason(error)}; update or remove it"
            warnings.warn(message, stacklevel=2)


def _module(name: str, key: str) -> types.ModuleType:
    """The module of that name, from the current folder or installed."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; a script's own folder is there already
    importlib.invalidate_caches()  # it may have been written a moment ago
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            looked = f"neither in {os.getcwd()} nor installed; go to its folder, or install its package"
            raise SettingError(f"{key}: there is no module {missing!r}, {looked}") from error
        raise SettingError(f"{key}: {name} needs {missing!r}, which is not installed; install it") from error
    except (Exception, SystemExit) as error:
        raise SettingError(f"{key}: {name} cannot be imported: {reason(error)}") from error


@contextmanager
def of_the_person(what: str, make: Callable[..., Any], wrong: type[UserError]) -> Iterator[None]:
    """Around a call of a person's own function: what it raises is a mistake of theirs, with its file and line.

    Ours raise what they mean to raise; anything else of theirs is a bug, and shows as one.

    Args:
        what: how messages call the function.
        make: the function.
        wrong: the error that is raised.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if str(getattr(make, "__module__", "")).split(".")[0] == "walktalk":
            raise
        raise wrong(f"{what} fails: {reason(error)}; call it in Python to see more") from error


def reason(error: BaseException) -> str:
    """What went wrong, and in which line of whose file: of the person's, if it came through one."""
    traced = traceback.extract_tb(error.__traceback__)
    frames = [one for one in traced if "importlib" not in one.filename and not one.filename.endswith(".pyx")]
    if isinstance(error, SyntaxError):
        frames = []  # it says itself in which line
    own = [one for one in frames if not one.filename.startswith(NOT_THEIRS)] or frames
    where = f" ({os.path.basename(own[-1].filename)}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"


def _home(thing: Any) -> str:
    """Where a thing is defined: the same for the same lines, read again."""
    if isinstance(thing, Unread):
        return thing.place
    of = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{of.__module__}:{of.__qualname__}"


def _lines(thing: Any) -> tuple[str, str]:
    """The file that a thing is from, and its name there: a script that is run and also imported defines it twice."""
    of = thing if hasattr(thing, "__qualname__") else type(thing)
    return str(getattr(sys.modules.get(of.__module__), "__file__", of.__module__)), of.__qualname__


def _words(thing: Any) -> str:
    if isinstance(thing, type):
        return f"the class {thing.__name__}"
    return f"the function {thing.__name__}" if callable(thing) and hasattr(thing, "__name__") else shown(thing)
