"""Which settings differ: from the defaults in one study, from each other in several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from walktalk.errors import UserError
from walktalk.studies import StudySpec, make_spec, spec_mapping

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


def in_words(value: Any) -> str:
    """A setting as it would be written in YAML, on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {in_words(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(in_words(inner) for inner in value) or "none"
    if value is None:
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)
