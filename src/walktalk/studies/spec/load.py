"""Ways to a `StudySpec`: a file, a preset, a mapping; with keys set from the command line. And the way back to YAML."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from walktalk.core.errors import SettingError, SpecError, suggestion
from walktalk.core.settings import shown
from walktalk.graphs import topology_settings
from walktalk.learning import tasks
from walktalk.records import yaml_text
from walktalk.studies.spec.algorithm import expand
from walktalk.studies.spec.fields import spec_error
from walktalk.studies.spec.study import StudySpec

# -- What a person names and sets: a YAML file, or one that comes with the package, and `--set a.b=value` -------------
# It is read before anything knows whether it is possible. Nothing heavy is imported here, so that `walktalk presets`
# and a mistyped name are answered at once.


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


# -- Ways to a `StudySpec`: a file, a preset, a mapping; with keys set from the command line. And the way back to YAML


def load_spec(source: str | os.PathLike[str], overrides: Iterable[str] = ()) -> StudySpec:
    """The study in a YAML file or of a preset's name, with `a.b=value` overrides applied in order.

    Args:
        source: A YAML file's path, or a preset's name.
        overrides: Texts such as `"optimizer.lr=0.1"`, as after `--set`.
    """
    content = read_study(source)
    for override in overrides:
        _set(content, override)
    return make_spec(content)


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
        _switch(content, keys[0], keys[1], value)
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


def _switch(content: dict[str, Any], section: str, selector: str, value: Any) -> None:
    """Another topology, task, optimizer or timing model: the keys that belonged to the old one go.

    Else `--set network.topology=cycle` could never be said of a study that has `p: 0.3` in it.
    """
    given = content.get(section)
    if isinstance(given, dict) and given.get(selector) != value:
        stay = _shared(section, value)
        content[section] = {name: kept for name, kept in given.items() if name in stay}


def _shared(section: str, value: Any) -> set[str]:
    try:
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
