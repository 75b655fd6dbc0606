"""A checkpoint: tensors and facts in one safetensors file, written atomically, with a checksum over all of it.

Facts are what is not a tensor: anything that JSON can say. They travel in the file's metadata, so that one rename
replaces both together. Nothing is ever unpickled: a checkpoint from a stranger can be wrong, but not run code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from walktalk.core.errors import StudyError
from walktalk.records.atomic import replacing

if TYPE_CHECKING:  # torch takes a second to import, and who only reads a history needs none of it
    import torch

FORMAT = "walktalk-checkpoint-1"


def save_checkpoint(path: str | PathLike[str], tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
    """Write the checkpoint, replacing the one before it only when this one is safe on the disk.

    Args:
        path: the file.
        tensors: by name, from any device.
        facts: whatever else is to be known, as JSON can hold it.
    """
    from safetensors.torch import save_file

    ready = _ready(tensors)
    text = json.dumps(facts, sort_keys=True)
    metadata = {"format": FORMAT, "facts": text, "checksum": _checksum(ready, text)}
    with replacing(path) as part:
        save_file(ready, part, metadata=metadata)
        _sort_metadata(part)


def load_checkpoint(path: str | PathLike[str]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors, on the CPU, and the facts; a `StudyError` if the file is missing, damaged or something else.

    Args:
        path: of the file that `save_checkpoint` wrote.
    """
    path = Path(path)
    if not path.is_file():
        raise StudyError(f"{path}: there is no such checkpoint; run the study without --resume")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise StudyError(f"{path} is truncated or not a checkpoint; {_ADVICE}") from error
    if metadata.get("format") != FORMAT:
        raise StudyError(f"{path} is not a checkpoint of this version of walktalk; {_ADVICE}")
    text = metadata.get("facts", "")
    if metadata.get("checksum") != _checksum(tensors, text):
        raise StudyError(f"{path} is damaged: its checksum does not match; {_ADVICE}")
    facts: dict[str, Any] = json.loads(text)
    return tensors, facts


_ADVICE = "delete it and run the study again (what it held is computed anew)"


def _ready(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """On the CPU, contiguous, each with a storage of its own: safetensors refuses tensors that share one."""
    ready: dict[str, torch.Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        here = tensor.detach().cpu().contiguous()
        storage = here.untyped_storage()
        if storage.nbytes() != here.numel() * here.element_size() or storage.data_ptr() in storages:
            here = here.clone()
        storages.add(here.untyped_storage().data_ptr())
        ready[name] = here
    return ready


def _sort_metadata(path: Path) -> None:
    """Put the metadata in order, in place: safetensors writes it in any, and the same content is to be the same bytes.

    The file begins with the length of its header in 8 bytes and the header as JSON, which spaces may follow.
    """
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= length:  # it is: the same things in another order
            file.seek(8)
            file.write(text.ljust(length))


def _checksum(tensors: Mapping[str, torch.Tensor], facts: str) -> str:
    import torch

    digest = hashlib.blake2b(facts.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)  # as bytes: NumPy has no bfloat16
    return digest.hexdigest()
