"""Refuses words that were given up, as names in src and as heads in the glossary: `python tools/words.py [DIR]`.

A word of the project means one thing, and one that somebody from the field knows. What stands here was renamed; a new
name that brings one back is refused, with the word to take in its place. A few verbs that could mean anything are
functions' names in one meaning each, in the files that stand here.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

WORDS = {
    "acquaintance": "handshake",
    "blow": "fault",
    "blows": "faults",
    "diary": "event_log",
    "diaries": "event_logs",
    "legacy": "handover",
    "liar": "forger",
    "lies": "forged",
    "pupil": "trainer",
    "reign": "term",
    "storm": "plan",
    "surroundings": "network_view",
}
ONE_MEANING = {  # functions whose names say too little: the one meaning that each has, and the files that have it
    "take": (
        "takes out of what is held (what comes is received, what is kept is added or stored)",
        ("advisor/bound_check.py", "runtimes/simulator/schedule.py", "runtimes/stacked/rows.py"),
    ),
    "tell": (
        "says how far a study is to whoever watches (a message is sent, an event is given)",
        ("cli/options.py", "studies/execution/groups.py", "studies/execution/run.py", "studies/execution/runner.py"),
    ),
    "note": ("writes a line into the trace", ("runtimes/semantics/interpreter.py",)),
}
OWN = ("core/old_names.py", "cli/chaos.py")  # where old names have to stand for a release
GLOSSARY = Path("docs/glossary.md")


def words_of(name: str) -> list[str]:
    """The words of a name: AsyncGossip and async_gossip are async and gossip."""
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())


def names_in(path: Path) -> Iterator[tuple[int, str]]:
    """Every name that a file defines, with its line: classes, functions, arguments, variables; and the file's own."""
    yield 1, path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def functions_in(path: Path) -> Iterator[tuple[int, str]]:
    """The functions and methods of a file, with their lines, without properties, which only give a value."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if not any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list):
            yield node.lineno, node.name


def heads_in(text: str) -> Iterator[tuple[int, str]]:
    """The words that a glossary explains, with their lines."""
    lines = text.splitlines()
    for number, (line, below) in enumerate(itertools.pairwise(lines), 1):
        if below.startswith(":"):
            yield number, line


def main(folder: Path) -> int:
    """Print each old word with its place and the new one; 1 if there is any."""
    files = [path for path in sorted(folder.rglob("*.py")) if not path.as_posix().endswith(OWN)]
    found = [(path, line, name) for path in files for line, name in names_in(path)]
    found += [(GLOSSARY, line, head) for line, head in heads_in(GLOSSARY.read_text(encoding="utf-8"))]
    old = [(*place, word) for *place, name in found for word in words_of(name) if word in WORDS]
    for path, line, word in sorted(set(old)):
        print(f"{path}:{line}: {word} is called {WORDS[word]} here")
    other = [
        (path, line, name, ONE_MEANING[name][0])
        for path in files
        for line, name in functions_in(path)
        if name in ONE_MEANING and not path.as_posix().endswith(ONE_MEANING[name][1])
    ]
    for path, line, name, meaning in other:
        print(f"{path}:{line}: {name} {meaning} here; where it does that, add the file in tools/words.py")
    return bool(old or other)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else "src/walktalk")))
