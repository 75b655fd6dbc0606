from __future__ import annotations

import json
from pathlib import Path

import pytest

from walktalk.core.errors import StudyError
from walktalk.records import TRACE_COLUMNS, TraceWriter, read_trace

FIRST = {
    "time": [0.0, 1.5],
    "node": [0, 0],
    "event": ["train", "trained"],
    "slot": ["walk/1", "walk/1"],
    "walk": [1, 1],
    "number": [0, 0],
    "iteration": [-1, 0],
    "key": [2**62, -1],
    "lr": [0.05, float("nan")],
}
SECOND = {
    "time": [1.5],
    "node": [0],
    "event": ["send"],
    "slot": ["walk/1"],
    "peer": [3],
    "number": [7],
    "bytes": [2**40],
    "detail": [json.dumps({"kind": "walk", "into": "walk/1"})],
}


def write(path: Path) -> None:
    with TraceWriter(path) as writer:
        writer.write(FIRST)
        writer.write(SECOND)


def test_rows_come_back_in_order_with_their_types(tmp_path: Path) -> None:
    write(tmp_path / "trace.parquet")
    trace = read_trace(tmp_path / "trace.parquet")
    assert tuple(trace.columns) == TRACE_COLUMNS
    assert trace["event"].tolist() == ["train", "trained", "send"]
    assert trace["key"].tolist() == [2**62, -1, -1]
    assert trace["bytes"].tolist() == [0, 0, 2**40]
    assert json.loads(trace["detail"].iloc[2])["into"] == "walk/1"
    assert trace["detail"].iloc[0] == ""
    assert {name: str(trace[name].dtype) for name in ("time", "node", "event", "iteration", "lr")} == {
        "time": "float64",
        "node": "int32",
        "event": "category",
        "iteration": "int64",
        "lr": "float64",
    }


def test_an_empty_trace_is_a_trace(tmp_path: Path) -> None:
    TraceWriter(tmp_path / "trace.parquet").close()
    assert len(read_trace(tmp_path / "trace.parquet")) == 0


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_the_file_appears_at_the_end_only(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace.parquet")
    writer.write(FIRST)
    assert not (tmp_path / "trace.parquet").exists()
    writer.close()
    writer.close()
    assert [p.name for p in tmp_path.iterdir()] == ["trace.parquet"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with TraceWriter(tmp_path / "trace.parquet") as writer:
            writer.write(FIRST)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_column_that_no_trace_has_is_our_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="colour"), TraceWriter(tmp_path / "trace.parquet") as writer:
        writer.write({"time": [0.0], "colour": ["red"]})


@pytest.mark.parametrize("damage", ["missing", "cut", "foreign"])
def test_damage_is_one_clear_line(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "trace.parquet"
    if damage != "missing":
        write(path)
        path.write_bytes(path.read_bytes()[:-20] if damage == "cut" else b"hello")
    with pytest.raises(StudyError) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
