"""The link over loopback: acknowledged hops, back-pressure, reconnection, certificates, and strangers."""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zenoh

from tests.peers.pair import SECONDS, WIDTH, Node, endpoints, free_port, meet, two_nodes
from tests.support.memory import resident
from walktalk.core.errors import SpecError, UnavailableError
from walktalk.protocols import Message
from walktalk.runtimes.peers import STATUS, ask_everyone, free_ports, make_cluster
from walktalk.runtimes.peers.identity.authority import make_certificates
from walktalk.runtimes.peers.identity.certificates import credentials
from walktalk.runtimes.peers.identity.handshake import DuplicateNames
from walktalk.runtimes.peers.wire.connections import Presence
from walktalk.runtimes.peers.wire.messages import Ack, Answer, Parcel, Stamp
from walktalk.runtimes.peers.wire.outbox import Outbox
from walktalk.runtimes.peers.wire.session import Endpoint, open_session

WALK = Parcel(0, 1, Message("walk", walk=1), 4 * WIDTH)


def a_model(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(WIDTH, dtype=np.float32).view(np.uint8)


def test_a_hop_is_acknowledged_when_the_node_takes_it() -> None:
    with two_nodes() as (a, b):
        meet(a, b)
        a.link.send(WALK, a_model())
        delivery = b.arrived.get(timeout=SECONDS)
        assert delivery.parcel == WALK
        np.testing.assert_array_equal(delivery.payload, a_model())
        assert a.taken.empty()
        assert a.link.waiting() == 1
        b.link.acknowledge(delivery)
        assert a.taken.get(timeout=SECONDS) == WALK
        assert a.link.waiting() == 0
        assert a.link.traffic.sent_bytes == b.link.traffic.received_bytes == 64 + 4 * WIDTH


@pytest.mark.parametrize("secret", [False, True])
def test_a_neighbour_whose_coming_was_missed_is_found_by_looking(secret: bool, tmp_path: Path) -> None:
    """Also with certificates, where asking is a right that has to be given."""
    if secret:
        make_certificates(tmp_path, {"a": (), "b": ()})
    with two_nodes((credentials(tmp_path, "a"), credentials(tmp_path, "b")) if secret else (None, None)) as (a, b):
        meet(a, b)  # the announcement: seen, and forgotten here
        b.link.connections.look_around()
        assert b.peers.get(timeout=SECONDS) == (0, True)


def test_a_receiver_that_takes_nothing_holds_one_model_and_its_sender_the_rest() -> None:
    with two_nodes() as (a, b):
        meet(a, b)
        for number in range(5):
            a.link.send(WALK._replace(message=Message("walk", walk=number)), a_model(number))
        first = b.arrived.get(timeout=SECONDS)
        with pytest.raises(queue.Empty):
            b.arrived.get(timeout=1.5)  # longer than the sender waits until it asks again
        assert a.link.waiting() == 5
        b.link.acknowledge(first)
        for number in range(1, 5):
            delivery = b.arrived.get(timeout=SECONDS)
            assert delivery.parcel.message.walk == number
            b.link.acknowledge(delivery)
        assert a.link.drain(SECONDS)
        assert not b.link.traffic.dropped
        assert a.link.traffic.resent == 0


def test_a_slow_receiver_holds_little_and_so_does_its_sender() -> None:
    """Five hundred models of 1.2 MB to one that takes ten a second: 600 MB, if anybody kept them."""
    model = a_model()
    with two_nodes() as (a, b):
        meet(a, b)
        a.link.send(WALK, model)
        b.link.acknowledge(b.arrived.get(timeout=SECONDS))
        before, most, taken = resident(), 0, []
        for number in range(500):
            parcel = Parcel(0, 1, Message("round", round=number), 4 * WIDTH)
            a.link.withdraw(1, "round", 0)  # as a node does where only the newest counts
            a.link.send(parcel, model.copy())
            most = max(most, resident() - before)
            if number % 50 == 0:
                time.sleep(0.1)
                taken.append(b.arrived.get(timeout=SECONDS))
                b.link.acknowledge(taken[-1])
        assert a.link.waiting() <= 2  # one on its way, and the newest
        while not taken or taken[-1].parcel.message.round < 499:
            taken.append(b.arrived.get(timeout=SECONDS))
            b.link.acknowledge(taken[-1])
        assert a.link.drain(SECONDS)
    assert most < 60e6
    rounds = [delivery.parcel.message.round for delivery in taken]
    assert rounds == sorted(set(rounds))  # some were left out, none came twice or late


def test_what_the_other_side_drops_again_and_again_blocks_nothing_behind_it() -> None:
    """A walk waited for ever behind a message whose number was out of bounds, while heartbeats came and went."""
    sent: list[bytes] = []
    outbox = Outbox(sent.append, lambda question: drop(), lambda parcel: taken.append(parcel), lambda: None, 1)
    taken: list[Parcel] = []
    bad, good = WALK._replace(message=Message("walk", walk=9)), WALK

    def drop() -> None:
        """The other side knows nothing of the first message, whenever it is asked."""
        outbox.answered(Ack(Stamp(1, 1), Answer.UNKNOWN))

    outbox.put(bad, a_model())
    outbox.put(good, a_model())
    end = time.monotonic() + SECONDS
    while outbox.holds(bad) and time.monotonic() < end:
        drop()
        time.sleep(0.01)
    assert not outbox.holds(bad)
    assert outbox.holds(good)
    while not taken and time.monotonic() < end:
        outbox.answered(Ack(Stamp(1, 2), Answer.TAKEN))
        time.sleep(0.01)
    assert taken == [good]
    outbox.close()


def test_whatever_is_sent_arrives_in_order_though_it_is_of_one_kind() -> None:
    with two_nodes() as (a, b):
        meet(a, b)
        for number in range(1, 5):
            a.link.send(WALK._replace(message=Message("walk", walk=1, round=number)), a_model(number))
        assert a.link.waiting() == 4
        for number in range(1, 5):
            delivery = b.arrived.get(timeout=SECONDS)
            assert delivery.parcel.message.round == number
            np.testing.assert_array_equal(delivery.payload, a_model(number))
            b.link.acknowledge(delivery)
        assert a.link.drain(SECONDS)


def test_words_overtake_models_and_wait_for_nobody() -> None:
    with two_nodes() as (a, b):
        meet(a, b)
        a.link.send(WALK, a_model())
        stuck = b.arrived.get(timeout=SECONDS)
        a.link.send(WALK, a_model())
        a.link.send(Parcel(0, 1, Message("heartbeat", term=4, note=b"hello")), None)
        assert b.arrived.get(timeout=SECONDS).parcel.message == Message("heartbeat", term=4, note=b"hello")
        b.link.acknowledge(stuck)


def test_a_neighbour_that_goes_is_lost_and_found_again_and_gets_what_waited_for_it() -> None:
    first, second = endpoints((free_port(), free_port()))
    a, b, again = Node(), Node(), Node()
    with a.open(first) as link:
        link.start()
        with b.open(second) as other:
            other.start()
            meet(a, b)
        assert a.peers.get(timeout=SECONDS) == (1, False)
        a.link.send(WALK, a_model())
        with again.open(second) as other:
            other.start()
            assert a.peers.get(timeout=SECONDS) == (1, True)
            delivery = again.arrived.get(timeout=SECONDS)
            again.link.acknowledge(delivery)
            assert a.taken.get(timeout=SECONDS) == WALK


def test_cancelled_messages_are_given_back() -> None:
    with two_nodes() as (a, b):
        meet(a, b)
        a.link.send(WALK, a_model())
        b.arrived.get(timeout=SECONDS)
        a.link.send(WALK, a_model())
        assert a.link.cancel(1) == [WALK, WALK]
        assert a.link.drain(0.1)


def test_mutual_tls_lets_neighbours_talk(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"a": (), "b": ()})
    with two_nodes((credentials(tmp_path, "a"), credentials(tmp_path, "b"))) as (a, b):
        meet(a, b)
        a.link.send(WALK, a_model())
        delivery = b.arrived.get(timeout=SECONDS)
        b.link.acknowledge(delivery)
        assert a.taken.get(timeout=SECONDS) == WALK
        b.link.send(Parcel(1, 0, Message("heartbeat")), None)
        assert a.arrived.get(timeout=SECONDS).parcel.message.kind == "heartbeat"


def nothing_comes(b: Node, a: Node) -> None:
    """What a says does not reach b, and neither believes that the other is there."""
    a.link.send(Parcel(0, 1, Message("heartbeat")), None)
    a.link.send(WALK, a_model())
    with pytest.raises(queue.Empty):
        b.arrived.get(timeout=2.0)
    assert b.peers.empty()
    assert b.link.traffic.received_messages == 0


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    make_certificates(tmp_path / "ours", {"b": ()})
    make_certificates(tmp_path / "theirs", {"a": ()})
    with two_nodes((credentials(tmp_path / "theirs", "a"), credentials(tmp_path / "ours", "b"))) as (a, b):
        nothing_comes(b, a)


def test_a_node_without_a_certificate_is_refused(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"b": ()})
    with two_nodes((None, credentials(tmp_path, "b"))) as (a, b):
        nothing_comes(b, a)


def test_a_valid_certificate_with_another_name_is_not_heard(tmp_path: Path) -> None:
    """Mallory has a certificate of the right authority, and calls herself a."""
    make_certificates(tmp_path, {"mallory": (), "b": ()})
    with two_nodes((credentials(tmp_path, "mallory"), credentials(tmp_path, "b"))) as (a, b):
        nothing_comes(b, a)


def test_starting_with_the_certificate_of_another_is_the_users_mistake(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"a": (), "b": ()})
    (tmp_path / "a.pem").write_bytes((tmp_path / "b.pem").read_bytes())
    with pytest.raises(SpecError, match="made out to 'b'"):
        credentials(tmp_path, "a")
    with pytest.raises(UnavailableError, match="walktalk certs"):
        credentials(tmp_path, "c")


def test_a_port_that_is_taken_is_the_users_mistake() -> None:
    port = free_port()
    with (
        Node().open(Endpoint("test", "a", 0, f"127.0.0.1:{port}", {"b": 1})),
        pytest.raises(UnavailableError, match="cannot listen"),
    ):
        Node().open(Endpoint("test", "b", 1, f"127.0.0.1:{port}", {"a": 0}))


def test_garbage_from_a_stranger_is_counted_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """Anyone on an unencrypted network can write under any name; the link goes on working."""
    with two_nodes() as (a, b):
        meet(a, b)
        listen = str(b.link.endpoint.listen)
        stranger = open_session(Endpoint("test", "mallory", 9, "", {}, (listen,)))
        rng = np.random.default_rng(0)
        publishers = {
            (sender, channel): stranger.declare_publisher(
                b.link.endpoint.key("b", sender, channel), congestion_control=zenoh.CongestionControl.BLOCK
            )
            for sender in ("a", "mallory")
            for channel in ("models", "control", "acks")
        }
        end = time.monotonic() + SECONDS
        while not publishers["a", "models"].matching_status.matching and time.monotonic() < end:
            time.sleep(0.01)
        for _ in range(300):
            for publisher in publishers.values():
                publisher.put(rng.bytes(int(rng.integers(0, 300))))
        a.link.send(WALK, a_model())
        b.link.acknowledge(b.arrived.get(timeout=SECONDS))
        assert a.taken.get(timeout=SECONDS) == WALK
        while b.link.traffic.dropped.total() < 1800 and time.monotonic() < end:
            time.sleep(0.01)
        assert b.link.traffic.dropped.total() == 1800
        assert b.link.traffic.dropped["stranger"] == 900
        assert "from a: " in caplog.text
        stranger.close()


def test_strangers_that_stand_at_the_door_and_say_nothing_keep_nobody_out(tmp_path: Path) -> None:
    """Each takes a file descriptor, and nobody waits for it."""
    make_certificates(tmp_path, {"a": (), "b": ()})
    first, second = endpoints((free_port(), free_port()), (credentials(tmp_path, "a"), credentials(tmp_path, "b")))
    a, b = Node(), Node()
    host, port = second.listen.split(":")
    with b.open(second) as other, ExitStack() as strangers:
        other.start()
        for _ in range(300):
            strangers.enter_context(socket.create_connection((host, int(port)))).send(b"\x16")
        with a.open(first) as link:
            link.start()
            assert a.peers.get(timeout=SECONDS) == (1, True)


def test_asking_takes_no_longer_than_it_may_though_a_node_hangs() -> None:
    """It took 13 s: the end of the conversation waited for a connection that was never answered."""
    ports = free_ports(2)
    with socket.create_server(("127.0.0.1", ports[0])):  # accepts nobody, as a process that is stopped
        places = {name: {"address": f"127.0.0.1:{port}"} for name, port in zip("ab", ports, strict=True)}
        began = time.monotonic()
        answers = ask_everyone(make_cluster({"nodes": places}), STATUS, 0.5)
        assert time.monotonic() - began < 10.0
    assert answers == {"a": None, "b": None}


def test_connections_are_opened_anew_and_nobody_has_gone(tmp_path: Path) -> None:
    """New certificates, other permissions: what was under way arrives, once, and no neighbour is reported lost."""
    make_certificates(tmp_path, {"a": (), "b": ()})
    with two_nodes((credentials(tmp_path, "a"), credentials(tmp_path, "b"))) as (a, b):
        meet(a, b)
        for walk in range(1, 4):
            a.link.send(WALK._replace(message=Message("walk", walk=walk)), a_model(walk))
        first = b.arrived.get(timeout=SECONDS)  # the second waits until this one is taken
        make_certificates(tmp_path, {"a": (), "b": ()})
        b.link.connections.reopen(replace(b.link.endpoint, credentials=credentials(tmp_path, "b")))
        a.link.connections.reopen(replace(a.link.endpoint, credentials=credentials(tmp_path, "a")))
        b.link.acknowledge(first)
        walks = [first.parcel.message.walk]
        for _ in range(2):
            delivery = b.arrived.get(timeout=SECONDS)
            b.link.acknowledge(delivery)
            walks.append(delivery.parcel.message.walk)
        for _ in range(3):
            a.taken.get(timeout=SECONDS)
        assert walks == [1, 2, 3]
        assert b.arrived.empty()
        assert all(there for node in (a, b) for _, there in list(node.peers.queue))


def test_two_that_knew_nothing_of_each_other_become_neighbours(tmp_path: Path) -> None:
    """Both joined at once, and another leaves: whose words are taken in was said when they began to listen."""
    make_certificates(tmp_path, {"a": (), "b": ()})
    known = endpoints((free_port(), free_port()), (credentials(tmp_path, "a"), credentials(tmp_path, "b")))
    a, b = Node(), Node()
    with ExitStack() as stack:
        for node, endpoint in zip((a, b), known, strict=True):
            stack.enter_context(node.open(replace(endpoint, neighbours={}, connect=()))).start()
        b.link.change(replace(known[1], connect=()), {})
        a.link.change(replace(known[0], connect=()), {"b": known[1].listen})
        meet(a, b)
        a.link.send(WALK, a_model())
        b.link.acknowledge(b.arrived.get(timeout=SECONDS))
        assert a.taken.get(timeout=SECONDS) == WALK


@pytest.mark.parametrize("secret", [False, True])
def test_one_that_left_and_joins_again_where_it_was_is_heard_once(secret: bool, tmp_path: Path) -> None:
    """The first session never stops calling there: with a line beside it every message came twice."""
    make_certificates(tmp_path, {"a": (), "b": ()})
    files = (credentials(tmp_path, "a"), credentials(tmp_path, "b")) if secret else (None, None)
    first, second = endpoints((free_port(), free_port()), files)
    a, b, again = Node(), Node(), Node()
    with a.open(first) as link:
        link.start()
        with b.open(second) as other:
            other.start()
            meet(a, b)
            link.change(replace(first, neighbours={}), {})  # b has left
        with again.open(second) as other:
            other.start()
            meet(again)
            link.change(first, {"b": second.listen})  # it says that it joins again
            link.connections.look_around()
            meet(a)
            for beat in range(400):  # one after the other: while they go to and fro, a line would be opened
                other.send(Parcel(1, 0, Message("heartbeat", term=beat)), None)
                assert a.arrived.get(timeout=SECONDS).parcel.message.term == beat
            other.send(Parcel(1, 0, Message("walk", walk=1), 4 * WIDTH), a_model())
            link.acknowledge(a.arrived.get(timeout=SECONDS))
            assert again.taken.get(timeout=SECONDS)
            assert not link.traffic.dropped


@contextmanager
def two_of_one_name() -> Iterator[tuple[Node, Node, Node]]:
    """A node, its neighbour, and a younger one that is called as the first is and was heard by the neighbour."""
    first, second = endpoints((free_port(), free_port()))
    a, b, twin = Node(), Node(), Node()
    with b.open(second) as neighbour, a.open(first) as older:
        neighbour.start()
        older.start()
        meet(a, b)
        with twin.open(replace(first, listen=f"127.0.0.1:{free_port()}")) as younger:
            younger.start()
            meet(twin)
            younger.send(Parcel(0, 1, Message("heartbeat")), None)
            b.arrived.get(timeout=SECONDS)
            yield a, b, twin


def test_two_nodes_of_one_name_are_noticed_by_their_neighbour_and_by_the_older(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The older one is mute, and nobody knew why: what it says is of a life that is over."""
    monkeypatch.setattr("walktalk.runtimes.peers.identity.handshake.STRAY", 0.0)
    with two_of_one_name() as (a, b, twin):
        older, neighbour, younger = a.link, b.link, twin.link
        end = time.monotonic() + SECONDS
        while not older.duplicate_names.is_behind and time.monotonic() < end:
            older.send(Parcel(0, 1, Message("heartbeat")), None)
            time.sleep(0.01)
        assert older.duplicate_names.later == younger.incarnation
        assert not younger.duplicate_names.is_behind
        assert neighbour.duplicate_names.doubled() == [0]
    assert "b: two nodes are called a, and the one that began first is not heard; stop both" in caplog.text
    assert "a: is not heard: two nodes are called a" in caplog.text


def test_a_walk_is_with_the_younger_of_two_nodes_of_one_name_only_when_that_one_has_it() -> None:
    """It comes to both. The word of the older one, that it has taken it, would lose it: nobody hears that one."""
    with two_of_one_name() as (a, b, twin):
        older, neighbour, younger = a.link, b.link, twin.link
        walk = Parcel(1, 0, Message("walk", walk=1), 4 * WIDTH)
        neighbour.send(walk, a_model())
        older.acknowledge(a.arrived.get(timeout=SECONDS))
        end = time.monotonic() + SECONDS
        while not neighbour.traffic.dropped["replayed"] and time.monotonic() < end:
            time.sleep(0.01)
        assert neighbour.traffic.dropped["replayed"]
        assert neighbour.waiting() == 1
        younger.acknowledge(twin.arrived.get(timeout=SECONDS))
        assert b.taken.get(timeout=SECONDS) == walk
        older.send(Parcel(0, 1, Message("walk", walk=1), 4 * WIDTH), a_model())  # its own copy goes nowhere
        while neighbour.traffic.dropped["replayed"] < 2 and time.monotonic() < end:
            time.sleep(0.01)
        assert b.arrived.empty()


def test_one_that_steps_aside_is_gone_for_its_neighbours() -> None:
    with two_nodes() as (a, b):
        meet(a, b)
        a.link.step_aside()
        while b.peers.get(timeout=SECONDS) != (0, False):  # its token is taken back
            pass
        b.link.send(Parcel(1, 0, Message("walk", walk=1), 4 * WIDTH), a_model())
        a.link.send(Parcel(0, 1, Message("heartbeat")), None)
        time.sleep(0.1)
        assert a.arrived.empty()
        assert b.arrived.empty()
        assert not a.link.traffic.dropped


def test_one_whose_algorithm_answered_nothing_before_is_left_out_sooner_the_next_time() -> None:
    """Walks that came to it when it was asked again were held for 28 heartbeats each time; 12, and 4 from then on."""
    outbox, walk = Outbox(lambda chunk: None, lambda word: None, lambda parcel: None, lambda: None, 1), Message("walk")
    outbox.ask_again(walk)
    assert not outbox.is_mute
    outbox.ask_again(walk)
    assert outbox.is_mute
    outbox.cancel()
    assert not outbox.is_mute
    outbox.ask_again(walk)
    assert outbox.is_mute


def test_of_namesakes_nobody_is_believed_more_than_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = DuplicateNames(own=10)
    assert not any(heard.told(life) for life in (9, 10, 1 << 63))
    assert (heard.is_behind, heard.later) == (False, 0)
    assert [heard.told(life) for life in (11, 12)] == [True, False]  # news once
    assert (heard.is_behind, heard.later) == (True, 12)
    heard.told(13, sender=2)
    assert 2 in heard.sayers
    assert not heard.dropped(3)  # what was on its way when a node was killed and started again
    assert heard.doubled() == []
    monkeypatch.setattr("walktalk.runtimes.peers.identity.handshake.LATELY", 0.0)
    assert not heard.is_behind


def test_one_that_does_not_come_back_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    told: queue.Queue[tuple[int, bool]] = queue.Queue()
    presence = Presence(lambda peer, there: told.put((peer, there)))
    monkeypatch.setattr("walktalk.runtimes.peers.wire.connections.GRACE", 1e3)
    presence.excuse([1])
    for _ in range(2):
        presence.went(1)
        presence.came(1)
    presence.went(2)
    monkeypatch.setattr("walktalk.runtimes.peers.wire.connections.GRACE", 0.05)
    presence.excuse([3])
    presence.went(3)
    assert [told.get(timeout=SECONDS) for _ in range(4)] == [(1, True), (1, True), (2, False), (3, False)]
