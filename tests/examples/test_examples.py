"""Every script and notebook of `examples` runs, and prints what the documentation says that it prints."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import sys
from pathlib import Path

import matplotlib as mpl
import pytest

ROOT = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(ROOT.glob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LONG = {"hospitals", "phase_diagram", "how_different_is_the_data"}  # a quarter of a minute and more
NEEDS = {
    "hugging_face": ("datasets", "this example needs transformers and datasets: pip install 'walktalk[language]'"),
    "boosted_trees": ("xgboost", "this example needs XGBoost: pip install xgboost"),
    "optuna_search": ("optuna", "this example needs Optuna: pip install optuna"),
}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
RELATIVE, ABSOLUTE = 0.05, 0.03  # other processors add in another order, and training carries that on


def param(path: Path):
    """An example; long ones are among the slow tests."""
    return pytest.param(path, marks=[pytest.mark.slow] if path.stem in LONG else [], id=path.stem)


def check_alike(found: str, expected: str) -> None:
    """The same words and the same layout; numbers about the same."""
    assert NUMBER.sub("#", " ".join(found.split())) == NUMBER.sub("#", " ".join(expected.split()))
    for mine, theirs in zip(NUMBER.findall(found), NUMBER.findall(expected), strict=True):
        assert float(mine) == pytest.approx(float(theirs), rel=RELATIVE, abs=ABSOLUTE), f"{mine}, not {theirs}"


def test_there_are_enough_of_them():
    assert len(SCRIPTS) >= 12
    assert len(NOTEBOOKS) >= 3


@pytest.mark.parametrize("script", [param(path) for path in SCRIPTS])
def test_a_script_prints_what_is_documented(script, tmp_path, monkeypatch):
    if script.stem in NEEDS:
        package, reason = NEEDS[script.stem]
        pytest.importorskip(package, reason=reason)
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(script), run_name="__main__")
    check_alike(said.getvalue(), (ROOT / "output" / f"{script.stem}.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NEEDS)
def test_without_the_package_a_script_says_what_to_install(name, monkeypatch):
    package, words = NEEDS[name]
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / f"{name}.py"), run_name="__main__")
    assert ended.value.code == words


@pytest.mark.parametrize("notebook", [param(path) for path in NOTEBOOKS])
def test_a_notebook_prints_what_it_shows(notebook, tmp_path, monkeypatch):
    """Cell by cell, without a kernel: all that a cell may not be is magic, but for where figures are drawn."""
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    names: dict[str, object] = {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"]).replace("%matplotlib inline\n", "")
        shown = "".join("".join(out["text"]) for out in cell["outputs"] if out["output_type"] == "stream")
        assert not any(out["output_type"] == "error" for out in cell["outputs"])
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(source, f"{notebook.name}, a cell", "exec"), names)
        check_alike(said.getvalue(), shown)
