"""Several studies in one table and on one page, and the list of what there is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from walktalk.cli import app
from walktalk.core.errors import StudyError
from walktalk.records import read_history, studies_below
from walktalk.report import open_comparison, write_comparison
from walktalk.report.page.data import metrics_of
from walktalk.studies import make_spec, run_study

Studies = Callable[[str], Path]


def walktalk(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.stdout, result.stderr


def test_studies_are_found_below_a_folder_and_nothing_else_is(studies: Studies, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for name, kind in (("a", "simulated"), ("deep/b", "broken")):
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / name).mkdir()
        for file in ("spec.yaml", "history.csv", "summary.json"):
            (kept / name / file).write_bytes((studies(kind) / file).read_bytes())
    (kept / "a" / "history.csv").unlink()  # as while it runs
    (kept / "other").mkdir()
    (kept / "other" / "spec.yaml").write_text("what: ever")
    found = {study.folder.relative_to(kept).as_posix(): study for study in studies_below(kept)}
    assert set(found) == {"a", "deep/b"}
    assert (found["a"].finished, found["deep/b"].finished) == (False, True)
    assert (found["a"].name, found["a"].task, found["a"].runs) == ("small", "digits", 9)
    code, output, _ = walktalk("list", kept)
    assert code == 0
    assert re.search(r"deep/b +digits +erdos_renyi 8 +3 × 2 +finished", output)
    assert "0 of 9 runs" in output
    lines = walktalk("list", kept, "--json")[1].splitlines()
    assert {json.loads(line)["engine"] for line in lines} == {"sim"}


def test_where_there_is_nothing_it_says_so(tmp_path: Path) -> None:
    assert "no studies in" in walktalk("list", tmp_path)[1]
    code, _, error = walktalk("list", tmp_path / "nowhere")
    assert (code, error.count("\n")) == (2, 1)


def test_a_comparison_has_every_algorithm_of_every_study_and_says_what_differs(studies: Studies) -> None:
    found = open_comparison([studies("simulated"), studies("broken")])
    assert len(found.algorithms) == 6
    assert len({one.title for one in found.algorithms.values()}) == 6
    assert len({one.colour for one in found.algorithms.values()}) == 6
    assert found.algorithms["small: multi_walk-1"].heading == "One walk · small"
    assert found.differences["network.topology"] == ["us_five_sites", "erdos_renyi"]
    assert found.differences["stop.time"] == [None, 24.0]
    assert not {"name", "task.alpha", "seed"} & set(found.differences)
    rows = sum(len(read_history(studies(kind) / "history.csv")) for kind in ("simulated", "broken"))
    assert len(found.history) == rows
    assert found.warning == ""


def test_studies_of_one_name_are_told_apart_by_their_folders(studies: Studies, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for file in ("spec.yaml", "history.csv", "summary.json"):
            (tmp_path / name / file).write_bytes((studies("simulated") / file).read_bytes())
    found = open_comparison([tmp_path / "a", tmp_path / "b"])
    assert list(found.studies) == ["a", "b"]
    assert found.differences == {}
    assert found.without_differences == "All settings are the same."


def test_an_algorithm_has_the_settings_behind_its_name_in_which_it_differs(tmp_path: Path) -> None:
    """In its own study each is called the same, there being no other."""
    usual = {
        "network": {"topology": "cycle", "nodes": 4},
        "task": {"name": "quadratic"},
        "stop": {"iterations": 8},
        "evaluate": {"every": 4},
    }
    for name, mine in (("weak", 0.25), ("strong", 0.75)):
        algorithms = [{"name": "walkman", "beta": mine}, {"name": "async_gossip"}]
        run_study(make_spec({**usual, "name": name, "algorithms": algorithms}), tmp_path / name, workers=1)
    found = open_comparison([tmp_path / "weak", tmp_path / "strong"])
    headings = [one.heading for one in found.algorithms.values()]
    assert sum("0.25 · weak" in one for one in headings) == 1
    assert sum("0.75 · strong" in one for one in headings) == 1
    assert {"Gossip in pairs · weak", "Gossip in pairs · strong"} <= set(headings)
    assert found.without_differences == "All settings are the same, but for the algorithms."
    assert found.without_differences in walktalk("compare", tmp_path / "weak", tmp_path / "strong")[1]


def test_mistakes_are_one_line(studies: Studies, tmp_path: Path) -> None:
    here = studies("simulated")
    with pytest.raises(StudyError, match="two studies or more"):
        open_comparison([here])
    with pytest.raises(StudyError, match="twice"):
        open_comparison([here, here / ".." / here.name])
    with pytest.raises(StudyError, match="is a folder"):
        write_comparison(open_comparison([here, studies("broken")]), tmp_path)
    assert walktalk("compare", here, tmp_path)[0] == 2
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "spec.yaml").write_bytes((here / "spec.yaml").read_bytes())  # as a run leaves it that was killed
    code, _, error = walktalk("report", begun)
    assert (code, error.count("\n")) == (2, 1)
    assert "no run is over yet; go on with the study (`walktalk run --resume`)" in error


def test_the_page_of_a_comparison(studies: Studies, visit: Any, tmp_path: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    out = tmp_path / "pages" / "compare.html"
    code, output, error = walktalk("compare", studies("simulated"), studies("broken"), "--out", out)
    assert code == 0, error
    assert "Settings that differ" in output
    assert str(out) in output.replace("\n", "")
    page = visit(out).page
    assert page.locator("#curves .chip").count() == 6
    assert page.locator("#results-table tbody tr").count() == 6
    assert page.locator("#differences").inner_text().count("us_five_sites") == 1
    assert not page.locator("#network").is_visible()
    for link in page.locator("#algorithms a").evaluate_all("all => all.map(a => a.getAttribute('href'))"):
        assert (out.parent / link).resolve().is_file()
    page.locator("label[for=axis-time]").click()
    assert page.evaluate("Walktalk.curves.state.axis") == "time"
    found = Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found] == []
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function("() => document.documentElement.scrollWidth <= 390")  # charts follow a resize
    lines = page.locator("#differences thead th").evaluate_all("all => all.map(one => one.offsetHeight)")
    assert max(lines) < 60  # pixels, two lines at most: words are whole


def test_metrics_of_one_s_own_are_on_the_page(studies: Studies) -> None:
    history = read_history(studies("simulated") / "history.csv").assign(f1_score=0.5, perplexity=9.0, nothing=np.nan)
    found = {metric["key"]: metric for metric in metrics_of(history)}
    assert (found["f1_score"]["less"], found["perplexity"]["less"]) == (False, True)
    assert found["test_accuracy"]["unit"] == "%"
    assert not {"nothing", "iteration", "algorithm", "bits"} & set(found)


@pytest.mark.parametrize("width", [1280, 390])
def test_many_runs_are_sorted_and_filtered(studies: Studies, visit: Any, tmp_path: Path, width: int) -> None:
    """A row for each algorithm of each study; a box a column takes parts of texts and comparisons."""
    found = open_comparison([studies("simulated"), studies("broken")])
    page = visit(write_comparison(found, tmp_path / "page.html"), width=width).page
    table, boxes = page.locator("#runs table"), page.locator("#runs input")
    rows = table.locator("tbody tr:visible")
    heads = [text.strip().lower() for text in table.locator("thead th").all_inner_texts()]
    assert boxes.count() == len(heads)
    everything = rows.count()
    assert everything == len(found.runs)

    loss = heads.index("loss")
    losses = sorted(found.runs["final_loss"])
    boxes.nth(loss).fill(f"<{losses[2]}")
    assert rows.count() == 2
    assert page.locator("#runs [role=status]").inner_text() == f"2 of {everything} rows"
    boxes.nth(loss).fill("")
    algorithm = heads.index("algorithm")
    boxes.nth(algorithm).fill("WALK")
    walks = [name for name in found.runs["algorithm"] if "walk" in name.lower()]
    assert 0 < rows.count() == len(walks) < everything
    for up in (True, False):
        table.locator("thead button").nth(loss).click()
        shown = [float(text.split()[0]) for text in rows.locator(f":nth-child({loss + 1})").all_inner_texts()]
        assert shown == sorted(shown, reverse=not up)
        assert len(shown) == len(walks)  # what was filtered stays so
    assert page.evaluate("document.documentElement.scrollWidth") <= width
