"""Settings: what a protocol, a task, a topology or a codec takes, read off its own definition.

Names, types and defaults are those of its signature: the fields of a dataclass or the arguments of a function. A bound
stands in the type, `Annotated[float, Gt(0)]`; what a setting means stands in the docstring's `Args:`. Keys of a
specification, errors and the reference in the documentation follow from these alone.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from walktalk.core.errors import SettingError, suggestion


@dataclass(frozen=True)
class Setting:
    """One setting of a function or class: its name, type, default and meaning.

    Args:
        kind: its type, with its bounds.
        default: what it is where nobody says; `REQUIRED` where somebody has to.
        meaning: what it is, in a few words.
    """

    kind: Any
    default: Any
    meaning: str = ""

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that it may have, besides none at all."""
        union = typing.get_origin(self.kind) in (typing.Union, types.UnionType)
        return tuple(k for k in typing.get_args(self.kind) if k is not type(None)) if union else (self.kind,)

    @property
    def is_list(self) -> bool:
        """Whether a list is one value of it, where lists stand for several values of others."""
        plain = [_first(kind) for kind in self.kinds]
        return any((typing.get_origin(kind) or kind) in (list, tuple) for kind in plain)

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        return " or ".join(_words(kind) for kind in self.kinds)


LARGEST = 1e15  # of any number, whatever its own bounds are: beyond it a float does not count by ones
LONGEST = 80  # characters of a value that an error repeats
REQUIRED: Any = inspect.Parameter.empty
"""The default of a setting that has none."""


ANY = "**"
"""Stands among the settings of what takes any others, too, as they are."""


def settings_of(thing: Callable[..., Any], without: Iterable[str] = ()) -> dict[str, Setting]:
    """The settings that a function or dataclass takes, by name; `without` those that are not a person's to give."""
    parameters = inspect.signature(thing).parameters
    kinds, meanings = _kinds(thing), _meanings(thing)
    named = (p for p in parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    found = {
        p.name: Setting(kinds.get(p.name, Any), p.default, meanings.get(p.name, ""))
        for p in named
        if p.name not in without
    }
    any_other = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return found | ({ANY: Setting(Any, None)} if any_other else {})


def _meanings(thing: Callable[..., Any]) -> dict[str, str]:
    """What its docstring says of its settings; of those that a class inherits, that of the class that has them."""
    kin = reversed(thing.__mro__) if isinstance(thing, type) else (thing,)
    return {name: text for one in kin for name, text in meanings_in(one.__doc__).items()}


def meanings_in(doc: str | None) -> dict[str, str]:
    """What a docstring says of each argument: the entries below `Args:`, each from its name to the next."""
    _, _, section = inspect.cleandoc(doc or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+): *(.*(?:\n     +.*)*)", section.split("\n\n")[0], re.MULTILINE)
    return {name: " ".join(text.split()).removesuffix(".") for name, text in entries}


def complete(given: Mapping[str, Any], known: Mapping[str, Setting], also: Iterable[str] = ()) -> dict[str, Any]:
    """The known settings, given or default, each of the right type; `also` names keys that belong to others."""
    words = [*also, *(name for name in known if name != ANY)]
    others = {name: value for name, value in given.items() if name not in words}
    for name in others if ANY not in known else ():
        allowed = ", ".join(words) or "none"
        raise SettingError(f"{name}: is an unknown key; allowed: {allowed}{suggestion(name, words)}")
    for name, setting in known.items():
        if setting.default is REQUIRED and given.get(name) is None:
            meaning = f"{setting.meaning}: " if setting.meaning else ""
            raise SettingError(f"{name}: is missing; needed: {meaning}{setting.allowed}")
    own = {name: one for name, one in known.items() if name != ANY}
    return {name: typed(name, given[name], one) if name in given else one.default for name, one in own.items()} | others


def typed(name: str, value: Any, setting: Setting) -> Any:
    """The value, if it is of the setting's type and within its bounds."""
    whole = any(_plain(kind)[0] is int for kind in setting.kinds)
    if (
        whole
        and isinstance(value, float)
        and value.is_integer()
        and abs(value) <= LARGEST
        and float not in map(_first, setting.kinds)
    ):
        value = int(value)  # 1e5 is a float in YAML, but people write it for a whole number
    if isinstance(value, float) and value - value != 0:
        raise misfit(name, value, setting.allowed)  # neither nan nor an infinity is ever meant
    if isinstance(value, (int, float)) and abs(value) > LARGEST:
        raise misfit(name, value, f"{setting.allowed}, no larger than {LARGEST:g}")
    try:
        return _validated(value, setting.kind)
    except ValueError as error:
        raise misfit(name, value, setting.allowed) from error


def misfit(name: str, value: object, allowed: str, kind: type[Exception] = SettingError) -> Exception:
    """The error for a value that a key, an argument or an option cannot take: what was given, and what is allowed.

    Args:
        name: Where the value stands.
        value: What was given there.
        allowed: What may stand there, in words.
        kind: Which error it is.
    """
    return kind(f"{name}: {shown(value)} is not possible; allowed: {allowed}")


def shown(value: object) -> str:
    """A value as a person would recognize it, not longer than a line."""
    number = getattr(value, "shape", None) == ()  # of numpy or torch
    text = "nothing" if value is None else repr(value.item() if number else value)  # type: ignore[attr-defined]
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _kinds(thing: Callable[..., Any]) -> dict[str, Any]:
    """Types by name; none at all where they name what only a type checker imports."""
    own_init = isinstance(thing, type) and not hasattr(thing, "__dataclass_fields__")
    try:
        return typing.get_type_hints(thing.__init__ if own_init else thing, include_extras=True)
    except NameError:
        return {}


def _validated(value: Any, kind: Any) -> Any:
    """As what it would be in a file: there a path is a text, and a tuple a list. Else it has to be of its very type."""
    adapter = _adapter(kind)
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        return adapter.validate_python(value, strict=True)
    return adapter.validate_json(text, strict=True)


@functools.lru_cache(maxsize=256)
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter  # not before it is needed: commands that name no setting start sooner

    return TypeAdapter(kind)


def _plain(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type and its bounds."""
    if typing.get_origin(kind) is typing.Annotated:
        return typing.get_args(kind)[0], typing.get_args(kind)[1:]
    return kind, ()


def _first(kind: Any) -> Any:
    return _plain(kind)[0]


def _words(kind: Any) -> str:
    plain, bounds = _plain(kind)
    if typing.get_origin(plain) is typing.Literal:
        return ", ".join(str(value) for value in typing.get_args(plain))
    words = {int: "a whole number", float: "a number", bool: "true, false", str: "a text", Path: "a path"}
    kinds = {list: "a list", tuple: "a list", dict: "a section"}
    other = kinds.get(typing.get_origin(plain), getattr(plain, "__name__", str(plain)))
    return words.get(plain, other) + _within(bounds)


def _within(bounds: Iterable[Any]) -> str:
    """Bounds in words: ", 1 or more", " above 0", " from 0 to below 1"."""
    of = {name: getattr(bound, name) for bound in bounds for name in ("ge", "gt", "le", "lt") if hasattr(bound, name)}
    above = f" above {of['gt']:,}" if "gt" in of else ""
    if "le" not in of and "lt" not in of:
        return above or (f", {of['ge']:,} or more" if "ge" in of else "")
    most = f"{of['le']:,}" if "le" in of else f"below {of['lt']:,}"
    if "ge" in of:
        return f" from {of['ge']:,} to {most}"
    return f"{above}, at most {most}" if "le" in of else f"{above} {'and ' if above else ''}{most}"
