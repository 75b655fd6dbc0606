"""The wire format: exact sizes, round trips, and bytes from hell."""

from __future__ import annotations

import gc
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from walktalk.protocols import HEADER_BYTES, Message, control_bytes
from walktalk.runtimes.peers.wire.messages import (
    FRAME_BYTES,
    Ack,
    Answer,
    Assembler,
    Delivery,
    Frame,
    Limits,
    Parcel,
    Pool,
    Stamp,
    WireError,
    checksum,
    chunks,
    decode_ack,
    decode_header,
    encode_ack,
    encode_header,
    open_chunk,
)
from walktalk.runtimes.peers.wire.messages import LARGEST as MOST

WIDTH = 1000
LARGEST = {"walk": frozenset((4 * WIDTH,))}
SMALL = 700  # bytes a chunk, so that a model of 4,000 bytes takes several
u31 = st.integers(0, MOST)
kinds = st.from_regex(r"[a-z][a-z0-9_-]{0,25}", fullmatch=True)
messages = st.builds(Message, kind=kinds, walk=u31, round=u31, term=u31, note=st.binary(max_size=300))


@st.composite
def parcels(draw: st.DrawFn, width: int = WIDTH) -> Parcel:
    with_model = draw(st.booleans())
    message = draw(messages)
    return Parcel(3, 5, message._replace(kind="walk") if with_model else message, 4 * width if with_model else -1)


def model_of(parcel: Parcel) -> np.ndarray | None:
    return np.frombuffer(np.random.default_rng(1).bytes(parcel.payload), np.uint8) if parcel.payload >= 0 else None


def pieces(parcel: Parcel, number: int = 1, incarnation: int = 1) -> list[bytes]:
    model = model_of(parcel)
    return list(chunks(parcel, None if model is None else model.data, Stamp(incarnation, number), SMALL))


def assembler(**limits: float) -> Assembler:
    return Assembler(3, 5, Limits(LARGEST, **limits), Pool())  # type: ignore[arg-type]


def feed(target: Assembler, data: list[bytes], now: float = 0.0) -> Delivery | None:
    delivery = None
    for chunk in data:
        delivery = target.add(chunk, now)
    return delivery


def test_what_is_on_the_wire_is_the_same_in_every_version() -> None:
    """Nodes of two versions read each other: sums and headers are these bytes, whoever made them."""
    frame = Frame(Stamp(1, 2), 0, 1)
    assert checksum(frame, (bytes(range(256)) * 33, b"xyz")) == 13005662459697845732
    empty = Parcel(1, 2, Message("walk"), 0)  # a model of no bytes is one, too
    assert decode_header(encode_header(empty)) == empty


@given(parcels())
def test_header_comes_back_and_has_the_size_that_the_simulator_counts(parcel: Parcel) -> None:
    data = encode_header(parcel)
    assert len(data) == control_bytes(parcel.message)
    assert len(encode_header(parcel._replace(message=parcel.message._replace(note=b"")))) == HEADER_BYTES
    assert decode_header(data) == parcel


@given(parcels())
def test_message_comes_back_whole_from_its_chunks(parcel: Parcel) -> None:
    data = pieces(parcel)
    assert sum(len(chunk) - FRAME_BYTES for chunk in data) == control_bytes(parcel.message) + max(parcel.payload, 0)
    delivery = feed(assembler(), data)
    assert delivery is not None
    assert delivery.parcel == parcel
    expected = model_of(parcel)
    assert (delivery.payload is None) == (expected is None)
    if expected is not None:
        np.testing.assert_array_equal(delivery.payload, expected)


@given(st.binary(max_size=400))
def test_random_bytes_are_never_a_message(data: bytes) -> None:
    for read in (open_chunk, decode_header, decode_ack, lambda d: assembler().add(d, 0.0)):
        with pytest.raises(WireError):
            read(data)


@settings(max_examples=300)
@given(parcels(), st.data())
def test_one_flipped_bit_anywhere_is_noticed(parcel: Parcel, data: st.DataObject) -> None:
    target, all_pieces = assembler(), pieces(parcel)
    index = data.draw(st.integers(0, len(all_pieces) - 1))
    damaged = bytearray(all_pieces[index])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    feed(target, all_pieces[:index])
    with pytest.raises(WireError):
        target.add(bytes(damaged), 0.0)


@settings(max_examples=300)
@given(parcels(), st.data())
def test_chunks_cut_short_lengthened_or_out_of_order_never_deliver(parcel: Parcel, data: st.DataObject) -> None:
    all_pieces = pieces(parcel)
    target = assembler()
    action = data.draw(st.sampled_from(["cut", "longer", "missing", "twice", "swapped"]))
    index = data.draw(st.integers(0, len(all_pieces) - 1))
    changed = list(all_pieces)
    if action == "cut":
        changed[index] = changed[index][: data.draw(st.integers(0, len(changed[index]) - 1))]
    elif action == "longer":
        changed[index] += data.draw(st.binary(min_size=1, max_size=20))
    elif action == "missing":
        del changed[index]
    elif action == "twice":
        changed.insert(index, changed[index])
    elif len(changed) > 1:
        changed[0], changed[-1] = changed[-1], changed[0]
    delivered = []
    errors = 0
    for chunk in changed:
        try:
            got = target.add(chunk, 0.0)
        except WireError:
            errors += 1
        else:
            delivered += [got] if got is not None else []
    if action == "twice" or (action == "swapped" and len(all_pieces) == 1):
        assert len(delivered) <= 1  # a repeated first piece begins the message anew, which is harmless
    else:
        assert not delivered
    for got in delivered:
        assert got.parcel == parcel


def test_a_message_is_taken_once_and_an_older_life_of_the_sender_is_not_heard() -> None:
    target = assembler()
    parcel = Parcel(3, 5, Message("walk", walk=1), 4 * WIDTH)
    assert feed(target, pieces(parcel, number=1, incarnation=10)) is not None
    for number, incarnation in ((1, 10), (7, 9)):
        with pytest.raises(WireError, match="replayed"):
            feed(target, pieces(parcel, number, incarnation))
    assert feed(target, pieces(parcel, number=1, incarnation=11)) is not None


@pytest.mark.parametrize(
    ("parcel", "reason"),
    [
        (Parcel(3, 5, Message("walk"), 4 * WIDTH + 4), "oversized"),
        (Parcel(3, 5, Message("walk"), 4 * WIDTH - 4), "malformed"),
        (Parcel(4, 5, Message("walk"), 4 * WIDTH), "forged"),
        (Parcel(3, 6, Message("walk"), 4 * WIDTH), "forged"),
        (Parcel(3, 5, Message("word", note=b"x" * 5000)), "oversized"),
        (Parcel(3, 5, Message("word"), 4 * WIDTH), "oversized"),  # no model is declared for this kind
    ],
)
def test_limits(parcel: Parcel, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        feed(assembler(), pieces(parcel))


@pytest.mark.parametrize("field", ["walk", "round", "term"])
def test_a_number_is_believed_up_to_the_largest_and_no_further(field: str) -> None:
    """Each by itself: one that is too large among others that are 0 is too large."""
    assert decode_header(encode_header(Parcel(3, 5, Message("word", **{field: MOST}), -1))).message == Message(
        "word", **{field: MOST}
    )
    with pytest.raises(WireError, match=f"at most {MOST}"):
        decode_header(encode_header(Parcel(3, 5, Message("word", **{field: MOST + 1}), -1)))


def test_too_many_messages_a_second_are_dropped_and_a_pause_helps() -> None:
    target = assembler(messages_per_second=10.0, burst=5)
    word = Parcel(3, 5, Message("word"))
    for number in range(1, 6):
        assert feed(target, pieces(word, number)) is not None
    with pytest.raises(WireError, match="rate") as refused:
        feed(target, pieces(word, 6))
    assert refused.value.reason == "rate"  # under which it is counted
    assert feed(target, pieces(word, 6), now=0.2) is not None


def test_a_new_message_replaces_one_that_broke_off() -> None:
    target = assembler()
    parcel = Parcel(3, 5, Message("walk", walk=1), 4 * WIDTH)
    feed(target, pieces(parcel, 1)[:-1])
    assert target.arriving == Stamp(1, 1)
    assert feed(target, pieces(parcel, 2)) is not None
    assert target.arriving is None


def test_memory_is_used_again_only_when_nobody_holds_the_model() -> None:
    pool = Pool()

    def place(array: np.ndarray) -> int:
        return array.__array_interface__["data"][0]

    looks = (
        lambda array: array.data,
        lambda array: array[2:6],
        lambda array: array.view("<f4"),
        lambda array: torch.from_numpy(array.view("<f4"))[1:],
        lambda array: memoryview(array)[1:],
    )
    for look in looks:
        first = pool.lend(8)
        where, held = place(first), look(first)
        del first
        assert place(pool.lend(8)) != where  # `held` still looks at it
        del held
        gc.collect()
        assert where in {place(array) for array in [pool.lend(8) for _ in range(Pool.KEPT)]}


@given(u31, u31, st.sampled_from(list(Answer)))
def test_acknowledgements_come_back(incarnation: int, number: int, answer: Answer) -> None:
    ack = Ack(Stamp(incarnation, number), answer)
    assert decode_ack(encode_ack(ack)) == ack


@pytest.mark.parametrize("message", [Message("Walk"), Message("w" * 27), Message("")])
def test_a_kind_that_does_not_fit_is_our_mistake(message: Message) -> None:
    with pytest.raises(ValueError, match="kind"):
        encode_header(Parcel(0, 1, message))


def test_memory_is_lent_to_one_at_a_time_whatever_thread_asks() -> None:
    """Messages of several neighbours arrive in several threads."""
    pool, wrong = Pool(), []

    def work(me: int) -> None:
        try:
            for _ in range(1500):
                lent = [pool.lend(64), pool.lend(64)]
                for one in lent:
                    one[:] = me
                wrong.extend("lent twice" for one in lent if (one != me).any())
                del lent, one
        except Exception as error:
            wrong.append(repr(error))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong
