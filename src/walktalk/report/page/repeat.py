"""The command that does a study again, as it has to be typed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from walktalk.errors import UserError
from walktalk.report.differences import flat
from walktalk.studies import StudySpec, load_spec, preset_names, spec_mapping

MOST_CHANGES = 4  # keys that are set on the command line; a study with more, or with long ones, is named by its file
LONGEST = 40  # characters of one of them


def repeat_command(spec: StudySpec, folder: Path, engine: str = "sim") -> str:
    """Does the same study again into a new folder beside this one; works where the study was run.

    A study that is a preset, or nearly one, is named so, and the command works anywhere.
    """
    named = _preset(spec)
    out = folder.with_name(f"{folder.name or folder.resolve().name}-again")
    words = ["walktalk", "run", *(named or [str(folder / "spec.yaml")])]
    words += ["--engine", engine] if engine != "sim" else []
    return shlex.join([*words, "--out", str(out)])


def _preset(spec: StudySpec) -> list[str] | None:
    """The preset of the study's name and what has to be set; none if it is not nearly one."""
    if spec.name not in preset_names():
        return None
    preset = load_spec(spec.name)
    changes = _changes(spec_mapping(preset), spec_mapping(spec))
    if len(changes) > MOST_CHANGES or any(len(change) > LONGEST for change in changes):
        return None
    try:
        same = load_spec(spec.name, changes) == spec
    except UserError:
        return None
    return [spec.name, *(part for change in changes for part in ("--set", change))] if same else None


def _changes(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """`key=value` for everything that the study has otherwise."""
    before, now = flat(there), flat(here)
    return [f"{key}={_yaml(value)}" for key, value in now.items() if key not in before or before[key] != value]


def _yaml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_yaml(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_yaml(inner) for inner in value) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)
