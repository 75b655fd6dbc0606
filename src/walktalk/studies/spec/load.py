"""Ways to a `StudySpec`: a file, a preset, a mapping; with keys set from the command line. And the way back to YAML."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from walktalk.core.errors import SettingError, SpecError
from walktalk.core.settings import shown
from walktalk.graphs import topology_settings
from walktalk.learning import tasks
from walktalk.records import yaml_text
from walktalk.studies.spec.algorithm import expand
from walktalk.studies.spec.sections import spec_error
from walktalk.studies.spec.sources import parsed, read_study
from walktalk.studies.spec.study import StudySpec


def load_spec(source: str | os.PathLike[str], overrides: Iterable[str] = ()) -> StudySpec:
    """The study in a YAML file or of a preset's name, with `a.b=value` overrides applied in order.

    Args:
        source: A YAML file's path, or a preset's name.
        overrides: Texts such as `"optimizer.lr=0.1"`, as after `--set`.
    """
    return make_spec(overridden(read_study(source), overrides))


def overridden(content: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """What a study says, with `a.b=value` overrides applied in order."""
    for override in overrides:
        _set(content, override)
    return content


def make_spec(content: Mapping[str, Any]) -> StudySpec:
    """A study from a mapping with the keys of the YAML; a `SpecError` that names the key if it is not possible."""
    whole = copy.deepcopy(dict(content))
    places: list[int] = []
    if isinstance(whole.get("algorithms"), list):
        expanded = expand(whole["algorithms"])
        places = [place for place, _ in expanded]
        whole["algorithms"] = [entry for _, entry in expanded]
    for name, value in whole.items():
        if value is None:
            raise SpecError(f"{name}: has no value; leave the key out to get its default")
    try:
        return StudySpec.model_validate(whole)
    except ValidationError as error:
        raise spec_error(error, StudySpec, places) from None


def dump_spec(spec: StudySpec) -> str:
    """The whole study as YAML: every key that has a meaning in it. Loading it gives the same study."""
    return yaml_text.dump(spec_mapping(spec))


def spec_mapping(spec: StudySpec) -> dict[str, Any]:
    """The whole study as a mapping with the keys of the YAML."""
    content = spec.model_dump(mode="json", exclude_none=True)
    timing = content["timing"]
    content["timing"] = {name: timing[name] for name in timing if name == "model" or _times(name, spec.timing.model)}
    return content


def _set(content: dict[str, Any], override: str) -> None:
    """Apply one `a.b.c=value`; numbers lead into lists."""
    keys, value = parsed(override)
    if len(keys) == 2 and SELECTORS.get(keys[0]) == keys[1]:
        switch(content, keys[0], keys[1], value)
    here: Any = content
    for depth, name in enumerate(keys[:-1]):
        here = _enter(here, name, ".".join(keys[: depth + 1]))
    _put(here, keys[-1], value, ".".join(keys))


def _enter(here: Any, name: str, so_far: str) -> Any:
    if isinstance(here, list):
        return here[_place(here, name, so_far)]
    inner = here.setdefault(name, {})
    if not isinstance(inner, (dict, list)):
        raise SpecError(f"{so_far}: {shown(inner)} is not a section, so nothing in it can be set")
    return inner


def _put(here: Any, name: str, value: Any, dotted: str) -> None:
    if isinstance(here, list):
        here[_place(here, name, dotted)] = value
    else:
        here[name] = value


def _place(here: list[Any], name: str, so_far: str) -> int:
    if not name.isdecimal() or int(name) >= len(here):
        raise SpecError(f"{so_far}: {name!r} is not an entry of the list; allowed: 0 to {len(here) - 1}")
    return int(name)


SELECTORS = {"network": "topology", "task": "name", "optimizer": "name", "timing": "model"}
"""The key of each section that decides which of its other keys have a meaning."""


def switch(content: dict[str, Any], section: str, selector: str, value: Any) -> None:
    """Another topology, task, optimizer or timing model: the keys that belonged to the old one go.

    Else `--set network.topology=cycle` could never be said of a study that has `p: 0.3` in it.
    """
    given = content.get(section)
    if isinstance(given, dict) and given.get(selector) != value:
        stay = _shared(section, value)
        content[section] = {name: kept for name, kept in given.items() if name in stay}


def _shared(section: str, value: Any) -> set[str]:
    if isinstance(value, list):  # a sweep: whatever any of them takes stays for now
        return set().union(*(_shared(section, one) for one in value))
    try:
        if not isinstance(value, str):
            return {"nodes", "sites"}
        if section == "network":
            return {"nodes", "sites", *topology_settings(value)}
        if section == "task":
            return set(tasks.task_settings(value))
    except SettingError:  # the name is not known; that is said when the whole is read
        return {"nodes", "sites"}
    return {"weight_decay"} if section == "optimizer" else set()


def _times(name: str, model: str) -> bool:
    """Whether a key of `timing` has a meaning in this timing model."""
    return (name == "d") == (model == "poisson")
