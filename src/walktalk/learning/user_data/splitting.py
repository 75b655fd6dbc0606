"""Split one's own data over nodes: evenly, by label, or by a key such as the hospital."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from walktalk.core.errors import DataError
from walktalk.core.seeds import Seed
from walktalk.core.settings import misfit
from walktalk.learning import partition
from walktalk.learning.user_data import Choice, is_columns, is_frame

How: TypeAlias = Literal["iid", "dirichlet", "balanced_dirichlet", "shards", "labels"]


def split(
    data: Any,
    nodes: int | Sequence[str] | None = None,
    how: How = "iid",
    *,
    by: Any = None,
    alpha: float = 1.0,
    shards: int = 2,
    labels_per_node: int = 2,
    target: str | None = None,
    seed: int | Seed = 0,
) -> Any:
    """The data of every node: a list, or a dictionary where `nodes` are names or `by` gives them.

    Args:
        data: A pair (inputs, targets), a pandas frame, a torch `Dataset`, a Hugging Face `Dataset` or a
            dictionary of columns; every node gets the same kind.
        nodes: How many, or their names; may be left out with `by`.
        how: `iid`, shuffled and dealt out; `dirichlet`, of every class shares drawn from Dirichlet(`alpha`);
            `balanced_dirichlet`, the published one, whose nodes have about as much each; `shards`, sorted by
            label, cut, `shards` to a node; `labels`, `labels_per_node` classes to a node.
        by: In place of `how`: a column's name, or one key for every sample. Every key then is a node of that
            name (and the column is left out of its data), or, with `nodes`, keys are shared out over them.
        alpha: Of the Dirichlet splits: 10 is almost even, 0.1 very uneven.
        shards: Shards of a node.
        labels_per_node: Classes of a node.
        target: The column of the labels.
        seed: Of the split.
    """
    if nodes is None and by is None:
        raise DataError("nodes: how many? A number or a list of names is needed, or by=…, such as by='hospital'")
    names = None if nodes is None or isinstance(nodes, int) else [str(name) for name in nodes]
    count = nodes if isinstance(nodes, int) else len(names or ())  # 0: as many as there are keys
    if by is not None:
        keys = column_of(data, by) if isinstance(by, str) else np.asarray(by)
        check_length(keys, data)
        data = without(data, by) if isinstance(by, str) else data
        if not count:
            return {str(key): subset(data, np.flatnonzero(keys == key)) for key in np.unique(keys)}
        parts = partition.by_key(keys, count, seed)
    else:
        parts = parts_of(data, count, how, {"alpha": alpha, "shards": shards, "labels": labels_per_node}, target, seed)
    found = [subset(data, part) for part in parts]
    return found if names is None else dict(zip(names, found, strict=True))


def parts_of(
    data: Any, nodes: int, how: How, given: Mapping[str, Any], target: str | None, seed: int | Seed
) -> list[np.ndarray]:
    if how not in get_args(How):
        raise misfit("how", how, ", ".join(get_args(How)), DataError)
    if how == "iid":
        return partition.iid(length(data), nodes, seed)
    labels = labels_of(data, target)
    by_alpha: dict[str, Callable[..., list[np.ndarray]]] = {
        "dirichlet": partition.dirichlet,
        "balanced_dirichlet": partition.balanced_dirichlet,
    }
    if how in by_alpha:
        return by_alpha[how](labels, nodes, given["alpha"], seed)
    if how == "shards":
        return partition.shards(labels, nodes, given["shards"], seed)
    return partition.by_label(labels, nodes, given["labels"], seed)


def length(data: Any) -> int:
    if isinstance(data, Mapping):
        return len(next(iter(data.values())))
    return len(data[1]) if is_columns(data) else len(data)


def labels_of(data: Any, target: str | None) -> np.ndarray:
    """The class of every sample, to split by."""
    if is_columns(data):
        labels = np.asarray(data[1])
    elif names := names_of(data):
        labels = column_of(data, Choice(target).target_among(names, "data")[0])
    elif hasattr(data, "tensors"):
        labels = np.asarray(data.tensors[-1])
    elif getattr(data, "targets", None) is not None:
        labels = np.asarray(data.targets)
    else:
        labels = np.asarray([int(data[k][-1]) for k in range(len(data))])
    if labels.ndim != 1:
        raise DataError(
            f"data: to split by label, one label a sample is needed, not targets of shape {labels.shape[1:]}"
        )
    return labels


def names_of(data: Any) -> list[str]:
    """Names of the columns of some data, where they have any."""
    if isinstance(data, Mapping):
        return [str(name) for name in data]
    names = getattr(data, "column_names", None)
    if names is None and is_frame(data):
        names = data.columns
    return [] if names is None else [str(name) for name in names]


def column_of(data: Any, name: str) -> np.ndarray:
    names = names_of(data)
    if name not in names:
        there = f"there are {', '.join(names)}" if names else "its columns have no names: give one key for every sample"
        raise DataError(f"data: there is no column {name!r}; {there}")
    return np.asarray(data[name])


def check_length(keys: np.ndarray, data: Any) -> None:
    if len(keys) != length(data):
        raise DataError(f"by: {len(keys)} keys for {length(data)} samples")


def without(data: Any, name: str) -> Any:
    """The data without one of its columns."""
    if is_frame(data):
        return data.drop(columns=name)
    if isinstance(data, Mapping):
        return {key: values for key, values in data.items() if key != name}
    return data.remove_columns(name)


def subset(data: Any, places: np.ndarray) -> Any:
    """Some samples of the data, in the same form."""
    if is_frame(data):
        return data.iloc[places]
    if isinstance(data, Mapping):
        return {name: taken(values, places) for name, values in data.items()}
    if is_columns(data):
        inputs = subset(data[0], places) if isinstance(data[0], Mapping) else taken(data[0], places)
        return inputs, taken(data[1], places)
    if hasattr(data, "select") and hasattr(data, "column_names"):
        return data.select(places.tolist())
    return Subset(data, places.tolist())


def taken(values: Any, places: np.ndarray) -> Any:
    return values[torch.from_numpy(places)] if isinstance(values, Tensor) else np.asarray(values)[places]
