"""What a person names and sets: a YAML file, or one that comes with the package, and `--set a.b=value`.

It is read before anything knows whether it is possible. Nothing heavy is imported here, so that `walktalk presets` and
a mistyped name are answered at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from walktalk.core.errors import SpecError, suggestion
from walktalk.records import yaml_text


def preset_names() -> list[str]:
    """The studies that come with the package."""
    return sorted(p.name.removesuffix(".yaml") for p in _presets().iterdir() if p.name.endswith(".yaml"))


def preset_text(name: str) -> str:
    """A preset's YAML, comments and all."""
    known = preset_names()
    if name == "family":  # several graphs, so several studies
        raise SpecError(f"{name}: is more than one study; run it with: walktalk paper run family")
    if name not in known:
        raise SpecError(f"{name}: is neither a file nor a preset; presets: {', '.join(known)}{suggestion(name, known)}")
    return str((_presets() / f"{name}.yaml").read_text(encoding="utf-8"))


def read_study(source: str | os.PathLike[str]) -> dict[str, Any]:
    """What a YAML file or a preset says, unchecked; a `SpecError` where it is neither, or no YAML."""
    text = os.fspath(source)
    path = Path(text)
    if path.is_dir() and text not in preset_names():
        raise SpecError(f"{text}: is a folder; name a YAML file, such as {path / 'spec.yaml'}")
    if path.is_file() or path.suffix in (".yaml", ".yml") or os.sep in text:
        return _no_cluster(yaml_text.read(path), text)
    return yaml_text.as_mapping(yaml_text.parse(preset_text(text), f"preset {text}"), f"preset {text}")


def _no_cluster(content: dict[str, Any], source: str) -> dict[str, Any]:
    """`SpecError` where somebody gave a cluster's file in a study's place: the two look alike."""
    if "nodes" in content and "study" in content:
        named = content["study"]
        where = named if isinstance(named, str) else "what stands under its `study`, in a file of its own"
        raise SpecError(f"{source} is a cluster's file, not a study; name its study instead: {where}")
    return content


def _presets() -> Any:
    return files("walktalk.studies") / "presets"


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
