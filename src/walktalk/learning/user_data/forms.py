"""Reads each form of data that people have, and finds out which form it is and whose data it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from walktalk.core.errors import DataError
from walktalk.core.lazy import later
from walktalk.core.settings import misfit
from walktalk.learning.user_data.part import (
    Choice,
    InMemory,
    NamedColumns,
    OnDemand,
    Part,
    as_tensor,
    is_several,
    joined,
    split_up,
    stacked,
)

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = later("pandas")

TAKEN = "a pair (inputs, targets), a Dataset, a DataLoader, a pandas frame or a dictionary of columns"


def is_frame(data: Any) -> TypeGuard[pd.DataFrame]:
    """Whether it is a frame of pandas. Whoever has one has imported pandas, so nobody else must."""
    return "pandas" in sys.modules and isinstance(data, pd.DataFrame)


def is_series(data: Any) -> TypeGuard[pd.Series[Any]]:
    """Whether it is a column of pandas."""
    return "pandas" in sys.modules and isinstance(data, pd.Series)


def part_of(data: Any, where: str, choice: Choice, most_bytes: float) -> Part:
    """Reads a node's data, whatever its form; what can only be gone through once may take `most_bytes` of memory."""
    if is_frame(data):
        return of_frame(data, where, choice)
    if isinstance(data, Mapping):
        return InMemory(where, split_up(data, where, choice))
    if hasattr(data, "with_format") and hasattr(data, "column_names"):
        return of_hugging_face(data, where, choice, most_bytes)
    if is_columns(data):
        inputs, targets = data
        columns = (of_pandas(inputs, where, choice.columns, True), of_pandas(targets, where, None, False))
        return InMemory(where, split_up(columns, where, choice), *names_of_pair(inputs, targets, choice))
    if isinstance(data, DataLoader):
        return of_loader(data, where, choice, most_bytes)
    if isinstance(data, IterableDataset):
        return InMemory(where, gone_through(data, where, choice, most_bytes, samples=True))
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, (str, bytes, Tensor)):
        return OnDemand(where, data, choice)
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, Tensor)):
        return InMemory(where, gone_through(data, where, choice, most_bytes))
    raise DataError(f"{where}: {TAKEN} is needed, not {type(data).__name__}")


def is_columns(data: Any) -> bool:
    """Whether this is (inputs, targets), and not a list that happens to have two samples."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        return False
    if isinstance(data[0], Mapping):  # ({"tokens": …, "mask": …}, targets)
        return hasattr(data[1], "__len__") and not isinstance(data[1], Mapping)
    if not all(hasattr(part, "__len__") for part in data):
        return False
    return not (isinstance(data, list) and all(isinstance(part, tuple) and len(part) == 2 for part in data))


def of_frame(frame: pd.DataFrame, where: str, choice: Choice) -> InMemory:
    """Columns of numbers side by side as the inputs. What to do with categories and gaps is for the person to say."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise DataError(f"{where}: two columns have the same name; rename one")
    frame = frame.set_axis(names, axis=1)
    targets = choice.target_among(names, where)
    inputs = replace(choice, accepted=None).inputs_among(names, targets, where)
    for name in (*inputs, *targets):
        check_numbers(frame[name], where, name)
    alone = len(targets) == 1 and not (choice.in_columns and kind_of(frame[targets]) is np.float32)
    target = frame[targets[0] if alone else targets]
    content = NamedColumns(
        {"": torch.tensor(frame[inputs].to_numpy(dtype=np.float32))},
        {"": torch.tensor(target.to_numpy(dtype=kind_of(target)))},
    )
    return InMemory(where, content, tuple(inputs), tuple(targets))


def of_pandas(data: Any, where: str, columns: Sequence[str] | None, inputs: bool) -> Any:
    """A frame or a column of one as a tensor of its numbers, row after row; anything else as it is.

    Inputs are measured numbers, each sample a row of them. Targets may be classes, and a frame of one column is that.
    """
    if is_frame(data):
        frame = data.set_axis([str(name) for name in data.columns], axis=1)
        missing = [name for name in columns or () if name not in frame.columns]
        if missing:
            raise DataError(f"{where}: there is no column {missing[0]!r}; there are {', '.join(frame.columns)}")
        frame = frame if columns is None else frame[list(columns)]
        for name in frame.columns:
            check_numbers(frame[name], where, str(name))
        data = frame if inputs or frame.shape[1] > 1 else frame.iloc[:, 0]
    elif is_series(data):
        check_numbers(data, where, str(data.name or "targets"))
        data = data.to_frame() if inputs else data
    else:
        return data
    return torch.tensor(data.to_numpy(dtype=np.float32 if inputs else kind_of(data)))


def names_of_pair(inputs: Any, targets: Any, choice: Choice) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the columns of (inputs, targets), each where it is a frame; without any, there are none."""
    names = [tuple(map(str, side.columns)) if is_frame(side) else () for side in (inputs, targets)]
    return tuple(choice.columns or names[0]) if is_frame(inputs) else (), names[1]


def check_numbers(column: pd.Series[Any], where: str, name: str) -> None:
    if column.empty:  # of a file with a head and nothing else; pandas cannot know what kind its columns are
        raise DataError(f"{where}: has no rows; every node needs at least one sample")
    if not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)):
        raise DataError(
            f"{where}: column {name!r} has no numbers ({column.dtype}); encode it, e.g. with pandas.get_dummies or "
            "pandas.factorize, or leave it out (columns=…)"
        )
    check_rows(column.isna(), f"{where}: column {name!r} has no value")
    if pd.api.types.is_float_dtype(column):
        beyond = column.abs() > np.finfo(np.float32).max
        check_rows(beyond, f"{where}: column {name!r} is infinite, or more than 32 bits hold,")


def check_rows(bad: pd.Series[Any], what: str) -> None:
    """Raises a `DataError` that names the first bad row, if there is any."""
    if bad.any():
        raise DataError(f"{what} in {int(bad.sum())} rows, first in row {bad.idxmax()}; fill them, or drop those rows")


def kind_of(target: pd.Series[Any] | pd.DataFrame) -> type[np.generic]:
    """The type of targets: whole numbers for classes, else float32."""
    kinds = target.dtypes if is_frame(target) else [target.dtype]
    whole = all(pd.api.types.is_integer_dtype(kind) or pd.api.types.is_bool_dtype(kind) for kind in kinds)
    return np.int64 if whole else np.float32


def of_hugging_face(data: Any, where: str, choice: Choice, most_bytes: float) -> Part:
    """A `datasets.Dataset`, which lies in a file and is read when it is wanted, or a stream of one."""
    if not hasattr(data, "__len__"):
        return InMemory(where, gone_through(data.with_format("torch"), where, choice, most_bytes, samples=True))
    names = list(data.column_names)
    targets = choice.target_among(names, where)
    wanted = [*choice.inputs_among(names, targets, where), *targets]
    if data.format["type"] is None:  # else the person has said what its samples are to be
        data = data.select_columns(wanted).with_format("torch")
    return OnDemand(where, data, choice)


def of_loader(loader: DataLoader[Any], where: str, choice: Choice, most_bytes: float) -> Part:
    """The loader's data, put together as the loader would; which samples are in a batch is drawn here."""
    dataset: Any = loader.dataset
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        return InMemory(where, gone_through(loader, where, choice, most_bytes))
    collate: Callable[[list[Any]], Any] | None = loader.collate_fn
    if collate is torch.utils.data.default_collate:
        collate = None  # the same, but for lists, which stay together here
    return OnDemand(where, dataset, replace(choice, collate=choice.collate or collate))


def gone_through(
    data: Iterable[Any], where: str, choice: Choice, most_bytes: float, samples: bool = False
) -> NamedColumns:
    """Everything that an iterable gives, once: batches, or single samples."""
    batches: list[NamedColumns] = []
    size = 0
    for item in data:
        one = samples or is_sample(item, choice, where)
        batch = split_up((choice.collate or stacked)([item]) if one else item, where, choice)
        batches.append(batch)
        size += sum(t.numel() * t.element_size() for t in batch.columns)
        if size > most_bytes:
            raise DataError(
                f"{where}: it gives more than {most_bytes / 1e9:.1f} GB, and it can only be gone through once; give a "
                "Dataset with __getitem__ and __len__, which is read batch by batch"
            )
    if not batches:
        raise DataError(f"{where}: it has no samples; every node needs at least one")
    return joined(batches, where)


def is_sample(item: Any, choice: Choice, where: str) -> bool:
    """Whether this is one sample, not a batch: then its target is a single number."""
    if isinstance(item, Mapping):
        target = item[choice.target_among([str(name) for name in item], where)[0]]
    elif isinstance(item, (tuple, list)) and len(item) > 1:
        target = item[-1]
    else:
        return False
    if isinstance(target, Mapping) or is_several(target):
        target = next(iter(target.values() if isinstance(target, Mapping) else target))
    return as_tensor(target, where, "targets").dim() == 0


# Who has which data: a list, a dictionary by node name, a function of the name, or federated data sets.
#
# A function is called only when its data is wanted, so a site that asks for its own part reads nothing else.


class Source(NamedTuple):
    """The data of one node, not read yet."""

    where: str  # what a person calls it
    name: str | None  # of the node
    load: Callable[[], Any]


def sources_of(partitions: Any, names: Sequence[str] | None) -> list[Source]:
    """The sources of all nodes, in order."""
    if hasattr(partitions, "load_partition"):
        return federated(partitions, names)
    if isinstance(partitions, Mapping):
        check_names(names, [str(name) for name in partitions])
        return [Source(f"partitions[{str(n)!r}]", str(n), loader(data)) for n, data in partitions.items()]
    if callable(partitions) and not hasattr(partitions, "__len__"):
        if not names:
            raise DataError(
                "names: are missing; partitions is a function of a node's name, so say which nodes there are"
            )
        return [Source(f"partitions({str(n)!r})", str(n), partial(partitions, n)) for n in names]
    if not isinstance(partitions, Sequence) or isinstance(partitions, (str, bytes)):
        kind = type(partitions).__name__
        raise DataError(
            f"partitions: a list with one entry per node or a dictionary by node name is needed, not {kind}"
        )
    check_count(names, len(partitions))
    return [
        Source(f"partitions[{k}]", str(names[k]) if names else None, loader(data)) for k, data in enumerate(partitions)
    ]


def federated(data: Any, names: Sequence[str] | None) -> list[Source]:
    """The partitions of a `FederatedDataset` of flwr-datasets, or of anything that has `load_partition`."""
    count = len(names) if names else number_of_partitions(data)
    return [
        Source(f"partition {k}", str(names[k]) if names else None, partial(data.load_partition, k))
        for k in range(count)
    ]


def number_of_partitions(data: Any) -> int:
    partitioners = getattr(data, "partitioners", None)
    holders = [*partitioners.values()] if isinstance(partitioners, Mapping) else []
    for holder in (data, *holders):
        count = getattr(holder, "num_partitions", None)
        if isinstance(count, int) and count > 0:
            return count
    raise DataError("partitions: how many there are is not known; say names=[…], one for each")


def loader(data: Any) -> Callable[[], Any]:
    """A function without arguments is called when its data is wanted; anything else is the data."""
    is_data = any(hasattr(data, name) for name in ("__len__", "__getitem__", "__iter__"))
    return data if callable(data) and not is_data else lambda: data


def chosen(sources: list[Source], part: str | int | None) -> list[Source]:
    """All sources, or that node's alone."""
    if part is None:
        return sources
    if isinstance(part, int):
        if not 0 <= part < len(sources):
            raise misfit("part", part, f"0 to {len(sources) - 1}", DataError)
        return [sources[part]]
    found = [source for source in sources if source.name == part]
    if not found:
        known = ", ".join(str(source.name) for source in sources if source.name is not None)
        there = f"there is for {known}; add it to the task's names" if known else "nodes have no names; give names=[…]"
        raise DataError(f"part: there is no data for {part!r}; {there}, or say whose data it has with `part`")
    return found


def check_names(names: Sequence[str] | None, there: list[str]) -> None:
    if names is not None and sorted(map(str, names)) != sorted(there):
        raise DataError(f"names: {', '.join(map(str, names))} are not those of partitions, {', '.join(there)}")


def check_count(names: Sequence[str] | None, count: int) -> None:
    if count == 0:
        raise DataError("partitions: there is none; give one dataset per node")
    if names is not None and len(names) != count:
        raise DataError(f"names: there are {len(names)} for {count} partitions")
    if names is not None and len(set(map(str, names))) < count:
        raise DataError("names: two nodes have the same name")
