"""Every form of data that is taken, and which it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from walktalk.errors import DataError
from walktalk.lazy import later
from walktalk.learning.given.part import (
    Choice,
    Given,
    InMemory,
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
    """One node's data, whatever its form; what can only be gone through once may take `most_bytes` of memory."""
    if is_frame(data):
        return of_frame(data, where, choice)
    if isinstance(data, Mapping):
        return InMemory(where, split_up(data, where, choice))
    if hasattr(data, "with_format") and hasattr(data, "column_names"):
        return of_hugging_face(data, where, choice, most_bytes)
    if is_columns(data):
        inputs, targets = data
        columns = (of_pandas(inputs, where, choice.columns, True), of_pandas(targets, where, None, False))
        return InMemory(where, split_up(columns, where, choice))
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
    given = Given(
        {"": torch.tensor(frame[inputs].to_numpy(dtype=np.float32))},
        {"": torch.tensor(target.to_numpy(dtype=kind_of(target)))},
    )
    return InMemory(where, given, tuple(inputs))


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
    """That no row is such; what is wrong with those that are is told with the first one."""
    if bad.any():
        raise DataError(f"{what} in {int(bad.sum())} rows, first in row {bad.idxmax()}; fill them, or drop those rows")


def kind_of(target: pd.Series[Any] | pd.DataFrame) -> type[np.generic]:
    """Classes are whole numbers, everything else is measured."""
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


def gone_through(data: Iterable[Any], where: str, choice: Choice, most_bytes: float, samples: bool = False) -> Given:
    """Everything that an iterable gives, once: batches, or single samples."""
    given: list[Given] = []
    size = 0
    for item in data:
        one = samples or is_sample(item, choice, where)
        batch = split_up((choice.collate or stacked)([item]) if one else item, where, choice)
        given.append(batch)
        size += sum(t.numel() * t.element_size() for t in batch.columns)
        if size > most_bytes:
            raise DataError(
                f"{where}: it gives more than {most_bytes / 1e9:.1f} GB, and it can only be gone through once; give a "
                "Dataset with __getitem__ and __len__, which is read batch by batch"
            )
    if not given:
        raise DataError(f"{where}: it has no samples; every node needs at least one")
    return joined(given, where)


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
