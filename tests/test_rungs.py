"""Imports only point down, and only through a package's front door."""

from __future__ import annotations

import ast
import importlib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import walktalk

SOURCE = Path(walktalk.__file__).parent
RUNGS = (
    "core.old_names",
    "core.cpu",
    "core.errors",
    "core.undo",
    "core.untrusted",
    "core.settings",
    "core.lazy",
    "core.seeds",
    "core.wall_clock",
    "core.plugins",
    "graphs",
    "chains",
    "theory",
    "transforms.codecs",
    "transforms.rules",
    "protocols",
    "learning",
    "records",
    "runtimes.semantics",
    "runtimes.simulator",
    "runtimes.stacked",
    "runtimes.peers",
    "studies.spec",
    "studies.planning",
    "studies.results",
    "studies.execution",
    "studies.peers",  # a door of its own, as chaos: both need Zenoh
    "studies.collecting",  # likewise
    "studies",
    "advisor",
    "report.figures",
    "report",
    "api",
    "reproduction.paper",
    "reproduction.paper.drawing",
    "reproduction.published",
    "reproduction.suites",
    "testing",
    "testing.chaos",
    "testing.bench",
    "testing.doctor",
    "testing.preflight",
    "cli",
)
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


def rung_of(dotted: str) -> str:
    """The package that a module belongs to: the longest rung that it starts with."""
    found = [rung for rung in RUNGS if dotted == rung or dotted.startswith(rung + ".")]
    return max(found, key=len, default="")


def imported(tree: ast.AST) -> list[str]:
    """Everything of walktalk that a module imports, without the leading name; imports for type checkers too."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.startswith("walktalk.")]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                module = f"{node.module}.{alias.name}".removeprefix("walktalk.")
                if module in RUNGS:
                    names.append(module)
                elif node.module.startswith("walktalk."):
                    names.append(node.module)
        elif isinstance(node, ast.ImportFrom) and node.level > 0:
            raise AssertionError("imports are written out in full here")
    return [name.removeprefix("walktalk.") for name in names]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_down_and_use_the_front_door(path):
    here = rung_of(".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"))
    if not here:
        assert path.name == "__init__.py"  # a folder that only holds rungs
        return
    for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
        there = rung_of(name)
        assert there, f"{name} belongs to no rung; add it to RUNGS"
        if there == here:
            continue
        assert RUNGS.index(there) < RUNGS.index(here), f"{here} must not import {name}: it is above"
        assert name in (there, f"{there}.tasks"), f"{name} is behind the front door of {there}; import from {there}"


@pytest.mark.parametrize("door", [rung for rung in RUNGS if (SOURCE / rung / "__init__.py").exists()])
def test_a_prompt_completes_what_a_front_door_offers(door):
    package = importlib.import_module(f"walktalk.{door}")
    assert dir(package) == sorted(package.__all__)


@pytest.mark.parametrize("room", sorted({rung.partition(".")[0] for rung in RUNGS}))
def test_the_map_has_every_room(room):
    map_ = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert f"| `{room}` |" in map_.partition("## Rooms")[2].partition("\n## ")[0]


def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name, parsed."""
    return {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
        for path in SOURCE.rglob("*.py")
        if path.name != "__init__.py"
    }


def test_no_circle_of_imports_inside_a_room():
    """There is an order in which files can be read; imports for the type checker and inside of functions count, too."""
    trees = modules()
    edges: dict[str, set[str]] = {name: set() for name in trees}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                edges[name] |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & trees.keys()
    order = TopologicalSorter(edges)
    order.prepare()  # raises CycleError, which names the files
