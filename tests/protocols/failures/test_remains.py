"""What is left of a walk that was lost with its node, or that somebody lied about, is in the model, once."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from tests.protocols.failures.worlds import term_mixer
from tests.support.runs import setup
from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.protocols import (
    Combine,
    Context,
    Effect,
    Leaving,
    MultiWalk,
    Note,
    PeerLost,
    Received,
    Send,
    SetTimer,
    Started,
    TimerFired,
)
from walktalk.protocols.mechanisms.tokens.guards import BACK, COPIES, Guard, ReturnTimes
from walktalk.protocols.mechanisms.tokens.handovers import AGAIN, DISPUTED, LEFT, STRAYS, stray_number
from walktalk.protocols.mechanisms.tokens.hops import Token, token_of
from walktalk.protocols.mechanisms.tokens.keeper import mixer_facts, resumed
from walktalk.protocols.mechanisms.tokens.rule import Carried, in_slot, kept_slot
from walktalk.protocols.walks.multi_walk import AlgorithmOne
from walktalk.records import TraceRow
from walktalk.runtimes.peers import Ledger
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, PoissonTiming, Simulation, all_network_views


def mixed(effects: list[Effect], slot: str) -> list[Combine]:
    return [effect for effect in effects if isinstance(effect, Combine) and slot in effect.terms]


def test_a_copy_that_ended_elsewhere_stands_in_for_its_walk_that_is_given_up() -> None:
    mixer = term_mixer(2, (1, 0), Guard(ReturnTimes(1.0)))
    mixer.begin_afresh(0.0)
    ended = mixer.stamped(1)._replace(hop=5)
    assert not mixer.spare(ended._replace(ticket=3), "in")  # nobody wrote that
    assert mixer.spare(ended, "in") == [Combine("spare/1", {"in": 1.0})]
    assert not mixer.spare(ended._replace(hop=4), "in")  # not as far
    late, kept = mixed(mixer.restart(1, "last", 9.0), "spare/1")
    assert late.terms == {"copy/1": 1.0, "spare/1": 0.5, "missed/1": -0.5}  # as if it had come in time
    assert kept == Combine("missed/1", {"spare/1": 1.0})
    assert not mixer.readmits(ended)
    _, further, *_ = mixer.readmit(ended._replace(hop=8), "in")  # the walk itself comes after all
    assert isinstance(further, Combine)
    assert further.terms == {"copy/3": 1.0, "in": 0.5, "missed/1": -0.5}
    assert not mixer.readmits(ended)
    assert not mixed(mixer.restart(1, "last", 19.0), "spare/1")
    again = mixer.stamped(1)
    assert mixer.spare(again._replace(hop=2, carried=Carried(state=LEFT)), "in")
    assert not mixed(mixer.mix(again, 20.0), "spare/1")  # the walk itself has come, and has it all
    assert not mixed(mixer.restart(1, "last", 30.0), "spare/1")


def test_what_is_left_of_a_walk_that_was_started_again_is_not_that_of_an_earlier_reign() -> None:
    """It was compared with what one of the earlier term had left with: all that is in the model came twice."""
    mixer = term_mixer(2, (3, 0), Guard(ReturnTimes(1.0)))
    mixer.mix(Token(1, (2, 1), 7, 4), 0.0)
    mixer.restart(2, "last", 1.0)  # before it came; one of the earlier term may be on its way
    mixer.mix(mixer.stamped(2)._replace(hop=1), 2.0)
    second = mixer.stamped(2)._replace(hop=3)
    mixer.spare(second, "in")
    late, _ = mixed(mixer.restart(2, "last", 9.0), "spare/2")
    assert late.terms == {"copy/2": 1.0, "spare/2": 0.5, "missed/2": -0.5}
    assert mixer.awaited == {2}
    _, averaged, *_ = mixer.readmit(second._replace(hop=2), "in")  # beside the one that stands in
    assert isinstance(averaged, Combine)
    assert "awaited" not in averaged.terms
    _, first, *_ = mixer.readmit(Token(2, (2, 1), 5, 9), "in")
    assert isinstance(first, Combine)
    assert first.terms["awaited"] < 0


def test_a_copy_that_ended_elsewhere_counts_beside_its_walk() -> None:
    """Two copies met, and the one that was behind was kept until the other came, and dropped, with all it had learned.

    Or it came to a new aggregator before the walk did, and was dropped although it had left at quite another time.
    """
    mixer = term_mixer(2, (2, 0), Guard(ReturnTimes(1.0)))
    mixer.mix(Token(1, (1, 3), 7, 59), 1.0)
    behind = mixer.stamped(1)._replace(hop=2)
    assert mixer.spare(behind, "in")
    beside, *_ = mixed(mixer.mix(behind._replace(hop=6), 2.0), "spare/1")
    assert beside.terms == {"copy/1": 0.75, "spare/1": 0.25}  # 3 of the last 10 updates, but half of a walk's share
    assert not mixer.readmits(behind)
    early = Token(2, (1, 3), 4, 9)
    assert mixer.readmits(early)
    _, averaged, *_ = mixer.readmit(early, "in")
    assert isinstance(averaged, Combine)
    assert averaged.terms == {"copy/3": pytest.approx(70 / 80), "in": pytest.approx(10 / 80)}
    assert mixer.admits(Token(2, (1, 3), 6, 1))
    assert not mixer.readmits(early)


def test_a_new_aggregator_begins_with_what_is_left_where_nothing_has_come() -> None:
    mixer = term_mixer(2, (2, 0), Guard(ReturnTimes(1.0)))
    assert mixer.spare(Token(1, (1, 3), 7, 4), "in")
    effects = mixer.restart(1, "last", 9.0)
    assert {"spare/1": 1.0} in [effect.terms for effect in mixed(effects, "spare/1")]
    assert not mixed(effects, "last")


def test_a_second_copy_of_a_walk_from_before_a_split_is_averaged_in_once() -> None:
    """Of a half's walk that had not met the new aggregator before the other half's came, all 139 updates were lost."""
    mixer = term_mixer(4, (3, 0), Guard(ReturnTimes(1.0)))
    mixer.mix(Token(3, (2, 1), 7, 59), 1.0)
    second = Token(3, (2, 1), 2, 19)
    assert not mixer.admits(second)
    assert not mixer.readmits(second._replace(term_id=(3, 0)))  # of this term, with a ticket that is used up
    assert mixer.readmits(second)
    _, averaged, *_ = mixer.readmit(second, "in")
    assert isinstance(averaged, Combine)
    assert averaged.terms == {"copy/3": 0.875, "in": 0.125}  # 20 of 80 updates; but no more than half of a walk's share
    assert not mixer.readmits(second)


def test_a_spare_is_still_there_after_a_stop() -> None:
    mixer = term_mixer(2, (2, 0), Guard(ReturnTimes(1.0)))
    mixer.spare(Token(1, (1, 3), 7, 4), "in")
    again = resumed(json.loads(json.dumps(mixer_facts(mixer))), 2, (2, 0), mixer.guard, AlgorithmOne(), 5.0)
    assert mixed(again.restart(1, "last", 9.0), "spare/1")


def killed_with_its_walks(seed: int) -> list[TraceRow]:
    """The aggregator dies at a moment at which two of three walks are there."""
    protocol, graph = MultiWalk(3), graphs.erdos_renyi(10, 0.5, 1)

    def run(*faults: Fault, until: float) -> list[TraceRow]:
        plan, timing = FaultPlan(faults, Seed(seed)), PoissonTiming(d=0.3)
        stop = Stop(time=until)
        return (
            Simulation(setup(protocol.resilient_form(), graph, faults=plan, stop=stop, timing=timing, seed=Seed(seed)))
            .advance()
            .trace
        )

    here: set[int] = set()
    for row in run(until=60.0):
        if row.node == 0 and row.event in ("train", "trained"):
            (here.add if row.event == "train" else here.discard)(row.walk)
        if row.time > 20.0 and len(here) == 2:
            return run(Fault("kill", at=row.time + 1e-6, node=0), until=row.time + 40.0)
    raise AssertionError("never were two walks at the aggregator")


def test_who_passed_a_walk_to_an_aggregator_that_dies_has_what_is_left_of_it() -> None:
    """All that walks had learned that were at the aggregator with their walk was lost, though others had it."""
    kept = []
    for seed in range(4):
        trace = killed_with_its_walks(seed)
        dead = next(row.time for row in trace if row.event == "kill")
        ledger = Ledger(MultiWalk(3), 10, sum(row.event == "train" for row in trace)).play(trace)
        assert ledger.sound
        learned = [row.number for row in trace if row.event == "trained" and row.node and dead - 12 < row.time < dead]
        kept.append(np.mean(ledger.interpreter.output.aggregate[learned] > 0))
    assert np.mean(kept) > 0.9  # it was 0.69


def test_a_handover_that_is_still_on_its_way_stays_here_where_its_node_is_elected() -> None:
    """It was forgotten and then sent again, which ended the node."""
    context = Context(1.0, random.Random(0))
    node = MultiWalk(2).resilient_form().machine(all_network_views(graphs.complete(3))[1])
    node.handle(Started(), context)
    node.handovers.own = Token(4, (1, 1), 50)
    node.handovers.send_own(None, context)
    assert 4 in node.hops.leaving
    mixer = term_mixer(2, (2, 1), Guard(ReturnTimes(1.0)))
    mixer.begin_afresh(1.0)
    node.handovers.send_own(mixer, context)
    assert mixer.latest == 3  # it is in the mean
    assert 4 not in node.hops.leaving
    assert not node.handle(TimerFired("hop/4"), context)


def test_what_goes_to_the_aggregator_never_goes_back() -> None:
    """Two nodes that each believed the other to be nearer sent it to and fro until it had made too many hops."""
    context = Context(1.0, random.Random(0))
    node = MultiWalk(2).resilient_form().machine(all_network_views(graphs.complete(4))[1])
    node.handle(Started(), context)
    node.members.towards = 2
    stray = Token(STRAYS + 1, (1, 0), 1, 3).message("walk")
    node.handle(Received(2, stray, f"in/{STRAYS + 1}"), context)
    assert node.hops.leaving[STRAYS + 1].to in (0, 3)
    del node.hops.leaving[STRAYS + 1]
    node.handle(Received(3, stray, f"in/{STRAYS + 1}"), context)
    assert node.hops.leaving[STRAYS + 1].to == 2


def test_what_is_left_of_two_copies_of_a_walk_goes_on_from_one_node() -> None:
    """The second was acknowledged and forgotten while the first, of an older ticket, was still on its way."""
    context = Context(1.0, random.Random(0))
    node = MultiWalk(2).resilient_form().machine(all_network_views(graphs.complete(4))[1])
    node.handle(Started(), context)
    strays = [Token(stray_number(Token(2, (1, 0), ticket), 2), (1, 0), ticket, generation=22) for ticket in (6, 70)]
    for stray in strays:
        node.handle(Received(3, stray.message("walk"), f"in/{stray.walk}"), context)
    assert [node.hops.token(stray.walk).ticket for stray in strays] == [6, 70]
    mixer = term_mixer(2, (3, 0), Guard(ReturnTimes(1.0)))
    mixer.begin_afresh(0.0)
    for stray in strays:
        node.handovers.deliver(stray, in_slot, mixer, context)
    assert [mixer.met[2, (1, 0), ticket].hops for ticket in (6, 70)] == [(22,), (22,)]


def test_numbers_of_what_is_left_tell_the_walk_and_are_no_others() -> None:
    node = MultiWalk(3).resilient_form().machine(all_network_views(graphs.complete(4))[1])
    for walk in (1, 2, 3):
        for mixer in ((1, 0), (7, 3), (2**32 - 1, 2)):
            for ticket in range(walk, 2000, 3):
                number = stray_number(Token(walk, mixer, ticket), 3)
                assert node.handovers.is_number(number, mixer[1])
                assert (number - STRAYS - walk) % 3 == 0
    assert not node.handovers.is_number(STRAYS, 0)


def test_a_copy_that_comes_after_another_with_the_same_ticket_is_averaged_in() -> None:
    """Where a walk was sent twice, all was lost that the second to come had learned, as its ticket was used up."""
    mixer = term_mixer(4, (3, 0), Guard(ReturnTimes(1.0)))
    mixer.begin_afresh(0.0)
    for _ in range(100):
        mixer.mix(mixer.stamped(2)._replace(hop=1), 2.0)
    walk = mixer.stamped(1)._replace(hop=9)
    mixer.mix(walk, 1.0)
    assert not mixer.readmits(walk)  # the same
    assert not mixer.readmits(walk._replace(ticket=mixer.tickets[1]))  # that is the one which is out
    assert not mixer.readmits(walk._replace(ticket=walk.ticket + 400))
    for _ in range(45):
        mixer.mix(mixer.stamped(2)._replace(hop=1), 2.0)
    spent = 0.0
    for hop in (4, 14, 40):
        copy = walk._replace(ticket=0, hop=hop)
        assert not mixer.admits(copy)
        assert mixer.readmits(copy)
        came = mixer.updates
        _, averaged, *_ = mixer.readmit(copy, "in")
        assert isinstance(averaged, Combine)
        assert averaged.terms["in"] == pytest.approx(min((hop + 1) / (came + hop + 1), (0.25 - spent) / 2))
        assert not mixer.readmits(copy)
        spent += averaged.terms["in"]
    assert mixer.updates == came + 41
    second = mixer.stamped(2)._replace(ticket=mixer.tickets[2] - 4 * 10, hop=0)
    assert mixer.met[2, (3, 0), second.ticket].hops == (1,)
    since = mixer.met[2, (3, 0), second.ticket].since
    _, averaged, *_ = mixer.readmit(second, "in")
    assert isinstance(averaged, Combine)
    assert averaged.terms["in"] == pytest.approx(1 / (came + 41 - since + 1))  # among those since it left
    assert len(mixer.met) <= BACK + 6  # two of walk 1, and the tickets 0 of all
    assert not mixer.readmits(second._replace(ticket=second.ticket - 4 * BACK))
    back = resumed(json.loads(json.dumps(mixer_facts(mixer))), 4, (3, 0), mixer.guard, AlgorithmOne(), 5.0)
    assert back.met == mixer.met


def test_a_flood_of_copies_with_one_ticket_is_refused() -> None:
    mixer = term_mixer(4, (3, 0), Guard(ReturnTimes(1.0)))
    mixer.begin_afresh(0.0)
    for hop in range(1000):
        copy = Token(1, (2, 5), 1, hop)
        if mixer.readmits(copy):
            mixer.readmit(copy, "in", 1.0)
    assert len(mixer.met[1, (2, 5), 1].hops) == COPIES
    assert mixer.met[1, (2, 5), 1].share < 0.25


def test_who_leaves_sends_what_it_keeps_for_the_next_aggregator() -> None:
    """What one had learned alone was with an aggregator that died, and with itself, which left: with nobody then."""
    context = Context(1.0, random.Random(0))
    node = MultiWalk(2).resilient_form().machine(all_network_views(graphs.complete(3))[1])
    node.handle(Started(), context)
    node.handovers.own = Token(4, (1, 1), 50, carried=Carried(state=AGAIN))
    sent = [effect for effect in node.handle(Leaving(), context) if isinstance(effect, Send) and effect.slot]
    assert [(effect.message.walk, effect.slot) for effect in sent] == [(4, kept_slot(4))]


def test_what_finds_no_aggregator_rests_until_there_is_one() -> None:
    """While nobody aggregated, it went from node to node until it had made too many hops, within half a second."""
    context = Context(1.0, random.Random(0))
    node = MultiWalk(2, heartbeat=0.5).resilient_form().machine(all_network_views(graphs.complete(4))[1])
    node.handle(Started(), context)
    number = STRAYS + 1
    effects = node.handle(Received(2, Token(number, (1, 0), 1, 5).message("walk"), f"in/{number}"), context)
    assert SetTimer(f"hop/{number}", 0.5) in effects
    assert not [effect for effect in effects if isinstance(effect, Send) and effect.slot]
    effects = node.handle(TimerFired(f"hop/{number}"), context)
    (sent,) = [effect for effect in effects if isinstance(effect, Send) and effect.slot]
    assert (sent.slot, token_of(sent.message).hop) == (kept_slot(number), 6)


def test_a_walk_that_begins_again_with_what_was_on_its_way_beside_it_is_not_rerouted() -> None:
    """Both were on their way to a node that died; the first to be taken back ended the other's hop, and so the node."""
    context = Context(1.0, random.Random(0))
    node = MultiWalk(2).resilient_form().machine(all_network_views(graphs.complete(4))[0])
    node.handle(Started(), context)
    node.copies.here.clear()
    walk = Token(1, (1, 0), 0, 3)
    left = Token(stray_number(walk, 2), (1, 0), 0, 1, 3, Carried(state=DISPUTED))
    for what in (left, walk):
        node.hops.send(what, in_slot, 2, 1.0)
    effects = node.handle(PeerLost(2), context)
    assert [effect.event for effect in effects if isinstance(effect, Note)] == ["rerouted", "taken_back", "counted"]
    assert node.hops.token(1) == Token(1, (1, 0), 1, 1) or 1 in node.copies.here


def carry_out(effects: list[Effect], slots: dict[str, float]) -> None:
    """Combinations of models that are numbers."""
    for effect in effects:
        if isinstance(effect, Combine):
            slots[effect.into] = sum(weight * slots[slot] for slot, weight in effect.terms.items())


@pytest.mark.parametrize("given_up", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_walks_that_come_for_the_first_time_after_a_handover_take_nothing_away(given_up: bool, again: bool) -> None:
    """They were compared with a mean that held all that the others had brought since, and so took that away again.

    And the handover as well. One that is sent again, and which they may have themselves, has a walk's share at most.
    """
    mixer, slots = term_mixer(4, (2, 0), Guard(ReturnTimes(1.0))), {"walk/1": 0.0, "last": 0.0, "in": 0.0, "in/9": 6.0}
    carry_out(mixer.mix(Token(1, (1, 3), 5, 9), 1.0), slots)
    others = (2, 3, 4)
    for walk in others if given_up else ():
        carry_out(mixer.restart(walk, "last", 2.0), slots)
    slots["walk/1"] += 8.0  # what this term learns, and others know nothing of
    carry_out(mixer.mix(mixer.stamped(1)._replace(hop=9), 3.0), slots)
    assert slots["copy/1"] == 2.0
    carry_out(mixer.inherit(Token(9, (1, 4), 60), "in/9", again), slots)
    assert slots["copy/5"] == (3.0 if again else 4.0)  # a quarter or half of it, as walks are still to come
    for walk in others:
        late = Token(walk, (1, 3), walk + 4, 9)
        slots[f"walk/{walk}"] = 0.0
        carry_out(mixer.readmit(late, "in", 4.0) if given_up else mixer.mix(late, 4.0), slots)
    assert slots[f"copy/{mixer.latest}"] == (3.0 if again else 4.0)
    back = resumed(json.loads(json.dumps(mixer_facts(mixer))), 4, (2, 0), mixer.guard, AlgorithmOne(), 5.0)
    assert back.left == mixer.left == (0.75 if again else 0.5)


def test_a_handover_that_is_sent_again_waits_until_a_walk_has_come() -> None:
    """An old one, sent again since its heir had died, was all that a new aggregator knew until the first walk came."""
    context = Context(1.0, random.Random(0))
    node = MultiWalk(2).resilient_form().machine(all_network_views(graphs.complete(3))[1])
    node.handle(Started(), context)
    node.copies.here.clear()
    node.mixer = mixer = term_mixer(2, node.copies.term_id, Guard(ReturnTimes(1.0)))
    assert mixer.term_id == node.members.claim.term_id
    node.handle(Received(0, Token(3, (1, 0), 50, carried=Carried(state=AGAIN)).message("walk"), "in/3"), context)
    for _ in range(2):
        assert not mixed(node.handle(TimerFired("hop/3"), context), kept_slot(3))
    assert (mixer.latest, mixer.updates) == (0, 0)
    mixer.mix(Token(1, (0, 2), 1, 9), 2.0)
    assert mixed(node.handle(TimerFired("hop/3"), context), kept_slot(3))
    assert mixer.updates == 10
    assert not node.hops.leaving


def test_what_an_aggregator_has_kept_of_walks_goes_on_when_it_steps_down() -> None:
    """It was forgotten with the term, before the walk had come or was given up."""
    context = Context(1.0, random.Random(0))
    node = MultiWalk(2).resilient_form().machine(all_network_views(graphs.complete(3))[0])
    node.handle(Started(), context)
    spare = Token(2, (1, 0), 0, 7)
    node.mixer.spare(spare, "in")
    sent = [effect for effect in node.handovers.hand_over_spares(node.mixer, context) if isinstance(effect, Send)]
    assert [(effect.message.walk, token_of(effect.message).generation) for effect in sent] == [
        (stray_number(spare, 2), 7)
    ]
