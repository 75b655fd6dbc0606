"""What one node that lies can do to walks: end none, hide none, and take the weight from nobody."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.protocols.failures.worlds import term_mixer
from walktalk import graphs
from walktalk.protocols import Context, Message, MultiWalk, Received, Rejoined, Send, Started, TimerFired, Trained
from walktalk.protocols.mechanisms.tokens.guards import Guard, ReturnTimes
from walktalk.protocols.mechanisms.tokens.handovers import DISPUTED, STRAYS, stray_number
from walktalk.protocols.mechanisms.tokens.heartbeats import NOBODY, Claim, Score, Sightings, View, encode
from walktalk.protocols.mechanisms.tokens.hops import Token
from walktalk.protocols.mechanisms.tokens.keeper import mixer_facts, resumed
from walktalk.protocols.mechanisms.tokens.mixing import GivenUp
from walktalk.protocols.mechanisms.tokens.rule import Carried
from walktalk.protocols.walks.multi_walk import AlgorithmOne
from walktalk.runtimes.simulator import all_network_views

FIRST = Claim(1, NOBODY.score, 0)  # node 0 aggregates


def node_of(number: int) -> Any:
    machine = MultiWalk(2).resilient_form().machine(all_network_views(graphs.complete(4))[number])
    give(machine, Started(), 0.0)
    return machine


def give(machine: Any, event: Any, now: float, seed: int = 0) -> Any:
    return machine.handle(event, Context(now, random.Random(seed)))


def beat(number: int, highest: int, claim: Claim = FIRST) -> Message:
    return Message("beat", term=claim.term, note=encode(View(claim, number, NOBODY, 3, 0, highest=highest)))


def walk(ticket: int, term_id: tuple[int, int] = (1, 0), hop: int = 3) -> Received:
    return Received(2, Token(1, term_id, ticket, hop).message("walk"), "in/1")


def send_on(machine: Any, now: float) -> Any:
    """Walk 1 is trained until the dice send it on, and is acknowledged."""
    for seed in range(50):
        if 1 not in machine.hops.leaving:
            give(machine, Trained("walk/1", 1), now, seed)
    gone, to = machine.hops.token(1), machine.hops.leaving[1].to
    give(machine, Received(to, gone.message("ack"), ""), now)
    return gone


def notes(effects: list[Any], event: str) -> list[Any]:
    return [effect for effect in effects if getattr(effect, "event", "") == event]


def test_a_ticket_that_the_aggregator_cannot_have_written_is_taken_from_nobody() -> None:
    machine = node_of(3)
    give(machine, Received(0, beat(8, highest=20), ""), 8.0)
    give(machine, Received(0, beat(9, highest=23), ""), 9.0)
    give(machine, walk(1001), 9.1)
    assert 1 not in machine.copies.here
    give(machine, walk(25), 9.2)  # written since the last heartbeat
    assert machine.copies.here[1].ticket == 25


def test_a_walk_of_a_term_that_nobody_has_heard_of_waits_for_its_heartbeat() -> None:
    """Of term 1000 it was the latest wherever it came, mixed in by nobody, and ended the true one where they met."""
    machine = node_of(3)
    give(machine, Received(0, beat(8, highest=20), ""), 8.0)
    effects = give(machine, walk(21, term_id=(2, 1)), 9.1)
    assert 1 not in machine.copies.here
    assert not [effect for effect in effects if isinstance(effect, Send)]  # so its sender keeps it, and asks again
    give(machine, Received(1, beat(1, 0, Claim(2, NOBODY.score, -1)), ""), 9.2)
    give(machine, walk(21, term_id=(2, 1)), 9.3)
    assert machine.copies.here[1].term_id == (2, 1)


def test_a_forged_ticket_is_forgotten_by_nodes_that_only_pass_heartbeats_on() -> None:
    """The timer of a node's own heartbeat is set anew whenever it passes one on, so it never runs out."""
    machine = node_of(3)
    give(machine, walk(50_001), 0.1)  # before anything is known of tickets
    send_on(machine, 0.2)
    for second in range(1, 40):
        give(machine, Received(0, beat(second, highest=second), ""), float(second))
    give(machine, walk(39), 39.5)
    assert machine.copies.here[1].ticket == 39


def test_a_walk_that_was_ended_on_the_word_of_a_forged_copy_goes_on_from_the_aggregator() -> None:
    aggregator, poisoned = node_of(0), node_of(3)
    now = 1.0
    true = send_on(aggregator, now)
    give(poisoned, walk(41), now)
    send_on(poisoned, now)
    effects = give(poisoned, Received(2, true._replace(hop=9).message("walk"), "in/1"), now)
    assert notes(effects, "retired")
    (sent,) = [effect.message for effect in effects if isinstance(effect, Send) and effect.slot]
    assert sent.walk == stray_number(true._replace(hop=9), 2)
    effects = give(aggregator, Received(3, sent, f"in/{sent.walk}"), now)
    assert notes(effects, "taken_back")
    assert notes(effects, "counted")  # mixed in, as if it had come by itself
    assert aggregator.mixer.tickets[1] == true.ticket + 2
    held = aggregator.copies.here.get(1) or aggregator.hops.token(1)
    assert held.ticket == true.ticket + 2
    again = give(aggregator, Received(3, sent, f"in/{sent.walk}"), now)
    assert not notes(again, "counted")  # once


def test_no_walk_passes_for_another() -> None:
    """One with the model and the ticket of another was mixed in as soon as its own number had come so far."""
    mixer = term_mixer(4, (1, 0), Guard(ReturnTimes(1.0)))
    mixer.begin_afresh(0.0)
    written: dict[int, set[int]] = {number: set() for number in mixer.everyone()}
    for number in random.Random(1).choices(list(mixer.everyone()), k=100):
        mixer.mix(mixer.stamped(number), 1.0)
        ticket = mixer.tickets[number]
        assert ticket > max(written[number], default=0)
        written[number].add(ticket)
    assert sum(map(len, written.values())) == len(set().union(*written.values()))
    machine = node_of(3)
    with pytest.raises(ValueError, match="walk 1 has no ticket 8"):
        give(machine, walk(8), 1.0)  # of walk 2


def test_a_copy_that_only_lags_behind_is_not_taken_back() -> None:
    aggregator = node_of(0)
    aggregator.copies.here.clear()
    stray = Token(STRAYS + 1, (1, 0), 0, 2, 6)
    for state, taken in ((b"", False), (DISPUTED, True)):
        message = stray._replace(carried=Carried(state=state)).message("walk")
        effects = give(aggregator, Received(3, message, f"in/{STRAYS + 1}"), 1.0)
        assert bool(notes(effects, "taken_back")) == taken


def test_a_depth_that_somebody_made_up_is_forgotten() -> None:
    """It was remembered for the rest of the term, and each lost walk missed for as many heartbeats longer."""
    sightings = Sightings(1, lambda walk: False)
    sightings.passed_on(0, nodes=20)
    for number in range(40):
        sightings.hear_depth(2, 19 if number == 3 else 2, number, nodes=20)
        sightings.hear_depth(0, 19, number, nodes=20)  # who is nearer knows nothing of those behind this node
        if number == 3:
            assert sightings.deepest == 19
    assert sightings.deepest == 2


def test_a_score_that_nobody_claimed_makes_no_other_aggregator() -> None:
    """It made a greater claim of the same term: all followed it, and the true one had to be elected once more."""
    aggregator, other = node_of(0), node_of(3)
    forged = beat(5, 0, FIRST._replace(score=Score(degree=9.0)))
    for machine in (aggregator, other):
        give(machine, Received(2, forged, ""), 2.0)
        assert machine.members.claim == FIRST
        assert machine.members.ballot == NOBODY
    assert aggregator.members.leads
    give(other, Received(0, beat(6, 0), ""), 3.0)
    assert other.members.beat == 6


def test_an_aggregator_that_follows_itself_keeps_what_it_has() -> None:
    machine = node_of(0)
    give(machine, Trained("walk/1", 1), 1.0)
    learned = machine.mixer.updates
    assert learned
    machine.handovers.taken.add((0, 3))
    machine.members._call_election(2.0)
    effects = give(machine, TimerFired("quiet"), 5.0)
    assert machine.mixer.term_id == (2, 0)
    assert [note.number for note in notes(effects, "inherited")] == [learned]
    assert machine.mixer.latest
    assert (0, 3) not in machine.handovers.taken  # a handover that comes again is welcome


def test_hops_that_there_was_no_time_for_weigh_nothing() -> None:
    """They are the weight of a part in the mean of two: with 2³¹ of them the other part would be worth nothing."""
    times = ReturnTimes(1.0, pace=0.1)
    mixer = term_mixer(2, (1, 0), Guard(times))
    mixer.begin_afresh(0.0)
    mixer.mix(Token(1, (1, 0), 0, hop=2**31 - 1), 2.0)
    assert mixer.updates == pytest.approx(200, abs=20)
    mixer.mix(Token(2, (1, 0), 0, hop=30), 2.0)
    assert mixer.updates == pytest.approx(231, abs=20)


def test_a_handover_of_more_updates_than_there_can_be_leaves_the_next_one_its_weight() -> None:
    """One of 2³¹ was believed, and what the other half brought then had a weight of nothing."""
    mixer = term_mixer(2, (4, 0), Guard(ReturnTimes(1.0)))
    mixer.begin_afresh(0.0)
    mixer.inherit(Token(9, (2, 1), 2**31 - 1), "in/9")
    mean, *_ = mixer.inherit(Token(8, (3, 2), 150), "in/8")
    assert mean.terms["in/8"] > 0.015


def test_a_reign_goes_on_after_a_stop_with_the_walks_that_it_gave_up() -> None:
    mixer = term_mixer(2, (3, 0), Guard(ReturnTimes(1.0)))
    mixer.mix(Token(1, (2, 1), 7, 4), 0.0)
    mixer.restart(1, "last", 9.0)
    mixer.restart(2, "last", 9.0)
    mixer.readmit(Token(1, (2, 2), 3, 9), "in")
    back = resumed(mixer_facts(mixer), 2, (3, 0), Guard(ReturnTimes(1.0)), AlgorithmOne(), 1.0)
    assert (back.missing, back.awaited, back.met) == (mixer.missing, mixer.awaited, mixer.met)
    assert back.updates_since(2.0) == 0


def test_who_stopped_in_order_goes_on_with_what_it_awaits() -> None:
    before, after = node_of(0), node_of(0)
    before.mixer.restart(2, "last", 1.0)
    give(after, Rejoined(before.farewell()), 2.0)
    assert after.mixer.missing == {2: GivenUp(0)}


def test_who_stopped_in_order_knows_what_stands_in_for_a_walk() -> None:
    """It was forgotten, and a copy of the walk that had learned less took away what the other had brought."""
    before, after = node_of(0), node_of(0)
    before.mixer.spare(Token(2, before.mixer.term_id, 0, 5), "in")
    before.mixer.restart(2, "last", 1.0)
    give(after, Rejoined(before.farewell()), 2.0)
    assert after.mixer.missing == {2: GivenUp(0, 5)}
    assert not after.mixer._is_missing(Token(2, after.mixer.term_id, 0, 4))
    assert after.mixer._is_missing(Token(2, after.mixer.term_id, 0, 6))
