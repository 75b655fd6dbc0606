from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from walktalk.core.errors import StudyError
from walktalk.records import StudyFolder, check_folder, existing_folder, folder_name, opened_folder, replacing_files

SPEC = "name: quickstart\nseed: 0\n"


def test_a_new_folder_gets_the_spec(tmp_path: Path) -> None:
    with opened_folder(tmp_path / "out" / "quickstart", SPEC) as folder:
        assert folder.spec.read_text() == SPEC
        assert folder.run("MW, R=4", 2).path == folder.path / "runs" / "MW_R=4" / "2"
    assert existing_folder(tmp_path / "out" / "quickstart") == folder


def fill(folder: StudyFolder, content: str) -> None:
    """Records of one run, as a finished study has them."""
    run = folder.run("multi_walk-4", 0)
    run.path.mkdir(parents=True, exist_ok=True)
    for file in (run.checkpoint, run.model, folder.history, folder.summary):
        file.write_text(content)


def test_resuming_keeps_the_records(tmp_path: Path) -> None:
    with opened_folder(tmp_path / "a", SPEC) as folder:
        fill(folder, "old")
    with opened_folder(tmp_path / "a", SPEC, resume=True) as again:
        assert again == folder
        assert folder.run("multi_walk-4", 0).checkpoint.read_text() == "old"
        assert folder.history.exists()


def test_results_are_never_lost_unasked(tmp_path: Path) -> None:
    with opened_folder(tmp_path / "a", SPEC) as folder:
        fill(folder, "old")
    with pytest.raises(StudyError, match=r"holds the finished results .*--overwrite"), opened_folder(folder.path, SPEC):
        pass
    folder.summary.unlink()
    with pytest.raises(StudyError, match=r"interrupted run .*--resume.*--overwrite"), opened_folder(folder.path, SPEC):
        pass
    with pytest.raises(StudyError, match="leave one of them out"):
        check_folder(folder.path, SPEC, resume=True, overwrite=True)
    assert folder.history.read_text() == folder.run("multi_walk-4", 0).model.read_text() == "old"


def stop_half_way(folder: StudyFolder) -> None:
    fill(folder, "half")
    (folder.path / "nothing").unlink()


def test_old_results_stand_until_the_new_ones_are_whole(tmp_path: Path) -> None:
    with opened_folder(tmp_path / "a", SPEC) as folder:
        fill(folder, "old")
    folder.report.write_text("drawn from the old ones")
    (folder.path / "notes.txt").write_text("a person's own")

    def old_ones_stand() -> bool:
        return folder.history.read_text() == folder.run("multi_walk-4", 0).model.read_text() == "old"

    other = SPEC.replace("seed: 0", "seed: 1")
    with pytest.raises(FileNotFoundError), opened_folder(folder.path, other, overwrite=True) as new:
        stop_half_way(new)
    assert old_ones_stand()
    with opened_folder(folder.path, other, resume=True) as new:  # the new ones are gone on with
        assert new.history.read_text() == "half"
        fill(new, "new")
        assert old_ones_stand()
    assert folder.history.read_text() == folder.run("multi_walk-4", 0).model.read_text() == "new"
    assert folder.spec.read_text() == other
    assert not folder.report.exists()
    assert sorted(p.name for p in folder.path.iterdir() if not p.name.startswith(".")) == [
        "history.csv",
        "notes.txt",
        "runs",
        "spec.yaml",
        "summary.json",
    ]


@pytest.mark.parametrize("moves", range(4))
def test_killed_while_new_results_are_moved_the_rest_is_moved_by_the_next(
    tmp_path: Path, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened_folder(tmp_path / "a", SPEC) as folder:
        fill(folder, "old")
    real, left = os.replace, [moves]

    def replace(source: Path, target: Path) -> None:
        if ".new" in Path(source).parts and ".new" not in Path(target).parts:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt), opened_folder(folder.path, SPEC, overwrite=True) as new:
        fill(new, "new")
    monkeypatch.undo()
    with opened_folder(folder.path, SPEC, resume=True) as again:
        assert again == folder
        assert again.history.read_text() == again.summary.read_text() == "new"
        assert again.run("multi_walk-4", 0).model.read_text() == "new"


def test_an_engine_goes_on_with_its_own_runs_only(tmp_path: Path) -> None:
    with opened_folder(tmp_path / "a", SPEC) as folder:
        fill(folder, "old")
    with pytest.raises(StudyError, match="holds runs of --engine sim, which --engine peers cannot"):
        check_folder(folder.path, SPEC, resume=True, engine="peers")
    (folder.run("multi_walk-4", 0).nodes / "node-0").mkdir(parents=True)
    check_folder(folder.path, SPEC, resume=True, engine="peers")
    with pytest.raises(StudyError, match="holds runs of --engine peers, which --engine sim cannot"):
        check_folder(folder.path, SPEC, resume=True)


def test_files_are_replaced_when_asked_and_at_the_end(tmp_path: Path) -> None:
    with replacing_files(tmp_path / "out", ["a.csv", "b.csv"], overwrite=False) as place:
        place.mkdir()
        (place / "a.csv").write_text("old")
    with pytest.raises(StudyError, match=r"a\.csv is there already.*--overwrite"):
        replacing_files(tmp_path / "out", ["a.csv"], overwrite=False).__enter__()
    with replacing_files(tmp_path / "out", ["a.csv", "b.csv"], overwrite=True) as place:
        (place / "a.csv").write_text("new")
        assert (tmp_path / "out" / "a.csv").read_text() == "old"
    assert (tmp_path / "out" / "a.csv").read_text() == "new"
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["a.csv"]


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
