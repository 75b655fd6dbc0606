"""Settings that a protocol or a task declares itself: read off its definition, checked by their types.

So a new protocol or task needs nothing here: its fields or arguments become keys of a specification.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from walktalk.errors import suggestion
from walktalk.studies.spec.fields import misfit


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting: its type and its default."""

    kind: Any
    default: Any

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that it may have, besides none at all."""
        union = typing.get_origin(self.kind) in (typing.Union, types.UnionType)
        return tuple(k for k in typing.get_args(self.kind) if k is not type(None)) if union else (self.kind,)

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        return " or ".join(_words(kind) for kind in self.kinds)


def of_dataclass(cls: type) -> dict[str, Setting]:
    """The fields of a dataclass, by name."""
    if not dataclasses.is_dataclass(cls):
        return {}
    kinds = typing.get_type_hints(cls)
    return {field.name: Setting(kinds[field.name], field.default) for field in dataclasses.fields(cls)}


def of_function(function: Callable[..., Any], without: tuple[str, ...] = ()) -> dict[str, Setting]:
    """The arguments of a function, by name."""
    kinds = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters
    return {name: Setting(kinds.get(name, Any), p.default) for name, p in parameters.items() if name not in without}


def complete(given: Mapping[str, Any], known: Mapping[str, Setting], also: tuple[str, ...] = ()) -> dict[str, Any]:
    """The known settings, given or default, each of the right type; `also` names keys that belong to others."""
    words = [*also, *known]
    for name in given:
        if name not in words:
            raise ValueError(f"{name}: is an unknown key; allowed: {', '.join(words)}{suggestion(name, words)}")
    return {name: typed(name, given[name], known[name]) if name in given else known[name].default for name in known}


def typed(name: str, value: Any, setting: Setting) -> Any:
    """The value, if it is of the setting's type."""
    if isinstance(value, float) and int in setting.kinds and float not in setting.kinds and value.is_integer():
        value = int(value)  # 1e5 is a float in YAML, but people write it for a whole number
    if isinstance(value, float) and value - value != 0:
        raise misfit(name, value, setting.allowed)  # neither nan nor an infinity is ever meant
    try:
        return TypeAdapter(setting.kind).validate_python(value, strict=True)
    except ValidationError as error:
        raise misfit(name, value, setting.allowed) from error


def _words(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return ", ".join(str(value) for value in typing.get_args(kind))
    return {int: "a whole number", float: "a number", bool: "true, false", str: "a text"}.get(kind, str(kind))
