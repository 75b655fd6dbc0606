"""A tree of arrays as one row of numbers, and back: what travels and is mixed of a loop that is not ours.

A tree is nested dictionaries, lists and tuples (named ones, too) whose leaves are arrays of numpy, torch or JAX, or
plain numbers. What of it can be mixed is said by its kinds: floats are numbers of the row, in 32 bits, whatever they
were; a single whole number is a counter, which travels as a number and is rounded where it is read, so that a mean of
counters is a whole number again; None is part of the tree's form. Arrays of whole numbers, truth values, strings and
bytes cannot be mixed number by number: a row of their bytes can be carried, and merged by a function that knows them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from typing import Protocol as Interface

import numpy as np
import torch
from torch import Tensor, nn

from walktalk.core.errors import ModelError
from walktalk.core.plugins import of_the_person

EXACT = 2**24  # up to which 32 bits hold every whole number
DEEPEST = 100  # levels of a tree; one that contains itself has no end


class StateForm(Interface):
    """How states of one form lie in rows."""

    width: int  # numbers of a row

    def row(self, state: Any, where: str) -> Tensor:
        """The state as a row; a `ModelError` that begins with `where` says what does not fit."""

    def state(self, row: Tensor) -> Any:
        """The state in memory of its own."""

    def named(self, row: Tensor) -> dict[str, Tensor]:
        """What a file of the state holds: tensors by name."""

    def row_of(self, named: Mapping[str, Any], where: str) -> Tensor:
        """The row that such a file stands for."""


class Leaf(NamedTuple):
    """One array of a tree, and where it lies in the row."""

    name: str  # the way to it: "layers.0.weight"
    shape: tuple[int, ...]
    is_counter: bool  # a single whole number
    like: Any  # one like it, with no numbers: for its library, type and device
    start: int
    end: int

    @property
    def kind(self) -> str:
        """Its type and shape, as a person writes them."""
        return words_of(self.like, self.shape)


class TreeForm:
    """Rows of trees that have the same names, shapes and kinds."""

    def __init__(self, tree: Any, where: str) -> None:
        """
        - `tree`: one of them.
        - `where`: what a person calls it.
        """
        self.leaves: list[Leaf] = []
        end = 0
        for name, value in leaves_of(tree, where):
            start, counter = end, is_mixable(name, value, where)
            shape = tuple(np.shape(value))
            end = start + int(np.prod(shape, dtype=np.int64))
            self.leaves.append(Leaf(name, shape, counter, without_numbers(value), start, end))
        self.width, self.form = end, form_of(tree)
        names = [leaf.name for leaf in self.leaves]
        if not self.width:
            raise ModelError(f"{where}: there is no number in it; give a tree of arrays, such as {{'weights': array}}")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ModelError(f"{where}: two of its arrays are called {twice}; give one of them another name")

    def row(self, state: Any, where: str) -> Tensor:
        """The state as a row, checked against the layout."""
        found, wanted = dict(leaves_of(state, where)), [leaf.name for leaf in self.leaves]
        if "" in found and "" not in wanted:
            raise ModelError(f"{where} is {article(type(state).__name__)}; the study's state has {listed(wanted)}")
        if found.keys() != set(wanted):  # their order is as whoever made it likes: JAX sorts dictionaries
            raise ModelError(f"{where}: {difference(list(found), wanted)}")
        row = np.empty(self.width, dtype=np.float32)
        for leaf in self.leaves:
            name, value = leaf.name, found[leaf.name]
            counter, shape = is_mixable(name, value, where), tuple(np.shape(value))
            if shape != leaf.shape or counter != leaf.is_counter:
                raise ModelError(f"{where}: {name} is {words_of(value, shape)}, and the study's is {leaf.kind}")
            numbers = as_numpy(value)
            if counter and abs(int(numbers)) > EXACT:
                raise ModelError(f"{where}: {name} is {int(numbers)}; a counter can be {EXACT:,} at most")
            row[leaf.start : leaf.end] = numbers.reshape(-1)
        return torch.from_numpy(row)

    def state(self, row: Tensor) -> Any:
        """The tree of a row: arrays of the libraries and types that it was given with, in memory of their own."""
        numbers = row.detach().cpu().numpy()
        values = (self._value(leaf, numbers[leaf.start : leaf.end]) for leaf in self.leaves)
        return filled(self.form, values)

    def named(self, row: Tensor) -> dict[str, Tensor]:
        """Every array as a tensor of its own type, by name."""
        numbers = row.detach().cpu().numpy()
        return {
            leaf.name: as_tensor(self._value(leaf, numbers[leaf.start : leaf.end]), leaf.shape) for leaf in self.leaves
        }

    def row_of(self, named: Mapping[str, Any], where: str) -> Tensor:
        """The row of arrays by name."""
        ordered = {leaf.name: named[leaf.name] for leaf in self.leaves if leaf.name in named}
        if len(ordered) < len(self.leaves):
            return self.row(dict(named), where)  # which says what is missing
        return self.row(filled(self.form, iter(ordered.values())), where)

    @staticmethod
    def _value(leaf: Leaf, numbers: np.ndarray) -> Any:
        if leaf.is_counter:
            whole = np.rint(numbers)
            numbers = np.where(np.isfinite(whole), whole, 0.0)
        return like(leaf.like, numbers.reshape(leaf.shape).copy())


def difference(names: list[str], wanted: list[str]) -> str:
    """How the names of a tree differ from those of a study, in words."""
    missing, unknown = [n for n in wanted if n not in names], [n for n in names if n not in wanted]
    words = [f"{missing[0]} is missing"] if missing else []
    words += [f"{unknown[0]} is not the study's"] if unknown else []
    return f"{' and '.join(words)}; the study's state has {listed(wanted)}"


def listed(names: list[str]) -> str:
    """The first names of some arrays."""
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


# -- Kinds of leaves -------------------------------------------------------------------------------------------------


def is_mixable(name: str, value: Any, where: str) -> bool:
    """Whether a leaf is a counter, not floats; a `ModelError` where it is neither."""
    kind = getattr(value, "dtype", type(value))
    text = str(kind).rpartition(".")[2] if not isinstance(kind, type) else kind.__name__
    is_number = isinstance(value, (int, float, np.ndarray, np.generic, Tensor)) or is_jax(value)
    called = f"{where}: {name}" if name else where
    if not is_number or isinstance(value, bool) or text.startswith(("bool", "object", "<U", "str", "datetime")):
        raise ModelError(
            f"{called} is {article(text)}, which cannot be mixed; keep it out of the state, or carry it and give a "
            "function that merges states (merge= and room=)"
        )
    if "complex" in text:
        raise ModelError(f"{called} is complex; give its real and imaginary parts as two arrays")
    if "int" not in text:
        return False
    if tuple(np.shape(value)) == ():
        return True
    raise ModelError(
        f"{called} is an array of whole numbers ({words_of(value, np.shape(value))}), which cannot be mixed; keep it "
        "out of the state, make it floats, or give a function that merges states (merge= and room=)"
    )


def article(kind: str) -> str:
    """The name of a type as it stands in a sentence."""
    known = {"str": "a string", "bytes": "bytes", "bool": "a truth value", "NoneType": "nothing"}
    return known.get(kind, f"of type {kind}")


def words_of(value: Any, shape: tuple[int, ...]) -> str:
    """The type and shape of an array, as a person writes them."""
    kind = str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")
    return f"{kind} [{', '.join(map(str, shape))}]" if shape else f"a single {kind}"


def is_jax(value: Any) -> bool:
    """Whether it is an array of JAX; whoever has one has imported JAX."""
    return "jax" in sys.modules and isinstance(value, sys.modules["jax"].Array)


def as_numpy(value: Any) -> np.ndarray:
    """The numbers of a leaf."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() else value
        return np.asarray(value.numpy())
    found = np.asarray(value)
    return found if found.dtype.kind in "iuf" else found.astype(np.float32)  # bfloat16 of JAX is none of numpy's


def as_tensor(value: Any, shape: tuple[int, ...]) -> Tensor:
    """A leaf as a tensor of its own type."""
    if isinstance(value, Tensor):
        return value.cpu()
    return torch.as_tensor(as_numpy(value).copy()).reshape(shape)


def without_numbers(value: Any) -> Any:
    """A leaf with no numbers in it, that tells its library, type and device."""
    if isinstance(value, Tensor):
        empty = torch.empty(0, dtype=value.dtype, device=value.device, requires_grad=value.requires_grad)
        return nn.Parameter(empty, value.requires_grad) if isinstance(value, nn.Parameter) else empty
    if isinstance(value, (np.ndarray, np.generic)):
        return np.empty(0, dtype=value.dtype) if isinstance(value, np.ndarray) else value.dtype.type(0)
    return value[..., :0] if is_jax(value) and value.ndim else value


def like(leaf: Any, numbers: np.ndarray) -> Any:
    """Numbers as a leaf of the same library, type and device."""
    if isinstance(leaf, Tensor):
        tensor = torch.from_numpy(numbers).to(leaf).requires_grad_(leaf.requires_grad)
        return nn.Parameter(tensor, leaf.requires_grad) if isinstance(leaf, nn.Parameter) else tensor
    if isinstance(leaf, np.ndarray):
        return numbers.astype(leaf.dtype)
    if isinstance(leaf, np.generic):
        return leaf.dtype.type(numbers)
    if is_jax(leaf):
        return sys.modules["jax"].numpy.asarray(numbers, dtype=leaf.dtype)
    return type(leaf)(numbers)


# -- Trees -------------------------------------------------------------------------------------------------------------

LEAF = ...  # stands for an array in the form of a tree; a copy of it is itself


def leaves_of(tree: Any, where: str, way: str = "", level: int = 0) -> Iterator[tuple[str, Any]]:
    """The arrays of a tree with the ways to them, in order; None is no array."""
    if isinstance(tree, (Mapping, list, tuple)):
        check_level(level, where)
        if isinstance(tree, Mapping):
            parts = [(key, value) for key, value in tree.items()]
        else:
            parts = list(zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True))
        for name, value in parts:
            yield from leaves_of(value, where, joined(way, name), level + 1)
    elif tree is not None:
        yield way, tree


def check_level(level: int, where: str) -> None:
    """Raise a `ModelError` where a tree has more levels than any has that ends."""
    if level > DEEPEST:
        raise ModelError(f"{where}: it has more than {DEEPEST} levels; does it contain itself?")


def joined(way: str, key: Any) -> str:
    """The way to a part of a tree."""
    return f"{way}.{key}" if way else str(key)


def form_of(tree: Any) -> Any:
    """The tree without its arrays."""
    if isinstance(tree, Mapping):
        return remade(tree, {key: form_of(value) for key, value in tree.items()})
    if isinstance(tree, (list, tuple)):
        return remade(tree, [form_of(value) for value in tree])
    return None if tree is None else LEAF


def filled(form: Any, values: Iterator[Any]) -> Any:
    """A form with the next arrays in it."""
    if isinstance(form, Mapping):
        return remade(form, {key: filled(value, values) for key, value in form.items()})
    if isinstance(form, (list, tuple)):
        return remade(form, [filled(value, values) for value in form])
    return next(values) if form is LEAF else None


def remade(tree: Any, values: Any) -> Any:
    """A dictionary, list or tuple of the same kind with other values; a plain dictionary where that cannot be made."""
    if isinstance(tree, Mapping):
        try:
            return type(tree)(values)  # type: ignore[call-arg]
        except TypeError:
            return values
    return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)


# -- States whose bytes are carried: nobody but the person's own function can mix them ---------------------------------
# Two bytes a number, which 32 bits hold exactly: whoever copies or sends a row needs to know nothing of it.

HEAD = 4  # numbers that say how many bytes there are
TWO_BYTES = 2**16


class PackedForm:
    """Rows of states of any size up to a limit, and of any kinds: arrays, numbers, strings, bytes and None."""

    def __init__(self, room: int) -> None:
        """
        - `room`: bytes that a state may take at most.
        """
        self.room, self.width = room, HEAD + -(-room // 2)

    def row(self, state: Any, where: str) -> Tensor:
        """The state's bytes as a row."""
        data = packed(state, where)
        if len(data) > self.room:
            raise ModelError(f"{where}: it takes {len(data):,} bytes, and room is {self.room:,}; allow more with room=")
        numbers = np.frombuffer(data + b"\0" * (len(data) % 2), dtype="<u2")
        row = np.zeros(self.width, dtype=np.float32)
        row[:HEAD] = [(len(data) >> 16 * place) % TWO_BYTES for place in range(HEAD)]
        row[HEAD : HEAD + len(numbers)] = numbers
        return torch.from_numpy(row)

    def state(self, row: Tensor) -> Any:
        """The state of a row; a `ModelError` where somebody has mixed its numbers."""
        numbers = row.detach().cpu().numpy()
        if not (np.isfinite(numbers).all() and (numbers == np.rint(numbers)).all() and (numbers >= 0).all()):
            raise ModelError("a state of bytes was mixed number by number; take an algorithm that merges whole states")
        size = sum(int(part) << 16 * place for place, part in enumerate(numbers[:HEAD]))
        return unpacked(numbers[HEAD:].astype("<u2").tobytes()[:size])

    def named(self, row: Tensor) -> dict[str, Tensor]:
        """The bytes of the state, as one tensor: `walktalk.learning.state_tree.unpacked` reads them."""
        return {"state": torch.from_numpy(np.frombuffer(packed(self.state(row), "state"), dtype=np.uint8).copy())}

    def row_of(self, named: Mapping[str, Any], where: str) -> Tensor:
        """The row of bytes that a file holds."""
        if set(named) != {"state"}:
            raise ModelError(f"{where}: a state of bytes is one tensor called state, and there are {', '.join(named)}")
        return self.row(unpacked(as_numpy(named["state"]).astype(np.uint8).tobytes()), where)


def packed(state: Any, where: str) -> bytes:
    """A state as bytes: its form in JSON, then what it has of arrays and bytes, one after another."""
    blobs: list[bytes] = []

    def written(value: Any, way: str, level: int = 0) -> Any:
        check_level(level, where)
        if value is None or isinstance(value, (bool, int, float, str)):
            return {"is": value}
        if isinstance(value, Mapping):
            inside = [(key, written(inner, joined(way, key), level + 1)) for key, inner in value.items()]
            if all(isinstance(key, str) for key, _ in inside):
                return {"of": dict(inside)}
            return {"pairs": [[key_of(key, f"{where}: {way or 'it'}"), inner] for key, inner in inside]}
        if isinstance(value, (list, tuple)):
            items = [written(inner, joined(way, place), level + 1) for place, inner in enumerate(value)]
            return {"list" if isinstance(value, list) else "tuple": items}
        if isinstance(value, (bytes, bytearray, memoryview)):
            blobs.append(bytes(value))
            return {"bytes": len(blobs[-1])}
        if isinstance(value, (np.ndarray, np.generic, Tensor)) or is_jax(value):
            array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
            if array.dtype.kind in "biufc":
                blobs.append(np.ascontiguousarray(array).tobytes())
                return {"array": array.dtype.str, "shape": array.shape, "bytes": len(blobs[-1])}
        raise ModelError(
            f"{where}: {way or 'it'} is of type {type(value).__name__}; give arrays, numbers, strings or bytes"
        )

    head = json.dumps(written(state, "")).encode()
    return b"".join((len(head).to_bytes(8, "little"), head, *blobs))


def key_of(key: Any, where: str) -> Any:
    """A key of a dictionary as JSON has it: a text, a number, a truth value, or None."""
    if key is None or isinstance(key, (str, bool, int, float)):
        return key
    raise ModelError(f"{where} has a key of type {type(key).__name__}; give texts or numbers")


def unpacked(data: bytes) -> Any:
    """The state that bytes hold; arrays are numpy's, and tuples have no names."""
    size = int.from_bytes(data[:8], "little")
    at = 8 + size

    def read(said: Any) -> Any:
        nonlocal at
        if "is" in said:
            return said["is"]
        if "of" in said:
            return {key: read(inner) for key, inner in said["of"].items()}
        if "pairs" in said:
            return {key: read(inner) for key, inner in said["pairs"]}
        if "list" in said:
            return [read(inner) for inner in said["list"]]
        if "tuple" in said:
            return tuple(read(inner) for inner in said["tuple"])
        piece, at = data[at : at + said["bytes"]], at + said["bytes"]
        return np.frombuffer(piece, dtype=said["array"]).reshape(said["shape"]).copy() if "array" in said else piece

    found: Any = read(json.loads(data[8 : 8 + size]))
    return found


class MergedStates:
    """Means of states by the person's own function, in place of sums of their numbers."""

    def __init__(self, layout: StateForm, merge: Callable[[list[Any], list[float]], Any] | None) -> None:
        """
        - `layout`: how states lie in rows.
        - `merge`: makes a state of several and their weights; None: nothing can.
        """
        self.layout, self.merge = layout, merge
        self.has_distances = isinstance(layout, TreeForm)

    def refusal(self, label: str) -> str:
        """What is said of an algorithm that adds up other things than models."""
        others = "multi_walk or async_gossip" if self.has_distances else "multi_walk"
        return (
            f"merge: {label} adds up more than whole models, which only numbers can be; take {others}, or give a state "
            "that is a tree of float arrays, without merge and room"
        )

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        """The merged state of some rows, as a row; of a single one that counts whole, itself."""
        kept: list[tuple[Tensor, float]] = []
        kept += [(row, weight) for row, weight in zip(rows, weights.tolist(), strict=True) if weight]
        if len(kept) == 1 and abs(kept[0][1] - 1.0) < 1e-6:
            return kept[0][0].clone()
        if self.merge is None:
            raise ModelError(
                "merge: states of bytes meet here, and nothing says how they are merged; give merge=, or take an "
                "algorithm with a single model, such as wt.MultiWalk(walks=1)"
            )
        states = [self.layout.state(row) for row, _ in kept]
        with of_the_person("merge", self.merge, ModelError):
            merged = self.merge(states, [weight for _, weight in kept])
        if merged is None:
            raise ModelError("merge gave back nothing; it has to return the merged state")
        return self.layout.row(merged, "what merge gave back")
