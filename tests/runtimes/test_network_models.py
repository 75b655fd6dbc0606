"""Networks closer to the world, against closed forms: rates up and down, jitter, slow starts, who is there when."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed
from walktalk.protocols import AsyncGossip, MultiWalk
from walktalk.protocols.effects import HEADER_BYTES, Arrival, Effect, Message, Send, Train
from walktalk.protocols.events import Event, Started
from walktalk.protocols.machine import Context, Machine, NetworkView, Protocol
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import NetworkTiming, RunSetup, Simulation, absences
from walktalk.studies import build_foundation, make_spec, prepare
from walktalk.studies.planning import build_timing

LONG = 1e6  # seconds of a training: nothing else happens


class Letters(Protocol):
    """Who is named in `letters` sends one model to whom, at once; nobody does anything else."""

    def __init__(self, *letters: tuple[int, int]) -> None:
        self.letters = letters

    @property
    def messages(self) -> dict[str, Arrival]:
        return {"letter": Arrival("letter/{sender}")}

    def machine(self, network_view: NetworkView) -> Machine:
        return Writer([there for here, there in self.letters if here == network_view.node])


class Writer(Machine):
    def __init__(self, to: list[int]) -> None:
        self.to = to

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if not isinstance(event, Started):
            return []
        return [*(Send(there, Message("letter"), "initial") for there in self.to), Train("initial")]


def arrivals(
    timing: NetworkTiming, bits: float, *letters: tuple[int, int], seed: int = 0
) -> dict[tuple[int, int], float]:
    """When each letter is there."""
    setup = RunSetup(
        Letters(*letters),
        graphs.complete(4),
        Seed(seed),
        Stop(time=LONG / 2),
        timing,
        model_bytes=round(bits / 8) - HEADER_BYTES,
    )
    trace = Simulation(setup).advance().trace
    return {(row.peer, row.node): row.time for row in trace if row.event == "receive"}


def network(**more: object) -> NetworkTiming:
    return NetworkTiming(**{"compute": LONG, "latency": 0.25, "bandwidth": 1e4, **more})  # type: ignore[arg-type]


def test_the_slowest_of_link_upload_and_download_sets_the_pace():
    """Bits over the least rate on the way, and the latency."""
    rates = network(up=(1e3, 1e9, 1e9, 1e9), down=(1e9, 1e9, 500.0, 1e9))
    for letter, rate in (((0, 1), 1e3), ((1, 3), 1e4), ((1, 2), 500.0), ((0, 2), 500.0)):
        assert arrivals(rates, 8000, letter)[letter] == pytest.approx(8000 / rate + 0.25)


def test_letters_share_what_their_sender_can_send_and_their_receiver_can_take():
    sending = arrivals(network(up=1e3), 8000, (0, 1), (0, 2))
    taking = arrivals(network(down=1e3), 8000, (0, 2), (1, 2))
    for times in (sending, taking):
        assert list(times.values()) == pytest.approx([2 * 8000 / 1e3 + 0.25] * 2)
    across = arrivals(network(up=1e3, down=1e9), 8000, (0, 2), (1, 2))  # the receiver has room for both
    assert list(across.values()) == pytest.approx([8000 / 1e3 + 0.25] * 2)


def test_one_rate_for_up_and_down_is_node_bandwidth():
    letters = [(0, 1), (0, 2), (3, 1)]
    assert arrivals(network(up=700.0, down=700.0), 8000, *letters) == arrivals(
        network(node_bandwidth=700.0), 8000, *letters
    )


def test_jitter_is_seeded_and_has_the_mean_that_it_says():
    letter = (0, 1)
    plain = arrivals(network(), 8000, letter)[letter]
    late = np.array([arrivals(network(jitter=0.5), 8000, letter, seed=seed)[letter] - plain for seed in range(200)])
    assert arrivals(network(jitter=0.5), 8000, letter, seed=3)[letter] == plain + late[3]
    assert (late > 0).all()
    assert abs(late.mean() - 0.5) < 4 * 0.5 / math.sqrt(len(late))  # exponential: its deviation is its mean


def slow_start_time(bits: float, window: float, trip: float, rate: float) -> float:
    """Rounds of window, 2 window, 4 window … bits a round trip while that is less than the rate; then at the rate."""
    time = 0.0
    while window / trip < rate and bits > window:
        time, bits, window = time + trip, bits - window, 2 * window
    return time + bits / min(rate, window / trip)


@settings(max_examples=60, deadline=None)
@given(st.integers(1000, 10**7).map(lambda n: 8.0 * n), st.floats(200, 1e5), st.floats(0.001, 1.0), st.floats(1e3, 1e9))
def test_a_transfer_alone_takes_what_slow_start_takes(bits, window, latency, rate):
    timing = network(latency=latency, bandwidth=rate, slow_start=window)
    expected = slow_start_time(bits, 8 * window, 2 * latency, rate)
    assert arrivals(timing, bits, (0, 1))[0, 1] == pytest.approx(expected + latency, rel=1e-6)


def test_slow_starts_leave_room_to_others_until_they_want_it():
    """Two from one node with an upload of a window a round trip each: they are never held back by each other."""
    window, latency = 1000.0, 0.5
    timing = network(latency=latency, bandwidth=1e9, up=2 * 8 * window, slow_start=window)
    bits = 8 * window  # one window: one round trip
    assert list(arrivals(timing, bits, (0, 1), (0, 2)).values()) == pytest.approx([1.0 + latency] * 2)
    wide = network(
        latency=latency, bandwidth=1e9, up=2 * 8 * window
    )  # without, they share the upload, which is the same
    assert list(arrivals(wide, bits, (0, 1), (0, 2)).values()) == pytest.approx([1.0 + latency] * 2)


def test_what_is_not_possible_says_so():
    with pytest.raises(SpecError, match=r"timing\.up: 2 rates for 4 nodes"):
        arrivals(network(up=(1.0, 2.0)), 8000, (0, 1))
    for keys, words in (
        ({"model": "network", "up": [1.0, -2.0]}, r"timing\.up: .* is not possible"),
        ({"model": "network", "jitter": -1.0}, r"timing\.jitter"),
        ({"model": "network", "slow_start": 0.0}, r"timing\.slow_start"),
        ({"model": "poisson", "jitter": 1.0}, "jitter: 1.0 has no meaning for timing model poisson"),
    ):
        with pytest.raises(SpecError, match=words):
            make_spec({"timing": keys})


def test_keys_of_a_specification_lead_here():
    keys = {"model": "network", "up": [1e6] * 20, "down": 5e6, "jitter": 0.02, "slow_start": 14600.0}
    timing = build_timing(make_spec({"timing": keys}))
    assert timing == NetworkTiming(up=(1e6,) * 20, down=5e6, jitter=0.02, slow_start=14600.0)


# -- who is there when ------------------------------------------------------------------------------------------------


def written(folder, text: str) -> str:
    file = folder / "who.csv"
    file.write_text(text)
    return str(file)


def test_absences_are_what_presence_leaves_out(tmp_path):
    file = written(tmp_path, "node,from,to\n1,10,20\n1,15,30\n1,50,\n3,,40\n0,0,60\n0,60,70\n")
    found = [(fault.node, fault.at, fault.seconds) for fault in absences(file, 5)]
    assert found == [(1, 0.0, 10.0), (1, 30.0, 20.0), (3, 40.0, None), (0, 70.0, None)]
    assert [fault.node for fault in absences(written(tmp_path, "node, from, to\nb, 5, 6\n"), 3, "abc")] == [1, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node,start,end\n1,2,3\n", "needs a first line with node,from,to"),
        ("node,from,to\n7,2,3\n", "line 2 of who.csv: there is no node '7'; allowed: 0 to 2"),
        ("node,from,to\n1,3,2\n", "line 2 of who.csv is from 3 to 2"),
        ("node,from,to\n1,soon,2\n", "'soon' is not a number of seconds"),
        ("node,from,to\n0,0,10\n1,0,10\n2,20,\n", "nobody is there from 10 to 20 s"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path, text, words):
    with pytest.raises(SpecError, match=words):
        absences(written(tmp_path, text), 3)


def test_that_nobody_is_there_is_told_before_data_is_read(tmp_path):
    """Where the file has numbers or the graph's own names; names that come with the data are known with it."""
    content = {"network": {"topology": "cycle", "nodes": 3}, "algorithms": [{"name": "async_gossip"}]}
    lines = "node,from,to\n{},0,10\n{},0,10\n{},20,\n"
    spec = make_spec({**content, "availability": written(tmp_path, lines.format(0, 1, 2))})
    with pytest.raises(SpecError, match=r"availability: by who\.csv nobody is there from 10 to 20 s"):
        build_foundation(spec)
    build_foundation(make_spec({**content, "availability": written(tmp_path, lines.format("lyon", "nice", "paris"))}))


@pytest.mark.parametrize("name", ["multi_walk", "async_gossip", "sync_gossip"])
def test_nobody_trains_while_it_is_away(tmp_path, name):
    file = written(tmp_path, "node,from,to\n2,0,20\n2,60,\n4,30,50\n")
    content = {
        "network": {"topology": "complete", "nodes": 6},
        "algorithms": [{"name": name}],
        "stop": {"time": 100.0},
        "availability": file,
    }
    (run,) = prepare(make_spec(content), "cpu").runs
    trained: dict[int, list[float]] = {}
    for row in Simulation(run.setup).advance().trace:
        if row.event == "trained":
            trained.setdefault(row.node, []).append(row.time)
    assert all(time <= 20 or time >= 60 for time in trained[2])
    assert all(30 <= time <= 50 for time in trained[4])
    assert any(time > 60 for time in trained[2])  # it is back
    assert max(trained[0]) > 80


def test_only_what_survives_failures_can_do_with_it(tmp_path):
    file = written(tmp_path, "node,from,to\n2,0,20\n")
    with pytest.raises(SpecError, match="availability: choco_sgd knows no failures"):
        make_spec(
            {
                "availability": file,
                "algorithms": [{"name": "choco_sgd"}],
                "optimizer": {"momentum": 0.0, "nesterov": False},
            }
        )
    with pytest.raises(SpecError, match=r"availability: '.*gone.csv' cannot be read"):
        make_spec({"availability": str(tmp_path / "gone.csv")})


@pytest.mark.parametrize("protocol", [MultiWalk(2), AsyncGossip()], ids=lambda p: p.label)
def test_where_nothing_of_it_is_asked_for_nothing_changes(protocol):
    """The new settings at their neutral values are the old run, line by line."""
    runs = []
    for timing in (
        NetworkTiming(latency=0.1, bandwidth=1e3, node_bandwidth=2e3),
        NetworkTiming(latency=0.1, bandwidth=1e3, up=2e3, down=2e3, slow_start=1e12),
    ):
        setup = RunSetup(protocol, graphs.cycle(6), Seed(4), Stop(iterations=60), timing, model_bytes=400)
        runs.append(Simulation(setup).advance().trace)
    assert [row[1:] for row in runs[0]] == [row[1:] for row in runs[1]]
    assert [row.time for row in runs[0]] == pytest.approx([row.time for row in runs[1]])
