"""Which settings of studies differ, from the defaults and from each other, and the command that repeats a study."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from walktalk.core.errors import UserError
from walktalk.studies import StudySpec, load_spec, make_spec, preset_names, spec_mapping

SELECTORS = {"network": "topology", "task": "name", "optimizer": "name", "timing": "model"}
"""The key of each section that decides which of its other keys have a meaning, and what their defaults are."""
OF_FAULTS = {"slow": ("factor",), "corrupt": ("how", "factor")}
"""Keys of a fault that mean something for its kind also where they are at their default."""


def flat(mapping: Mapping[str, Any], algorithms: bool = True) -> dict[str, Any]:
    """`{"task": {"alpha": 1}}` as `{"task.alpha": 1}`; an algorithm is one entry, and so is a fault."""
    found: dict[str, Any] = {}
    for key, value in mapping.items():
        if key == "algorithms" and not algorithms:
            continue
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": content for inner, content in flat(value).items()}
        elif isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
            entries = map(_of_fault, value) if key == "faults" else value
            found |= {f"{key}.{place}": entry for place, entry in enumerate(entries)}
        else:
            found[key] = value
    return found


def _of_fault(fault: Mapping[str, Any]) -> dict[str, Any]:
    """A fault without the keys that nobody gave and that its kind does not use."""
    usual = spec_mapping(make_spec({"faults": [{"kind": "lose", "at": 0}]}))["faults"][0]  # the one that needs nothing
    meant = ("kind", "at", *OF_FAULTS.get(fault["kind"], ()))
    return {key: value for key, value in fault.items() if key in meant or value != usual.get(key)}


def from_defaults(spec: StudySpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of a study that are not the defaults, and those that are. Its name is neither."""
    given = flat({key: value for key, value in spec_mapping(spec).items() if key != "name"})
    usual = flat(_defaults(spec))
    plain = {"network": "erdos_renyi", "task": "digits", "optimizer": "sgd", "timing": "poisson"}
    usual |= {f"{section}.{SELECTORS[section]}": value for section, value in plain.items()}
    chosen = {key: _chosen(key, value) for key, value in given.items() if key not in usual or usual[key] != value}
    return chosen, {key: value for key, value in given.items() if key not in chosen}


def _defaults(spec: StudySpec) -> dict[str, Any]:
    """What a study has where nothing is said but its topology, its task, its optimizer and its timing model."""
    whole, usual = spec_mapping(spec), spec_mapping(make_spec({}))
    for section, key in SELECTORS.items():
        try:
            usual[section] = spec_mapping(make_spec({section: {key: whole[section][key]}}))[section]
        except UserError:  # needs more to be said, so it has no defaults
            usual[section] = {}
    return {key: value for key, value in usual.items() if key not in ("name", "algorithms")}


def _chosen(key: str, value: Any) -> Any:
    """An algorithm with its name and what is said of it, without what is left at its default."""
    if not key.startswith("algorithms.") or not isinstance(value, Mapping):
        return value
    try:
        usual = spec_mapping(make_spec({"algorithms": [{"name": value["name"]}]}))["algorithms"][0]
    except UserError:
        return value
    return {name: inner for name, inner in value.items() if name == "name" or usual.get(name) != inner}


def between(studies: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The settings in which studies differ, by key: a value for each study, None where one has no such key."""
    all_flat = [flat({key: value for key, value in study.items() if key != "name"}, False) for study in studies]
    keys = list(dict.fromkeys(key for one in all_flat for key in one))
    if any(key.startswith("faults.") for key in keys):
        keys = [key for key in keys if key != "faults"]  # of a study without; that is seen in their rows
    table = {key: [one.get(key) for one in all_flat] for key in keys}
    return {key: values for key, values in table.items() if any(value != values[0] for value in values)}


def as_yaml(value: Any) -> str:
    """A setting as it would be written in YAML, on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {as_yaml(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(as_yaml(inner) for inner in value) or "none"
    if value is None:
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- the command that does a study again ------------------------------------------------------------------------------

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
