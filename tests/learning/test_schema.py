"""Sites compare the form of their data before they train together; no value is said."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import walktalk as wt
from walktalk.core.errors import DataError
from walktalk.learning import Schema, heard_schema, range_differences, schema_differences, schema_of


def linear(inputs: int = 2) -> torch.nn.Module:
    return torch.nn.Linear(inputs, 2)


def site(frame: pd.DataFrame, target: str = "ill", inputs: int = 2) -> Schema:
    task = wt.tasks.torch(lambda: linear(inputs), torch.nn.functional.cross_entropy, [frame], target=target)
    found = schema_of(task)
    assert found is not None
    return found


def frame(age: float = 80.0, **more: object) -> pd.DataFrame:
    columns = {"age": np.linspace(1.0, age, 8), "dose": np.linspace(0.0, 0.9, 8), "ill": [0, 1] * 4}
    return pd.DataFrame({**columns, **more})


def test_the_same_columns_in_another_order_are_caught_and_named() -> None:
    one, other = site(frame()), site(frame()[["dose", "age", "ill"]])
    assert one.digest != other.digest
    assert schema_differences(one, other, ("in lyon", "in nice")) == [
        "the columns are in another order: dose, age in nice and age, dose in lyon"
    ]
    assert schema_differences(one, site(frame(age=30.0))) == []  # of other values, the schema is the same


def test_a_pair_of_a_frame_and_a_column_has_the_same_names() -> None:
    """Its names were lost, so the columns of two sites were compared with nothing, in a simulation neither."""
    data = frame()
    swapped = (data[["dose", "age"]], data["ill"])
    pairs = [(data[["age", "dose"]], data["ill"]), swapped]
    with pytest.raises(DataError, match="in another order"):
        wt.tasks.torch(linear, torch.nn.functional.cross_entropy, pairs)
    found = schema_of(wt.tasks.torch(linear, torch.nn.functional.cross_entropy, [swapped]))
    assert found is not None
    assert [column.name for column in found.columns] == ["dose", "age", ""]


def test_missing_columns_other_targets_and_types_are_named() -> None:
    one = site(frame())
    lacks = site(frame(weight=np.ones(8)), inputs=3)
    assert schema_differences(one, lacks, ("in lyon", "in nice")) == ["in lyon there are no columns weight"]
    assert schema_differences(lacks, one, ("in lyon", "in nice")) == ["in nice there are no columns weight"]
    renamed = site(frame().rename(columns={"ill": "dead"}), target="dead")
    assert schema_differences(one, renamed) == ["there there are no targets ill", "here there are no targets dead"]
    float_targets = replace(one, columns=(*one.columns[:2], one.columns[2]._replace(kind="float32")), digest="x")
    assert schema_differences(one, float_targets) == ["target ill is float32 there and int64 here"]


def test_ranges_are_told_as_classes_and_only_where_they_are_asked_for() -> None:
    years, days = site(frame(age=80.0)), site(frame(age=29_000.0))
    assert [column.range for column in years.columns] == [
        "numbers from 0, up to 100",
        "numbers from 0, up to 1",
        "0 or 1",
    ]
    assert range_differences(years, days) == [
        "column age: numbers from 0, up to 100,000 there, numbers from 0, up to 100 here"
    ]
    assert "up to" not in json.dumps(years.said())
    again = heard_schema(json.loads(json.dumps(years.said(ranges=True))))
    assert again == years


def test_a_long_schema_is_said_by_its_digest_alone() -> None:
    one = site(frame())
    short = heard_schema(one.said(most=20))
    assert short is not None
    assert (short.columns, short.digest) == ((), one.digest)
    assert schema_differences(one, short) == []
    other = Schema((), "0" * 16)
    assert schema_differences(one, other) == [f"the data's schema is {'0' * 16} there and {one.digest} here"]


@pytest.mark.parametrize(
    "said", [{"digest": "x", "columns": 3}, {"digest": "x", "columns": [["age", "float32", ["a"], False]]}]
)
def test_a_strangers_schema_is_looked_through(said: object) -> None:
    with pytest.raises(ValueError, match="no schema"):
        heard_schema(said)
    assert heard_schema(None) is heard_schema({}) is None


def test_built_in_tasks_named_inputs_and_loops() -> None:
    digits = schema_of(wt.tasks.digits(nodes=2))
    assert digits is not None
    assert [(c.kind, c.shape, c.is_target) for c in digits.columns] == [("float32", (64,), False), ("int64", (), True)]

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, dose: torch.Tensor, age: torch.Tensor) -> torch.Tensor:
            return self.layer(torch.stack((age, dose), 1))

    data = {"age": torch.rand(4), "dose": torch.rand(4), "y": torch.tensor([0, 1, 0, 1])}
    turned = {name: data[name] for name in ("y", "dose", "age")}
    schemas = [schema_of(wt.tasks.torch(Two(), torch.nn.functional.cross_entropy, [one])) for one in (data, turned)]
    assert schemas[0] == schemas[1]  # the model takes them by name, so their order is of no matter
    loop = wt.tasks.loop(lambda state, data: state, {"w": np.zeros(2)}, [[1], [2]], evaluate=lambda state, data: 0.0)
    assert schema_of(loop) is None
