"""What a note says of a study's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TASKS = {
    "cifar10": "CIFAR-10 with ResNet-20",
    "fashion_mnist": "Fashion-MNIST",
    "digits": "Handwritten digits",
    "mnli": "MultiNLI",
}


def setting_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The task, V and α, from a specification as it is written."""
    task, nodes = spec.get("task", {}), spec.get("network", {}).get("nodes")
    name = str(task.get("name", ""))
    parts = (
        TASKS.get(name, name),
        f"V = {nodes} nodes" if nodes else "",
        f"α = {task['alpha']:g}" if task.get("alpha") is not None else "",
    )
    return tuple(part for part in parts if part)
