"""Sweeps: a study in which a list stands where one value belongs is several studies, one for each combination.

A list in an entry of `algorithms` is several algorithms of one study; anywhere else (`optimizer.lr`, `task.alpha`,
`network.topology` …) it is several studies, which differ in that key alone, and so have graphs and splits of their own.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from walktalk.core.errors import SpecError, UserError
from walktalk.core.settings import misfit
from walktalk.graphs import topology_settings
from walktalk.learning import tasks
from walktalk.records import folder_name
from walktalk.studies.spec.load import make_spec, overridden, switch
from walktalk.studies.spec.sections import NetworkSpec, OptimizerSpec, TaskSpec
from walktalk.studies.spec.sources import read_study
from walktalk.studies.spec.study import EvaluateSpec, ScheduleSpec, StopSpec, StudySpec, TimingSpec, TrainingSpec

MOST = 1000  # studies of one sweep: nobody waits for more
SECTIONS: dict[str, type[BaseModel]] = {
    "network": NetworkSpec,
    "task": TaskSpec,
    "training": TrainingSpec,
    "optimizer": OptimizerSpec,
    "schedule": ScheduleSpec,
    "timing": TimingSpec,
    "stop": StopSpec,
    "evaluate": EvaluateSpec,
}
SELECTORS = {"network": "topology", "task": "name", "optimizer": "name", "timing": "model"}


def load_specs(source: str | os.PathLike[str], overrides: Iterable[str] = ()) -> dict[str, StudySpec]:
    """The study in a YAML file or of a preset's name, by its name; or all studies of a sweep, each by what it has.

    Args:
        source: A YAML file's path, or a preset's name.
        overrides: Texts such as `"optimizer.lr=[0.02, 0.1]"`, as after `--set`.
    """
    return make_specs(overridden(read_study(source), overrides))


def make_specs(content: Mapping[str, Any], over: Mapping[str, Any] | None = None) -> dict[str, StudySpec]:
    """A study, or all studies of a sweep, from a mapping with the keys of the YAML.

    Args:
        content: The study.
        over: Further lists of values, by dotted key: `{"optimizer.lr": [0.02, 0.1]}`.
    """
    plain = copy.deepcopy(dict(content))
    lists = {**_lists(plain), **_given(over or {})}
    count = 1
    for values in lists.values():
        count *= len(values)
    if count > MOST:
        raise SpecError(f"{', '.join(lists)}: {count:,} studies are too many for a sweep; allowed: {MOST:,}")
    if not lists:
        spec = make_spec(plain)
        return {spec.name: spec}
    found: dict[str, StudySpec] = {}
    for combination in itertools.product(*lists.values()):
        chosen = dict(zip(lists, combination, strict=True))
        label = ", ".join(f"{_called(key)} {_short(value)}" for key, value in chosen.items())
        if label in found:
            raise SpecError(f"{', '.join(lists)}: {label} is there twice; leave one of them out")
        found[label] = _one(plain, chosen, label)
    return found


def _one(content: Mapping[str, Any], chosen: Mapping[str, Any], label: str) -> StudySpec:
    """The study with these values; its name says which they are."""
    one = copy.deepcopy(dict(content))
    # What decides which other keys have a meaning comes first: those of another topology go.
    for key in sorted(chosen, key=lambda key: SELECTORS.get(key.partition(".")[0]) != key.partition(".")[2]):
        section, _, name = key.partition(".")
        if name and SELECTORS.get(section) == name:
            switch(one, section, name, chosen[key])
        here: Any = one
        for part in key.split(".")[:-1]:
            here = here.setdefault(part, {})
        here[key.rpartition(".")[2]] = chosen[key]
    one["name"] = folder_name(label.replace(", ", "_").replace(" ", "-"))[:100]
    try:
        return make_spec(one)
    except UserError as error:
        raise type(error)(f"{error} (where {label})") from error


def _given(over: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Lists of values by key, as somebody gives them in Python."""
    for key, values in over.items():
        if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
            raise misfit(f"over.{key}", values, "a list of values", SpecError)
    found = {key: list(values) for key, values in over.items()}
    for key, listed in found.items():
        if not listed:
            raise misfit(f"over.{key}", listed, "a list of at least one value", SpecError)
    return found


def _lists(content: dict[str, Any]) -> dict[str, list[Any]]:
    """The lists that stand where one value belongs, by dotted key; they are taken out of the content."""
    found: dict[str, list[Any]] = {}
    for name in ("seed", "repetitions"):
        if isinstance(content.get(name), list) and content[name]:
            found[name] = content.pop(name)
    for section, kind in SECTIONS.items():
        given = content.get(section)
        if not isinstance(given, dict):
            continue
        for name in list(given):
            value = given[name]
            if isinstance(value, list) and value and _several(value, name in _that_are_lists(section, kind, given)):
                found[f"{section}.{name}"] = given.pop(name)
    return found


def _several(value: list[Any], of_lists: bool) -> bool:
    return not of_lists or isinstance(value[0], list)


def _that_are_lists(section: str, kind: type[BaseModel], given: Mapping[str, Any]) -> set[str]:
    """The keys of a section whose one value is a list."""
    own = {name for name, field in kind.model_fields.items() if "list" in str(field.annotation)}
    return own | set().union(*(_own_lists(section, choice) for choice in _choices(section, given)))


def _choices(section: str, given: Mapping[str, Any]) -> Iterator[str]:
    """The topologies or tasks that a section names."""
    named = given.get(SELECTORS.get(section, ""), None)
    for one in named if isinstance(named, list) else [named]:
        if isinstance(one, str):
            yield one


def _own_lists(section: str, choice: str) -> set[str]:
    """The settings of a topology or a task that are lists themselves."""
    takes = {"network": topology_settings, "task": tasks.task_settings}
    try:
        return {name for name, one in takes[section](choice).items() if one.is_list} if section in takes else set()
    except UserError:  # the name is not known; that is said when the study is made
        return set()


def _called(key: str) -> str:
    """A key as a label has it: its last word, or its section where that word says nothing alone."""
    section, _, name = key.rpartition(".")
    return section if name in ("name", "model") else name


def _short(value: Any) -> str:
    """A value as a label has it."""
    if isinstance(value, (list, tuple)):
        return "-".join(map(_short, value))
    return f"{value:g}" if isinstance(value, float) else str(value).rpartition(":")[2]
