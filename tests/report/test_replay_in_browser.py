"""The replay in a real browser: it plays smoothly, every control does what it says, and it shows what the trace has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from walktalk.records import read_trace
from walktalk.report.replay import data as replay_module

Visits = Callable[..., Any]
Studies = Callable[[str], Path]
PLAYER = "document.getElementById('replay-mount').walktalkReplay"


class Watching:
    """A page whose replay is watched."""

    def __init__(self, visit: Visits, folder: Path, **given: Any) -> None:
        self.page: Any = visit(folder / "report.html", **given).page
        self.page.wait_for_selector(".wr-stage")

    def ask(self, what: str) -> Any:
        """Something of the player."""
        return self.page.evaluate(f"(() => {{ const player = {PLAYER}; return {what}; }})()")

    def press(self, name: str) -> None:
        self.page.locator(f".wr-{name}").click()

    def choose(self, name: str, value: str) -> None:
        self.page.get_by_label(name, exact=True).select_option(value)


def counts_of(folder: Path, label: str) -> dict[str, int]:
    trace = read_trace(folder / "runs" / label / "0" / "trace.parquet")
    return {str(name): int(count) for name, count in trace["event"].value_counts().items() if count}


@pytest.mark.parametrize("kind", ["simulated", "broken", "real"])
def test_it_shows_every_event_of_the_trace(studies: Studies, visit: Visits, kind: str) -> None:
    folder = studies(kind)
    it = Watching(visit, folder)
    labels = (
        it.page.get_by_label("Algorithm", exact=True).locator("option").evaluate_all("all => all.map(o => o.value)")
    )
    assert len(labels) > 1
    for label in labels:
        it.choose("Algorithm", label)
        assert it.ask("player.timeline.run.label") == label
        assert it.ask("player.counts()") == counts_of(folder, label)
        assert "all are here" in it.page.locator(".wr-note").inner_text()


def test_every_control_does_what_it_says(studies: Studies, visit: Visits) -> None:
    it = Watching(visit, studies("broken"))
    it.choose("Algorithm", "multi_walk-4")
    assert not it.ask("player.playing")
    it.press("play")
    it.page.wait_for_function(f"() => {PLAYER}.t > 0.2")
    assert it.page.get_by_role("button", name="Pause").is_visible()
    it.press("play")
    stopped = it.ask("player.t")
    assert it.ask("[player.playing, player.t]") == [False, stopped]

    event = it.ask("player.i")
    it.press("forth")
    assert it.ask("player.i") == event + 1
    assert it.ask("player.t") == it.ask("player.timeline.e.time[player.i]")
    said = it.page.locator(".wr-ticker").inner_text()
    assert said.startswith("Node ")
    it.press("forth")
    assert it.page.locator(".wr-ticker").inner_text() != said
    it.press("back")
    assert it.page.locator(".wr-ticker").inner_text() == said

    it.press("next")
    assert "dies" in it.page.locator(".wr-ticker").inner_text()
    assert it.ask("player.t") == pytest.approx(8.0, abs=0.1)
    it.press("next")
    later = it.ask("player.t")
    it.press("before")
    assert it.ask("player.t") < later

    it.page.locator(".wr-slider").fill("0.5")
    assert it.ask("player.t / player.timeline.end") == pytest.approx(0.5, abs=0.01)
    slow = it.ask("player.speed")
    it.choose("Speed", "10")
    assert it.ask("player.speed") == pytest.approx(10 * slow)
    it.choose("Speed", "whole")
    assert it.ask("player.speed * 60") == pytest.approx(it.ask("player.timeline.end"))

    box = it.page.locator(".wr-curve .u-over").bounding_box()
    it.page.locator(".wr-curve .u-over").click(position={"x": box["width"] * 0.25, "y": 20})
    assert it.ask("player.t / player.timeline.end") == pytest.approx(0.25, abs=0.02)
    it.page.locator(".wr-marks").click(position={"x": 8, "y": 20})
    assert it.ask("player.t") == 0


def test_a_node_and_a_walk_tell_their_story(studies: Studies, visit: Visits) -> None:
    it = Watching(visit, studies("broken"))
    it.choose("Algorithm", "multi_walk-4")
    it.ask("player.seek(8.5)")
    dead = it.ask("player.timeline.e.node[player.timeline.incidents[0].i]")
    x, y = it.ask(f"[player.scene.x[{dead}], player.scene.y[{dead}]]")
    it.page.locator(".wr-stage").click(position={"x": x, "y": y})
    assert it.page.locator(".wr-told h3").inner_text() == f"Node {dead}"
    assert it.page.locator(".wr-state").inner_text().startswith("Is dead; has trained")
    lines = it.page.locator(".wr-story li").all_inner_texts()
    assert lines[0].endswith(f"Node {dead} dies")
    assert 2 <= len(lines) <= 12
    it.page.locator(".wr-story button").first.click()
    assert it.ask("player.t") == pytest.approx(8.0, abs=0.1)

    it.choose("Follow", "walk 2")
    assert it.page.locator(".wr-told h3").inner_text() == "Walk 2"
    assert all("walk 2" in line for line in it.page.locator(".wr-story li").all_inner_texts())
    x, y = it.ask("(({x, y}) => [x, y])(player.scene.tokens.find((token) => token.walk === 1))")
    it.page.locator(".wr-stage").click(position={"x": x, "y": y})
    assert it.page.locator(".wr-told h3").inner_text() == "Walk 1"


def test_what_goes_wrong_can_be_seen(studies: Studies, visit: Visits) -> None:
    it = Watching(visit, studies("broken"))
    it.choose("Algorithm", "multi_walk-4")
    dead = it.ask("player.timeline.e.node[player.timeline.incidents[0].i]")
    state = f"WalktalkReplay.stateOf(player.timeline, {dead}, player.i)"
    it.ask("player.seek(7.9)")
    assert it.ask(state) == it.ask("WalktalkReplay.ALIVE")
    assert it.ask("WalktalkReplay.aggregatorAt(player.timeline, player.t)") == dead
    it.ask("player.seek(player.timeline.end)")
    assert it.ask(state) == it.ask("WalktalkReplay.DEAD")
    assert it.ask("WalktalkReplay.aggregatorAt(player.timeline, player.t)") != dead  # another was elected
    assert "dead" in it.page.locator(".wr-legend").inner_text()
    trains = it.ask("player.timeline.trainings.filter((it) => it.died).length")
    assert it.ask("player.timeline.trainings.filter((it) => it.j < player.timeline.e.n && !it.died).length") == it.ask(
        "player.timeline.trained.length"
    )
    assert trains <= 2


def test_the_keyboard_is_enough(studies: Studies, visit: Visits) -> None:
    it = Watching(visit, studies("broken"))
    it.choose("Algorithm", "multi_walk-4")
    it.page.locator(".wr-slider").focus()
    it.page.keyboard.press("]")
    assert it.ask("player.t") == pytest.approx(8.0, abs=0.1)
    it.page.locator(".wr-play").focus()
    event = it.ask("player.i")
    it.page.keyboard.press("ArrowRight")
    assert it.ask("player.i") == event + 1
    it.page.keyboard.press("ArrowLeft")
    assert it.ask("player.i") == event
    speed = it.ask("player.speed")
    it.page.keyboard.press("+")
    assert it.ask("player.speed") > speed
    it.page.keyboard.press("-")
    it.page.keyboard.press("-")
    assert it.ask("player.speed") < speed
    it.page.keyboard.press("Enter")
    assert it.ask("player.playing")
    it.page.keyboard.press("k")
    assert not it.ask("player.playing")
    it.page.keyboard.press("End")
    assert it.ask("player.t === player.timeline.end")
    it.page.keyboard.press("Home")
    assert it.ask("player.t") == 0
    it.page.get_by_label("Follow", exact=True).focus()
    it.page.keyboard.press("ArrowDown")
    assert it.ask("player.follow.walk") == 1
    it.page.locator(".wr-slider").focus()
    it.page.keyboard.press("Escape")
    assert it.ask("player.follow.walk") == -1
    it.page.keyboard.press("ArrowRight")
    assert it.page.locator(".wr-slider").get_attribute("aria-valuetext").endswith(" s")


def test_twenty_nodes_and_three_thousand_events_are_smooth(studies: Studies, visit: Visits) -> None:
    it = Watching(visit, studies("busy"))
    for label in ("multi_walk-15", "async_gossip-pairwise"):
        it.choose("Algorithm", label)
        assert it.ask("player.timeline.e.n") >= 3000
        best = 0.0
        for _ in range(16):  # this machine may be busy with something else for a while
            it.ask("(player.seek(player.timeline.end / 3), player.play())")
            it.page.wait_for_timeout(1200)
            best = max(best, it.ask("player.fps()"))
            it.ask("player.pause()")
            if best >= 30:
                break
        assert best >= 30, label


def test_a_thousand_nodes_open_and_play_thinned(
    studies: Studies, visit: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "EVENTS", 6000)
    folder = studies("thousand")  # of which no other test asks, so its page is made now
    it = Watching(visit, folder)
    assert it.page.evaluate("performance.getEntriesByType('navigation')[0].duration") < 2000
    it.choose("Algorithm", "async_gossip-pairwise")
    note = it.page.locator(".wr-note").inner_text()
    total = sum(counts_of(folder, "async_gossip-pairwise").values())
    assert f"The trace has {total:,} events; {it.ask('player.timeline.e.n'):,} are shown." in note
    assert "nodes 1,000" in note or "Of 1,000 nodes" in note
    assert "Of 7,000 edges 6,000 are drawn." in note
    it.press("play")
    it.page.wait_for_function(f"() => {PLAYER}.frames.length > 10")
    assert it.ask("player.t") > 0


def test_motion_is_not_forced_on_anybody(studies: Studies, browser: Any) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto((studies("simulated") / "report.html").as_uri())
    page.evaluate(f"{PLAYER}.play()")
    page.wait_for_function(f"() => {PLAYER}.frames.length > 2")
    assert page.evaluate(f"{PLAYER}.fps()") < 4
    assert page.evaluate(f"{PLAYER}.scene.moment.calm")
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_phone_in_both_themes(studies: Studies, visit: Visits, theme: str) -> None:
    it = Watching(visit, studies("broken"), width=390, theme=theme)
    it.page.wait_for_function("() => document.documentElement.scrollWidth <= 390")  # charts follow
    assert it.ask("player.scene.width") < 390
    ink = it.ask("player.scene.ink.bg")
    it.page.locator("#theme").click()
    assert it.ask("player.scene.ink.bg") != ink
