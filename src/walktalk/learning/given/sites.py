"""Who has which data: a list, a dictionary by node name, a function of the name, or federated data sets.

Whatever is a function is called only when its data is wanted, so a site that asks for its own part reads nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from walktalk.errors import DataError


class Source(NamedTuple):
    """The data of one node, not read yet."""

    where: str  # what a person calls it
    name: str | None  # of the node
    load: Callable[[], Any]


def sources_of(partitions: Any, names: Sequence[str] | None) -> list[Source]:
    """One for every node, in order."""
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
    """All of them, or that node's alone."""
    if part is None:
        return sources
    if isinstance(part, int):
        if not 0 <= part < len(sources):
            raise DataError(f"part: {part} is not possible; allowed: 0 to {len(sources) - 1}")
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
