"""Fields of dataclasses and named tuples are explained by the comment on their line; the reference shows those.

So a field's meaning is written once, where it is defined; a class also shows the settings that it inherits. Functions
of `**keywords` are shown with every keyword.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import griffe

from walktalk.core.settings import meanings_in, settings_of

COMMENT = re.compile(r"^\s+(\w+)\s*:\s.*?\s\s#\s(?!type:)(.+)$")


class FieldComments(griffe.Extension):
    """Adds a list of arguments to the docstring of every class that has such comments."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Once a class is read: its lines are looked at, in order."""
        named_tuple = any("NamedTuple" in str(base) for base in cls.bases)
        if named_tuple:
            cls.set_member("__init__", _constructor(cls))
        elif not any("dataclass" in str(decorator.value) for decorator in cls.decorators):
            return
        if cls.docstring is None:
            return
        if "Args:" not in cls.docstring.value:
            self._add_comments(cls)
        if cls.bases and not named_tuple:
            cls.docstring.value = _with_arguments(cls.docstring.value, _inherited(cls))

    def _add_comments(self, cls: griffe.Class) -> None:
        found = [match.groups() for line in cls.lines if "ClassVar" not in line and (match := COMMENT.match(line))]
        fields = [(name, text) for name, text in found if name in cls.members]
        assert cls.docstring is not None
        meanings = {name: f"{text[0].upper()}{text[1:]}" for name, text in fields}
        cls.docstring.value = _with_arguments(cls.docstring.value, meanings)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Once a function is read: one that takes `**keywords` of a typed dictionary shows each of them.

        The function itself knows them, with their defaults and meanings (`lists_keywords`).
        """
        if not any("Unpack" in str(parameter.annotation) for parameter in func.parameters):
            return
        made = getattr(import_module(func.module.path), func.name)
        assert func.docstring is not None
        func.docstring.value = inspect.cleandoc(made.__doc__)
        for parameter in [one for one in func.parameters if one.kind is griffe.ParameterKind.var_keyword]:
            del func.parameters[parameter.name]
        for parameter in inspect.signature(made).parameters.values():
            if parameter.name in func.parameters:
                continue
            func.parameters.add(
                griffe.Parameter(
                    parameter.name,
                    annotation=parameter.annotation,
                    default=repr(parameter.default),
                    kind=griffe.ParameterKind.keyword_only,
                )
            )


def _inherited(cls: griffe.Class) -> dict[str, str]:
    """What the classes that it inherits from say of the settings that its own docstring does not name."""
    assert cls.docstring is not None
    own = meanings_in(cls.docstring.value)
    settings = settings_of(getattr(import_module(cls.module.path), cls.name))
    return {name: one.meaning for name, one in settings.items() if one.meaning and name not in own}


def _with_arguments(doc: str, meanings: dict[str, str]) -> str:
    """A docstring with more arguments behind those that it lists."""
    if not meanings:
        return doc
    listed = "\n".join(f"    {name}: {text}." for name, text in meanings.items())
    before, args, section = doc.partition("\nArgs:\n")
    own, gap, rest = section.partition("\n\n")
    return f"{before}{args}{own}\n{listed}{gap}{rest}" if args else f"{doc}\n\nArgs:\n{listed}\n"


def _constructor(cls: griffe.Class) -> griffe.Function:
    """What a named tuple is called with: griffe knows of dataclasses' by itself, but not of these."""
    kind = griffe.ParameterKind.positional_or_keyword
    fields = [member for member in cls.members.values() if member.is_attribute and member.annotation is not None]
    parameters = [
        griffe.Parameter(field.name, annotation=field.annotation, default=field.value, kind=kind) for field in fields
    ]
    own = griffe.Parameter("self", kind=kind)
    return griffe.Function("__init__", lineno=cls.lineno, parameters=griffe.Parameters(own, *parameters), parent=cls)
