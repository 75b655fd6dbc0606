"""The reference of all keys of a specification, as Markdown, made from the specification's own definition."""

from __future__ import annotations

from pydantic import BaseModel

from walktalk.graphs import FAMILIES
from walktalk.learning import tasks
from walktalk.protocols import PROTOCOLS
from walktalk.studies.spec.algorithm import AlgorithmSpec
from walktalk.studies.spec.faults import FaultSpec
from walktalk.studies.spec.fields import allowed_text
from walktalk.studies.spec.network import NetworkSpec
from walktalk.studies.spec.optimizer import OptimizerSpec
from walktalk.studies.spec.settings import Setting, of_dataclass
from walktalk.studies.spec.study import (
    EvaluateSpec,
    ScheduleSpec,
    StopSpec,
    StragglersSpec,
    StudySpec,
    TimingSpec,
    TrainingSpec,
)
from walktalk.studies.spec.task import TaskSpec, task_settings

SECTIONS: dict[str, type[BaseModel]] = {
    "network": NetworkSpec,
    "task": TaskSpec,
    "training": TrainingSpec,
    "optimizer": OptimizerSpec,
    "schedule": ScheduleSpec,
    "timing": TimingSpec,
    "timing.stragglers": StragglersSpec,
    "algorithms": AlgorithmSpec,
    "faults": FaultSpec,
    "stop": StopSpec,
    "evaluate": EvaluateSpec,
}


HEAD = """\
# A study, key by key

A study is a YAML file with these keys. Every key has a default, so `{}` is a study. An unknown key, a wrong type or an
impossible value is one line that names the key, the value and what is allowed; nothing has been trained by then.

Where a section's first key decides what the others mean (`network.topology`, `task.name`, `optimizer.name`,
`timing.model`), keys of the other kinds are refused. A list in an entry of `algorithms` stands for one algorithm each:
`{name: multi_walk, walks: [1, 4, 15]}` is three. On the command line, `--set optimizer.lr=0.1` or
`--set algorithms.0.walks=[2,8]` changes one key of a file or preset; `walktalk presets quickstart` prints a file to
start from.

This page is made from the definitions in `walktalk.studies` by `make docs`, and a test holds it to them.
"""


def reference() -> str:
    """`docs/spec.md`: every section with its keys, then topologies, tasks and algorithms with theirs."""
    parts = [HEAD.rstrip("\n"), "## The study", _keys(StudySpec, "")]
    for name, section in SECTIONS.items():
        parts += [f"## `{name}`", str(section.__doc__).split("\n\n")[0], _keys(section, f"{name}.")]
    parts += ["## Topologies", _topologies(), "## Tasks", _tasks(), "## Algorithms", _algorithms()]
    return "\n\n".join(parts) + "\n"


def _keys(section: type[BaseModel], prefix: str) -> str:
    rows = ["| key | default | allowed | meaning |", "| --- | --- | --- | --- |"]
    for name, field in section.model_fields.items():
        default = "" if field.default is None or field.is_required() else f"`{_yaml(field.default)}`"
        if field.default_factory is not None or prefix == "network.":
            default = f"`{_yaml(field.default)}`" if isinstance(field.default, str) else ""
        rows.append(f"| `{prefix}{name}` | {default} | {allowed_text(section, name)} | {field.description} |")
    return "\n".join(rows)


def _topologies() -> str:
    rows = ["| topology | what it is | its keys |", "| --- | --- | --- |"]
    for name, family in FAMILIES.items():
        keys = ", ".join(f"`{key}`" for key in family.parameters)
        rows.append(f"| `{name}` | {family.description} | {keys} |")
    return "\n".join(rows)


def _algorithms() -> str:
    rows = ["| algorithm | what it is | its keys |", "| --- | --- | --- |"]
    for name, protocol in PROTOCOLS.items():
        rows.append(f"| `{name}` | {_sentence(protocol.__doc__)} | {_settings(of_dataclass(protocol))} |")
    return "\n".join(rows)


def _tasks() -> str:
    rows = ["| task | what it is | its keys |", "| --- | --- | --- |"]
    for name, make in tasks.TASKS.items():
        rows.append(f"| `{name}` | {_sentence(make.__doc__)} | {_settings(task_settings(name))} |")
    return "\n".join(rows)


def _settings(settings: dict[str, Setting]) -> str:
    return "; ".join(f"`{name}`: {s.allowed}{_default(s.default)}" for name, s in settings.items())


def _default(value: object) -> str:
    return "" if value is None else f" (`{_yaml(value)}`)"


def _sentence(doc: str | None) -> str:
    """The first line of a docstring."""
    return (doc or "").strip().split("\n")[0]


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    print(reference(), end="")
