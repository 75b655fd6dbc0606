from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from walktalk.errors import StudyError
from walktalk.records import existing_folder, folder_name, opened_folder

SPEC = "name: quickstart\nseed: 0\n"


def test_a_new_folder_gets_the_spec(tmp_path: Path) -> None:
    with opened_folder(tmp_path / "out" / "quickstart", SPEC) as folder:
        assert folder.spec.read_text() == SPEC
        assert folder.run("MW, R=4", 2).path == folder.path / "runs" / "MW_R=4" / "2"
    assert existing_folder(tmp_path / "out" / "quickstart") == folder


def test_resuming_keeps_the_records_and_starting_again_removes_them(tmp_path: Path) -> None:
    with opened_folder(tmp_path / "a", SPEC) as folder:
        run = folder.run("multi_walk-4", 0)
        run.path.mkdir(parents=True)
        run.checkpoint.write_bytes(b"x")
        folder.history.write_text("x")
    with opened_folder(tmp_path / "a", SPEC, resume=True):
        assert run.checkpoint.exists()
        assert folder.history.exists()
    with opened_folder(tmp_path / "a", SPEC):
        assert not run.checkpoint.exists()
        assert not folder.history.exists()


@pytest.mark.parametrize("resume", [False, True])
def test_the_folder_of_another_study_is_refused_untouched(tmp_path: Path, resume: bool) -> None:
    with opened_folder(tmp_path / "a", SPEC) as folder:
        folder.history.write_text("x")
    with (
        pytest.raises(StudyError, match=r"output folder of another study \(there 'seed: 0', here 'seed: 1'\)"),
        opened_folder(tmp_path / "a", SPEC.replace("0", "1"), resume=resume),
    ):
        pass
    assert folder.history.read_text() == "x"
    assert folder.spec.read_text() == SPEC


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StudyError, match=r"thesis\.tex"), opened_folder(tmp_path, SPEC):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_and_a_place_below_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StudyError, match="choose another --out"), opened_folder(path, SPEC):
            pass


def test_what_a_death_before_the_first_record_leaves_does_not_block(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".spec.yaml.123.part").write_text("na")
    with opened_folder(tmp_path, SPEC, resume=True) as folder:
        assert folder.spec.read_text() == SPEC


HOLDER = """
import sys
from walktalk.records import opened_folder
with opened_folder(sys.argv[1], sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_never_share_a_folder_and_a_killed_one_does_not_block(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "a"), SPEC]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StudyError, match="in use by another process"), opened_folder(tmp_path / "a", SPEC):
            pass
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
    with opened_folder(tmp_path / "a", SPEC, resume=True) as folder:
        assert folder.spec.exists()


def test_reading_needs_a_study_folder(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no such folder"):
        existing_folder(tmp_path / "nowhere")
    with pytest.raises(StudyError, match="no spec"):
        existing_folder(tmp_path)


@pytest.mark.parametrize(("label", "name"), [("multi_walk-4", "multi_walk-4"), ("a/b: ü", "a_b"), ("..", "_")])
def test_any_label_makes_a_safe_name(label: str, name: str) -> None:
    assert folder_name(label) == name
