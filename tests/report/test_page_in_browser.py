"""The page in a real browser: it loads, every control does what it says, anybody can use it, on any screen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import special

from walktalk.report import open_study, write_page
from walktalk.report.results import verdict
from walktalk.studies import make_spec, run_study
from walktalk.studies.results.summary import CLEAR, decide, holm

Visits = Callable[..., Any]
Studies = Callable[[str], Path]


def shown(page: Any) -> dict[str, Any]:
    """What the chart shows, as the script knows it."""
    content: dict[str, Any] = page.evaluate(
        """() => { const c = Walktalk.curves; return {
            axis: c.state.axis, metric: c.state.metric, mode: c.state.mode, hidden: [...c.state.hidden],
            range: c.state.range, whole: c.whole, limits: c.limits, lines: c.lineCount, target: Walktalk.target.value,
            log: [c.scaleX !== Walktalk.scales.LINEAR, c.scaleY !== Walktalk.scales.LINEAR], reading: c.reading,
            drawn: c.plot.data[0].length } }"""
    )
    return content


@pytest.mark.parametrize("kind", ["simulated", "broken", "real"])
def test_a_page_loads_at_once_and_asks_for_nothing(studies: Studies, visit: Visits, kind: str) -> None:
    folder = studies(kind)
    page = visit(folder / "report.html").page
    page.wait_for_selector("#curves canvas")
    took = page.evaluate("performance.getEntriesByType('navigation')[0].duration")
    assert 0 < took < 10_000  # milliseconds, a few hundred on an idle machine
    assert (folder / "report.html").stat().st_size < 3_000_000
    assert page.locator("#curves canvas").bounding_box()["width"] > 500
    time = "Wall-clock time" if kind == "real" else "Virtual time"
    assert page.locator("label[for=axis-time]").inner_text() == time
    assert time in page.locator("#results-table thead").inner_text()
    assert page.locator("#failures").is_visible() == (kind == "broken")
    for link in page.locator("#records a").evaluate_all("all => all.map(a => a.getAttribute('href'))"):
        assert (folder / link).is_file(), link


def test_every_control_of_the_curves_does_what_it_says(studies: Studies, visit: Visits) -> None:
    page = visit(studies("simulated") / "report.html").page
    assert shown(page)["axis"] == "iteration"
    for axis in ("time", "bits", "iteration"):
        page.locator(f"label[for=axis-{axis}]").click()
        assert shown(page)["axis"] == axis
    for metric in page.locator("#metric option").evaluate_all("all => all.map(one => one.value)"):
        page.select_option("#metric", metric)
        assert shown(page)["metric"] == metric
    assert {"train_loss", "test_accuracy", "consensus"} <= set(
        page.locator("#metric option").evaluate_all("all => all.map(one => one.value)")
    )
    page.select_option("#metric", "train_loss")
    for place, button in enumerate(("#xlog", "#ylog")):
        before = shown(page)["log"][place]
        page.click(button)
        assert shown(page)["log"][place] is not before
        assert page.get_attribute(button, "aria-pressed") == str(not before).lower()
    assert shown(page)["lines"] == 3
    page.locator("label[for=mode-runs]").click()
    assert shown(page)["lines"] == 9
    page.click("button[data-label='multi_walk-1']")
    assert (shown(page)["hidden"], shown(page)["lines"]) == (["multi_walk-1"], 6)
    assert page.get_attribute("button[data-label='multi_walk-1']", "aria-pressed") == "false"
    page.click("button[data-label='multi_walk-1']")
    assert shown(page)["hidden"] == []


def test_zoom_by_dragging_and_by_buttons_and_back(studies: Studies, visit: Visits) -> None:
    page = visit(studies("simulated") / "report.html").page
    page.locator("#curves .chart").scroll_into_view_if_needed()
    box = page.locator("#curves .u-over").bounding_box()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 15)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 20, steps=4)
    page.mouse.up()
    low, high = shown(page)["range"]
    assert (low, high) == (pytest.approx(40, abs=2), pytest.approx(80, abs=2))
    page.click("#zoom-in")
    assert shown(page)["range"][1] - shown(page)["range"][0] == pytest.approx((high - low) / 2, rel=0.05)
    page.click("#zoom-reset")
    assert shown(page)["range"] is None
    assert page.is_disabled("#zoom-reset")
    page.click("#zoom-in")
    page.locator("#curves .u-over").dblclick(position={"x": 60, "y": 20})
    assert shown(page)["range"] is None


def test_hovering_reads_off_the_history(studies: Studies, visit: Visits) -> None:
    folder = studies("simulated")
    page = visit(folder / "report.html").page
    page.locator("#curves .chart").scroll_into_view_if_needed()
    box = page.locator("#curves .u-over").bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 30)
    data = json.loads(page.locator("#walktalk-data").text_content())
    along = data["means"]["multi_walk-1"]["iteration"]
    there = along["train_loss"]["mean"][along["x"].index(80)]
    said = page.locator("button[data-label='multi_walk-1'] .reading").inner_text()
    assert float(re.match(r"[\d.]+", said)[0]) == pytest.approx(there, rel=0.03)  # type: ignore[index]
    assert "at 80 iterations" in page.locator(".below .note").inner_text()


def test_the_target_says_who_gets_there_first_and_agrees_with_the_summary(studies: Studies, visit: Visits) -> None:
    folder = studies("simulated")
    summary = json.loads((folder / "summary.json").read_text())
    page = visit(folder / "report.html").page
    costs = page.evaluate("Walktalk.target.costs().map(c => [c.algorithm.label, c.on])")
    for label, found in costs:
        for axis, spread in summary["algorithms"][label]["to_target"].items():
            if spread is None:
                assert found[axis] is None
            else:
                assert found[axis]["mean"] == pytest.approx(spread["mean"], rel=1e-3)
                assert found[axis]["std"] == pytest.approx(spread["std"], rel=1e-2, abs=1e-3)
    before = page.locator("#target-sentence").inner_text()
    page.fill("#target", "2.0")
    page.press("#target", "Enter")
    assert shown(page)["target"] == 2.0
    assert page.locator("#target-sentence").inner_text() != before
    page.locator(".target-line").scroll_into_view_if_needed()
    line, box = page.locator(".target-line").bounding_box(), page.locator("#curves .u-over").bounding_box()
    page.mouse.move(line["x"] + 40, line["y"] + line["height"] / 2)
    page.mouse.down()
    page.mouse.move(line["x"] + 40, box["y"] + 0.5 * box["height"], steps=4)
    page.mouse.up()
    moved = shown(page)
    middle = page.evaluate("Walktalk.curves.plot.posToVal(Walktalk.curves.plot.over.clientHeight / 2, 'y')")
    assert moved["target"] == pytest.approx(middle, rel=0.05)
    assert moved["range"] is None  # dragging the line does not zoom
    page.fill("#target", "0.000001")
    page.press("#target", "Enter")
    assert page.locator("#target-sentence").inner_text().startswith("No algorithm reaches")


def test_the_table_is_sorted_by_any_column_with_what_has_no_number_last(studies: Studies, visit: Visits) -> None:
    page = visit(studies("simulated") / "report.html").page
    columns = page.locator("#results-table thead button").count()
    for column in range(columns):
        button = page.locator("#results-table thead button").nth(column)
        for direction in ("ascending", "descending"):
            button.click()
            head = page.locator("#results-table thead th").nth(column)
            assert head.get_attribute("aria-sort") == direction
            keys = page.evaluate(
                f"[...document.querySelectorAll('#results-table tbody tr')].map(r => r.cells[{column}].dataset.sort)"
            )
            numbers = [float(key) for key in keys if column and key]
            assert numbers == sorted(numbers, reverse=direction == "descending")
            assert "" not in keys[: len([key for key in keys if key])]


def test_everything_can_be_done_with_the_keyboard_alone(studies: Studies, visit: Visits) -> None:
    page = visit(studies("simulated") / "report.html").page
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        focus = page.evaluate(
            """() => { const a = document.activeElement;
                const s = getComputedStyle(a.matches('.segmented input') ? a.nextElementSibling : a);
                const seen = s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2;
                return [a.id || a.className || a.tagName, seen] }"""
        )
        if focus[0] == "BODY":
            break
        assert focus[1], f"the focus on {focus[0]} cannot be seen"
        reached.add(focus[0])
    wanted = {
        "theme",
        "metric",
        "axis-iteration",
        "mode-mean",
        "xlog",
        "ylog",
        "chip",
        "chart",
        "target-line",
        "target",
    }
    assert wanted | {"zoom-in", "zoom-out", "copy", "SUMMARY", "A"} <= reached
    page.focus("#axis-iteration")
    page.keyboard.press("ArrowRight")
    assert shown(page)["axis"] == "time"
    page.focus("#curves .chart")
    page.keyboard.press("ArrowRight")
    first = shown(page)["reading"]
    page.keyboard.press("ArrowRight")
    assert shown(page)["reading"] > first
    page.keyboard.press("+")
    zoomed = shown(page)["range"]
    assert zoomed is not None
    page.keyboard.press("Shift+ArrowRight")
    assert shown(page)["range"][0] > zoomed[0]
    page.keyboard.press("0")
    assert shown(page)["range"] is None
    page.focus(".target-line")
    before = shown(page)["target"]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("PageUp")
    assert shown(page)["target"] > before
    assert float(page.get_attribute(".target-line", "aria-valuenow")) == pytest.approx(shown(page)["target"])


@pytest.mark.parametrize(("kind", "theme"), [("simulated", "light"), ("simulated", "dark"), ("broken", "dark")])
def test_axe_finds_nothing_wrong(studies: Studies, visit: Visits, kind: str, theme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = visit(studies(kind) / "report.html", theme=theme).page
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    found = Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found] == []


def test_the_theme_is_the_system_s_until_it_is_chosen_and_the_chart_follows(studies: Studies, visit: Visits) -> None:
    page = visit(studies("simulated") / "report.html", theme="dark").page
    colour = "getComputedStyle(document.body).backgroundColor"
    stroke = "Walktalk.curves.plot.series[1].stroke(Walktalk.curves.plot, 1)"
    dark, line = page.evaluate(colour), page.evaluate(stroke)
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert (page.evaluate(colour), page.evaluate(stroke)) != (dark, line)
    assert page.get_attribute("#theme", "aria-pressed") == "false"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


@pytest.mark.parametrize("kind", ["simulated", "broken", "real", "collected"])
def test_a_phone_shows_one_column_and_nothing_sticks_out(studies: Studies, visit: Visits, kind: str) -> None:
    page = visit(studies(kind) / "report.html", width=390).page
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    page.wait_for_function("() => document.documentElement.scrollWidth <= 390")  # charts follow a resize
    cards = page.locator(".card").evaluate_all("all => all.map(one => one.getBoundingClientRect().left)")
    assert len(set(cards)) == (kind != "collected")  # of a cluster there is nothing to win
    page.set_viewport_size({"width": 1200, "height": 900})
    wide = "Walktalk.curves.plot.width > 500"  # the chart grows with its place
    page.evaluate(
        f"new Promise(done => {{ const look = () => {wide} ? done() : requestAnimationFrame(look); look() }})"
    )


def test_an_open_page_takes_a_new_state_and_keeps_what_was_chosen(studies: Studies, visit: Visits) -> None:
    page = visit(studies("simulated") / "report.html").page
    page.locator("label[for=axis-bits]").click()
    page.click("button[data-label='multi_walk-4']")
    page.evaluate(
        """() => { const data = structuredClone(Walktalk.data); data.algorithms[0].name = 'renamed';
            WalktalkPage.update({ data, sections: { lead: '<p class="lead">new words</p>', incidents: '' } }) }"""
    )
    state = shown(page)
    assert (state["axis"], state["hidden"]) == ("bits", ["multi_walk-4"])
    assert page.locator("[data-section=lead]").inner_text() == "new words"
    assert "renamed" in page.locator(".legend").inner_text()


def test_the_network_and_the_partition_are_drawn_and_tell_about_a_node(studies: Studies, visit: Visits) -> None:
    page = visit(studies("simulated") / "report.html").page
    assert page.locator("#network-drawing .node").count() == 20
    assert page.locator("#network-drawing .sites text").all_text_contents() == ["CA", "NV", "IA", "IL", "KS"]
    page.locator("#network-drawing .node").nth(7).hover()
    assert re.match(
        r"Node 7, at NV, 2 neighbours, \d+ samples", page.locator("#network-drawing figcaption").inner_text()
    )
    assert page.locator("#partition-drawing circle").count() > 60


SIZES = """(root) => [...document.querySelectorAll(`${root} text`)].map((one) =>
    parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a)"""


def named(folder: Path, **more: Any) -> Path:
    """A study of three clinics on a graph without names, with its page."""
    (folder / "clinics.py").write_text(
        "import torch\nimport walktalk as wt\n\n\ndef clinics() -> wt.Task:\n"
        "    parts = {name: (torch.randn(8, 2), torch.arange(8) % 2) for name in ('Köln', 'San José', 'Åbo')}\n"
        "    return wt.tasks.torch(torch.nn.Linear(2, 2), torch.nn.functional.cross_entropy, parts)\n"
    )
    settings = {
        "network": {"topology": "cycle", "nodes": 3},
        "task": {"name": "clinics:clinics"},
        "algorithms": [{"name": "multi_walk", "walks": 1}],
        "stop": {"iterations": 6},
        "evaluate": {"every": 3},
        **more,
    }
    run_study(make_spec(settings), folder / "out", workers=1)
    return write_page(open_study(folder / "out"))


@pytest.mark.parametrize("width", [390, 1400])
def test_letters_of_drawings_are_those_of_a_page(studies: Studies, visit: Visits, width: int) -> None:
    """Few nodes: drawings neither grow with the panel until letters are those of a poster, nor shrink on a phone."""
    page = visit(studies("broken") / "report.html", width=width).page
    for drawing in ("#network-drawing", "#partition-drawing"):
        sizes = page.evaluate(SIZES, drawing)
        assert sizes
        assert 7.5 <= min(sizes) <= max(sizes) <= 17, (drawing, min(sizes), max(sizes))


def test_names_of_the_data_are_those_of_the_nodes(
    visit: Visits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    page = visit(named(tmp_path), width=1400).page
    drawn = page.locator("#network-drawing .node text")
    assert sorted(drawn.all_text_contents()) == ["Köln", "San José", "Åbo"]
    # One is too long for its node, so all stand beside theirs.
    assert set(drawn.evaluate_all("all => all.map(one => one.getAttribute('class'))")) == {"beside"}
    assert {"Köln", "San José", "Åbo"} <= set(page.locator("#partition-drawing text").all_text_contents())
    assert "1 run" in page.locator("#records summary").all_inner_texts()


def test_lines_of_a_table_go_through_on_a_phone(studies: Studies, visit: Visits) -> None:
    """The column that stays has a background, which must not cover the line below it: left and right are one colour."""
    page = visit(studies("simulated") / "report.html", width=390).page
    row = page.locator("#results-table tbody tr").first
    row.scroll_into_view_if_needed()
    box, first = row.bounding_box(), row.locator("th").bounding_box()
    line = {"x": box["x"], "y": box["y"] + box["height"] - 1, "width": first["width"] + 20, "height": 1}
    picture = Image.open(BytesIO(page.screenshot(clip=line))).convert("RGB")
    assert picture.getpixel((2, 0)) == picture.getpixel((picture.width - 2, 0))


def test_a_deployment_has_its_nodes_names_and_says_whose_copy_the_model_is(studies: Studies, visit: Visits) -> None:
    page = visit(studies("collected") / "report.html").page
    told = page.locator("#participants").inner_text()
    assert "The model is the copy of brest, which aggregates the walks" in told
    for words in ("brest", "lyon", "saint-malo", "finished", "3 s, 2 lives", "20 kB"):
        assert words in told
    assert "by the cluster coast" in page.locator("[data-section=lead]").inner_text()
    assert page.locator("main section:visible h2").first.inner_text() == "Nodes"  # an operator looks for them first
    assert page.locator("#participants").bounding_box()["y"] < 500
    assert not page.locator("#target-panel, .target-line, .best").filter(visible=True).count()
    assert not page.locator("#repeat").is_visible()
    page.wait_for_selector("#replay:not([hidden]) .wr-stage")
    follow = page.locator("#replay select").filter(has=page.locator("option[value='node 2']"))
    assert follow.locator("option[value='node 2']").inner_text() == "saint-malo"
    follow.select_option("node 2")
    assert page.locator(".wr-told h3").inner_text() == "saint-malo"
    page.evaluate(
        "(() => { const it = document.getElementById('replay-mount').walktalkReplay; it.seek(it.timeline.end) })()"
    )
    page.wait_for_selector(".wr-story li")
    said = page.locator(".wr-story li").all_inner_texts()
    assert said
    assert not any("ode 0" in line or "ode 1" in line or "ode 2" in line for line in said)


def test_numbers_are_the_same_in_both_tables_and_nothing_shown_is_said(studies: Studies, visit: Visits) -> None:
    page = visit(studies("simulated") / "report.html").page
    rows = "all => all.map(row => [...row.cells].map(cell => cell.innerText.replace(' ★', '').trim()))"
    target = page.locator("#target-table tbody tr").evaluate_all(rows)
    results = {row[0]: row[-3:] for row in page.locator("#results-table tbody tr").evaluate_all(rows)}
    spaces = [[text.replace("\u00a0", " ") for text in row] for row in target]
    assert spaces[0][0] == "One walk"
    assert spaces[0][1:] == results["One walk"]  # the others do not get there
    for name in results:
        page.locator("#curves button", has_text=name).first.click()
    assert page.get_by_text("Nothing is shown: choose a name above.").is_visible()
    assert "The square is the aggregator, node 0." in page.locator("#network-drawing figcaption").inner_text()


def test_what_went_wrong_has_the_names_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    page = named(tmp_path, faults=[{"kind": "kill", "at": 0.5, "node": 2}])
    assert "Åbo dies" in page.read_text(encoding="utf-8")


def alone(page: Any, name: str) -> None:
    page.locator("#curves .legend button", has_text=name).first.dblclick()


def test_nothing_freezes_where_a_logarithm_has_no_place_for_what_is_shown(studies: Studies, visit: Visits) -> None:
    """The disagreement of one walk is 0, and a chart from which all was taken away is empty: ticks had no end."""
    page = visit(studies("simulated") / "report.html").page
    page.select_option("#metric", "consensus")
    alone(page, "One walk")
    page.click("#ylog")
    assert "nothing above 0" in page.locator(".below .note").first.inner_text()
    page.click("#xlog")
    alone(page, "One walk")
    page.locator("#curves .legend button", has_text="One walk").click()
    assert page.locator(".below .note").first.inner_text().startswith("Nothing is shown")
    counts = page.evaluate(
        "[Walktalk.curves.ticks('y', 1e-30, 1e30, 420), Walktalk.curves.ticks('x', 1, 1, 900)].map(t => t.length)"
    )
    assert 3 <= counts[0] <= 12  # powers of ten do not stand on each other
    assert counts[1] == 0


def test_what_is_shown_is_in_the_address_and_comes_again_from_it(studies: Studies, visit: Visits) -> None:
    path = studies("simulated") / "report.html"
    first = visit(path).page
    first.select_option("#metric", "test_accuracy")
    first.locator("label[for=axis-time]").click()
    first.locator("label[for=mode-runs]").click()
    first.click("button[data-label='multi_walk-4']")
    first.click("#zoom-in")
    first.fill("#smoothing", "0.5")
    first.fill("#target", "60")
    first.press("#target", "Enter")
    first.click("#copy-link")
    first.wait_for_function("() => document.getElementById('copy-link').textContent === 'Copied'")
    wanted, link = shown(first), first.url
    assert "#show=test_accuracy&against=time" in link
    again = visit(path).page
    again.goto(link)  # the same page: it is told of the address a moment later
    again.wait_for_function("() => Walktalk.curves.state.metric === 'test_accuracy'")
    assert {**shown(again), "reading": None} == {**wanted, "reading": None, "range": shown(again)["range"]}
    assert shown(again)["range"] == pytest.approx(wanted["range"], rel=1e-4)
    assert again.is_checked("#axis-time")
    assert again.get_attribute("button[data-label='multi_walk-4']", "aria-pressed") == "false"
    assert again.input_value("#smoothing") == "0.5"
    again.goto(path.as_uri() + "#show=nonsense&against=time&lines=&from=9&to=x&target=many&hide=nobody&smooth=-3")
    again.reload()
    assert (shown(again)["metric"], shown(again)["axis"], shown(again)["range"]) == ("train_loss", "time", None)


def test_a_link_with_a_target_opens_a_page_that_is_not_there_yet(studies: Studies, visit: Visits) -> None:
    """The target was moved before the chart had been drawn for the first time, and the whole page stayed empty."""
    page = visit(studies("simulated") / "report.html", address="#show=test_accuracy&against=time&target=60").page
    found = shown(page)
    assert (found["metric"], found["axis"], found["target"]) == ("test_accuracy", "time", 60)
    assert page.locator(".target-line").is_visible()
    assert page.locator("#target-table tbody tr").count() == 3
    page.reload()
    assert shown(page)["target"] == 60


def test_a_link_that_is_put_into_the_address_is_not_overwritten(studies: Studies, visit: Visits) -> None:
    """What was chosen a moment before is written to the address a moment later: then the link was there already."""
    page = visit(studies("simulated") / "report.html").page
    page.evaluate(
        """() => {
            const usual = window.setTimeout; // the clock stands until this script says that it goes on
            window.setTimeout = (later) => { window.later = later; return 0; };
            Walktalk.curves.set({ smoothing: 0.5 });
            window.setTimeout = usual;
            location.hash = "#against=bits";
            window.later();
        }"""
    )
    assert page.evaluate("location.hash") == "#against=bits"
    page.wait_for_function("() => Walktalk.curves.state.axis === 'bits'")
    assert page.evaluate("Walktalk.curves.state.smoothing") == 0


@pytest.mark.parametrize("kind", ["svg", "png", "csv"])
def test_what_is_shown_can_be_saved(studies: Studies, visit: Visits, tmp_path: Path, kind: str) -> None:
    page = visit(studies("simulated") / "report.html", theme="dark").page
    page.click("button[data-label='multi_walk-4']")
    page.click("#zoom-in")
    with page.expect_download() as waiting:
        page.click(f"#save-{kind}")
    saved = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(saved)
    assert saved.name == f"small-train_loss-iteration.{kind}"
    if kind == "png":
        picture = Image.open(saved).convert("RGB")
        assert picture.width == 1800
        assert picture.getpixel((2, 2)) == (255, 255, 255)  # for paper, also from a dark page
        assert len(picture.getcolors(maxcolors=100_000) or []) > 20
    elif kind == "svg":
        text = saved.read_text(encoding="utf-8")
        assert all(word in text for word in ("One walk", "Gossip in pairs", "Training loss", "Iterations"))
        assert "4 walks" not in text
        assert not re.search("NaN|Infinity|undefined", text)
    else:
        rows = [line.split(",") for line in saved.read_text(encoding="utf-8").splitlines()]
        assert rows[0] == ["algorithm", "iteration", "train_loss", "std"]
        low, high = shown(page)["range"]
        assert rows[1:]
        assert all(low <= float(row[1]) <= high for row in rows[1:])
        along = json.loads(page.locator("#walktalk-data").text_content())["means"][rows[1][0]]["iteration"]
        place = along["x"].index(float(rows[1][1]))
        assert float(rows[1][2]) == along["train_loss"]["mean"][place]


def test_the_line_that_is_pointed_at_is_named_and_a_name_lights_its_line(studies: Studies, visit: Visits) -> None:
    page = visit(studies("simulated") / "report.html").page
    page.locator("#curves .chart").scroll_into_view_if_needed()
    box = page.locator("#curves .u-over").bounding_box()
    top = page.evaluate(
        """() => { const c = Walktalk.curves, l = c.drawn[0];
            return c.plot.valToPos(Walktalk.series.at(l.x, l.y, c.whole[1] / 2), 'y') }"""
    )
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + top)
    assert page.locator(".tip").inner_text().startswith("One walk: ")
    strengths = "Walktalk.curves.plot.series.slice(1).map(s => [s.of, s.alpha < 0.5])"
    page.locator("button[data-label='multi_walk-4']").hover()
    assert all(faint == (of != "multi_walk-4") for of, faint in page.evaluate(strengths))
    assert not page.locator(".tip").is_visible()
    page.mouse.move(5, 5)
    assert not any(faint for _, faint in page.evaluate(strengths))


def test_smoothing_keeps_what_was_measured_in_sight(studies: Studies, visit: Visits) -> None:
    page = visit(studies("simulated") / "report.html").page
    before = page.locator("#target-table").inner_text()
    series = page.evaluate("Walktalk.curves.plot.series.length")
    page.fill("#smoothing", "0.9")
    assert page.evaluate("Walktalk.curves.plot.series.length") == series + 3
    assert page.evaluate("Walktalk.series.smooth([2, 2, null, 2], 0.9)") == [2, 2, None, 2]
    steps = """l => { const y = Walktalk.curves.drawn[0][l];
        return Math.max(...y.slice(1).map((v, k) => Math.abs(v - y[k]))) }"""
    assert page.evaluate(steps, "smoothed") < 0.6 * page.evaluate(steps, "y")
    assert page.locator("#target-table").inner_text() == before
    assert "smoothed" in page.locator(".below .note").first.inner_text()


def test_a_dark_page_is_printed_on_white(studies: Studies, visit: Visits) -> None:
    page = visit(studies("broken") / "report.html", theme="dark").page
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_function("() => document.documentElement.dataset.theme === 'light'")
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(29, 32, 37)"
    page.emulate_media(media="screen", color_scheme="dark")
    page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")


def test_a_browser_without_javascript_is_told_what_is_missing(studies: Studies, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((studies("simulated") / "report.html").as_uri())
    assert "need JavaScript" in page.inner_text("noscript")
    assert page.locator("#results-table").is_visible()
    for dead in ("#explore", "#theme", "#copy"):
        assert not page.locator(dead).is_visible()
    context.close()


def test_a_node_that_comes_back_has_not_gone_wrong_and_a_fault_has_no_keys_that_mean_nothing(tmp_path: Path) -> None:
    faults = [{"kind": "kill", "node": 1, "at": 0.5, "seconds": 1.0}, {"kind": "slow", "node": 2, "at": 0.1}]
    content = {
        "network": {"topology": "complete", "nodes": 4},
        "task": {"name": "quadratic"},
        "algorithms": [{"name": "async_gossip"}],
        "faults": faults,
        "stop": {"time": 3.0},
        "evaluate": {"seconds": 1.0},
    }
    run_study(make_spec(content), tmp_path / "out", workers=1)
    text = write_page(open_study(tmp_path / "out")).read_text(encoding="utf-8")
    assert re.search(r">✕</span><span>node 1 dies", text)
    assert re.search(r">↻</span><span>node 1 comes back", text)
    assert "kind: kill, at: 0.5, seconds: 1.0, node: 1<" in text
    assert "kind: slow, at: 0.1, node: 2, factor: 10.0<" in text


def test_forty_algorithms_leave_room_for_the_curves(visit: Visits, tmp_path: Path) -> None:
    content = {
        "network": {"topology": "complete", "nodes": 15},
        "task": {"name": "quadratic"},
        "algorithms": [{"name": "multi_walk", "walks": list(range(1, 15))}],
        "stop": {"iterations": 4},
        "evaluate": {"every": 2},
    }
    run_study(make_spec(content), tmp_path / "out", workers=1)
    page = visit(write_page(open_study(tmp_path / "out")), width=390).page
    assert not page.locator(".algorithms").is_visible()
    page.click("#algorithms summary")
    assert page.locator(".algorithms dt").count() == 14
    assert page.locator(".legend").bounding_box()["height"] < 250
    page.click("#show-none")
    assert shown(page)["lines"] == 0
    page.click("#show-all")
    assert shown(page)["lines"] == 14
    page.focus("button[data-label='multi_walk-3']")
    page.keyboard.press("Shift+Enter")
    assert shown(page)["lines"] == 1
    ticks = page.evaluate("Walktalk.curves.ticks('x', 0, 4, 900)")
    assert ticks == [0, 1, 2, 3, 4]  # iterations are whole


def test_a_new_state_takes_nothing_out_of_anybodys_hands(studies: Studies, visit: Visits) -> None:
    """While a study runs it comes every few seconds: focus, an order and what was folded open stay as they are."""
    page = visit(studies("simulated") / "report.html").page
    html = page.locator("[data-section=settings]").inner_html()
    results = page.locator("[data-section=results]").inner_html()
    update = """([settings, results]) => WalktalkPage.update(
        { data: structuredClone(Walktalk.data), sections: { settings, results } })"""
    page.evaluate(update, [html, results])
    page.click("#settings summary")
    page.locator("#results-table thead button").nth(1).click()
    page.locator("#results-table thead button").nth(1).click()
    rows = page.locator("#results-table tbody th").all_inner_texts()
    for held in ("#metric", "#smoothing", "button[data-label='multi_walk-4']"):
        page.focus(held)
        page.evaluate(update, [html, results.replace("± ", "±  ")])
        assert page.locator(held).evaluate("one => one === document.activeElement")
        assert page.locator("#settings details").get_attribute("open") is not None
        assert page.locator("#results-table tbody th").all_inner_texts() == rows
        assert page.locator("#results-table thead th").nth(1).get_attribute("aria-sort") == "descending"
        results += " "
    page.locator("#results-table thead button").nth(1).focus()
    page.evaluate(update, [html, results + " "])
    assert page.evaluate("document.activeElement.closest('th')?.dataset.column") == "1"


def test_the_script_decides_as_the_summary_does(studies: Studies, visit: Visits) -> None:
    """One rule: what the page says of a target of one's own is what a summary would have said of it."""
    page = visit(studies("simulated") / "report.html").page
    rng = np.random.default_rng(0)
    pairs, wanted, chances = [], [], []
    for _ in range(300):
        counts = rng.integers(1, 7, 2)
        best, other = (list(np.exp(rng.normal(0, rng.choice([0, 0.05, 0.5]), int(n)))) for n in counts)
        best, other = sorted([best, other], key=np.mean)
        if rng.random() < 0.1:
            best[0] = 0.0  # no logarithm of that
        if np.mean(best) > np.mean(other):
            continue
        found = decide("iteration", best, other)
        chance = None if found is None else found.chance
        pairs.append([[float(x) for x in best], [float(x) for x in other]])
        clear = None if chance is None else chance >= CLEAR
        wanted.append(verdict({"next": "b", "clear": clear, "chance": chance}))
        chances.append(chance)
    rule = "{...Walktalk.data.decision, also: []}"
    said = page.evaluate(f"(pairs) => pairs.map((pair) => Walktalk.deciding.verdicts([pair], {rule})[0])", pairs)
    assert said == wanted
    few = [chance for chance in chances if chance is not None][:20]
    assert page.evaluate("(few) => Walktalk.deciding.together(few)", few) == pytest.approx(holm(few), abs=1e-9)
    assert set(wanted) == {"once", "clear", "probable", "close"}
    points = [(freedom, t) for freedom in (1.0, 2.0, 3.7, 9.2, 40.0) for t in (-3.0, -0.4, 0.0, 0.7, 2.2, 9.0)]
    chances = page.evaluate("(points) => points.map(([f, t]) => Walktalk.deciding.student(f, t))", points)
    assert chances == pytest.approx([float(special.stdtr(*point)) for point in points], abs=1e-10)


def test_top_target_and_table_agree_on_who_won_and_a_reference_does_not(studies: Studies, visit: Visits) -> None:
    folder = studies("referred")
    page = visit(folder / "report.html").page
    won = json.loads((folder / "summary.json").read_text())["winners"]
    names = {one["label"]: one["name"] for one in page.evaluate("Walktalk.data.algorithms")}
    for place, axis in enumerate(("iteration", "time", "bits"), 1):
        said = verdict(won[axis])
        marked = [names[won[axis]["algorithm"]]] if said not in ("close", "alone") else []
        stars = page.locator(f"#target-table tr:has(td:nth-child({place + 1}).best) th")
        assert stars.all_inner_texts() == marked
        column = page.locator("#results-table thead th").count() - 3 + place
        assert page.locator(f"#results-table tr:has(td:nth-child({column}).best) th").all_inner_texts() == marked
        story = page.locator("[data-section=story]").inner_text()
        assert (said == "close") <= ("too close to call" in story)
        if said == "close":
            assert "too close to call" in page.locator("#target-sentence").inner_text()
    assert "all data in one place ends at" in page.locator(".verdict").first.inner_text()
    assert page.locator("#results-table tr[data-algorithm=centralized]").is_visible()
    assert page.locator("tr[data-algorithm=centralized] td.best").count() == 0


def test_a_page_of_one_algorithm_has_no_winner(studies: Studies, visit: Visits) -> None:
    page = visit(studies("alone") / "report.html").page
    assert page.locator(".best").count() == 0
    assert "★" not in page.locator("main").inner_text()
    assert page.locator(".card .swatch").count() == 0
    assert page.locator("#algorithms-title").inner_text() == "What ran"
    assert page.locator("#target-sentence").inner_text().startswith("To training loss")
    page.fill("#target", "2")
    page.press("#target", "Enter")
    assert page.locator(".best").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_table_that_goes_on_beyond_the_edge_shows_it(studies: Studies, visit: Visits, theme: str) -> None:
    """Without a hint nobody looks for the columns that a phone cuts off."""
    page = visit(studies("simulated") / "report.html", width=390, theme=theme).page
    frame = page.locator("#results .scroller")

    def brightness(at: str) -> list[float]:
        """Of a column of pixels in the last row, near the right edge and further in."""
        frame.evaluate(f"(it) => {{ it.scrollLeft = {at}; }}")
        picture = Image.open(BytesIO(frame.screenshot())).convert("L")
        y = picture.height - 6
        return [float(np.mean([picture.getpixel((picture.width - x - k, y)) for k in range(3)])) for x in (4, 60)]

    assert frame.evaluate("(it) => it.scrollWidth > it.clientWidth + 40")
    edge, inside = brightness("0")
    assert abs(edge - inside) > 12
    edge, inside = brightness("it.scrollWidth")
    assert abs(edge - inside) < 3


def test_site_by_site_is_a_table_that_can_be_sorted(studies: Studies, visit: Visits) -> None:
    folder = studies("simulated")
    page = visit(folder / "report.html").page
    table = page.locator("#sites table")
    measured = pd.read_csv(folder / "sites.csv")
    assert table.locator("tbody tr").count() == measured["node"].nunique() == 20
    first = measured[measured["algorithm"] == measured["algorithm"].iloc[0]].set_index("node")["train_loss"]
    assert f"{first.max():.3g}" in table.locator("tfoot").inner_text()
    table.locator("thead th").nth(2).locator("button").click()
    order = table.locator("tbody th").all_inner_texts()
    assert [int(node) for node in order] == list(first.sort_values(kind="stable").index)
    assert page.locator("#results-table [aria-sort=ascending]").count() == 0
    table.locator("thead th").nth(2).locator("button").click()
    assert int(table.locator("tbody th").first.inner_text()) == first.idxmax()
