"""What is installed: all that walktalk needs, and its extras."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from walktalk.doctor.finding import Finding

EXTRAS = {
    "peers": "real nodes: run --engine peers, node, status, chaos",
    "language": "language models: the task mnli",
    "privacy": "what protects the data of nodes: the key privacy, wt.private",
    "ray": "studies on a cluster: run --workers ray",
    "tensorboard": "evaluations for TensorBoard: run --tensorboard, wt.TensorBoard",
    "mlflow": "evaluations for MLflow: run --mlflow, wt.MLflow",
    "wandb": "evaluations for Weights & Biases: run --wandb, wt.WandB",
}


def packages() -> Iterator[Finding]:
    """The dependencies in one line, then each extra."""
    declared = [Requirement(line) for line in requires("walktalk") or []]
    wrong = [said for one in declared if _applies(one, "") and (said := _misfit(one))]
    needed = sum(_applies(one, "") for one in declared)
    remedy = "pip install --upgrade walktalk"
    yield (
        Finding("packages", "bad", "; ".join(wrong), remedy)
        if wrong
        else Finding("packages", "good", f"all {needed} that are needed")
    )
    for extra, purpose in EXTRAS.items():
        own = [one for one in declared if _applies(one, extra) and not _applies(one, "")]
        missing = [said for one in own if (said := _misfit(one))]
        if missing:
            yield Finding(f"extra {extra}", "absent", f"{purpose}; {missing[0]}", f"pip install 'walktalk[{extra}]'")
        else:
            yield Finding(f"extra {extra}", "good", ", ".join(f"{one.name} {version(one.name)}" for one in own))


def _applies(one: Requirement, extra: str) -> bool:
    return one.marker is None or one.marker.evaluate({"extra": extra})


def _misfit(one: Requirement) -> str:
    """What is wrong with an installed package; empty where nothing is."""
    try:
        found = version(one.name)
    except PackageNotFoundError:
        return f"{one.name} is not installed"
    fits = one.specifier.contains(found, prereleases=True)
    return "" if fits else f"{one.name} is {found}, but {one.specifier} is needed"
