from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import walktalk as wt
from walktalk import graphs
from walktalk.core.errors import DataError, GraphError, StudyError
from walktalk.protocols import AsyncGossip
from walktalk.records import TRACE_COLUMNS, HistoryRow, frame
from walktalk.report import figures
from walktalk.report.figures.theory import looks
from walktalk.report.figures.timeline import bars_of, lanes_of


def history(labels: tuple[str, ...] = ("multi_walk-1", "async_gossip-pairwise"), accuracy: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for label in labels:
        speed = 20.0 if "gossip" in label else 1.0
        for repetition in range(3):
            for k in range(11):
                loss = 2.3 * math.exp(-k / 4) + rng.normal(0, 0.01)
                seen = 1 - loss / 2.5 if accuracy else math.nan
                rows.append(
                    HistoryRow(
                        label, repetition, 100 * k, 100 * k / speed + k * rng.random(), k * 10**9, loss, seen, 0.0
                    )
                )
    return frame(rows)


def trace(*events: dict[str, object]) -> pd.DataFrame:
    absent = {"slot": "", "detail": "", "bytes": 0, "lr": math.nan}
    return pd.DataFrame([{**dict.fromkeys(TRACE_COLUMNS, -1), **absent, **event} for event in events])


FIGURE_1 = trace(  # the first events of the paper's Figure 1
    {"time": 0.0, "event": "train", "node": 0, "slot": "walk/1", "walk": 1, "number": 0},
    {"time": 0.0, "event": "train", "node": 2, "slot": "walk/2", "walk": 2, "number": 1},
    {"time": 3.0, "event": "trained", "node": 2, "slot": "walk/2", "walk": 2, "number": 1, "iteration": 1},
    {"time": 3.0, "event": "send", "node": 2, "peer": 1, "slot": "walk/2", "walk": 2, "number": 0},
    {"time": 4.0, "event": "trained", "node": 0, "slot": "walk/1", "walk": 1, "number": 0, "iteration": 2},
    {"time": 4.0, "event": "send", "node": 0, "peer": 1, "slot": "walk/1", "walk": 1, "number": 1},
    {"time": 5.0, "event": "receive", "node": 1, "peer": 2, "slot": "walk/2", "walk": 2, "number": 0},
    {"time": 5.0, "event": "train", "node": 1, "slot": "walk/2", "walk": 2, "number": 2},
    {"time": 6.0, "event": "trained", "node": 1, "slot": "walk/2", "walk": 2, "number": 2, "iteration": 3},
    {"time": 6.5, "event": "receive", "node": 1, "peer": 0, "slot": "walk/1", "walk": 1, "number": 1},
    {"time": 6.5, "event": "elected", "node": 1},
)


def all_figures() -> dict[str, Figure]:
    counts = np.random.default_rng(0).integers(0, 40, (20, 10))
    return {
        **{f"curves-{x}": figures.curves(history(), x) for x in figures.AXES},
        "network": figures.network(graphs.erdos_renyi(12, p=0.4, seed=1)),
        "sites": figures.network(graphs.us_five_sites(), aggregator=None),
        "partition": figures.partition(counts, title="α = 1"),
        "timeline": figures.timeline(FIGURE_1),
    }


def test_equal_figures_are_equal_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        for name, figure in all_figures().items():
            figures.save(figure, tmp_path / folder / name)
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert len(names) == 14
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]  # type: ignore[attr-defined]


def test_curves_have_units_and_the_paper_s_names() -> None:
    shown = texts(figures.curves(history(), "bits"))
    names = {"Transmitted data (GB)", "Training loss", "Test accuracy (%)", "One walk", "Gossip in pairs"}
    assert names <= set(shown)
    assert any("mean\u00a0±\u00a0σ over 3 repetitions" in text for text in shown)
    assert "Wall-clock time (s)" in texts(figures.curves(history(), "time"))
    assert "Virtual time (s)" in texts(figures.curves(history(), "time", time="Virtual time"))


def test_a_task_without_accuracy_has_one_panel() -> None:
    assert len(figures.curves(history(accuracy=False)).axes) == 1


def test_the_time_axis_is_logarithmic_when_one_curve_dwarfs_another() -> None:
    assert figures.curves(history(), "time").axes[0].get_xscale() == "log"
    assert figures.curves(history(), "iteration").axes[0].get_xscale() == "linear"


def test_an_unfinished_history_is_said_to_be_empty() -> None:
    with pytest.raises(StudyError, match="nothing to draw"):
        figures.curves(frame([]))


def test_an_algorithm_has_one_colour_everywhere_and_no_two_share_one() -> None:
    usual = ["multi_walk-1", "multi_walk-2", "multi_walk-4", "multi_walk-15", "async_gossip-pairwise", "sync_gossip"]
    everything = figures.colours([*usual, "mine", "yours", "multi_walk-7", "async_gossip-matrix", "centralized"])
    assert len(set(everything.values())) == len(everything)
    assert figures.colours(usual[:1])["multi_walk-1"] == everything["multi_walk-1"]
    assert figures.colours(["mine"])["mine"] == figures.colours(["mine", "multi_walk-1"])["mine"]


@pytest.mark.parametrize(
    ("label", "title"),
    [
        ("multi_walk-4", "4 walks"),
        ("multi_walk-4-at3", "multi_walk-4-at3"),  # nothing but the label is there, and it is not taken apart
        ("async_gossip-pairwise", "Gossip in pairs"),
        ("async_gossip-matrix", "Gossip with everybody"),
        ("sync_gossip", "Gossip in rounds"),
        ("my own", "my own"),
    ],
)
def test_the_usual_labels_are_known_and_others_are_titles_themselves(label: str, title: str) -> None:
    assert figures.title_of(label) == title


@pytest.mark.parametrize(
    ("axis", "value", "words"),
    [
        ("iteration", 3000, "3,000"),
        ("time", 0.25, "250 ms"),
        ("time", 36.25, "36.2 s"),
        ("time", 3000, "3,000 s"),
        ("time", 90_000, "1,500 min"),
        ("bits", 8e9 * 50, "50 GB"),
        ("bits", 8e6 * 4.125, "4.12 MB"),
        ("bits", 0, "0 B"),
    ],
)
def test_values_have_units(axis: str, value: float, words: str) -> None:
    assert figures.with_unit(axis, value) == words


def test_a_time_line_has_a_bar_for_every_computation_and_transfer() -> None:
    bars = bars_of(FIGURE_1, 10.0)
    assert [(b.node, b.start, b.end, b.owner) for b in bars if b.computing] == [
        (0, 0, 4, 1),
        (2, 0, 3, 2),
        (1, 5, 6, 2),
    ]
    assert [(b.node, b.start, b.end, b.peer) for b in bars if not b.computing] == [(2, 3, 5, 1), (0, 4, 6.5, 1)]
    assert lanes_of(bars) == [(0, 2), (1, 2), (1, 2), (1, 2), (0, 2)]


def test_bars_of_gossip_never_overlap_in_a_lane() -> None:
    rng = np.random.default_rng(1)
    events: list[dict[str, object]] = []
    for number, start in enumerate(rng.uniform(0, 10, 60)):
        first, last = ("train", "trained") if number % 2 else ("send", "receive")
        common = {"node": int(number % 3), "slot": "model", "number": number, "peer": 0}
        events += [
            {**common, "event": first, "time": start},
            {**common, "event": last, "time": start + rng.uniform(0.1, 2)},
        ]
    bars = bars_of(trace(*events), 20.0)
    placed = [(bar, lane) for bar, (lane, _) in zip(bars, lanes_of(bars), strict=True)]
    assert len(placed) == 60
    assert len({lane for _, lane in placed}) < 20  # and lanes are used again
    for a, lane_a in placed:
        for b, lane_b in placed:
            if a is not b and (a.node, lane_a) == (b.node, lane_b):
                assert a.end <= b.start or b.end <= a.start


def test_nodes_that_train_beside_a_travelling_model_have_a_time_line() -> None:
    """DIGEST: trainings are the nodes' own, and what is sent is a walk."""
    timing = wt.NetworkTiming(compute=1.0, latency=0.5)
    run = wt.train("digits", "digest", wt.graphs.cycle(4), timing=timing, stop=40, device="cpu", progress=False)
    assert {bar.owner > 0 for bar in bars_of(run.trace, 20.0)} == {True, False}
    figure = figures.timeline(run.trace, end=20.0)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Computation", "Communication"]


@pytest.mark.parametrize("name", ["token_saga", "gradient_tracking"])
def test_gradients_are_in_a_time_line_as_trainings_are(name: str) -> None:
    run = wt.train("digits", name, wt.graphs.cycle(4), stop=20, device="cpu", progress=False)
    computed = [bar for bar in bars_of(run.trace, 1e9) if bar.computing]
    assert len(computed) >= 20
    assert figures.timeline(run.trace).axes


def test_a_trace_without_training_has_no_time_line() -> None:
    with pytest.raises(StudyError, match="no training"):
        figures.timeline(FIGURE_1.head(0))


def test_every_family_can_be_drawn() -> None:
    for graph in (
        graphs.cycle(1),
        graphs.cycle(2),
        graphs.cycle(9),
        graphs.torus(3, 4),
        graphs.complete(5),
        graphs.star(70),
    ):
        assert figures.network(graph).axes


GRAPHS = {
    "random": graphs.erdos_renyi(20, p=0.3, seed=1),
    "sites": graphs.us_five_sites(),
    "path": graphs.path(12),
    "torus": graphs.torus(4, 5),
    "barbell": graphs.barbell(16),
    "regular": graphs.random_regular(30, degree=4, seed=2),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_no_edge_runs_through_a_node_that_is_not_its_end(name: str) -> None:
    graph = GRAPHS[name]
    places = figures.positions(graph)
    width = float(np.ptp(places, axis=0).max())
    for a, b in graph.edge_list():
        along = places[b] - places[a]
        for node in set(range(graph.nodes)) - {a, b}:
            share = np.clip((places[node] - places[a]) @ along / (along @ along), 0, 1)
            distance = np.linalg.norm(places[node] - places[a] - share * along)
            assert distance >= 0.0299 * width, (node, a, b)  # a node's radius is 0.023


def test_nodes_of_a_site_stay_together() -> None:
    graph = graphs.us_five_sites()
    places, sites = figures.positions(graph), graph.sites
    assert sites is not None
    for site in range(len(sites.names)):
        assert np.ptp(places[sites.site_of == site], axis=0).max() < 0.7


def test_a_run_s_history_and_task_are_drawn_as_they_are() -> None:
    task = wt.tasks.digits(nodes=4, alpha=1.0, seed=0)
    run = wt.train(task, wt.MultiWalk(walks=2), wt.graphs.cycle(4), stop=wt.Stop(iterations=20), device="cpu")
    alone = figures.curves(run.history)
    assert not alone.legends  # nobody gave it a name
    assert "One repetition." in texts(alone)
    both = figures.curves({"mine": run.history, "theirs": run.history}, "bits")
    assert {"mine", "theirs"} <= set(texts(both))
    shown = texts(figures.partition(task))
    assert {str(digit) for digit in range(10)} <= set(shown)
    assert figures.timeline(run.trace).axes


def test_a_time_line_says_what_it_leaves_out() -> None:
    note = next(text for text in texts(figures.timeline(FIGURE_1, end=4.5, names=list("abcd"))) if "shown" in text)
    assert " ".join(note.split()) == (
        "Of 6.5 s, the first 4.5 s are shown. 1 of 4 nodes are left out: nothing is trained or sent there meanwhile."
    )
    assert not any("left out" in text for text in texts(figures.timeline(FIGURE_1, end=10.0)))


def test_a_graph_too_large_to_see_is_refused() -> None:
    with pytest.raises(GraphError, match="at most"):
        figures.network(graphs.cycle(5000))


def test_a_partition_needs_samples() -> None:
    with pytest.raises(DataError):
        figures.partition(np.zeros((3, 0)))


def test_an_algorithm_has_its_colour_in_theory_s_figures_too() -> None:
    look = looks(["MW R=4, cycle", "gossip, cycle", "MW R=4, complete", "gossip (matrix)"], AsyncGossip())
    usual = figures.colours(["multi_walk-4", "async_gossip-pairwise", "async_gossip-matrix"])
    assert look["MW R=4, cycle"].colour == look["MW R=4, complete"].colour == usual["multi_walk-4"]
    assert look["gossip, cycle"].colour == usual["async_gossip-pairwise"]
    assert look["gossip (matrix)"].colour == usual["async_gossip-matrix"]
    assert look["MW R=4, cycle"].mark == look["gossip, cycle"].mark != look["MW R=4, complete"].mark
    assert look["MW R=4, cycle"].line == "-" != look["gossip, cycle"].line == look["gossip (matrix)"].line
    walks = looks(["Multi-Walk, R=1", "Multi-Walk, R=8", "MW, cycle"], AsyncGossip("matrix"))
    assert len({look.colour for look in walks.values()}) == 3  # a line along which R changes is not R = 1's


def test_a_study_that_diverged_is_drawn_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    broken = history()
    broken.loc[broken["iteration"] > 0, ["train_loss", "test_accuracy"]] = math.nan
    figures.curves(broken, "time")
    assert not list(recwarn)
