"""The examples of docs/tasks.md run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

import walktalk as wt

TEXT = (Path(__file__).parent.parent / "docs" / "tasks.md").read_text(encoding="utf-8")


def test_the_examples_run(tmp_path):
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        exec(compile(block, "docs/tasks.md", "exec"), names)
    assert isinstance(names["run"].by_node, pd.DataFrame)
    for name in ("lyon", "nice", "paris"):
        here = names["frame"][names["frame"]["hospital"] == name].drop(columns="hospital")
        here.to_csv(tmp_path / f"{name}.csv", index=False)
    assert names["clinic"](str(tmp_path)).names == ("lyon", "nice", "paris")
    mine: wt.Task = names["clinic"](str(tmp_path), part="nice")
    assert mine.names == ("nice",)
