"""The reference of all keys of a specification, as Markdown, made from the specification's own definition."""

from __future__ import annotations

from pydantic import BaseModel

from walktalk.graphs import FAMILIES
from walktalk.protocols import PROTOCOLS
from walktalk.studies.spec import (
    EvaluateSpec,
    OptimizerSpec,
    ScheduleSpec,
    StopSpec,
    StragglersSpec,
    StudySpec,
    TaskSpec,
    TimingSpec,
    TrainingSpec,
)
from walktalk.studies.spec_algorithm import AlgorithmSpec, settings_of
from walktalk.studies.spec_fields import allowed_text
from walktalk.studies.spec_network import NetworkSpec

SECTIONS: dict[str, type[BaseModel]] = {
    "network": NetworkSpec,
    "task": TaskSpec,
    "training": TrainingSpec,
    "optimizer": OptimizerSpec,
    "schedule": ScheduleSpec,
    "timing": TimingSpec,
    "timing.stragglers": StragglersSpec,
    "algorithms": AlgorithmSpec,
    "stop": StopSpec,
    "evaluate": EvaluateSpec,
}


def reference() -> str:
    """Every section with its keys, then the topologies and the algorithms with theirs."""
    parts = ["## The study", _keys(StudySpec, "")]
    for name, section in SECTIONS.items():
        parts += [f"## `{name}`", str(section.__doc__).split("\n\n")[0], _keys(section, f"{name}.")]
    parts += ["## Topologies", _topologies(), "## Algorithms", _algorithms()]
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
        settings = settings_of(protocol)
        keys = "; ".join(
            f"`{key}`: {setting.allowed} (`{_yaml(setting.default)}`)" for key, setting in settings.items()
        )
        rows.append(f"| `{name}` | {str(protocol.__doc__).split(chr(10))[0]} | {keys} |")
    return "\n".join(rows)


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
