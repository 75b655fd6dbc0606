"""`--set a.b=value`: what it says, before anything knows whether that is possible."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from walktalk.errors import SpecError
from walktalk.records import yaml_text


def nested(overrides: Iterable[str]) -> dict[str, Any]:
    """`a.b=value` overrides as a mapping of mappings, for settings that are not a whole study."""
    whole: dict[str, Any] = {}
    for override in overrides:
        keys, value = parsed(override)
        here = whole
        for name in keys[:-1]:
            here = here.setdefault(name, {})
            if not isinstance(here, dict):
                raise SpecError(f"--set {override}: {name} has a value already")
        here[keys[-1]] = value
    return whole


def parsed(override: str) -> tuple[list[str], Any]:
    """The keys on the way and the value, as YAML reads it."""
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise SpecError(f"--set {override}: should be key=value, such as optimizer.lr=0.1")
    return keys, yaml_text.parse(text, f"--set {override}")
