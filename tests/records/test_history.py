from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from walktalk.core.errors import StudyError
from walktalk.records import COLUMNS, RUN_COLUMNS, HistoryRow, frame, history_text, read_history, write_history

ROW = HistoryRow("multi_walk-4", 0, 100, 25.125, 8_000_000_000_000, 0.1, 0.9375, 1e-7, 7_900_000_000_000, 0.2, 0.5)
any_float = st.floats(allow_infinity=True, allow_nan=True)
any_label = st.text("aé ,\"'=-∞", min_size=1)
rows = st.builds(
    HistoryRow,
    any_label,
    st.integers(0, 99),
    st.integers(0, 10**9),
    any_float,
    st.integers(0, 2**62),
    any_float,
    any_float,
    any_float,
    st.integers(0, 2**62),
    any_float,
    any_float,
    further=st.none(),
)


def test_columns_are_exactly_those_of_the_design() -> None:
    assert ",".join(COLUMNS) == "algorithm,repetition,iteration,time,bits,train_loss,test_accuracy,consensus"
    assert RUN_COLUMNS[8:] == ("model_bits", "mean_train_loss", "mean_test_accuracy")


def test_bytes_are_these(tmp_path: Path) -> None:
    write_history(tmp_path / "h.csv", [ROW, ROW._replace(test_accuracy=math.nan)])
    assert (tmp_path / "h.csv").read_bytes() == (
        b"algorithm,repetition,iteration,time,bits,train_loss,test_accuracy,consensus\n"
        b"multi_walk-4,0,100,25.125,8000000000000,0.1,0.9375,1e-07\n"
        b"multi_walk-4,0,100,25.125,8000000000000,0.1,,1e-07\n"
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(rows, max_size=5))
def test_what_is_written_is_read_to_the_last_bit(some: list[HistoryRow]) -> None:
    table = frame(some, RUN_COLUMNS)
    assert list(table.columns) == list(RUN_COLUMNS)
    read = [HistoryRow(*row) for row in table.itertuples(index=False, name=None)]
    assert history_text(read, RUN_COLUMNS) == history_text(some, RUN_COLUMNS)


def test_numpy_scalars_are_written_like_python_ones() -> None:
    row = ROW._replace(train_loss=np.float64(0.1), iteration=np.int64(100))
    assert history_text([row]) == history_text([ROW])


def test_no_part_is_left_behind(tmp_path: Path) -> None:
    write_history(tmp_path / "h.csv", [ROW])
    assert [p.name for p in tmp_path.iterdir()] == ["h.csv"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a,b,c\n1,2,3\n", "is not a history"),
        (b"", "is not a history"),
        (history_text([ROW]).encode()[:-5], "cut off"),
        (history_text([ROW]).encode() + b"gossip,x,1,1,1,1,1,1\n", "damaged"),
        (history_text([ROW]).encode() + b"gossip,1,1\n", "damaged"),
        (b"\xff\xfe\x00", "not a text file"),
    ],
)
def test_damage_is_one_clear_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "history.csv"
    path.write_bytes(content)
    with pytest.raises(StudyError, match=says) as caught:
        read_history(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="run the study first"):
        read_history(tmp_path / "history.csv")
