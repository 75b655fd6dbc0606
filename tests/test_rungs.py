"""Imports only point down, and only through a package's front door."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import walktalk

SOURCE = Path(walktalk.__file__).parent
RUNGS = (
    "lazy",
    "cpuinfo",
    "amx",
    "mkl",
    "errors",
    "settings",
    "seeds",
    "plugins",
    "graphs",
    "chains",
    "theory",
    "codecs",
    "screens",
    "protocols",
    "learning",
    "records",
    "runtimes.meaning",
    "runtimes.simulator",
    "runtimes.stacked",
    "runtimes.peers",
    "testing",
    "studies.spec",
    "studies.building",
    "studies.results",
    "studies.driving",
    "studies.peers",  # a door of its own, as chaos: both need Zenoh
    "studies.collecting",  # likewise
    "studies.chaos",
    "studies",
    "advisor",
    "plots",
    "report",
    "interactive",
    "paper",
    "paper.drawing",
    "published",
    "bench",
    "doctor",
    "cli",
)
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem in RUNGS)


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
            if node.module == "walktalk":
                names += [
                    f"walktalk.{alias.name}" for alias in node.names if alias.name in {r.split(".")[0] for r in RUNGS}
                ]
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


@pytest.mark.parametrize("rung", RUNGS)
def test_the_map_has_every_rung(rung):
    map_ = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert f"`{rung.replace('.', '/')}`" in map_.partition("## Rungs")[2].partition("\n## ")[0]
