"""What every section of a specification shares: strict types, unknown keys refused, and what is allowed said in words.

Each key is made by `key(default, allowed, meaning)`: the words in `allowed` are what an error says, and both together
make the reference in the documentation.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from walktalk.core.errors import SpecError, suggestion
from walktalk.core.settings import misfit, shown


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


# From pydantic's report to one line that names the key, the value and what is allowed.

ALSO_CALLED = {  # keys by the names that other tools have for them
    "clients": "network.nodes",
    "epochs": "stop.iterations",
    "graph": "network.topology",
    "learning_rate": "optimizer.lr",
    "nodes": "network.nodes",
    "peers": "network.nodes",
    "rounds": "stop.iterations",
    "steps": "training.local_steps",
    "workers": "network.nodes",
}


def spec_error(error: ValidationError, root: type[BaseModel], places: list[int]) -> SpecError:
    """The first mistake in words; `places` leads from expanded algorithms back to what the person wrote."""
    first = error.errors(include_url=False)[0]
    loc = [str(part) for part in first["loc"]]
    message = " ".join(
        _message(first, loc, _section(root, loc[:-1]), root).split()
    )  # one line, whatever a key is called
    key, _, rest = message.partition(": ")
    return SpecError(f"{_as_written(key, places)}: {rest}")


def _message(first: Any, loc: list[str], section: type[BaseModel] | None, root: type[BaseModel]) -> str:
    kind, value, key = first["type"], first["input"], ".".join(loc)
    if kind == "value_error":  # ours: the message begins with the key within its section
        inner = str(first["ctx"]["error"])
        name, _, rest = inner.partition(": ")
        if rest.startswith("is an unknown key") and "did you mean" not in rest:
            inner += belongs_to(name, root)
        return f"{key}.{inner}" if key else inner
    if kind == "extra_forbidden":
        known = list(section.model_fields) if section else []
        near = belongs_to(loc[-1], root) or suggestion(loc[-1], known)
        return f"{key}: is an unknown key; allowed: {', '.join(known)}{near}"
    if kind in ("model_type", "dict_type"):
        return f"{key}: {shown(value)} is not a section; allowed: key: value pairs"
    allowed = allowed_text(section, loc[-1]) if section else ""
    if not allowed and loc[-1].isdecimal():  # an item of a list: the list's own words
        return _message(first, loc[:-1], section, root)
    near = suggestion(value, allowed.split(", ")) if kind == "literal_error" else ""
    return str(misfit(key, value, f"{allowed or first['msg']}{near}"))


def belongs_to(name: str, root: type[BaseModel]) -> str:
    """Where a key is at home that stands elsewhere; nothing where nobody has it, or more than one section."""
    homes = [
        f"{section}.{name}"
        for section, field in root.model_fields.items()
        for model in _models(field.annotation)
        if name in model.model_fields and section not in ("algorithms", "faults")
    ]
    home = homes[0] if len(homes) == 1 else ALSO_CALLED.get(name)
    return f"; did you mean '{home}'?" if home else ""


def _section(root: type[BaseModel], loc: list[str]) -> type[BaseModel] | None:
    """The class of the section at this place."""
    here: type[BaseModel] | None = root
    for part in loc:
        if part.isdecimal() or here is None:
            continue
        field = here.model_fields.get(part)
        inner = _models(field.annotation) if field else []
        here = inner[0] if inner else here
    return here


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _as_written(key: str, places: list[int]) -> str:
    parts = key.split(".")
    if len(parts) > 1 and parts[0] == "algorithms" and parts[1].isdecimal() and int(parts[1]) < len(places):
        parts[1] = str(places[int(parts[1])])
    return ".".join(parts)
