"""Fields of dataclasses and named tuples are explained by the comment on their line; the reference shows those.

So a field's meaning is written once, where it is defined.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

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
        if cls.docstring is None or "Args:" in cls.docstring.value:
            return
        found = [match.groups() for line in cls.lines if "ClassVar" not in line and (match := COMMENT.match(line))]
        fields = [(name, text) for name, text in found if name in cls.members]
        if fields:
            listed = "\n".join(f"    {name}: {text[0].upper()}{text[1:]}." for name, text in fields)
            cls.docstring.value += f"\n\nArgs:\n{listed}\n"


def _constructor(cls: griffe.Class) -> griffe.Function:
    """What a named tuple is called with: griffe knows of dataclasses' by itself, but not of these."""
    kind = griffe.ParameterKind.positional_or_keyword
    fields = [member for member in cls.members.values() if member.is_attribute and member.annotation is not None]
    parameters = [
        griffe.Parameter(field.name, annotation=field.annotation, default=field.value, kind=kind) for field in fields
    ]
    own = griffe.Parameter("self", kind=kind)
    return griffe.Function("__init__", lineno=cls.lineno, parameters=griffe.Parameters(own, *parameters), parent=cls)
