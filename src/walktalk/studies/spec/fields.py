"""What every section of a specification shares: strict types, unknown keys refused, and what is allowed said in words.

Each key is made by `key(default, allowed, meaning)`: the words in `allowed` are what an error says, and both together
make the reference in the documentation.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Section(BaseModel):
    """A part of a specification: immutable, no unknown keys, no "5" for 5, no infinities."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def key(default: Any, allowed: str, meaning: str, **constraints: Any) -> Any:
    """A key: its default, what is allowed in words, what it means, and pydantic's constraints."""
    more: dict[str, Any] = {"description": meaning, "json_schema_extra": {"allowed": allowed}, **constraints}
    if isinstance(default, (list, dict)):
        return Field(default_factory=default.copy, **more)
    return Field(default, **more)


def allowed_text(section: type[BaseModel], name: str) -> str:
    """What is allowed for a key, in words; "" for a key that is not there."""
    field = section.model_fields.get(name)
    extra = field.json_schema_extra if field else None
    return str(extra.get("allowed", "")) if isinstance(extra, dict) else ""


def _whole(value: object) -> object:
    """1e5 is a float in YAML, but people write it for a whole number; 1e30 stays what it is, to be refused as such."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value


Whole = Annotated[int, BeforeValidator(_whole)]
