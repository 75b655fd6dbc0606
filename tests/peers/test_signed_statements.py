"""What a node has done is its own signed word: others pass it on, and nobody can change it or say it for them."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from tests.peers.test_joining import crowd, wait_for
from walktalk.graphs import complete, cycle
from walktalk.protocols import AsyncGossip, Message, MultiWalk
from walktalk.runtimes.peers import Delivery, Parcel, Stamp, credentials, make_certificates
from walktalk.runtimes.peers.identity.authority import open_authority, revoke_certificates
from walktalk.runtimes.peers.identity.signed_statements import SignedStatements, statements_in
from walktalk.runtimes.peers.node.progress import End
from walktalk.runtimes.peers.node.tally import FASTEST, Tally
from walktalk.runtimes.semantics import Stop
from walktalk.testing.cluster import done

NAMES = ("a", "b", "c")
ENTRY = struct.Struct("<IQQBQffI")
DICE = random.Random(0)


def words_of(folder: Path, name: str) -> SignedStatements:
    return SignedStatements(
        "test", lambda: credentials(folder, name), lambda number: dict(enumerate(NAMES)).get(number, "")
    )


@pytest.fixture
def tallies(tmp_path: Path) -> list[Tally]:
    """Of three nodes, each with a certificate, none of which the others have seen yet."""
    make_certificates(tmp_path, dict.fromkeys(NAMES, ()))
    return [Tally(number, 3, words=words_of(tmp_path, name)) for number, name in enumerate(NAMES)]


def introduce(tallies: list[Tally]) -> None:
    for here in tallies:
        for there in tallies:
            assert here.words is not None
            assert there.words is not None
            for chain in there.words.all():
                here.words.learn(chain)


def train(tally: Tally, iterations: int) -> None:
    tally.say(idle=False, loss=0.5, samples=10)
    tally.add(iterations, 1000)


@pytest.mark.parametrize(("nodes", "known"), [(0, 1), (3, 3)])
def test_a_large_cluster_has_room_for_everybodys_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int, known: int
) -> None:
    """With room for 4,096 whatever its size, what the 4,097th said never held."""
    monkeypatch.setattr("walktalk.runtimes.peers.identity.signed_statements.KNOWN", 1)
    make_certificates(tmp_path, dict.fromkeys(NAMES, ()))
    names = dict(enumerate(NAMES))
    words = SignedStatements("test", lambda: credentials(tmp_path, "a"), lambda number: names[number], nodes)
    for name in NAMES:
        for chain in words_of(tmp_path, name).all():
            words.learn(chain)
    assert len(words.all()) == known


def test_words_are_passed_on_as_they_are(tallies: list[Tally]) -> None:
    a, b, c = tallies
    train(c, 7)
    b.hear(2, c.encode(60.0, DICE))
    assert 2 not in b.counts  # whose words these are cannot be told yet
    introduce(tallies)
    b.hear(2, c.encode(60.0, DICE))
    train(b, 5)
    a.hear(1, b.encode(60.0, DICE))
    assert [a.counts[node].iterations for node in (1, 2)] == [5, 7]
    assert a.counts[2].loss == 0.5


def test_one_message_of_a_member_ends_no_run(tallies: list[Tally], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of numbers of others it was believed as far as they could train: a thousand a second, each of them."""
    monkeypatch.setattr("walktalk.runtimes.peers.node.tally.PAUSE", 0.0)
    introduce(tallies)
    a, liar, c = tallies
    train(c, 10)
    liar.hear(2, c.encode(60.0, DICE))
    train(liar, 10)
    a.hear(1, liar.encode(60.0, DICE))
    assert a.iterations == 20
    end, true, before = End(Stop(iterations=3000), a), liar._said[2].packed, dict(a.counts)
    assert liar.words is not None
    forged = [ENTRY.pack(node, 10**6, 10**9, 3, 100, 0.0, 0.0, 10) for node in (0, 2)]
    for told in (
        b"".join(forged),  # as if nobody signed
        b"".join(map(liar.words.signed, forged)),  # its own signature under what others are to have said
        forged[1] + true[ENTRY.size :],  # theirs, under something else
        true + liar.words.signed(forged[0]),
    ):
        with pytest.raises(ValueError, match=r"."):
            a.hear(1, struct.pack("<d", 60.0) + told)
        assert a.counts == before
        assert not end.look(60.0, {1})
    a.hear(1, struct.pack("<d", 60.0) + liar.words.signed(ENTRY.pack(1, 10**6, 10**9, 0, 100, 0.5, 0.5, 10)))
    assert a.iterations < 20 + FASTEST  # of itself it may lie, and is believed as far as it can train since
    assert not end.look(60.0, {1})


def test_words_of_one_whose_certificate_is_revoked_count_no_more(tallies: list[Tally], tmp_path: Path) -> None:
    introduce(tallies)
    a, b, c = tallies
    train(c, 7)
    b.hear(2, c.encode(60.0, DICE))
    train(b, 5)
    revoke_certificates(open_authority(tmp_path), "c")
    a.hear(1, b.encode(60.0, DICE))  # who passes them on has not heard of it yet, and is no liar
    assert {node: count.iterations for node, count in a.counts.items()} == {0: 0, 1: 5}


def test_who_lost_its_past_hears_of_it_in_its_own_words(tallies: list[Tally], tmp_path: Path) -> None:
    introduce(tallies)
    a, b, _ = tallies
    train(a, 9)
    b.hear(0, a.encode(60.0, DICE))
    train(b, 5)
    again = Tally(0, 3, words=words_of(tmp_path, "a"))
    introduce([again, b])
    again.hear(1, b.encode(60.0, DICE))
    assert again.own.iterations == 9
    again.say(idle=False, loss=0.25, samples=10)
    b.hear(0, again.encode(60.0, DICE))
    assert b.counts[0].loss == 0.25


def test_only_certificates_of_the_authority_are_learned(tallies: list[Tally], tmp_path: Path) -> None:
    make_certificates(tmp_path / "other", {"b": ()})
    words = tallies[0].words
    assert words is not None
    (foreign,) = words_of(tmp_path / "other", "b").all()
    with pytest.raises(ValueError, match="another authority"):
        words.learn(foreign)
    for nonsense in (b"", b"x", foreign[:-1], foreign + b"x", b"\xff\xff" + b"x" * 9):
        with pytest.raises(ValueError, match=r"."):
            words.learn(nonsense)
    for nonsense in (b"x" * (ENTRY.size + 3), b"x" * (ENTRY.size + 8) + b"\xff\xff"):
        with pytest.raises(ValueError, match="breaks off"):
            statements_in(nonsense, 0, ENTRY.size)


def test_counts_of_nodes_that_are_no_neighbours_are_heard(tmp_path: Path) -> None:
    """Over mutual TLS, on a cycle of four: what the node on the other side has done comes through others."""
    with crowd(tmp_path, MultiWalk(2, heartbeat=0.2), cycle(4), certified=True) as made:
        first = made.nodes["n0"].progress.tally
        wait_for(lambda: 2 in first.counts and first.counts[2].iterations > 3)
        assert 2 not in made.nodes["n0"].members.view.neighbours
        assert not made.nodes["n0"].state.refused


def test_standing_aside_needs_what_the_later_life_has_signed(tmp_path: Path) -> None:
    """The last living neighbour lied once about a later life, and a node stood aside for ever."""
    with crowd(tmp_path, AsyncGossip(), complete(3), certified=True) as made:
        node, other = made.nodes["n1"], made.nodes["n0"]
        later = node.link.incarnation + 1000
        for liar in (0, 2):
            node.link.duplicate_names.told(later, liar)
        own, theirs = node.progress.statements, other.progress.statements
        assert own is not None
        assert theirs is not None
        for lie in (theirs.signed_life(1, later), b"", own.signed_life(0, later), bytes(60)):
            node.inbox.arrived(
                Delivery(Parcel(0, 1, Message("later", note=lie)), None, Stamp(other.link.incarnation, 9))
            )
        before = done(node)
        wait_for(lambda: done(node) > before + 5)
        assert not node.state.aside
        assert node.health.status()["state"] != "aside"
        truth = Message("later", note=own.signed_life(1, later))  # as its twin has signed it, with the same key
        node.inbox.arrived(Delivery(Parcel(0, 1, truth), None, Stamp(other.link.incarnation, 9)))
        for neighbour in (0, 2):
            node.link.duplicate_names.told(later, neighbour)
        wait_for(lambda: node.state.aside)
        assert node.status()["state"] == "aside"
