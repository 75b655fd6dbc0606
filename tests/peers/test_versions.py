"""Two versions work together: what each says, byte by byte, and what a later one may add.

What is written in hexadecimal digits here was said by version 8 of messages, before versions were negotiated. Whoever
changes one of these bytes makes another version of messages (`wire.versions`): it needs a line there and in the
changelog, and has to go by the older one with a neighbour that knows no more.
"""

from __future__ import annotations

import json
import logging
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.peers.offline import offline
from tests.peers.test_hostile import lonely_node, say
from tests.support.mechanisms import ONE_OF_EACH, slow_unless
from walktalk.core.errors import StudyError
from walktalk.graphs import complete
from walktalk.learning import tasks
from walktalk.protocols import PROTOCOLS, Message
from walktalk.records import OtherVersionError, TraceRow, load_checkpoint, save_checkpoint
from walktalk.runtimes.peers import (
    Delivery,
    Entry,
    Parcel,
    Roster,
    Stamp,
    credentials,
    facts_of,
    make_certificates,
    make_cluster,
    signed_entry,
)
from walktalk.runtimes.peers.identity import handshake
from walktalk.runtimes.peers.identity.handshake import HELLO_KIND, Hello, decode_hello, encode_hello
from walktalk.runtimes.peers.identity.signed_statements import SignedStatements, Statement
from walktalk.runtimes.peers.node import checkpoints as node_checkpoints
from walktalk.runtimes.peers.node.checkpoints import CHECKPOINT, Checkpoints, Kept
from walktalk.runtimes.peers.node.event_log import read_lines
from walktalk.runtimes.peers.node.roster import Standing, as_text, from_note, from_text, notes
from walktalk.runtimes.peers.node.tally import COUNTS_KIND, TALLY_KIND, Count, Tally, Word, packed_count, words_in
from walktalk.runtimes.peers.operations.answers import read_answer
from walktalk.runtimes.peers.wire.messages import (
    Ack,
    Answer,
    chunks,
    decode_ack,
    decode_header,
    encode_ack,
    encode_header,
)
from walktalk.runtimes.peers.wire.versions import (
    CHECKPOINTS,
    GUESTS,
    MESSAGES,
    SCRIPT,
    Span,
    span_in,
    why_not_understood,
)
from walktalk.studies.peers.node_job import study_facts, task_facts
from walktalk.studies.planning import build_foundation
from walktalk.studies.spec import make_spec

DICE = random.Random(0)
LATER = Span(9, 10)  # what the version after this one will speak
STATEMENT = Statement(b"word", b"markmark", b"signature")
COUNT = Count(1000, 2**40, True, False, True, 77, 0.5, 0.25, 190, True)

# -- which versions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "agreed", "why"),
    [
        (Span(8, 8), 8, ""),
        (Span(8, 9), 9, ""),
        (Span(9, 10), 9, ""),
        (Span(9, 30), 9, ""),
        (Span(10, 11), None, "version is 10 to 11 there (walktalk 9.9) and 8 to 9 here; upgrade this one"),
        (Span(6, 7), None, "version is 6 to 7 there (walktalk 9.9) and 8 to 9 here; upgrade that one"),
        (None, None, "it does not say which versions it speaks"),
    ],
)
def test_two_sides_go_by_the_newest_version_that_both_know(other: Span | None, agreed: int | None, why: str) -> None:
    assert why_not_understood(MESSAGES, other, "9.9") == why
    if other is not None:
        assert MESSAGES.agreed(other) == other.agreed(MESSAGES) == agreed


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"version": "8"},
        {"version": True},
        {"version": 8, "speaks": [9, 8]},
        {"version": 8, "speaks": [8]},
        {"version": 8, "speaks": [8.0, 9.0]},
        {"speaks": {"8": 9}},
        {"version": -1},
        {"version": 10**12},
    ],
)
def test_versions_that_are_none_are_refused(said: dict[str, Any]) -> None:
    assert span_in(said) is None


def test_who_says_one_number_speaks_that_version_alone_and_hears_the_oldest_of_ours() -> None:
    assert span_in({"version": 8}) == Span(8, 8)
    assert span_in({"version": 8, "speaks": [8, 9, "more"]}) == Span(8, 9)
    assert MESSAGES.told() == {"version": 8, "speaks": [8, 9]}
    assert (GUESTS.told()["version"], SCRIPT.told()["version"]) == (1, 1)  # all that was compared before


# -- bytes ------------------------------------------------------------------------------------------------------------

HEADER_OF_8 = (
    "5754020177616c6b00000000000000000000000000000000000000000000010000000200000003000000040000000500000004000800000000000"
    "0003da2017a6e6f7465"
)
FRAME_OF_8 = "777463310600000000000000070000000000000001000000a651c476d2d227c5"
ACK_OF_8 = "77746132060000000000000007000000040000000900000000000000"
TALLY_OF_8 = (
    "0000000000000440"
    "00000000e80300000000000000000000000100000d4d000000000000000000003f0000803ebe000000"
    "01000000010000000000000002000000000000000000000000000000000000c07f0000c07f00000000"
)
STATEMENT_OF_8 = "776f72646d61726b6d61726b09007369676e6174757265"
LIFE_OF_8 = "6c696665030000000000000000000010"
HELLO_OF_8 = b'{"facts": {"seed": 0, "version": 8}, "knows": false, "life": "ab", "met": true}'
ENTRY_OF_8 = b'["c", 70, 3, "h:1", ["a", "b"], "Lyon", 1, "c", "CERT", "SIGN"]'
DIGEST_OF_8 = "9867272bd2a18cbe"


def test_frames_headers_and_acknowledgements_are_as_they_always_were() -> None:
    """All versions understand them, so there is nothing to negotiate: they cannot change."""
    parcel = Parcel(1, 2, Message("walk", 3, 4, 5, b"note"), 8)
    assert encode_header(parcel).hex() == HEADER_OF_8
    assert decode_header(bytes.fromhex(HEADER_OF_8)) == parcel
    (chunk,) = chunks(parcel, bytes(range(8)), Stamp(6, 7))
    assert chunk.hex() == FRAME_OF_8 + HEADER_OF_8 + bytes(range(8)).hex()
    ack = Ack(Stamp(6, 7), Answer.BACK_SOON, 9)
    assert encode_ack(ack).hex() == ACK_OF_8
    assert decode_ack(bytes.fromhex(ACK_OF_8)) == ack
    assert [int(one) for one in Answer] == [0, 1, 2, 3, 4, 5]


def test_a_hello_of_version_8_is_read_and_ours_has_all_that_it_has() -> None:
    """Texts are compared, not bytes: libraries compress them differently."""
    read = decode_hello(zlib.compress(HELLO_OF_8))
    assert read == Hello({"version": 8, "seed": 0}, True, False, "ab", Span(8, 8), {})
    ours = Hello(read.facts, True, False, "ab", MESSAGES, {"walktalk": "1.2"}, {"labels": 10})
    said = json.loads(zlib.decompress(encode_hello(ours)))
    of_9 = {"speaks": [8, 9], "about": {"walktalk": "1.2"}, "schema": {"labels": 10}}
    assert said == {**json.loads(HELLO_OF_8), **of_9}
    assert decode_hello(encode_hello(ours)) == ours


def two_counts() -> Tally:
    tally = Tally(0, 3)
    tally.counts |= {0: COUNT, 1: Count(1, 2)}
    return tally


def test_counts_are_told_as_in_version_8_or_with_their_lengths() -> None:
    tally = two_counts()
    assert tally.encode(2.5, DICE).hex() == TALLY_OF_8
    clock, first, second = TALLY_OF_8[:16], TALLY_OF_8[16:98], TALLY_OF_8[98:]
    assert tally.encode(2.5, DICE, lengths=True).hex() == f"{clock}2900{first}2900{second}"
    for lengths in (False, True):
        other = Tally(2, 3)
        other.hear(0, tally.encode(2.5, DICE, lengths), lengths)
        assert set(other.counts) == {0, 1, 2}
        assert other.counts[0]._replace(iterations=1000, sent=2**40) == COUNT  # of which some is believed at once
    assert STATEMENT.packed.hex() == STATEMENT_OF_8
    assert Word(*STATEMENT).packed(lengths=True).hex() == f"0400{STATEMENT_OF_8}"


def test_a_life_is_signed_as_it_always_was(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"a": ()})
    words = SignedStatements("test", lambda: credentials(tmp_path, "a"), {3: "a"}.get)  # type: ignore[arg-type]
    assert words.signed_life(3, 1 << 60).hex().startswith(LIFE_OF_8)
    assert words.life_in(3, words.signed_life(3, 1 << 60)) == 1 << 60


def test_an_entry_of_the_roster_is_told_as_in_version_8() -> None:
    entry = Entry.heard(json.loads(ENTRY_OF_8))
    (note,) = notes([entry])
    assert zlib.decompress(note) == b"[" + ENTRY_OF_8 + b"]"
    assert entry.content("test") == b'["test", "c", 70, 3, "h:1", ["a", "b"], "Lyon", 1, "c"]'
    roster = Roster("test", complete(2), ("a", "b"))
    roster.join([entry])
    assert roster.digest.hex() == DIGEST_OF_8


KINDS: dict[str, dict[str, tuple[int, bool]]] = {
    "multi_walk": {"ack": (12, False), "walk": (12, True)},
    "digest": {"taken": (0, False), "traveller": (0, True)},
    "async_gossip": {"answer": (0, True), "offer": (0, True)},
    "agraf": {"answer": (0, True), "offer": (0, True)},
    "swift": {"mail": (0, True)},
    "sync_gossip": {"round": (0, True)},
    "fedavg": {"change_up": (4, True), "model_down": (0, True)},
    "fedbuff": {"model": (0, True), "result": (0, True)},
}
"""By algorithm: the kinds of its first messages, the bytes of their notes, and whether a model comes with them."""
QUICK = ("multi_walk", "async_gossip", "fedavg")


@pytest.mark.parametrize("name", [pytest.param(one, marks=slow_unless(one in QUICK)) for one in ONE_OF_EACH])
def test_messages_of_an_algorithm_are_laid_out_as_in_version_8(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling upgrade meets them in the middle of a run."""
    monkeypatch.setattr("walktalk.runtimes.peers.node.node.next_life", lambda folder: 1)
    ours = {HELLO_KIND, TALLY_KIND, COUNTS_KIND}
    found: dict[str, tuple[int, bool]] = {}
    with offline(PROTOCOLS.find(name)(), complete(4), tmp_path, monkeypatch, 1) as made:
        for _ in range(12):
            for said in made.wire:
                message = said.parcel.message
                if message.kind not in ours:
                    found.setdefault(message.kind, (len(message.note), said.payload is not None))
            made.go_on()
    assert found == KINDS[name]


FACTS_OF_8 = {
    "version": 8,
    "network": "complete(3), 3 edges, c1721b4d… (cb7fbcd5)",
    "task.name": "digits",
    "task.hidden": 64,
    "objective.cap": "2.0",
    "objective.equal_pace": False,
    "optimizer.name": "sgd",
    "optimizer.lr": "0.05",
    "optimizer.weight_decay": "0.0",
    "optimizer.momentum": "0.9",
    "optimizer.nesterov": True,
    "schedule.warmup": "0.0",
    "schedule.decay_at": "[]",
    "schedule.factor": "0.1",
    "training.batch_size": 32,
    "training.local_steps": 5,
    "training.optimizer_state": "visit",
    "training.buffers": "travel",
    "training.precision": "fp32",
    "seed": 0,
    "repetition": 0,
    "nodes": "a b c",
    "layers": "Sequential Linear ReLU Linear",
    "loss": "cross_entropy",
}
ALGORITHMS_OF_8 = {
    "multi_walk-2": "MultiWalk(aggregator=0, resili… (c9ca784a)",
    "async_gossip-pairwise": "AsyncGossip(resilient=True, pa… (29af534f)",
    "fedavg": "FedAvg(steps=0, server=0, resi… (87c8b7f9)",
}


def test_a_study_has_the_facts_that_version_8_compares() -> None:
    """Who adds a setting writes it and its default into `versions.SETTINGS`, or nodes of before are refused."""
    chosen = [{"name": "multi_walk", "walks": 2}, {"name": "async_gossip"}, {"name": "fedavg"}]
    study = {"network": {"topology": "complete", "nodes": 3}, "task": {"name": "digits"}, "algorithms": chosen}
    base = build_foundation(make_spec(study))
    task = task_facts(base.task_of(tasks.Node("a", 0)))
    for plan in base.algorithms:
        nodes = {"a": {}, "b": {}, "c": {}}
        cluster = make_cluster({"name": "test", "study": study, "algorithm": plan.label, "nodes": nodes})
        said = {"algorithm": plan.protocol.resilient_form(), **study_facts(cluster, base, plan), **task}
        facts = facts_of(said, torch.zeros(3))
        assert facts.pop("algorithm") == ALGORITHMS_OF_8[plan.label]
        assert {key: value for key, value in facts.items() if key not in ("width", "initial model")} == FACTS_OF_8


class Rule:
    """An algorithm with settings."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def __repr__(self) -> str:
        return f"Rule({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"


def test_a_new_setting_is_told_where_it_is_not_at_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "SETTINGS", {"training.new": 3, "Rule.first": "x", "Rule.last": None})
    old = facts_of({"algorithm": Rule(k=1), "seed": 0}, torch.zeros(1))
    same = facts_of({"algorithm": Rule(first="x", k=1, last=None), "seed": 0, "training.new": 3}, torch.zeros(1))
    assert same == old
    other = facts_of({"algorithm": Rule(first="y", k=1, last=None), "seed": 0, "training.new": 4}, torch.zeros(1))
    assert (other["algorithm"], other["training.new"]) == ("Rule(first='y', k=1)", 4)


# -- what a later version may add -------------------------------------------------------------------------------------


def test_a_later_hello_is_understood_and_what_it_adds_is_no_error(tmp_path: Path) -> None:
    with lonely_node(tmp_path, study={"seed": 0}) as node:
        facts = {**node.neighbours.facts, "version": LATER.oldest}
        later = {
            "facts": facts,
            "met": True,
            "knows": False,
            "speaks": [*LATER, "?"],
            "about": {"kit": "f00"},
            "new": [{}],
        }
        hear_hello(node, 1, 2, later)
        hear_hello(node, 2, 2, {**later, "speaks": [10, 11]})
        assert node.state.alive == {1}
        assert node.state.speaks == {1: 9, 2: 8}
        status = node.status()
        assert status["strangers"] == {"n2": "version is 10 to 11 there and 8 to 9 here; upgrade this one"}
        assert status["neighbours_about"]["n1"] == {"kit": "f00", "speaks": 9}
        assert "it refuses n2: version is 10 to 11 there and 8 to 9 here; upgrade this one" in status["complaints"]
        assert status["warnings"] == []
        hear_hello(node, 2, 3, {"facts": {**facts, "version": 8}, "met": True, "knows": False})  # rolled back, far
        assert node.state.alive == {1, 2}
        assert node.state.speaks == {1: 9, 2: 8}
        (warning,) = node.status()["warnings"]
        assert warning == "n2 speaks version 8 of messages, and this node 9: both go by 8; upgrade it"
        hear_hello(node, 2, 4, {**later, "facts": {**facts, "seed": 1}})  # another study is refused as ever
        assert node.status()["strangers"] == {"n2": "seed is 1 there and 0 here"}


def hear_hello(node: Any, peer: int, life: int, said: dict[str, Any]) -> None:
    message = Message(HELLO_KIND, note=zlib.compress(json.dumps(said).encode()))
    node.inbox.arrived(Delivery(Parcel(peer, 0, message), None, Stamp(life, 1)))


def test_what_a_neighbour_says_of_itself_has_limits() -> None:
    about = {"a": 1, "b": None, "c\x1b": "x\x1b[2J", **{f"k{n}": "y" * 500 for n in range(100)}}
    said = {"facts": {"version": 8}, "met": True, "knows": False, "about": about}
    read = decode_hello(zlib.compress(json.dumps(said).encode())).about
    assert len(read) == handshake.ABOUT_AT_MOST
    assert all(text.isprintable() and len(text) <= handshake.LONGEST_ABOUT + 1 for text in (*read, *read.values()))
    assert decode_hello(zlib.compress(json.dumps({**said, "about": ["x"]}).encode())).about == {}


LATER_COUNT = packed_count(1, Count(7, 70, moment=3))[:20] + b"\x50" + packed_count(1, Count(7, 70, moment=3))[21:]
"""With two flags of a later version."""


def later_note(*words: bytes) -> bytes:
    return struct.pack("<d", 60.0) + b"".join(struct.pack("<H", len(word)) + word for word in words)


def test_counts_of_which_a_later_version_says_more_are_kept_and_passed_on() -> None:
    here, next_, old = Tally(0, 3), Tally(2, 3), Tally(2, 3)
    here.add(1)
    here.hear(1, later_note(LATER_COUNT + b"more of it"), lengths=True)
    assert here.counts[1].iterations == 7
    assert (here.counts[1].unknown, here.counts[1].further) == (0x50, b"more of it")
    told = here.encode(60.0, DICE, lengths=True)
    assert LATER_COUNT + b"more of it" in told
    next_.hear(0, told, lengths=True)
    assert next_.counts[1].further == b"more of it"
    old.hear(0, here.encode(60.0, DICE))  # version 8 is told what it knows
    assert old.counts[1].iterations == 7


def test_signed_counts_of_a_later_version_are_passed_on_as_they_are(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    make_certificates(tmp_path, dict.fromkeys(names, ()))
    words = [
        SignedStatements("test", lambda name=name: credentials(tmp_path, name), dict(enumerate(names)).__getitem__)  # type: ignore[misc]
        for name in names
    ]
    here, next_, old = (Tally(number, 3, words=words[number]) for number in (0, 2, 2))
    for one in words:
        for other in words:
            for chain in other.all():
                one.learn(chain)
    here.say(False, 0.5, 10)
    statement = words[1].statement(LATER_COUNT + b"more")
    note = struct.pack("<dH", 60.0, len(statement.word)) + statement.packed
    here.hear(1, note, lengths=True)
    assert here.counts[1].further == b"more"
    next_.hear(0, here.encode(60.0, DICE, lengths=True), lengths=True)
    assert next_.counts[1].iterations == 7
    assert next_.counts[1].further == b"more"
    old.hear(0, here.encode(60.0, DICE))  # it cannot be taken out of what is signed, so version 8 does without
    assert 1 not in old.counts
    assert 0 in old.counts
    with pytest.raises(ValueError, match="signature"):
        here.hear(1, note.replace(b"more", b"less").replace(struct.pack("<Q", 3), struct.pack("<Q", 4)), lengths=True)


@pytest.mark.parametrize(
    ("told", "lengths"),
    [
        (b"x", False),
        (b"x" * 42, False),
        (LATER_COUNT, False),
        (b"\x29", True),
        (struct.pack("<H", 41) + LATER_COUNT[:40], True),
        (struct.pack("<H", 40) + LATER_COUNT[:40], True),
        (struct.pack("<H", 257) + LATER_COUNT + b"x" * 216, True),
    ],
)
def test_what_is_no_count_is_refused_in_either_layout(told: bytes, lengths: bool) -> None:
    with pytest.raises(ValueError, match="tally"):
        Tally(0, 3).hear(1, struct.pack("<d", 60.0) + told, lengths)
    if not lengths and len(told) == 41:
        assert [len(word.content) for word in words_in(told, False, False)] == [41]


def test_a_note_has_room_for_all_counts_that_are_told() -> None:
    """A hundred nodes' counts were longer than a note may be, and refused."""
    tally = Tally(0, 500)
    tally.counts |= {node: Count(1, 2) for node in range(500)}
    for lengths in (False, True):
        assert 3900 < len(tally.encode(1.0, DICE, lengths)) <= 4096


def test_entries_of_a_later_version_are_kept_signed_and_passed_on(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"a": (), "b": ()})
    roster = Roster("test", complete(2), ("a", "b"), tmp_path / "ca.pem")
    entry = roster.next("b", Standing.LEAVING, further=({"until": 2027},))
    signed = signed_entry(entry, roster, credentials(tmp_path, "b"))
    (note,) = notes([signed])
    assert from_note(note) == [signed]
    assert roster.join(from_note(note)) == [signed]
    assert from_text(as_text(roster.entries)) == [signed]
    for changed in ([{"until": 2028}], []):
        with pytest.raises(ValueError, match="signature"):
            Roster("test", complete(2), ("a", "b"), tmp_path / "ca.pem").join(
                [Entry.heard(signed.said()[:10] + changed)]
            )
    with pytest.raises(ValueError, match="more is said"):
        Entry.heard([*signed.said(), "x" * 1000])


def test_answers_and_event_logs_of_a_later_version_are_read(tmp_path: Path) -> None:
    answer = read_answer(b'{"name": "a", "iterations": 3, "mood": {"good": [1]}}')
    assert answer == {"name": "a", "iterations": 3, "mood": {"good": [1]}}
    rows = [TraceRow(1.0, 0, "train", "model", number=1), TraceRow(2.0, 0, "dreams"), TraceRow(3.0, 0, "trained")]
    (tmp_path / "trace-1.jsonl").write_text("".join(json.dumps([*row, "more", {}]) + "\n" for row in rows))
    assert read_lines([tmp_path / "trace-1.jsonl"]) == rows


# -- checkpoints ------------------------------------------------------------------------------------------------------


def saved(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """A checkpoint whose facts are others."""
    Checkpoints(folder).save(Kept({"model": torch.ones(3)}, {}, 464, 1000, 1))
    tensors, facts = load_checkpoint(folder / CHECKPOINT)
    save_checkpoint(folder / CHECKPOINT, tensors, change(facts))


def test_a_checkpoint_of_before_is_read_and_what_it_lacks_is_made_up_for(tmp_path: Path) -> None:
    known = ("iterations", "bytes", "number", "milliseconds", "over", "memory", "study", "others")
    saved(tmp_path, lambda facts: {key: facts[key] for key in known})  # as version 1 wrote it
    kept = Checkpoints(tmp_path).load()
    assert kept is not None
    assert kept.iterations == 464
    assert CHECKPOINTS.newest - 1 in node_checkpoints.MIGRATIONS
    assert set(node_checkpoints.MIGRATIONS) == set(range(CHECKPOINTS.oldest, CHECKPOINTS.newest))


def test_version_1_finds_all_that_it_knows_in_a_checkpoint_of_now(tmp_path: Path) -> None:
    """So that a node can be rolled back."""
    Checkpoints(tmp_path).save(Kept({"model": torch.ones(3)}, {}, 464, 1000, 1, b"\1", 2.5, "end", {"version": 8}))
    facts = load_checkpoint(tmp_path / CHECKPOINT)[1]
    of_1 = {"iterations": 464, "bytes": 1000, "number": 1, "milliseconds": 2500, "over": "end", "memory": "01"}
    assert {**facts, **of_1, "study": {"version": 8}, "others": {}} == facts
    assert facts["speaks"] == [1, 2]


def test_a_later_checkpoint_is_read_where_it_says_so_and_refused_where_not(tmp_path: Path) -> None:
    saved(tmp_path, lambda facts: {**facts, "version": 2, "speaks": [2, 3], "mood": "good"})
    kept = Checkpoints(tmp_path).load()
    assert kept is not None
    assert kept.iterations == 464
    for speaks in ([3, 4], [4, 3], "x"):
        saved(tmp_path, lambda facts, speaks=speaks: {**facts, "speaks": speaks})  # type: ignore[misc]
        before = (tmp_path / CHECKPOINT).read_bytes()
        with pytest.raises(
            OtherVersionError, match=r"and this walktalk reads 1 to 2; start the node with the walktalk"
        ):
            Checkpoints(tmp_path).load()
        assert (tmp_path / CHECKPOINT).read_bytes() == before  # nobody begins anew without it


def test_a_checkpoint_in_a_form_of_later_is_not_taken_for_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("walktalk.records.atomic.FORMAT", "walktalk-checkpoint-2")
        saved(tmp_path, dict)
    with pytest.raises(OtherVersionError, match="is of the form 'walktalk-checkpoint-2'"):
        Checkpoints(tmp_path).load()
    assert isinstance(OtherVersionError("x"), StudyError)
    assert (tmp_path / CHECKPOINT).exists()


# -- together ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [pytest.param(one, marks=slow_unless(one == "multi_walk")) for one in QUICK])
def test_nodes_of_two_versions_train_together_and_hear_each_others_counts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    kinds: dict[bool, set[str]] = {True: set(), False: set()}
    with offline(PROTOCOLS.find(name)(), complete(3), tmp_path, monkeypatch, 1, old={2}) as made:
        for _ in range(30):
            for said in made.wire:
                kinds[2 in (said.parcel.sender, said.parcel.receiver)].add(said.parcel.message.kind)
            made.go_on(0.3)
        for node in made.nodes:
            done = {peer: count.iterations for peer, count in node.progress.tally.counts.items()}
            assert set(done) == {0, 1, 2}
            assert min(done.values()) > 0, done
            assert not node.state.refused
    assert TALLY_KIND in kinds[True]
    assert COUNTS_KIND not in kinds[True]
    assert COUNTS_KIND in kinds[False]
    assert TALLY_KIND not in kinds[False]
    assert not caplog.records


def test_one_of_the_version_before_or_after_may_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with offline(PROTOCOLS.find("multi_walk")(), complete(3), tmp_path, monkeypatch, 1, roster=True) as made:
        node = made.nodes[0]
        facts = node.neighbours.facts
        assert node.members._objection("new", {"facts": facts}) == ""  # as version 8 knocks
        assert node.members._objection("new", {"facts": {**facts, "version": 9}, "speaks": [9, 10], "mood": 1}) == ""
        why = node.members._objection("new", {"facts": {**facts, "version": 10}, "speaks": [10, 11]})
        assert why.endswith("version is 10 to 11 there and 8 to 9 here; upgrade this one")


def test_counts_in_the_layout_of_now_are_refused_like_any_nonsense(tmp_path: Path) -> None:
    with lonely_node(tmp_path) as node:
        for note in (b"", b"x" * 50, later_note(b"short"), later_note(LATER_COUNT * 9)):
            before = dict(node.progress.tally.counts)
            say(node, Message(COUNTS_KIND, note=note))
            assert node.progress.tally.counts == before
        assert node.state.refused["n1"] == 4
