"""BENCHMARKS-PUBLISHED.md is what its script makes of the results."""

import contextlib
import io
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_made_of_the_results():
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(ROOT / "reproduction" / "published_tables.py"), run_name="__main__")
    assert said.getvalue() == (ROOT / "BENCHMARKS-PUBLISHED.md").read_text(encoding="utf-8")
