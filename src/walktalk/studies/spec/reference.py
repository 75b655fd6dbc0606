"""The reference of all keys of a specification, as Markdown, made from the specification's own definition."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from walktalk.core.plugins import Registry
from walktalk.core.settings import REQUIRED, Setting, settings_of
from walktalk.graphs import TOPOLOGIES
from walktalk.learning import tasks
from walktalk.protocols import PROTOCOLS
from walktalk.studies.spec.algorithm import AlgorithmSpec, PrivacySpec
from walktalk.studies.spec.sections import FaultSpec, NetworkSpec, OptimizerSpec, TaskSpec, allowed_text
from walktalk.studies.spec.study import (
    EvaluateSpec,
    ObjectiveSpec,
    ScheduleSpec,
    StopSpec,
    StragglersSpec,
    StudySpec,
    TimingSpec,
    TrainingSpec,
)

SECTIONS: dict[str, type[BaseModel]] = {
    "network": NetworkSpec,
    "task": TaskSpec,
    "training": TrainingSpec,
    "objective": ObjectiveSpec,
    "optimizer": OptimizerSpec,
    "schedule": ScheduleSpec,
    "timing": TimingSpec,
    "timing.stragglers": StragglersSpec,
    "algorithms": AlgorithmSpec,
    "algorithms.privacy": PrivacySpec,
    "faults": FaultSpec,
    "stop": StopSpec,
    "evaluate": EvaluateSpec,
}


HEAD = """\
# A study, key by key

A study is a YAML file with these keys; `walktalk presets quickstart` prints one to start from. Every key has a default,
so `{}` is a study. If a key is unknown, or a value has the wrong type or is not possible, you get one line that names
the key, the value and what is allowed, before anything is trained.

On the command line, `--set optimizer.lr=0.1` or `--set algorithms.0.walks=[2,8]` changes one key of a file or preset.

A list in an entry of `algorithms` means one algorithm for each element: `{name: multi_walk, walks: [1, 4, 15]}` is
three. If a setting is itself a list, such as `weights`, use a list of lists for several.

The first key of a section may decide which others there are (`network.topology`, `task.name`, `optimizer.name`,
`timing.model`); keys of the other kinds are refused.

You can use your own topology, task or algorithm in place of ours: as `module:object`, such as
`{name: "my_package.push_sum:PushSum"}`, where the module may be in the current folder, or by the name under which
`wt.register` or the entry-point group `walktalk` of an installed package knows it ([how](plugins.md)). Its settings
are keys like ours, and this page lists them too if it is made where the package is installed.

This page is made from the definitions in `walktalk.studies` by `make docs`; a test checks
that it is up to date.
"""


HEADER = "| key | default | allowed | meaning |\n| --- | --- | --- | --- |"


def reference() -> str:
    """`docs/spec.md`: every section with its keys, then topologies, tasks and algorithms with theirs."""
    parts = [HEAD.rstrip("\n"), "## The study", _keys(StudySpec, "")]
    for name, section in SECTIONS.items():
        parts += [f"## `{name}`", str(section.__doc__).split("\n\n")[0], _keys(section, f"{name}.")]
    parts += ["## Topologies", *_things("network", TOPOLOGIES, ("nodes", "seed"))]
    parts += ["## Tasks", *_things("task", tasks.TASKS, ("nodes", "seed", "part"))]
    parts += ["## Algorithms", *_things("algorithms", PROTOCOLS)]
    return "\n\n".join(parts) + "\n"


def _keys(section: type[BaseModel], prefix: str) -> str:
    rows = [HEADER]
    for name, field in section.model_fields.items():
        default = "" if field.default is None or field.is_required() else f"`{_yaml(field.default)}`"
        if field.default_factory is not None:
            default = f"`{_yaml(field.default)}`" if isinstance(field.default, str) else ""
        rows.append(f"| `{prefix}{name}` | {default} | {allowed_text(section, name)} | {field.description} |")
    return "\n".join(rows)


def _things(section: str, registry: Registry[Any], from_the_study: tuple[str, ...] = ()) -> list[str]:
    """All things of a kind: what each is, and the keys that it adds to its section."""
    parts = []
    for name, thing in registry.items():
        parts += [f"### `{name}`", _sentence(thing.__doc__)]
        settings = settings_of(thing, from_the_study)
        if settings:
            parts.append("\n".join([HEADER, *(_row(f"{section}.{key}", one) for key, one in settings.items())]))
    return parts


def _row(key: str, setting: Setting) -> str:
    default = "" if setting.default is None or setting.default is REQUIRED else f"`{_yaml(setting.default)}`"
    return f"| `{key}` | {default} | {setting.allowed} | {setting.meaning} |"


def _sentence(doc: str | None) -> str:
    """The first sentence of a docstring, for a table of the reference."""
    return (doc or "").strip().split("\n")[0]


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    print(reference(), end="")
