"""Is a cluster well, by what its nodes answer? For `walktalk status` and its exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def cluster_complaints(answers: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Why it is not, one line each, with the node's name; empty: it is.

    `answers`: by node, what `status` brought; None where no answer came.
    """
    said = [
        f"{name}: {complaint}"
        for name, answer in answers.items()
        for complaint in (["no answer"] if answer is None else complaints_in(answer))
    ]
    heads = aggregators(answers)
    if len(heads) > 1:
        said.append(f"{' and '.join(heads)} aggregate: the network is split, or an election is not known to all yet")
    return said


def complaints_in(answer: Mapping[str, Any]) -> list[str]:
    """What a node complains of; a node of an older version does not say."""
    found = answer.get("complaints")
    return [str(one) for one in found] if isinstance(found, list) else []


def aggregators(answers: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Who aggregates; more than one while the network is split, or an election is not known to all yet."""
    return [name for name, answer in answers.items() if answer is not None and answer.get("aggregates")]
