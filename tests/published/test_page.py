"""BENCHMARKS-PUBLISHED.md is what its script makes of the results."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_made_of_the_results():
    script = ROOT / "benchmarks" / "published_tables.py"
    made = subprocess.run([sys.executable, str(script)], capture_output=True, check=True, text=True, encoding="utf-8")
    assert made.stdout == (ROOT / "BENCHMARKS-PUBLISHED.md").read_text(encoding="utf-8")
