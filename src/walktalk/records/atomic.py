"""Files that are there whole or not at all, whatever moment the process or the machine dies at.

The bytes go to a file of another name in the same folder, are forced to the disk, and only then take the final name:
a rename within a folder is atomic. The folder is forced to the disk too, or a power cut could undo the rename.

A checkpoint is such a file: tensors and facts in one safetensors file, with a checksum over all of it.
Facts are what is not a tensor: anything that JSON can say. They travel in the file's metadata, so that one rename
replaces both together. Nothing is ever unpickled: a checkpoint from a stranger can be wrong, but not run code.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from walktalk.core.errors import StudyError

if TYPE_CHECKING:  # torch takes a second to import, and who only reads a history needs none of it
    import torch


FULL = ("No space left on device", "File too large", "Disk quota exceeded")  # as libraries pass the system's word on

PART = ".part"  # how the name of an unfinished file ends


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name to write to; at the end it takes the place of `path`, or vanishes if there was an error."""
    path = Path(path)
    part = unfinished(path)
    with writing(path):
        make_folder(path.parent)
        try:
            yield part
            finish(part, path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A disk that is full or not ours is the person's to mend: a `StudyError`, whatever library noticed it."""
    try:
        yield
    except OSError as error:
        if not error.strerror:
            raise
        full = next((words for words in FULL if words in str(error)), error.strerror)
        place = path if str(error.filename).endswith(PART) else error.filename or path  # the name that a person knows
        raise StudyError(f"{place}: {full}; choose another place or make room there") from error
    except Exception as error:
        full = next((words for words in FULL if words in str(error)), "")
        if not full:
            raise
        raise StudyError(f"{path}: {full}; make room there, or choose another place") from error


def unfinished(path: Path) -> Path:
    """The temporary name; it carries the process's number, so that two writers never share one."""
    return path.with_name(f".{path.name}.{os.getpid()}{PART}")


UNFINISHED = (f".*{PART}", ".tmp*")  # ours, and what safetensors writes before it gives a file its name


def is_unfinished(path: Path) -> bool:
    """Whether a file of this name is one that is being written, or that a dead process left."""
    return any(path.match(pattern) for pattern in UNFINISHED)


def remove_unfinished(folder: Path) -> None:
    """Remove what dead processes left half-written below a folder that nobody is writing to."""
    for pattern in UNFINISHED:
        for part in folder.rglob(pattern):
            with suppress(OSError):
                part.unlink()


def finish(part: Path, path: Path) -> None:
    """Force the written file to the disk and give it its final name."""
    _sync(part)
    move(part, path)


def move(path: Path, to: Path) -> None:
    """Give a file that is safe on the disk another name, also where the power fails right afterwards."""
    os.replace(path, to)
    for folder in {to.parent, path.parent}:
        sync_folder(folder)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, whose names are there after the power has failed, too."""
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in missing:
        sync_folder(one.parent)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a whole file, atomically.

    Args:
        path: the file; it appears whole or not at all.
        content: all of it.
    """
    with replacing(path) as part:
        part.write_bytes(content)


def write_text(path: str | os.PathLike[str], content: str) -> None:
    """Write a whole text file, atomically; UTF-8 and `\\n` on every system, so that the bytes are the same.

    Args:
        path: the file; it appears whole or not at all.
        content: all of it.
    """
    write_bytes(path, content.encode("utf-8"))


def write_unless_there(path: str | os.PathLike[str], content: str) -> None:
    """Writes a text file, unless it has this text already: no room is needed on a disk that is full.

    Args:
        path: the file; it appears whole or not at all.
        content: all of it.
    """
    with suppress(OSError):
        if Path(path).read_bytes() == content.encode("utf-8"):
            return
    write_text(path, content)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Force the names of a folder's files to the disk: without it, a power cut undoes what was made or renamed."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- Checkpoints -------------------------------------------------------------------------------------------------------

FORMATS = "walktalk-checkpoint-"  # how they all begin
FORMAT = f"{FORMATS}1"


class OtherVersionError(StudyError):
    """Nothing is wrong with a checkpoint, but a later version has written it, and this one cannot read it."""


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
    if (form := metadata.get("format", "")) != FORMAT:
        if form.startswith(FORMATS):
            raise OtherVersionError(f"{path} is of the form {form[:40]!r}, and this walktalk reads {FORMAT!r}")
        raise StudyError(f"{path} is not a checkpoint of walktalk; {_ADVICE}")
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
