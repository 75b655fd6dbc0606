"""What was measured and is kept: a document, script or test cites every folder of results, and none is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
PLACES = ("*.md", "docs/*.md", "reproduction/*", "benchmarks/*", "src/walktalk/**/*.py", "tests/**/*.py")
CITED = re.compile(r"results/(20\d\d-\d\d-\d\d-[\w./-]*\w)")


def citations() -> dict[str, str]:
    """What is cited, below `results/`, with the first file that does it; the changelog tells of what was."""
    found: dict[str, str] = {}
    for pattern in PLACES:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and path.suffix in (".md", ".py") and path.name != "CHANGELOG.md":
                for cited in CITED.findall(path.read_text(encoding="utf-8")):
                    found.setdefault(cited, path.relative_to(ROOT).as_posix())
    return found


@pytest.mark.parametrize("folder", sorted(path.name for path in RESULTS.iterdir()))
def test_what_is_kept_is_cited(folder):
    assert any(cited.split("/")[0] == folder for cited in citations()), f"nobody cites results/{folder}: it can go"


def test_what_is_cited_is_there():
    missing = {cited: by for cited, by in citations().items() if not (RESULTS / cited).exists()}
    assert not missing
    assert len(citations()) > 40
