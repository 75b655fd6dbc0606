"""What an authenticated neighbour may say: nothing of it ends, mutes or misleads a node for good."""

from __future__ import annotations

import json
import math
import random
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from walktalk import graphs
from walktalk.core.errors import StudyError
from walktalk.core.seeds import Seed
from walktalk.protocols import (
    PROTOCOLS,
    AsyncGossip,
    Context,
    Message,
    MultiWalk,
    PeerLost,
    Protocol,
    Received,
    Send,
    Started,
    TimerFired,
)
from walktalk.protocols.mechanisms.tokens.heartbeats import Claim, Score, View, decode, encode
from walktalk.protocols.mechanisms.tokens.hops import Token
from walktalk.runtimes.peers import Delivery, Node, NodeSetup, Parcel
from walktalk.runtimes.peers.identity.handshake import (
    HELLO_KIND,
    Hello,
    decode_hello,
    differences,
    encode_hello,
    facts_of,
)
from walktalk.runtimes.peers.node.checkpoints import Checkpoints, Kept, Memory
from walktalk.runtimes.peers.node.health import WORKING
from walktalk.runtimes.peers.node.progress import TOLD_AT_LAST, TOLD_EVERY, End
from walktalk.runtimes.peers.node.shutdown import Shutdown
from walktalk.runtimes.peers.node.tally import FASTEST, TALLY_KIND, Count, Tally
from walktalk.runtimes.peers.node.training import Outcome
from walktalk.runtimes.peers.wire.connections import Connections
from walktalk.runtimes.peers.wire.messages import Stamp, WireError, decode_header, encode_header
from walktalk.runtimes.peers.wire.session import RECORDS, STATUS
from walktalk.runtimes.peers.wire.versions import MESSAGES
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import all_network_views
from walktalk.testing.cluster import SlowTrainer, endpoints

ENTRY = struct.Struct("<IQQBQffI")
DICE = random.Random(0)


def tally_note(*entries: tuple[int, int, int, int, int, float, int], clock: float = 5.0) -> bytes:
    """A tally as a neighbour would write it: node, iterations, bytes, flags, moment, loss, samples; no score."""
    return struct.pack("<d", clock) + b"".join(ENTRY.pack(*entry[:6], math.nan, entry[6]) for entry in entries)


@contextmanager
def lonely_node(folder: Path, protocol: Protocol | None = None, nodes: int = 3, **changes: Any) -> Iterator[Node]:
    """Node 0 of a complete graph, whose neighbours are nowhere."""
    graph, trainer = graphs.complete(nodes), SlowTrainer(nodes)
    around = all_network_views(graph)[0]
    settings = {"stop": Stop(iterations=10_000), **changes}
    stop, place = settings.pop("stop"), endpoints(graph)[0]
    setup = NodeSetup(protocol or MultiWalk(walks=2), around, Seed(0), stop, trainer.initial(), place, folder)
    node = Node(NodeSetup(**{**setup.__dict__, **settings}), trainer)
    with node.link:
        for peer in range(1, nodes):
            introduce(node, peer)
        yield node


def introduce(node: Node, peer: int, life: int = 1, knows: bool = False, **other: Any) -> None:
    """Let a neighbour say hello, as if its study were the same but for some facts."""
    hello = encode_hello(Hello({**node.neighbours.facts, **other}, met=True, knows=knows))
    message = Message(HELLO_KIND, note=hello)
    node.inbox.arrived(Delivery(Parcel(peer, 0, message), None, Stamp(life, 1)))


def say(node: Node, message: Message, sender: int = 1) -> None:
    """Let a neighbour say something small."""
    node.inbox.arrived(Delivery(Parcel(sender, 0, message), None, Stamp(1, 1)))


# -- counts --------------------------------------------------------------------------------------------------------


def test_what_a_node_remembers_of_itself_and_what_others_do_is_not_added_up(tmp_path: Path) -> None:
    """Before, every restart doubled it: 464, 1,099, 2,397, 4,961."""
    Checkpoints(tmp_path).save(Kept({}, {}, 464, 1000, 1))
    with lonely_node(tmp_path, rejoin=True, stop=Stop(iterations=1000)) as node:
        say(
            node,
            Message(TALLY_KIND, note=tally_note((0, 464, 1000, 0, 1, 0.5, 1), (1, 36, 0, 0, 1, 0.5, 1), clock=60.0)),
        )
        node._begin()
        assert node.progress.tally.own.iterations == 464
        assert node.progress.tally.own.sent >= 1000
        assert node.progress.end.progress(0.0) == 0.5  # and so the learning rate's schedule goes on where it was


def test_what_a_node_knew_of_others_counts_after_a_stop_of_all(tmp_path: Path) -> None:
    """One has left for good and says nothing any more: what it had done was gone when all were started again."""
    with lonely_node(tmp_path) as node:
        node.state.begun = True
        say(
            node, Message(TALLY_KIND, note=tally_note((1, 10, 500, 0, 1, 0.5, 1), (2, 6, 50, 0, 1, 0.5, 1), clock=60.0))
        )
        node.progress.tally.add(iterations=4)
        assert node.memory.checkpoints.save(node.memory.snapshot())
    with lonely_node(tmp_path, rejoin=True) as again:
        again._begin()
        assert again.progress.tally.iterations == 20
        assert again.progress.tally.sent >= 550
        assert again.progress.tally.there() == set()  # it is not waited for
        say(again, Message(TALLY_KIND, note=tally_note((2, 7, 60, 0, 1, 0.5, 1), clock=61.0)))
        assert again.progress.tally.iterations == 21


def test_a_node_stands_aside_where_most_neighbours_listen_to_another_of_its_name(tmp_path: Path) -> None:
    """The rest of them reach it alone, and sent it walk after walk; none went on. One who lies is not enough."""
    with lonely_node(tmp_path, nodes=4) as node:
        node._begin()
        node.state.alive |= {1, 2, 3}
        later = node.link.incarnation + 1
        node.link.duplicate_names.told(later, 1)
        node._turn()
        assert not node.state.aside
        node.link.duplicate_names.told(later, 3)
        node.events.put(lambda: pytest.fail("a neighbour is heard"))
        node.leave()  # which it would not hear of before somebody asks it to
        node._turn()
        assert node.state.aside
        assert node.state.leaving
        assert node.link.waiting() == 0
        assert len(node.training.queue) == 0
        node.state.leaving = False
        assert node.status()["state"] == "aside"
        assert [line for line in node.status()["complaints"] if "it stands aside" in line]
        assert not node.health.is_stuck  # else it would be started again, and the other one would not be heard


@pytest.mark.parametrize("from_the_start", [False, True])
def test_silence_earns_nobody_a_count(from_the_start: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member was silent for 50 s and said one number: a run of 40,000 iterations ended after 857."""
    now = [1000.0]
    monkeypatch.setattr("walktalk.runtimes.peers.node.tally.time.monotonic", lambda: now[0])
    tally, done, lasted = Tally(0, 3), 0, 0.0
    for _ in range(80):  # 20 s in which everybody does five in a second
        now[0], lasted, done = now[0] + 0.25, lasted + 0.25, int(5 * (lasted + 0.25))
        tally.remember(done, 0)
        tally.hear(1, tally_note((1, done, 0, 0, int(4 * lasted) + 1, 0.5, 1), clock=lasted))
        if not from_the_start:
            tally.hear(2, tally_note((2, done, 0, 0, int(4 * lasted) + 1, 0.5, 1), clock=lasted))
    assert tally.iterations == (2 if from_the_start else 3) * done
    now[0], lasted = now[0] + 50.0, lasted + 50.0
    for moment in range(1000, 1400):  # however often it says so
        tally.hear(2, tally_note((2, 40_000, 0, 0, moment, 0.5, 1), clock=lasted))
    assert tally.counts[2].iterations <= done + 4 * 5 * (70 if from_the_start else 50) + 20
    extra = 5 * 50
    for _ in range(400):  # the other one has truly become three times as fast, and is believed
        now[0], lasted = now[0] + 0.25, lasted + 0.25
        extra += 4
        tally.hear(1, tally_note((1, done + extra, 0, 0, int(4 * lasted) + 1, 0.5, 1), clock=lasted))
    assert tally.counts[1].iterations == done + extra


@pytest.mark.parametrize("which", ["iterations", "bytes"])
def test_a_member_that_lies_from_the_start_ends_no_run(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first five seconds it was believed a thousand trainings a second, and ten gigabytes; then ever more."""
    now, size = [1000.0], 1000
    monkeypatch.setattr("walktalk.runtimes.peers.node.tally.time.monotonic", lambda: now[0])
    tally = Tally(0, 6, message=size)
    for step in range(1, 800):  # 200 s in which everybody does one in a second
        now[0], lasted = now[0] + 0.25, 0.25 * step
        tally.remember(int(lasted), size * int(lasted))
        for node in range(1, 5):
            tally.hear(node, tally_note((node, int(lasted), size * int(lasted), 0, step, 0.5, 1), clock=lasted))
        lie = (10**9, 0) if which == "iterations" else (0, 10**12)
        tally.hear(5, tally_note((5, *lie, 0, step, 0.5, 1), clock=lasted))
        honest = max(5 * int(lasted), 5)
        total = tally.iterations if which == "iterations" else tally.sent / size
        assert total <= honest + 16 * max(int(lasted), 1) + 80
    assert tally.impossible == ({5: 10**9} if which == "iterations" else {})  # and `status` names it


def test_one_that_is_ten_times_as_fast_as_the_others_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("walktalk.runtimes.peers.node.tally.time.monotonic", lambda: now[0])
    tally = Tally(0, 6, message=1000)
    for step in range(1, 400):
        now[0], lasted = now[0] + 0.25, 0.25 * step
        tally.remember(int(lasted), 1000 * int(lasted))
        for node in range(1, 6):
            done = int(lasted * (10 if node == 5 else 1))
            tally.hear(node, tally_note((node, done, 1000 * done, 0, step, 0.5, 1), clock=lasted))
    assert (tally.counts[5].iterations, tally.counts[5].sent) == (done, 1000 * done)


def test_who_comes_back_hears_how_far_others_are_and_believes_no_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knew nothing of rates for five seconds, and a thousand a second were possible since the run's begin."""
    now = [1000.0]
    monkeypatch.setattr("walktalk.runtimes.peers.node.tally.time.monotonic", lambda: now[0])
    for kept in (True, False):
        tally, passed = Tally(0, 5), 0.0
        if kept:
            tally.remember_others(dict.fromkeys(range(1, 5), (1800, 0)), 3600.0)
        for step in range(1, 41):  # ten seconds; the run has lasted for two hours
            now[0], passed = now[0] + 0.25, passed + 0.25
            for node in (4, 1, 2, 3):  # the liar first
                done = 10**6 if node == 4 else 3600 + int(0.5 * passed)
                tally.hear(node, tally_note((node, done, 0, 0, 100 * step, 0.5, 1), clock=7200.0 + passed))
        assert [tally.counts[node].iterations for node in (1, 2, 3)] == [3605] * 3
        assert tally.counts[4].iterations <= 16 * 3605


def test_a_count_grows_as_fast_as_a_node_can_train_whoever_says_what() -> None:
    tally, before = Tally(0, 4), time.monotonic()
    tally.hear(1, tally_note((1, 10, 0, 0, 1, 0.5, 1), (2, 10, 0, 0, 1, 0.5, 1), clock=1.0))
    for sender in (1, 3):
        tally.hear(sender, tally_note((2, 10**11, 10**15, 0, 2, 0.5, 1), (0, 10**11, 0, 0, 2, 0.5, 1)))
    most = FASTEST * (5.0 + time.monotonic() - before) + 10
    assert tally.iterations <= 3 * most
    assert tally.counts[1].iterations == 10


@pytest.mark.parametrize(
    "note",
    [
        tally_note((1, 2**64 - 1, 0, 0, 0, 0.5, 1)),
        tally_note((1, 0, 2**64 - 1, 0, 0, 0.5, 1)),
        tally_note((9, 0, 0, 0, 0, 0.5, 1)),
        tally_note((1, 0, 0, 255, 0, 0.5, 1)),
        tally_note((1, 0, 0, 0, 2**64 - 1, 0.5, 1)),
        tally_note((1, 0, 0, 0, 0, float("inf"), 1)),
        tally_note(clock=1e300),
        tally_note(clock=-1.0),
        tally_note(clock=float("nan")),
        b"short",
    ],
)
def test_a_tally_out_of_bounds_is_refused_and_changes_nothing(note: bytes, tmp_path: Path) -> None:
    with lonely_node(tmp_path) as node:
        node.state.begun = True
        say(node, Message(TALLY_KIND, note=note))
        assert node.link.traffic.dropped["nonsense"] == 1
        assert node.progress.tally.counts == {0: Count()}
        assert node.state.clock.behind == 0.0


def test_one_word_does_not_end_a_run() -> None:
    tally = Tally(0, 5)
    end = End(Stop(iterations=10_000), tally)
    over = 3  # done and over
    tally.hear(1, tally_note(*((node, 50, 0, over, 7, 0.5, 1) for node in range(1, 5))))  # of all, says 1
    assert not end.look(5.0, {1, 2, 3, 4})
    tally.hear(2, tally_note((2, 50, 0, over, 8, 0.5, 1)))
    assert not end.look(5.0, {1, 2, 3, 4})  # two of four
    tally.hear(3, tally_note((3, 50, 0, over, 8, 0.5, 1)))
    assert end.look(5.0, {1, 2, 3, 4})  # most of them, each for itself


def test_one_word_is_enough_where_the_end_is_near() -> None:
    tally = Tally(0, 3)
    end = End(Stop(iterations=1000), tally)
    tally.remember(500, 0)
    tally.hear(1, tally_note((1, 450, 0, 3, 7, 0.5, 1)))
    assert end.look(5.0, {1, 2})


def test_neighbours_are_told_more_often_where_the_end_is_near() -> None:
    """Fast nodes train on until they hear that enough was trained: of 120 a second some thirty were too many."""
    tally = Tally(0, 3)
    end = End(Stop(iterations=1000), tally)
    assert end.next_round(5.0) == TOLD_EVERY  # nothing was trained
    tally.remember(100, 0)
    assert end.next_round(5.0) == TOLD_EVERY  # 45 seconds are left at this pace
    tally.remember(960, 0)
    assert end.next_round(5.0) == pytest.approx(5.0 * 40 / 960 / 2)
    tally.remember(999, 0)
    assert end.next_round(5.0) == TOLD_AT_LAST
    assert end.next_round(999.0) == TOLD_EVERY  # one training a second: there is no more to tell
    tally.remember(1000, 0)
    assert end.look(5.0, {1, 2})
    assert end.next_round(5.0) == TOLD_EVERY  # it is over


def test_one_that_came_back_is_not_done_any_more_whatever_clocks_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The later word is told by counting: one whose clock was a month ahead was not heard, one behind heard nobody."""
    here, again = Tally(0, 2), Tally(1, 2)
    before = Tally(1, 2)
    with monkeypatch.context() as shifted:
        shifted.setattr(time, "time_ns", lambda: 2**62)
        for _ in range(3):
            before.say(idle=False, loss=0.5, samples=1)
        before.end(over=True)
        here.hear(1, before.encode(1.0, DICE))
    assert here.counts[1].done
    assert here.over([1])
    again.hear(0, here.encode(1.0, DICE))
    again.say(idle=False, loss=0.5, samples=1)
    here.hear(1, again.encode(1.0, DICE))
    assert not here.counts[1].done
    assert not here.over([1])


def test_a_word_of_the_far_future_does_not_mute_its_node() -> None:
    """Somebody else says of node 1 what node 1 would say in a year."""
    here, honest = Tally(0, 3), Tally(1, 3)
    honest.say(idle=False, loss=0.5, samples=1)
    here.hear(1, honest.encode(1.0, DICE))
    here.hear(2, tally_note((1, 0, 0, 1, 10**8, 0.5, 1), clock=1.0))
    honest.hear(0, here.encode(1.0, DICE))  # it hears what is said of it, and goes on from there
    honest.say(idle=False, loss=0.25, samples=1)
    here.hear(1, honest.encode(1.0, DICE))
    assert here.counts[1].loss == 0.25
    assert not here.counts[1].done


def test_of_clocks_that_differ_the_middle_one_is_believed() -> None:
    tally = Tally(0, 4)
    tally.hear(1, tally_note(clock=10.0))
    tally.hear(2, tally_note(clock=11.0))
    assert tally.hear(3, tally_note(clock=1e8)) == pytest.approx(11.0, abs=1.0)


# -- heartbeats ----------------------------------------------------------------------------------------------------


def view(**changes: Any) -> Message:
    """A heartbeat of the aggregator of term 1, node 0."""
    plain = View(Claim(1, Score(), 0), 5, Claim(0, Score(), 1), 2, 0)
    return Message("beat", term=1, note=encode(plain._replace(**changes)))


def machine_of(node: int = 1) -> Any:
    protocol = MultiWalk(walks=2).resilient_form()
    machine = protocol.machine(all_network_views(graphs.complete(3))[node])
    machine.handle(Started(), Context(0.0, random.Random(0)))
    return machine


def give(machine: Any, event: Any, now: float = 1.0) -> Any:
    return machine.handle(event, Context(now, random.Random(0)))


def test_incidents_are_never_used_up() -> None:
    machine = machine_of()
    machine.members.incidents = 2**32 - 9
    give(machine, Received(0, view(incidents=2**32 - 2), ""))
    give(machine, PeerLost(0))
    effects = give(machine, PeerLost(2))  # the next one: it was a struct.error
    assert machine.members.incidents == 0
    assert decode(machine.members._message().note).incidents == 0
    assert effects


@pytest.mark.parametrize(
    "changes",
    [
        {"claim": Claim(2**32 - 1, Score(), 0)},
        {"claim": Claim(2**31 - 1, Score(), 0)},
        {"ballot": Claim(2**31 - 1, Score(), 0)},
        {"claim": Claim(2, Score(), -3)},
        {"claim": Claim(2, Score(degree=float("inf")), -2)},
        {"claim": Claim(2, Score(memory=-1.0), -2)},
        {"beat": 2**32 - 1},
        {"degree": 3},
    ],
)
def test_a_heartbeat_out_of_bounds_is_refused_and_the_next_election_goes_on(changes: dict[str, Any]) -> None:
    machine = machine_of()
    give(machine, Received(0, view(), ""))
    before = machine.members.claim, machine.members.beat
    with pytest.raises(ValueError, match=r"."):
        give(machine, Received(2, view(**changes), ""))
    assert (machine.members.claim, machine.members.beat) == before
    machine.members._call_election(10.0)
    assert decode(machine.members._message().note).ballot.term == 2


def test_numbers_of_a_message_are_bounded_on_the_wire() -> None:
    for field in ("walk", "round", "term"):
        data = encode_header(Parcel(1, 0, Message("walk")._replace(**{field: 2**31})))
        with pytest.raises(WireError, match="at most"):
            decode_header(data)


def test_a_pass_that_would_overflow_is_refused() -> None:
    machine = machine_of()
    for fields in ((0, 2**32 - 1, 0), (0, 0, 2**32 - 1), (-2, 0, 0)):
        message = Message(
            "walk", walk=1, round=0, term=1, note=struct.pack("<i", fields[0]) + struct.pack("<II", *fields[1:])
        )
        with pytest.raises(ValueError, match="not a walk's token"):
            give(machine, Received(0, message, "in/1"))


# -- leaving -------------------------------------------------------------------------------------------------------


def test_closing_cannot_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever part of it does: the session ends, and with it the token that says that this node lives."""
    with lonely_node(tmp_path, AsyncGossip(), stop=Stop(time=0.01), wait_for_neighbours=0.0) as node:
        for owner, name in ((Shutdown, "_hand_walks_on"), (Shutdown, "_say_goodbye"), (Memory, "snapshot")):
            monkeypatch.setattr(owner, name, lambda self: struct.pack("<I", 2**32))
        monkeypatch.setattr(node.memory.checkpoints, "save_sometimes", lambda make: None)  # that is not closing
        monkeypatch.setattr("walktalk.runtimes.peers.node.progress.LINGER", 0.1)  # nobody else is there
        node.run()
        assert node.link.connections._first.session.is_closed()


# -- models --------------------------------------------------------------------------------------------------------


def offer(node: Node, numbers: np.ndarray, number: int = 1, sender: int = 1) -> None:
    """Let a neighbour offer a model."""
    payload = numbers.astype(np.float32).view(np.uint8)
    parcel = Parcel(sender, 0, Message("offer", round=number, term=1), len(payload))
    node.inbox.arrived(Delivery(parcel, payload, Stamp(1, number)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30, 1e6])
def test_a_model_that_is_none_is_refused_and_its_sender_named(bad: float, tmp_path: Path) -> None:
    with lonely_node(tmp_path, AsyncGossip()) as node:
        node._begin()
        width, before = node.models.tensors.width, node.models.interpreter.read(0, "model")
        numbers = np.ones(width)
        numbers[-1] = bad
        offer(node, numbers)
        assert node.models.interpreter.read(0, "model") is before
        assert set(node.models.interpreter.slots[0]) <= {"initial", "model"}
        assert node.status()["refused"] == {"n1": 1}
        assert node.link.traffic.dropped["refused"] == 1
        offer(node, np.ones(width), 2)  # and the next one is taken
        assert node.models.interpreter.read(0, "model") is not before


def test_a_neighbour_cannot_make_larger_and_larger_models_usual(tmp_path: Path) -> None:
    with lonely_node(tmp_path, AsyncGossip()) as node:
        node._begin()
        for number in range(1, 60):
            offer(node, np.full(node.models.tensors.width, 2.0**number), number)
        assert float(node.models.interpreter.read(0, "model").abs().max()) < 2 * node.setup.largest * 10


def test_models_that_nobody_asked_for_do_not_pile_up(tmp_path: Path) -> None:
    """Of rounds that are far away: 8,458 of them lay in memory and in the checkpoint."""
    with lonely_node(tmp_path, PROTOCOLS.find("local_dsgd")()) as node:
        node._begin()
        payload = np.ones(node.models.tensors.width, np.float32).view(np.uint8)
        (kind,) = node.models.interpreter.messages
        for number in range(1, 300):
            parcel = Parcel(1, 0, Message(kind, round=number), len(payload))
            node.inbox.arrived(Delivery(parcel, payload, Stamp(1, number)))
        assert len(node.models.interpreter.slots[0]) < 25
        assert len(node.memory.snapshot().slots) < 25


def test_a_training_that_diverges_is_left_out(tmp_path: Path) -> None:
    with lonely_node(tmp_path, AsyncGossip()) as node:
        node._begin()
        work, before = node.training.queue.current, node.models.interpreter.read(0, "model")
        assert work is not None
        node.training.trained(
            Outcome(work, torch.full((node.models.tensors.width,), math.nan), None, measured={"train_loss": math.nan})
        )
        np.testing.assert_array_equal(node.models.interpreter.read(0, "model"), before)
        assert node.status()["diverged"] == 1
        assert "NaN" not in json.dumps(node.status())


def test_status_has_no_numbers_that_json_does_not_know(tmp_path: Path) -> None:
    with lonely_node(tmp_path) as node:
        node.state.loss = math.nan
        assert json.loads(json.dumps(node.status(), allow_nan=False))["loss"] is None


def test_a_question_that_comes_at_once_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as it can be asked: the answer was made of what was not there yet, and ended in a traceback."""
    answer, said = Connections.answer, {}

    def asked_at_once(link: Connections, question: str, reply: Any, asker: str = "operator") -> None:
        answer(link, question, reply, asker)
        if question in (STATUS, RECORDS):
            said[question] = json.loads(reply({}))

    monkeypatch.setattr(Connections, "answer", asked_at_once)
    with lonely_node(tmp_path):
        assert said[STATUS]["state"] == "starting"
        assert set(said) == {STATUS, RECORDS}


def test_one_that_has_nothing_to_train_says_that_it_waits(tmp_path: Path) -> None:
    """It said "training", whoever trained."""
    with lonely_node(tmp_path) as node:
        introduce(node, 2, life=2, knows=True)  # in the middle of a run: walks are elsewhere
        node._begin()
        assert node.status()["state"] == "waiting"
        node.state.busy_at = node.state.clock.elapsed
        assert node.status()["state"] == "training"
        node.state.busy_at -= 1.1 * WORKING
        assert node.status()["state"] == "waiting"


def test_a_ticket_that_nobody_wrote_kills_a_walk_for_a_while_only() -> None:
    """It was the latest for the rest of the term, and every true copy after it a laggard."""
    machine = machine_of(2)
    give(machine, Received(0, view(), ""))
    forged, true = Token(1, (1, 0), 2**31 - 1, 3), Token(1, (1, 0), 5, 1)
    machine.copies.accept(forged, 1.0)  # it was here, and went on to the aggregator, who knows better
    give(machine, Received(1, true.message("walk"), "in/1"), 3.0)
    assert 1 not in machine.copies.here
    give(machine, TimerFired("beat"), 40.0)
    give(machine, Received(1, true.message("walk"), "in/1"), 41.0)
    assert machine.copies.here[1] == true


def test_an_aggregator_takes_no_ticket_that_it_never_wrote() -> None:
    machine = machine_of(0)
    forged = Token(2, (1, 0), 2**31 - 2, 3)
    effects = give(machine, Received(1, forged.message("walk"), "in/2"))
    assert 2 not in machine.copies.here
    assert 2 not in machine.copies.seen
    assert any(isinstance(effect, Send) and effect.message.kind == "ack" for effect in effects)  # nobody keeps it


# -- strangers -----------------------------------------------------------------------------------------------------


def test_a_neighbour_of_another_study_is_not_listened_to_and_told_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with lonely_node(tmp_path, AsyncGossip(), study={"optimizer.lr": 0.05, "task.name": "digits"}) as node:
        node._begin()
        sent: list[Parcel] = []
        node.link.send = lambda parcel, payload: sent.append(parcel) or Stamp(1, 1)  # type: ignore[method-assign]
        introduce(node, 1, life=2, **{"optimizer.lr": "0.1"})
        before = node.models.interpreter.read(0, "model")
        offer(node, np.ones(node.models.tensors.width), 1)
        assert node.models.interpreter.read(0, "model") is before
        assert 1 not in node.state.alive
        assert "refuses n1, whose study is another: optimizer.lr is 0.1 there and 0.05 here" in caplog.text
        assert node.status()["strangers"] == {"n1": "optimizer.lr is 0.1 there and 0.05 here"}
        introduce(node, 1, life=3)  # it was started again, as it should be
        assert 1 in node.state.alive
        assert not node.status()["strangers"]


def test_both_sides_of_an_unequal_pair_say_what_differs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    graph, trainer = graphs.complete(2), SlowTrainer(2)
    places, around = endpoints(graph), all_network_views(graph)
    nodes = [
        Node(
            NodeSetup(
                AsyncGossip(), around[v], Seed(0), Stop(time=120.0), trainer.initial(), places[v], tmp_path / str(v),
                study={"seed": v}, wait_for_neighbours=100.0,
            ),
            trainer,
        )
        for v in range(2)
    ]  # fmt: skip
    threads = [threading.Thread(target=node.run, daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 90
    while not all(node.neighbours.strangers for node in nodes) and time.monotonic() < end:
        time.sleep(0.05)
    for node in nodes:
        node.leave()
    for thread in threads:
        thread.join(20)
    assert "n0: refuses n1, whose study is another: seed is 1 there and 0 here" in caplog.text
    assert "n1: refuses n0, whose study is another: seed is 0 there and 1 here" in caplog.text


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"version": MESSAGES.newest + 1}, "version is 10 there and 8 to 9 here; upgrade this one"),
        ({"version": MESSAGES.oldest - 1}, "version is 7 there and 8 to 9 here; upgrade that one"),
        ({"width": 7}, "width is 7 there and 5 here"),
        ({"task.name": "cifar10"}, "task.name is cifar10 there and digits here"),
        ({"seed": 1}, "seed is 1 there and 0 here"),
        ({"initial model": [9.0, 9.0]}, "initial model is [9, 9] there"),
    ],
)
def test_whatever_must_be_equal_is_compared(other: dict[str, Any], said: str, tmp_path: Path) -> None:
    with lonely_node(tmp_path, study={"task.name": "digits", "seed": 0}) as node:
        assert node.state.alive == {1, 2}
        introduce(node, 1, life=2, **other)
        assert node.state.alive == {2}
        assert said in node.status()["strangers"]["n1"]


def test_a_model_that_comes_before_its_senders_hello_waits_for_it(tmp_path: Path) -> None:
    with lonely_node(tmp_path, AsyncGossip()) as node:
        node._begin()
        before = node.models.interpreter.read(0, "model")
        payload = np.ones(node.models.tensors.width, np.float32).view(np.uint8)
        parcel = Parcel(1, 0, Message("offer", round=1, term=1), len(payload))
        node.inbox.arrived(Delivery(parcel, payload, Stamp(9, 1)))  # of a new life, whose hello was lost
        assert node.models.interpreter.read(0, "model") is before
        introduce(node, 1, life=9)
        assert node.models.interpreter.read(0, "model") is not before


def test_facts_are_compared_in_words_and_numbers_of_models_nearly() -> None:
    model = torch.linspace(0.0, 1.0, 50)
    here = facts_of({"a": "x" * 100, "b": 0.1, "c": 3}, model)
    assert not differences(here, json.loads(json.dumps(facts_of({"a": "x" * 100, "b": 0.1, "c": 3}, model * 1.0001))))
    other = facts_of({"a": "x" * 99 + "y", "b": 0.1000001, "c": 3, "d": 1}, model * 2)
    said = differences(here, other)
    assert [line.split(" is ")[0] for line in said] == ["initial model", "a", "b", "d"]
    assert len(encode_hello(Hello({str(k): f"{k}" * 9 for k in range(100)}))) < 4096


@pytest.mark.parametrize("note", [b"", b"x", zlib.compress(b"[]"), zlib.compress(b"{}"), zlib.compress(b" " * 10**8)])
def test_a_hello_that_is_none_is_refused(note: bytes) -> None:
    with pytest.raises(ValueError, match="not a hello"):
        decode_hello(note)


def test_a_checkpoint_of_another_task_is_refused(tmp_path: Path) -> None:
    with lonely_node(tmp_path, AsyncGossip(), study={"task.name": "digits", "optimizer.lr": 0.1}) as node:
        node._begin()
        node.memory.checkpoints.save(node.memory.snapshot())
    with (
        pytest.raises(StudyError, match=r"is of another study: task.name was digits and is cifar10; .*--fresh"),
        lonely_node(tmp_path, AsyncGossip(), study={"task.name": "cifar10"}, rejoin=True),
    ):
        pass
    with lonely_node(tmp_path, AsyncGossip(), study={"task.name": "digits", "optimizer.lr": 0.2}, rejoin=True):
        pass  # all may go on with another learning rate
    Checkpoints(tmp_path).save(Kept({"model": torch.ones(7)}, {}, 1, 1, 1))
    with pytest.raises(StudyError, match="width was 7 and is 5"), lonely_node(tmp_path, AsyncGossip(), rejoin=True):
        pass


def test_what_was_sent_to_one_that_was_away_does_not_make_it_deaf_when_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was started again was left out for 20 s: nobody had acknowledged what came while it was dead."""
    monkeypatch.setattr("walktalk.runtimes.peers.wire.outbox.Outbox._run", lambda box: None)  # nothing is sent
    with lonely_node(tmp_path, AsyncGossip()) as node:
        node._begin()
        node.neighbours.token(1, there=False)
        payload = np.ones(node.models.tensors.width, np.float32).view(np.uint8)
        node.link.send(Parcel(0, 1, Message("offer", round=1), len(payload)), payload)
        box = node.link._outboxes[1]
        box._current, box._sent_at, box._heard_at = box._line.popleft(), -1000.0, -1000.0
        assert node.link.is_deaf(1)
        introduce(node, 1, life=2)
        node.neighbours.leave_out_the_deaf()
        assert 1 in node.state.alive
        assert node.link.waiting([1])  # and it still comes


def test_one_whose_past_is_gone_starts_no_walk_in_the_middle_of_a_run(tmp_path: Path) -> None:
    """Nor does it aggregate again from the initial model, as if the run had just begun."""
    with lonely_node(tmp_path / "new") as node:
        node._begin()
        assert node.status()["walks"] == [1]
        assert node.status()["aggregates"]
    with lonely_node(tmp_path / "old") as node:
        introduce(node, 2, life=2, knows=True)  # a neighbour remembers what it has done
        node._begin()
        assert node.status()["walks"] == []
        assert not node.status()["aggregates"]
        say(node, view(), sender=2)  # of term 1, by this very node, in a life that is over


def test_what_was_left_in_order_is_gone_on_with_once(tmp_path: Path) -> None:
    """One that dies soon after a planned stop and start must not begin with the same walks and tickets again."""
    with lonely_node(tmp_path) as node:
        node._begin()
        node.state.leaving = True
        node._keep()
    with lonely_node(tmp_path, rejoin=True) as node:
        node._begin()
        assert node.status()["walks"] == [1]
        assert node.runner.machine.members.leads
    with lonely_node(tmp_path, rejoin=True) as node:  # it died in between
        node._begin()
        assert node.status()["walks"] == []
        assert not node.runner.machine.members.leads


@pytest.mark.parametrize("loss", [1e300, -1e300, math.inf])
def test_a_loss_that_32_bits_do_not_hold_neither_ends_its_node_nor_is_it_refused(loss: float) -> None:
    teller, hearer = Tally(0, 2), Tally(1, 2)
    teller.say(False, loss, 10, score=loss)
    hearer.hear(0, teller.encode(1.0, random.Random(0)))
    assert hearer.counts[0].loss == pytest.approx(math.copysign(3e38, loss))
