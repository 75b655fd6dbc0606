"""Refuses docstrings that say nothing to somebody who hovers over a name; a part of `make lint`.

    python tools/docstrings.py src/walktalk

The first line of a docstring has at least four words, and says what the thing is, not how it differs from another.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FEWEST_WORDS = 4
REFUSED = ("The same", "Of ", "One node's", "One's", "For ", "From ", "With ", "By ")


def complaints(path: Path) -> Iterator[str]:
    """A line for each docstring of a file that says too little."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        first = (ast.get_docstring(node) or "").partition("\n")[0]
        if not first:
            continue
        if len(first.split()) < FEWEST_WORDS:
            yield f"{path}:{node.lineno}: {node.name}: fewer than {FEWEST_WORDS} words: {first!r}"
        elif first.startswith(REFUSED):
            yield f"{path}:{node.lineno}: {node.name}: begins with {first.split()[0]!r}, say what it is: {first!r}"


def main(folders: list[str]) -> int:
    """Prints all complaints; 1 where there is one."""
    found = [line for folder in folders for path in sorted(Path(folder).rglob("*.py")) for line in complaints(path)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
