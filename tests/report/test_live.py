"""A live page: it tells how far a run is, takes results as they come, lets in who may, and never holds the run up."""

from __future__ import annotations

import datetime
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.drawing import UNDRAWN

from walktalk.core.errors import UnavailableError
from walktalk.records import HistoryRow
from walktalk.report import ClusterPage, live_page, open_study, served_cluster
from walktalk.report.live import study
from walktalk.report.live.nodes import drawn_state
from walktalk.report.live.server import LiveAddress, PageState, Server, is_loopback
from walktalk.studies import Progress, make_spec

Studies = Callable[[str], Path]
SECONDS = 90.0  # far longer than anything takes here, on a busy machine too
SPEC = make_spec(
    {
        "name": "live",
        "repetitions": 1,
        "network": {"topology": "cycle", "nodes": 4},
        "task": {"name": "quadratic"},
        "algorithms": [{"name": "multi_walk", "walks": 2}],
        "stop": {"iterations": 40},
        "evaluate": {"every": 10},
    }
)


def get(url: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def report(done: int, rows: tuple[HistoryRow, ...] = ()) -> Progress:
    return Progress(done, 40, done, float(done), 100.0, {"multi_walk-2": 0.5}, "training", rows)


def all_taken(pages: PageState, seconds: float = 0.2) -> bool:
    """Whether nobody who looks is without the last state, at last."""
    return pages.wait_until_received(seconds)


def row(iteration: int, loss: float = 0.5) -> HistoryRow:
    return HistoryRow("multi_walk-2", 0, iteration, float(iteration), 8 * iteration, loss, math.nan, 0.1)


def eventually(condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """What the condition gives as soon as that is true; the pages come from another process."""
    pause, end = threading.Event(), time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        pause.wait(0.05)
    raise AssertionError("it never happened")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., tuple[LiveAddress, PageState]]]:
    """A server of a pages, with a folder of records."""
    (tmp_path / "study" / ".git").mkdir(parents=True)
    (tmp_path / "study" / "history.csv").write_text("a,b\n")
    (tmp_path / "study" / ".git" / "secret").write_text("no")
    (tmp_path / "secret.txt").write_text("no")
    running: list[Server] = []

    def serve(**where: Any) -> tuple[LiveAddress, PageState]:
        address, pages = LiveAddress(**where), PageState()
        running.append(Server(address, pages, lambda: "<p>page</p>", tmp_path / "study"))
        running[-1].start()
        return address, pages

    yield serve
    for server in running:
        server.stop()


def test_only_this_machine_is_let_in_and_only_under_its_own_names(
    served: Callable[..., tuple[LiveAddress, PageState]],
) -> None:
    address, _ = served()
    assert address.url == f"http://127.0.0.1:{address.port}/"
    assert get(address.url) == (200, "<p>page</p>")
    assert get(address.url, Host=f"localhost:{address.port}")[0] == 200
    assert get(address.url, Host="evil.example")[0] == 403
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.2", address.port)) != 0  # nobody answers on another address


def test_elsewhere_the_token_is_needed_for_everything(served: Callable[..., tuple[LiveAddress, PageState]]) -> None:
    address, _ = served(host="0.0.0.0")
    here = f"http://127.0.0.1:{address.port}"
    assert len(address.token) > 16
    assert address.url.endswith(f"?token={address.token}")
    for path in ("/", "/page.json", "/events", "/history.csv"):
        assert get(here + path)[0] == 403
        assert get(f"{here}{path}?token=wrong")[0] == 403
    for path in ("/", "/page.json", "/history.csv"):
        assert get(f"{here}{path}?token={address.token}")[0] == 200
    assert get(f"{here}/history.csv", Referer=f"{here}/?token={address.token}")[0] == 200  # a link on the page


def test_records_are_served_and_nothing_else(served: Callable[..., tuple[LiveAddress, PageState]]) -> None:
    address, _ = served()
    assert get(f"{address.url}history.csv") == (200, "a,b\n")
    for path in ("../secret.txt", "%2e%2e/secret.txt", ".git/secret", "nothing", "/etc/passwd"):
        assert get(address.url + path)[0] == 404


def test_news_come_as_they_happen(served: Callable[..., tuple[LiveAddress, PageState]]) -> None:
    address, pages = served()
    pages.update(progress={"share": 0.5})
    with urllib.request.urlopen(f"{address.url}events", timeout=SECONDS) as stream:
        lines = iter(lambda: stream.readline().decode().strip(), None)
        assert next(lines) == "event: progress"
        assert json.loads(next(lines).removeprefix("data: ")) == {"share": 0.5}
        pages.update(parts={"data": {}, "sections": {}}, ended=True)
        told = [line for line in (next(lines) for _ in range(9)) if line.startswith("event")]
        assert told == ["event: progress", "event: page", "event: end"]
    assert not all_taken(pages)
    assert json.loads(get(f"{address.url}page.json?page=another")[1])["parts"] == {"data": {}, "sections": {}}
    assert not all_taken(pages)
    get(f"{address.url}page.json")
    assert all_taken(pages, SECONDS)


def test_in_the_end_pages_that_are_being_opened_are_waited_for(
    served: Callable[..., tuple[LiveAddress, PageState]],
) -> None:
    address, pages = served()
    get(address.url, Accept="text/html,*/*")
    pages.update(parts={"data": {}, "sections": {}}, ended=True)
    assert not all_taken(pages)
    with urllib.request.urlopen(f"{address.url}events?page=new", timeout=SECONDS) as stream:
        assert b"event: end" in stream.read()
    assert not all_taken(pages)
    get(f"{address.url}page.json?page=new")
    assert all_taken(pages, SECONDS)


def test_a_port_in_use_and_a_wrong_address_are_mistakes() -> None:
    address = LiveAddress()
    with pytest.raises(UnavailableError, match=rf"--port {address.port} on 127.0.0.1.*leave --port out"):
        LiveAddress(port=address.port)
    with pytest.raises(UnavailableError, match="no address of this machine"):
        LiveAddress(host="203.0.113.7")
    address.socket.close()
    assert is_loopback("::1")
    assert not is_loopback("example.org")


def test_a_run_is_shown_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LAST_CALL", 0.5)  # who watches here never takes the last state
    with live_page(tmp_path / "out", SPEC, "sim") as page:
        assert "first results come in a moment" in get(page.url)[1]
        page(report(0))
        page(report(10, (row(0), row(10, 0.25))))

        def so_far(count: int) -> Any:
            page(report(10))  # what came too soon after another goes along with the next
            parts = json.loads(get(f"{page.url}page.json")[1])["parts"]
            return parts if parts and len(parts["data"]["runs"]["multi_walk-2"][0]["time"]) == count else None

        parts = eventually(lambda: so_far(2))
        assert parts["data"]["finished"] is False
        assert parts["data"]["runs"]["multi_walk-2"][0]["train_loss"] == [0.5, 0.25]
        assert "It is still running." in parts["sections"]["lead"]
        assert "live-bar" in get(page.url)[1]
        with urllib.request.urlopen(f"{page.url}events", timeout=SECONDS) as watching:
            page(report(40, (row(10, 0.25), row(20, math.nan))))  # some told again, and one that went wrong
            assert eventually(lambda: so_far(3))
            assert b"progress" in watching.readline()
        url = page.url
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)


def test_a_report_costs_next_to_nothing_even_if_nobody_reads(tmp_path: Path) -> None:
    with live_page(tmp_path / "out", SPEC, "sim") as page:
        began, start = time.thread_time(), time.perf_counter()
        for number in range(2000):
            page(report(0, (row(number),)))
        assert (time.thread_time() - began) / 2000 < 0.001  # of the processor, which others may have meanwhile
        assert time.perf_counter() - start < SECONDS  # nor does it wait for anybody
        ours, theirs = socket.socketpair()
        page._pipe.close()
        page._pipe = ours  # and nobody reads from the other end
        ours.setblocking(False)
        for _ in range(50):
            page._next = 0.0
            page(report(0, tuple(row(k) for k in range(200))))
        assert len(page._waiting) > 0  # kept for later, not waited for
        theirs.close()


def command(*words: str, code: str = "from walktalk.cli import main; main()") -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def url_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    found = re.match(r"Live +(\S+)", process.stderr.readline())
    assert found
    return found[1]


LONG = ["--set", "repetitions=1", "--set", "stop.iterations=200000", "--workers", "1"]


def test_the_command_says_where_and_becomes_the_report(tmp_path: Path, browser: Any) -> None:
    out = tmp_path / "out"
    longer = ("--set", "stop.iterations=600", "--workers", "1")
    process = command("run", "smoke", *longer, "--out", str(out), "--live", code=UNDRAWN)
    page = browser.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url_of(process))
    page.wait_for_function("() => window.WalktalkLive && WalktalkLive.over")
    page.wait_for_selector("#replay:not([hidden]) .wr-stage")
    assert process.wait(timeout=SECONDS) == 0
    assert "this is the report now" in page.locator(".live-words").inner_text()
    assert page.locator("#results-table tbody tr").count() == 3
    assert page.evaluate("Walktalk.data.finished") is True
    assert (out / "report.html").is_file()
    assert complaints == []
    page.close()


def test_a_page_that_still_waits_for_first_results_becomes_the_report(studies: Studies, browser: Any) -> None:
    folder = studies("simulated")
    tab = browser.new_page()
    with live_page(folder, open_study(folder).spec, "sim") as page:
        tab.goto(page.url)
        assert "first results come in a moment" in tab.locator("main").inner_text()
        page.finish()
    tab.wait_for_function("() => window.WalktalkLive && WalktalkLive.over && window.Walktalk")
    assert "this is the report now" in tab.locator(".live-words").inner_text()
    assert tab.evaluate("Walktalk.data.finished") is True
    tab.close()


def test_ctrl_c_ends_the_page_too(tmp_path: Path) -> None:
    process = command("run", "smoke", *LONG, "--out", str(tmp_path / "out"), "--live")
    url = url_of(process)
    assert eventually(lambda: json.loads(get(f"{url}page.json")[1])["parts"], 60)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=SECONDS) == 130
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)


def test_a_killed_run_leaves_no_server_behind(tmp_path: Path) -> None:
    process = command("run", "smoke", *LONG, "--out", str(tmp_path / "out"), "--live")
    url = url_of(process)
    process.kill()
    process.wait(timeout=SECONDS)

    def gone() -> bool:
        try:
            get(url)
        except OSError:
            return True
        return False

    assert eventually(gone)


def test_options_without_live_are_a_mistake(tmp_path: Path) -> None:
    process = command("run", "smoke", "--port", "9000", "--out", str(tmp_path / "out"))
    assert process.wait(timeout=SECONDS) == 2
    assert process.stderr is not None
    assert "add --live" in process.stderr.read()


def answer(walks: list[int], iterations: int, aggregates: bool = False, done: bool = False) -> dict[str, Any]:
    return {
        "walks": walks,
        "iterations": iterations,
        "aggregates": aggregates,
        "term": 1,
        "loss": 1.0 / (1 + iterations),
        "bytes_sent": 100 * iterations,
        "alive": [0, 1],
        "done": done,
        "dropped": {},
    }


def a_cluster_of_four(folder: Path) -> ClusterPage:
    """Its page after three rounds of answers, in which a walk moves, and a node dies and comes back."""
    page = ClusterPage("four", folder, {"a": "north", "b": "north", "c": "", "d": "<d>"}, SPEC, "")
    page.add_answers({"a": answer([1], 4, True), "b": answer([], 2), "c": answer([2], 1), "d": answer([], 0)}, 0.0)
    page.add_answers({"a": answer([], 5, True), "b": answer([1], 2), "c": answer([2], 2), "d": None}, 2.0)
    page.add_answers({"a": answer([], 5), "b": answer([1], 3, True), "c": answer([2], 2), "d": answer([], 0)}, 4.0)
    return page


def test_a_cluster_is_seen_from_answer_to_answer(tmp_path: Path) -> None:
    page = a_cluster_of_four(tmp_path)
    seen = [(row["time"], row["node"], row["event"]) for row in page.observed.rows]
    assert (2.0, 0, "send") in seen
    assert (2.0, 1, "receive") in seen
    assert [event for event in seen if event[1] == 3] == [(2.0, 3, "kill"), (4.0, 3, "revive")]
    assert (4.0, 1, "elected") in seen
    parts = page.parts()
    assert parts is not None
    json.dumps(parts, allow_nan=False)
    counts = parts["data"]["replay"]["runs"][0]["counts"]
    assert sum(counts.values()) == len(page.observed.rows)
    assert parts["data"]["runs"]["multi_walk-2"][0]["iteration"] == [7, 9, 10]
    assert page.progress()["words"] == "4 of 4 nodes answer · 10 iterations · aggregator: b"
    assert "&lt;d&gt;" in parts["sections"]["participants"]
    assert "2 walks" in parts["sections"]["algorithms"]
    assert "network.nodes" in parts["sections"]["settings"]
    assert not page.done
    page.add_answers(dict.fromkeys("abcd", answer([], 9, done=True)), 6.0)
    assert page.done


def test_nodes_that_are_started_again_join_or_leave_undo_nothing_on_a_clusters_page(tmp_path: Path) -> None:
    """Iterations went back while a node was away, and one that joined was in no table: "5 of 4 nodes answer"."""
    page = ClusterPage("two", tmp_path, {"a": "", "b": ""}, SPEC, "")
    page.add_answers({"a": answer([1], 10, True), "b": answer([2], 6)}, 0.0)
    page.add_answers({"a": answer([1], 11, True), "b": None}, 2.0)  # is started again
    page.add_answers(
        {"a": answer([1], 12, True), "b": {**answer([], 6), "total_iterations": 25}, "c": answer([2], 1)}, 4.0
    )
    assert [row.iteration for row in page.history] == [16, 17, 25]
    bits = [row.bits for row in page.history]
    assert bits == sorted(bits)
    assert page.progress()["words"].startswith("3 of 3 nodes answer")
    full = "its folder is full"
    page.add_answers(
        {"a": {**answer([1], 13, True), "complaints": [full]}, "c": answer([2], 2)}, 6.0
    )  # b left for good
    assert page.progress()["words"].startswith("2 of 2 nodes answer")
    parts = page.parts()
    assert parts is not None
    assert "left for good" in parts["sections"]["participants"]
    assert f'<b>a</b><span class="words">{full}</span>' in parts["sections"]["participants"]


def test_a_node_that_answers_nonsense_stops_no_page(tmp_path: Path) -> None:
    page = ClusterPage("two", tmp_path, {"a": "", "b": ""}, SPEC, "")
    page.add_answers({"a": answer([1], 3), "b": answer([], 4)}, 0.0)
    page.add_answers({"a": {"complaints": ["its answer is refused"]}, "b": answer([], 5)}, 1.0)
    parts = page.parts()
    assert parts is not None
    assert "its answer is refused" in parts["sections"]["participants"]
    assert page.iterations == 8


def test_since_when_and_how_fast_is_told_from_one_answer_to_the_next(tmp_path: Path) -> None:
    page = ClusterPage("two", tmp_path, {"a": "north", "b": "south"}, SPEC, "")
    full = {
        "complaints": ["its trace cannot be written: 3 lines wait"],
        "neighbours": {"b": False},
        "metrics": {"auc": 0.8},
    }
    later = {"complaints": ["its trace cannot be written: 40 lines wait"], "neighbours": {"b": False}}
    ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=20, hours=1)
    page.add_answers({"a": answer([1], 0) | full, "b": answer([2], 0)}, 0.0)
    page.add_answers({"a": answer([1], 30) | later, "b": answer([], 10) | {"certificate_ends": ends.isoformat()}}, 60.0)
    page.add_answers({"a": answer([1], 50) | later, "b": None}, 120.0)
    (complaint,) = page.nodes.complaints
    assert (complaint.node, complaint.since) == ("a", 0.0)  # the same one, though it counts
    assert page.nodes.rate("a") == pytest.approx(20.0)
    assert page.nodes.rate("b") is None
    nodes = page.nodes.nodes_html(page.sites)
    assert "for over 2 min" in nodes  # a is in its state since before the page was opened
    assert "no answer" in nodes
    walks = page.nodes.walks_html()
    assert "at a" in walks
    assert "under way, last at b" in walks
    sites = page.nodes.sites_html(page.sites, page.last)
    assert "83 %" in sites  # 50 of 60 trainings
    assert "polyline" in sites
    assert drawn_state(page.network, page.answers) is None or page.parts() is not None
    alone = ClusterPage("two", tmp_path, {"a": "", "b": ""}, SPEC, "")
    alone.add_answers({"a": None, "b": None}, 0.0)  # nobody answers: that is what has to be seen first
    parts = alone.parts()
    assert parts is not None
    assert parts["sections"]["participants"].count("does not answer") == 2
    assert parts["sections"]["walks"] == ""


def test_connections_that_are_down_are_drawn_so(tmp_path: Path) -> None:
    network = {"places": [[0, 0]] * 4, "pairs": [[0, 1], [1, 2], [2, 3]], "names": list("abcd")}
    answers: dict[str, Any] = {
        "a": {"neighbours": {"b": True}},
        "b": {"neighbours": {"a": False, "c": True}, "complaints": ["none of its 1 neighbours is there"]},
        "c": None,
    }
    drawn = drawn_state(network, answers)
    assert drawn is not None
    assert drawn["states"] == ["", "bad", "away", "gone"]
    assert drawn["down"] == [0]


def test_the_network_is_drawn_as_it_is_now_by_names(tmp_path: Path) -> None:
    page = ClusterPage("four", tmp_path, dict.fromkeys("abcd", ""), SPEC, "")

    def say(**others: str) -> None:
        told = {name: {**answer([], 1), "neighbours": dict.fromkeys(known, True)} for name, known in others.items()}
        page.add_answers(told, float(len(page.history)))

    say(a="bd", b="ac", c="bd", d="ac")
    assert page.network is not None
    first = page.network
    assert first["names"] == ["a", "b", "c", "d"]
    say(a="bde", b="ac", c="bd", d="ac", e="a")  # one joins
    assert page.network["names"] == ["a", "b", "c", "d", "e"]
    assert [0, 4] in page.network["pairs"]
    assert len(page.network["places"]) == 5
    say(a="ce", c="a", b="c", e="a")  # one has left
    assert page.network["names"] == ["a", "b", "c", "d", "e"]
    assert page.network["degrees"] == [2, 1, 2, 0, 1]
    assert not any(3 in pair for pair in page.network["pairs"])
    assert [row["event"] for row in page.observed.rows if row["node"] == 3][-1] == "kill"
    assert page.parts() is not None


def test_a_cluster_in_a_browser(tmp_path: Path, browser: Any) -> None:
    page, complaints = a_cluster_of_four(tmp_path), []
    with served_cluster(page) as (url, take):
        tab = browser.new_page()
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto(url)
        state = {"a": answer([2], 7), "b": answer([1], 4, True), "c": answer([], 3), "d": answer([], 0)}
        take(state, 6.0)
        tab.wait_for_function("() => window.Walktalk && Walktalk.data.runs['multi_walk-2'][0].time.length === 4")
        tab.wait_for_selector("#replay:not([hidden]) .wr-stage")
        player = "document.getElementById('replay-mount').walktalkReplay"
        before = tab.evaluate(f"{player}.timeline.end")
        take({**state, "c": answer([], 9)}, 8.0)
        tab.wait_for_function(f"() => {player}.timeline.end > {before}")
        tab.wait_for_function(f"() => {player}.t === {player}.timeline.end")  # it goes on with what is new
        assert "4 of 4 nodes answer" in tab.locator(".live-words").inner_text()
        assert tab.locator("#participants tbody tr").count() == 4
        sections = tab.locator("main section:visible h2").all_inner_texts()
        assert sections[:5] == [  # an operator looks for the nodes first
            "Nodes",
            "The network as it is",
            "Walks",
            "Progress by site",
            "How training goes",
        ]
        heads = ["Node", "Site", "State", "Trains now", "A minute", "Iterations", "Loss", "Neighbours"]
        assert tab.locator("#participants thead th").all_text_contents()[:8] == heads
        assert "Events from answer to answer" in tab.locator("#replay").inner_text()
        assert not tab.locator("#target-panel, .target-line, .best").filter(visible=True).count()
        tab.close()
    assert complaints == []


def test_every_control_of_a_clusters_page(tmp_path: Path, browser: Any) -> None:
    """Sorting, who has to be looked at, holding still, and the theme: all outlast the next answers."""
    page, mistakes = a_cluster_of_four(tmp_path), []
    state: dict[str, Any] = {name: answer([], number) for name, number in zip("abcd", (7, 4, 9, 1), strict=True)}
    state["b"] |= {"complaints": ["its training has hung for 12 s"], "hangs": True, "disk": [2, 100]}
    with served_cluster(page) as (url, take):
        take(state, 6.0)
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.on("pageerror", lambda error: mistakes.append(str(error)))
        tab.goto(url)
        names = tab.locator('[data-name="nodes"] tbody tr:visible th')
        tab.get_by_role("button", name="Iterations").first.click()
        assert names.all_inner_texts() == ["d", "b", "a", "c"]

        def next_answers(seconds: float, iterations: int) -> None:
            take(state | {"d": answer([], iterations)}, seconds)

        next_answers(8.0, 8)
        tab.wait_for_function("() => document.querySelector('[data-name=nodes] tbody th').textContent === 'b'")
        assert names.all_inner_texts() == ["b", "a", "d", "c"]  # sorted as before, by what is known now
        tab.get_by_text("To look at").click()
        assert names.all_inner_texts() == ["b"]
        next_answers(10.0, 11)
        tab.wait_for_function(
            "() => document.querySelector('[data-name=nodes] tbody tr:last-child th').textContent === 'd'"
        )
        assert names.all_inner_texts() == ["b"]
        tab.get_by_role("button", name="Hold still").click()
        held = tab.locator("#participants").inner_text()
        next_answers(12.0, 12)
        tab.wait_for_function("() => document.querySelector('.live-words b').textContent.includes('32 iterations')")
        assert tab.locator("#participants").inner_text() == held
        tab.get_by_role("button", name="Hold still").click()
        tab.get_by_text("All nodes").click()
        tab.wait_for_function("() => document.querySelector('[data-name=nodes]').textContent.includes('12')")
        assert len(names.all_inner_texts()) == 4
        assert "its training has hung" in tab.locator(".attention").inner_text()
        assert tab.locator(".node.bad").count() == 1
        tab.locator("#theme").click()
        assert tab.locator("html").get_attribute("data-theme") == "dark"
        tab.set_viewport_size({"width": 390, "height": 800})
        assert tab.evaluate("() => document.documentElement.scrollWidth") <= 390
        assert tab.locator('[data-name="nodes"] thead').bounding_box()["x"] < 0  # a card a node, no table
        tab.close()
    assert mistakes == []


SLOW_FIRST_ANSWER = """
    window.answered = 0;
    let asked = 0;
    const usual = window.fetch;
    window.fetch = async (...of) => {
        const place = asked += 1, answer = await usual(...of);
        if (place === 1) await new Promise((done) => setTimeout(done, 1500)); // longer than the server waits for more
        setTimeout(() => { window.answered += 1; }, 100); // when the page has it
        return answer;
    };
"""


def test_an_answer_that_comes_late_does_not_put_back_an_older_state(tmp_path: Path, browser: Any) -> None:
    page, state = a_cluster_of_four(tmp_path), {name: answer([], 9) for name in "abcd"}
    with served_cluster(page) as (url, take):
        take(state, 6.0)
        tab = browser.new_page()
        tab.add_init_script(SLOW_FIRST_ANSWER)
        tab.goto(url)
        for round_ in range(1, 4):
            take(state, 6.0 + round_)
            tab.wait_for_function(f"() => document.querySelector('.live-words b') && window.answered >= {round_ - 2}")
        tab.wait_for_function("() => window.answered >= 2")
        last = len(page.history)
        tab.wait_for_function(f"() => Walktalk.data.runs['multi_walk-2'][0].time.length === {last}")
        tab.close()
