"""A disk that is full is the person's to mend: one line that names the file, whatever library noticed it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from walktalk.core.errors import StudyError
from walktalk.records import TraceWriter, replacing


class LibraryError(Exception):
    """As safetensors raises its own, with the system's words in it."""


FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device"),
    LibraryError("Error while serializing: I/O error: No space left on device (os error 28)"),
]


@pytest.mark.parametrize("error", FULL, ids=lambda error: type(error).__name__)
def test_a_full_disk_is_a_study_error_and_leaves_nothing(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"model\.bin: No space left on device; "), replacing(tmp_path / "model.bin"):
        raise error
    assert not list(tmp_path.iterdir())


def test_the_file_has_the_name_that_a_person_knows(tmp_path: Path) -> None:
    with (
        pytest.raises(StudyError, match=r"/model\.bin: Permission denied; "),
        replacing(tmp_path / "model.bin") as part,
    ):
        raise PermissionError(errno.EACCES, "Permission denied", str(part))


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(LibraryError), replacing(tmp_path / "model.bin"):
        raise LibraryError("shape mismatch")


def test_a_trace_that_cannot_be_written_names_its_place(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(StudyError, match="runs"):
        TraceWriter(tmp_path / "runs" / "trace.parquet")
