"""How samples are split over nodes: disjoint, every sample used once, no node empty."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from walktalk.core.errors import DataError
from walktalk.core.seeds import Seed, as_seed
from walktalk.core.settings import misfit
from walktalk.learning.user_data import Choice, is_columns, is_frame


def iid(samples: int, nodes: int, seed: int | Seed) -> list[np.ndarray]:
    """Splits shuffled samples evenly: sizes differ by one at most."""
    _enough(samples, nodes)
    return [np.sort(part) for part in np.array_split(as_seed(seed).numpy().permutation(samples), nodes)]


LARGEST_ALPHA = 1e9  # shares are equal to nine digits then; far beyond, their sum overflows
DRAWS = 100  # of a split in which every node is to have samples


def dirichlet(labels: np.ndarray, nodes: int, alpha: float, seed: int | Seed) -> list[np.ndarray]:
    """Splits every class by shares drawn from Dirichlet(α): the smaller α, the more a node has of one class only.

    A node that would go empty takes one sample from the node that has most, from its largest class, so that the split
    is changed by as little as possible.
    """
    labels = np.asarray(labels)
    rng = _checked(labels, nodes, alpha, seed)
    return _fill_empty(_drawn(labels, nodes, alpha, rng), labels, nodes)


def true_dirichlet(labels: np.ndarray, nodes: int, alpha: float, seed: int | Seed) -> list[np.ndarray]:
    """A Dirichlet split with nothing mended: drawn again while a node goes empty, and an error if one always does."""
    labels = np.asarray(labels)
    rng = _checked(labels, nodes, alpha, seed)
    empty = nodes
    for _ in range(DRAWS):
        owner = _drawn(labels, nodes, alpha, rng)
        sizes = np.bincount(owner, minlength=nodes)
        if sizes.all():
            return [np.flatnonzero(owner == node) for node in range(nodes)]
        empty = min(empty, int((sizes == 0).sum()))
    raise DataError(
        f"alpha: {alpha:g} leaves at least {empty} of {nodes} nodes without samples, however it is drawn; take a "
        "larger alpha, fewer nodes or more samples"
    )


GROUP = 10  # workers that are drawn together in the published split
LEAST_SHARE = 0.5  # of the mean that its smallest worker has
BALANCED_DRAWS = 10_000


def balanced_dirichlet(labels: np.ndarray, nodes: int, alpha: float, seed: int | Seed) -> list[np.ndarray]:
    """The split that published tables use (T. Lin's code for quasi-global momentum, RelaySGD and others).

    Nodes come in groups of at most ten, each with its own share of the samples. Class after class is dealt out by
    shares drawn from Dirichlet(α), but a node that has its fair count already gets nothing more; and a group is drawn
    again until its smallest node has at least half of the mean.
    """
    labels = np.asarray(labels)
    return [np.sort(part) for part in _balanced(labels, nodes, alpha, _checked(labels, nodes, alpha, seed))]


def even_dirichlet(
    labels: np.ndarray, nodes: int, alpha: float, seed: int | Seed | np.random.RandomState
) -> list[np.ndarray]:
    """A Dirichlet split laid end to end and cut anew into equal pieces, as RelaySGD's authors do (epfml/relaysgd).

    What a node has comes class after class there, so a cut gives the next node a few classes whole. With numpy's
    `RandomState` of the number that published code has, it is that code's split, sample for sample.
    """
    labels = np.asarray(labels)
    checked = _checked(labels, nodes, alpha, 0 if isinstance(seed, np.random.RandomState) else seed)
    rng = seed if isinstance(seed, np.random.RandomState) else checked
    return np.array_split(np.concatenate(_balanced(labels, nodes, alpha, rng)), nodes)


def _balanced(
    labels: np.ndarray, nodes: int, alpha: float, rng: np.random.Generator | np.random.RandomState
) -> list[np.ndarray]:
    """The parts of a balanced split, each class after class."""
    order = rng.permutation(len(labels))
    groups = -(-nodes // GROUP)
    sizes = [GROUP] * (groups - 1) + [nodes - GROUP * (groups - 1)]
    cuts = (np.cumsum(sizes[:-1]) * len(labels)) // nodes
    parts: list[np.ndarray] = []
    for mine, size in zip(np.split(order, cuts), sizes, strict=True):
        parts += _balanced_group(mine, labels[mine], size, alpha, rng)
    return parts


def _balanced_group(
    mine: np.ndarray, labels: np.ndarray, nodes: int, alpha: float, rng: np.random.Generator | np.random.RandomState
) -> list[np.ndarray]:
    fair = len(mine) / nodes
    for _ in range(BALANCED_DRAWS):
        held: list[list[np.ndarray]] = [[] for _ in range(nodes)]
        counts = np.zeros(nodes, dtype=np.int64)
        for label in np.unique(labels):
            those = mine[labels == label]
            shares = rng.dirichlet(np.full(nodes, alpha)) * (counts < fair)
            if not shares.sum() > 0:  # a tiny α underflows
                shares = (counts < fair).astype(float)
            cuts = (np.cumsum(shares / shares.sum()) * len(those)).astype(np.int64)[:-1]
            for node, part in enumerate(np.split(those, cuts)):
                held[node].append(part)
                counts[node] += len(part)
        if counts.min() >= max(1, int(LEAST_SHARE * fair)):
            return [np.concatenate(parts) for parts in held]
    raise DataError(
        f"alpha: {alpha:g} leaves some of {nodes} nodes with less than half of the mean, however it is drawn; take a "
        "larger alpha, fewer nodes or more samples"
    )


def shards(labels: np.ndarray, nodes: int, per_node: int, seed: int | Seed) -> list[np.ndarray]:
    """Samples sorted by label and cut into equal shards, of which every node is dealt that many (McMahan et al. 2017).

    One a node is the hardest: most have a single class.
    """
    labels = np.asarray(labels)
    if per_node < 1:
        raise misfit("shards", per_node, "a whole number, 1 or more", DataError)
    _enough(len(labels), nodes * per_node)
    rng = as_seed(seed).numpy()
    mixed = rng.permutation(len(labels))  # within a class, who comes first is chance
    cut = np.array_split(mixed[np.argsort(labels[mixed], kind="stable")], nodes * per_node)
    dealt = rng.permutation(nodes * per_node).reshape(nodes, per_node)
    return [np.sort(np.concatenate([cut[k] for k in mine])) for mine in dealt]


def _checked(labels: np.ndarray, nodes: int, alpha: float, seed: int | Seed) -> np.random.Generator:
    _enough(len(labels), nodes)
    if not 0 < alpha <= LARGEST_ALPHA:
        allowed = f"a number above 0, at most {LARGEST_ALPHA:g} (large: alike, small: different)"
        raise misfit("alpha", alpha, allowed, DataError)
    return as_seed(seed).numpy()


def _drawn(labels: np.ndarray, nodes: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """Draws who gets which sample; some nodes may get none."""
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        mine = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(nodes, alpha))
        if not np.isfinite(shares).all():  # a tiny α underflows: then one node has all
            shares = np.eye(nodes)[rng.integers(nodes)]
        cuts = np.round(np.cumsum(shares)[:-1] * len(mine)).astype(np.int64)
        for node, part in enumerate(np.split(mine, cuts)):
            owner[part] = node
    return owner


def by_label(labels: np.ndarray, nodes: int, labels_per_node: int, seed: int | Seed) -> list[np.ndarray]:
    """Gives every node samples of that many classes only; classes go round the nodes in a shuffled order."""
    labels = np.asarray(labels)
    _enough(len(labels), nodes)
    classes = as_seed(seed).numpy().permutation(np.unique(labels))
    if not 1 <= labels_per_node <= len(classes):
        raise misfit("labels_per_node", labels_per_node, f"1 to {len(classes)}", DataError)
    if nodes * labels_per_node < len(classes):
        raise DataError(
            f"labels_per_node: {labels_per_node} on {nodes} nodes leaves some of {len(classes)} classes to nobody; "
            f"at least {-(-len(classes) // nodes)} is needed"
        )
    wanted = [
        classes[(node * labels_per_node + k) % len(classes)] for node in range(nodes) for k in range(labels_per_node)
    ]
    holders: dict[int, list[int]] = {}
    for place, label in enumerate(wanted):
        holders.setdefault(int(label), []).append(place // labels_per_node)
    owner = np.empty(len(labels), dtype=np.int64)
    rng = as_seed(seed).child("deal").numpy()
    for label, who in holders.items():
        mine = rng.permutation(np.flatnonzero(labels == label))
        for node, part in zip(who, np.array_split(mine, len(who)), strict=True):
            owner[part] = node
    return _fill_empty(owner, labels, nodes)


def by_key(keys: np.ndarray, nodes: int, seed: int | Seed) -> list[np.ndarray]:
    """Split along a natural key such as a user or a genre: keys go to the nodes that have least so far.

    With fewer keys than nodes, the nodes are shared out over the keys and each key's samples over its nodes.
    """
    keys = np.asarray(keys)
    _enough(len(keys), nodes)
    names, counts = np.unique(keys, return_counts=True)
    rng = as_seed(seed).numpy()
    owner = np.empty(len(keys), dtype=np.int64)
    if len(names) >= nodes:
        load = np.zeros(nodes, dtype=np.int64)
        for k in np.argsort(-counts, kind="stable"):
            node = int(np.argmin(load))
            owner[keys == names[k]] = node
            load[node] += counts[k]
    else:
        for k, who in enumerate(np.array_split(np.arange(nodes), len(names))):
            mine = rng.permutation(np.flatnonzero(keys == names[k]))
            for node, part in zip(who, np.array_split(mine, len(who)), strict=True):
                owner[part] = node
    return _fill_empty(owner, keys, nodes)


def _enough(samples: int, nodes: int) -> None:
    if nodes < 1:
        raise misfit("nodes", nodes, "a whole number, 1 or more", DataError)
    if samples < nodes:
        raise DataError(f"nodes: {nodes} is more than the {samples} samples there are; every node needs at least one")


def _fill_empty(owner: np.ndarray, labels: np.ndarray, nodes: int) -> list[np.ndarray]:
    sizes = np.bincount(owner, minlength=nodes)
    for node in np.flatnonzero(sizes == 0):
        richest = int(np.argmax(sizes))
        theirs = np.flatnonzero(owner == richest)
        names, counts = np.unique(labels[theirs], return_counts=True)
        given = theirs[labels[theirs] == names[np.argmax(counts)]][0]
        owner[given] = node
        sizes[richest] -= 1
        sizes[node] += 1
    return [np.flatnonzero(owner == node) for node in range(nodes)]


def own_part(parts: list[np.ndarray], part: int | None) -> np.ndarray | None:
    """The samples of one node; None where everybody's are wanted."""
    if part is None:
        return None
    if not 0 <= part < len(parts):
        raise misfit("part", part, f"0 to {len(parts) - 1}", DataError)
    return parts[part]


# -- Split one's own data over nodes: evenly, by label, or by a key such as the hospital ------------------------------

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
        parts = by_key(keys, count, seed)
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
        return iid(length(data), nodes, seed)
    labels = labels_of(data, target)
    by_alpha: dict[str, Callable[..., list[np.ndarray]]] = {
        "dirichlet": dirichlet,
        "balanced_dirichlet": balanced_dirichlet,
    }
    if how in by_alpha:
        return by_alpha[how](labels, nodes, given["alpha"], seed)
    if how == "shards":
        return shards(labels, nodes, given["shards"], seed)
    return by_label(labels, nodes, given["labels"], seed)


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
