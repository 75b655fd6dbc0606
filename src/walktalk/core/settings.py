"""Settings: what a protocol, a task, a topology or a codec takes, read off its own definition.

Names, types and defaults are those of its signature: the fields of a dataclass or the arguments of a function. A bound
stands in the type, `Annotated[float, Gt(0)]`; what a setting means stands in the docstring's `Args:`. Keys of a
specification, errors and the reference in the documentation follow from these alone.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import json
import numbers
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from walktalk.core.errors import SettingError, UserError, suggestion


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
    def depth(self) -> int:
        """How many lists stand in each other in one value of it: 0 for a number, 2 for a list of lists."""
        return max((_depth(kind) for kind in self.kinds), default=0)

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
    text = " ".join(text.split()) if "\n" in text else text
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


def _depth(kind: Any) -> int:
    plain = _first(kind)
    if (typing.get_origin(plain) or plain) not in (list, tuple):
        return 0
    return 1 + max((_depth(inner) for inner in typing.get_args(plain) if inner is not ...), default=0)


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


# -- What a person calls from Python: an argument of a wrong type is one line, too -----------------------------------

Thing = TypeVar("Thing")
MISTAKES = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError, OSError, RuntimeError)
"""What calls end in that were given something of a wrong type; all else is about something else."""


def says_what_is_allowed(thing: Thing) -> Thing:
    """A function or class whose errors name the argument that is of a wrong type, where one is, in one line.

    A call that works is left as it is: types are looked at only after it has failed. A class is changed itself; a
    function is wrapped, once.

    Args:
        thing: What is called; anything else is returned as it is.
    """
    called: Any = thing
    if isinstance(thing, type):
        own = "__init__" in vars(thing) or hasattr(thing, "__pydantic_validator__")
        if own and not hasattr(called.__init__, "answers"):
            called.__init__ = _answering(called.__init__, called)
        return thing
    if not inspect.isfunction(thing) or hasattr(thing, "answers"):
        return thing
    return _answering(thing, called)  # type: ignore[return-value]


def _answering(function: Callable[..., Any], shown_as: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except UserError:
            raise
        except MISTAKES as error:
            known = _wrong_argument(shown_as, function, args, keywords) or _wrong_field(error)
            if known is None:
                raise
            raise known from error

    answering: Any = call
    answering.answers = True
    return call


def _wrong_argument(
    shown_as: Callable[..., Any], function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]
) -> Exception | None:
    """The error for the first argument that is not of the type in the signature; None where all of them are."""
    try:
        given = inspect.signature(function).bind(*args, **keywords).arguments
    except TypeError:
        return None  # too many, too few, or of other names: Python says which
    parameters = inspect.signature(function).parameters
    for name, value in given.items():
        kind = _named_type(function, shown_as, parameters[name].annotation)
        one = parameters[name]
        several = one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        if several or one.annotation is one.empty or value is one.default:
            continue
        if not fits(value, kind):
            return misfit(name, value, Setting(kind, None).allowed)
    return None


def _named_type(function: Callable[..., Any], shown_as: Callable[..., Any], annotation: Any) -> Any:
    """The type that an annotation means; what only a type checker imports is some type that is elsewhere."""
    if not isinstance(annotation, str):
        return annotation
    own = {**vars(builtins), **getattr(inspect.unwrap(function), "__globals__", {})}
    for kin in reversed(shown_as.__mro__ if isinstance(shown_as, type) else (shown_as,)):
        own |= getattr(sys.modules.get(kin.__module__), "__dict__", {})
    words = re.findall(r"(?<![.\w])[A-Za-z_]\w*", annotation)
    # A signature may be put together from classes of other files, whose names are theirs.
    house = (getattr(function, "__module__", None) or __name__).partition(".")[0] + "."
    rooms = [vars(module) for name, module in list(sys.modules.items()) if name.startswith(house)]
    for word in words:
        if word not in own:
            own[word] = next((room[word] for room in rooms if word in room), None) or _Elsewhere(word, (), {})
    try:
        return eval(annotation, own)
    except Exception:
        return Any


class _Elsewhere(type):
    """Stands for types of a library that is not imported: no plain value is of any of them."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Elsewhere(name, (), {})

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __instancecheck__(cls, value: Any) -> bool:
        return not (
            value is None
            or type(value) is object
            or isinstance(value, (bool, int, float, str, bytes, list, tuple, dict))
        )


def _wrong_field(error: Exception) -> Exception | None:
    """The error for the first field that pydantic does not take."""
    if not hasattr(error, "errors") or not callable(error.errors):
        return None
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "it"
    said = str(first["msg"]).removeprefix("Value error, ")
    return SettingError(
        said
        if first["type"] == "value_error"
        else f"{where}: {shown(first['input'])} is not possible; {said[:1].lower()}{said[1:]}"
    )


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, as far as it can be told: what cannot be told fits.

    Args:
        value: What was given.
        kind: A type, as in a signature.
    """
    plain = _plain(kind)[0]
    if plain is Any:
        return True
    origin, inner = typing.get_origin(plain), typing.get_args(plain)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is typing.Literal:
        return value in inner if isinstance(value, (str, int, type(None))) else False
    if plain in (None, type(None)):
        return value is None
    if plain in (int, float):
        number = numbers.Integral if plain is int else numbers.Real
        return isinstance(value, number) and not isinstance(value, bool) and value == value  # nan is no number
    outer = origin or plain
    if outer is Callable or outer is typing.get_origin(Callable[..., Any]):
        return callable(value)
    if not isinstance(outer, type) or getattr(outer, "_is_protocol", False) or outer is object:
        return True
    if (outer is not str and issubclass(outer, (Sequence, Mapping))) or outer is Iterable:
        return _holds(value, outer, inner)
    return isinstance(value, outer)


def _holds(value: Any, outer: type, inner: tuple[Any, ...]) -> bool:
    """Whether it is such a collection, and what stands first in it is of the type that it holds."""
    mapping = issubclass(outer, Mapping)
    if len(getattr(value, "shape", (0,))) != 1:
        return False
    if mapping != isinstance(value, Mapping) or isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        return False
    first = (
        next(iter(value.values()), None)
        if mapping
        else value[0]
        if isinstance(value, (list, tuple)) and value
        else None
    )
    return not inner or first is None or fits(first, inner[-1 if mapping else 0])
