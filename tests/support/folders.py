"""Whether two studies have left the same folder, byte for byte."""

from __future__ import annotations

from pathlib import Path


def files_of(folder: Path) -> list[Path]:
    """What a study leaves; the lock is of no interest once it is over."""
    return sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and p.name != ".lock")


def assert_same_folder(folder: Path, expected: Path) -> None:
    """The same files, the same bytes: histories, traces, models, checkpoints, summary and specification."""
    odd = sorted(map(str, set(files_of(folder)) ^ set(files_of(expected))))
    assert not odd, f"only in one of them: {odd}"
    different = [str(f) for f in files_of(expected) if (folder / f).read_bytes() != (expected / f).read_bytes()]
    assert not different, f"not the same bytes: {different}"
