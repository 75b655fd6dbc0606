"""What both halves of a split network learned is kept, one that wakes deposes nobody, and a stop is not a loss."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.protocols.failures.worlds import term_mixer
from tests.support.runs import setup
from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import (
    NOTE_BYTES,
    Combine,
    Context,
    Message,
    MultiWalk,
    Received,
    Rejoined,
    Send,
    Started,
    TimerFired,
    Trained,
)
from walktalk.protocols.mechanisms.tokens.guards import Guard, ReturnTimes
from walktalk.protocols.mechanisms.tokens.handovers import stray_number
from walktalk.protocols.mechanisms.tokens.heartbeats import MOST_WALKS, NOBODY, Claim, View, decode, encode
from walktalk.protocols.mechanisms.tokens.hops import Token
from walktalk.protocols.mechanisms.tokens.keeper import remembered
from walktalk.protocols.mechanisms.tokens.mixing import TermMixer
from walktalk.records import TraceRow
from walktalk.runtimes.peers import Ledger
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, PoissonTiming, Simulation, all_network_views

SPLIT, HEALED, UNTIL = 60.0, 360.0, 500.0


def play(protocol: MultiWalk, graph, *faults: Fault, until: float, seed: int = 4, d: float = 0.3):
    plan, timing = FaultPlan(faults, Seed(seed)), PoissonTiming(d=d)
    run = setup(protocol.resilient_form(), graph, faults=plan, stop=Stop(time=until), timing=timing, seed=Seed(seed))
    simulation = Simulation(run)
    return simulation, simulation.advance().trace


@pytest.mark.parametrize("walks", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("side", [(0, 1, 2, 3), (4, 5, 6, 7)])
def test_what_both_halves_learned_is_in_the_model(side: tuple[int, ...], walks: int) -> None:
    """The old aggregator's half lost all of it: of 2,510 updates none had any weight."""
    split = Fault("partition", at=SPLIT, seconds=HEALED - SPLIT, nodes=side)
    for seed in range(3):
        protocol = MultiWalk(walks)
        _, trace = play(protocol, graphs.complete(8), split, until=UNTIL, seed=seed)
        inherited = [row for row in trace if row.event == "inherited"]
        assert inherited
        done = inherited[-1].time
        ledger = Ledger(protocol, 8, sum(row.event == "train" for row in trace))
        ledger.play(row for row in trace if row.time <= done)
        assert ledger.sound
        aggregate = ledger.interpreter.output.aggregate
        for half in (set(side), set(range(8)) - set(side)):
            learned = [
                row.number for row in trace if row.event == "trained" and SPLIT < row.time < HEALED and row.node in half
            ]
            assert len(learned) > 200
            assert np.mean(aggregate[learned] > 0) >= 0.9
        whole = Ledger(protocol, 8, sum(row.event == "train" for row in trace)).play(trace)
        assert whole.sound


def test_walks_that_were_on_their_way_when_the_parts_met_count_too() -> None:
    """What walks of the smaller claim had learned since their last visit was a tenth of all after a short split."""
    healed, kept = SPLIT + 40.0, []
    split = Fault("partition", at=SPLIT, seconds=healed - SPLIT, nodes=tuple(range(8, 16)))
    for seed in range(3):
        protocol = MultiWalk(4)
        _, trace = play(protocol, graphs.complete(16), split, until=healed + 40.0, seed=seed)
        ledger = Ledger(protocol, 16, sum(row.event == "train" for row in trace)).play(trace)
        assert ledger.sound
        seen = [(row.walk, row.number) for row in trace if row.event == "readmitted"]
        assert len(seen) == len(set(seen))  # each once
        old = [row for row in trace if row.event == "trained" and SPLIT + 15 < row.time < healed and row.node < 8]
        kept.append(np.mean(ledger.interpreter.output.aggregate[[row.number for row in old]] > 0))
    assert np.mean(kept) >= 0.95


def counts_once(mixer: TermMixer, late: Token, left_with: str) -> None:
    """A walk in whose place another was started comes after all: mixed in as if it had come in time, and no more."""
    assert not mixer.admits(late)
    assert mixer.readmits(late)
    _, mixed, *_ = mixer.readmit(late, "in")
    assert isinstance(mixed, Combine)
    assert mixed.terms == {"copy/1": 1.0, "in": 0.5, left_with: -0.5}
    assert not mixer.readmits(late)
    assert mixer.admits(mixer.stamped(late.walk))


def test_a_walk_that_was_given_up_and_comes_back_counts_once() -> None:
    mixer = term_mixer(2, (1, 0), Guard(ReturnTimes(1.0)))
    mixer.begin_afresh(0.0)
    late = mixer.stamped(1)._replace(hop=5)
    assert not mixer.readmits(late)  # nobody misses it
    mixer.restart(1, "last", 9.0)
    counts_once(mixer, late, left_with="missed/1")


def test_a_walk_of_an_earlier_reign_that_comes_after_its_replacement_counts_once() -> None:
    mixer = term_mixer(2, (2, 0), Guard(ReturnTimes(1.0)))
    first, late = Token(1, (1, 3), 7, 4), Token(2, (1, 3), 9, 30)
    mixer.mix(first, 0.0)
    assert mixer.admits(late)  # it is in time
    mixer.restart(2, "last", 9.0)
    assert not mixer.readmits(late._replace(term_id=(3, 1)))  # of one that this aggregator has not heard of yet
    counts_once(mixer, late, left_with="awaited")


def test_a_walk_of_a_part_whose_aggregator_had_few_visits_weighs_what_it_learned() -> None:
    """Its part was one update of hundreds, so that a walk with a hundred of its own had a weight of nothing."""
    mixer = term_mixer(2, (3, 0), Guard(ReturnTimes(1.0)))
    mixer.mix(Token(1, (2, 1), 7, 299), 0.0)
    mixer.inherit(Token(9, (2, 2), 1), "in/9")
    _, averaged, *_ = mixer.readmit(Token(2, (2, 2), 8, 99), "in/2")
    assert isinstance(averaged, Combine)
    assert averaged.terms["in/2"] == pytest.approx(100 / 401)


@pytest.mark.parametrize("seed", [1, 2])
def test_what_walks_learned_that_a_new_aggregator_gave_up_before_they_came_is_in_the_model(seed: int) -> None:
    """They hung with their nodes until others were started in their place; up to 56 % of these updates were lost."""
    protocol, hung = MultiWalk(4), [Fault("pause", at=SPLIT, node=node, seconds=25.0) for node in range(6, 12)]
    kill = Fault("kill", at=SPLIT, node=0)
    _, trace = play(protocol, graphs.cycle(12), kill, *hung, until=SPLIT + 50.0, seed=seed, d=0.1)
    assert [row for row in trace if row.event == "restarted"]
    ledger = Ledger(protocol, 12, sum(row.event == "train" for row in trace)).play(trace)
    assert ledger.sound
    learned = [row.number for row in trace if row.event == "trained" and SPLIT - 20 < row.time < SPLIT]
    assert np.mean(ledger.interpreter.output.aggregate[learned] > 0) >= 0.95


def test_a_copy_that_is_overtaken_in_training_goes_to_the_aggregator_with_what_it_learned() -> None:
    protocol, context = MultiWalk(2), Context(1.0, random.Random(0))
    node = machines(protocol, 3)[1]
    node.handle(Started(), context)
    old = node.copies.here[2]._replace(ticket=2, hop=4)
    node.copies.here[2] = old
    node.handle(Received(0, beat(3), ""), context)
    node.handle(Received(0, old._replace(ticket=8, hop=1).message("walk"), "in/2"), context)
    effects = node.handle(Trained("walk/2", 2), context)
    sent = [effect for effect in effects if isinstance(effect, Send) and effect.slot]
    number = stray_number(old.moved(), 2)
    assert [(effect.to, effect.message.walk, effect.message.round) for effect in sent] == [(0, number, 2)]


@pytest.mark.parametrize("graph", [graphs.complete(8), graphs.cycle(8)], ids=lambda graph: graph.name)
def test_who_is_cut_off_alone_elects_nobody_and_restarts_nothing(graph: Graph) -> None:
    """It would claim a later term, miss all walks there, and be believed when it is back."""
    cut = Fault("partition", at=SPLIT, seconds=HEALED - SPLIT, nodes=(3,))
    _, trace = play(MultiWalk(3), graph, cut, until=UNTIL)
    assert [row for row in trace if row.event == "suspected" and row.node == 3]
    assert [row for row in trace if row.event in ("elected", "stepped_down")] == []
    assert [row for row in trace if row.event == "restarted" and row.node == 3] == []
    assert [row for row in trace if row.event == "trained" and row.node == 3 and row.time > HEALED + 10]


@pytest.mark.parametrize("guard", ["aggregator", "create_if_late"])
def test_more_walks_than_a_heartbeat_names_are_refused_at_the_start(guard: str) -> None:
    """Real nodes would refuse each other's heartbeats, as their notes are too long; the simulator would not notice."""
    view = all_network_views(graphs.cycle(2100))[0]
    MultiWalk(MOST_WALKS, resilient=True).machine(view)
    many = MultiWalk(MOST_WALKS + 1, resilient=True, guard=guard)
    if guard != "aggregator":
        many.machine(view)
        return
    with pytest.raises(SpecError, match=r"walks: 2,013 are more than .*; allowed: up to 2,012, or another"):
        many.machine(view)
    longest = View(Claim(1, NOBODY.score, 0), 9, Claim(2, NOBODY.score, 0), 1, 0, sightings=(1,) * MOST_WALKS)
    assert len(encode(longest)) <= NOTE_BYTES


def test_after_a_split_the_walks_are_r_again_and_one_aggregates() -> None:
    split = Fault("partition", at=SPLIT, seconds=HEALED - SPLIT, nodes=(0, 1, 2, 3))
    simulation, trace = play(MultiWalk(3), graphs.complete(8), split, until=UNTIL)
    assert sum(machine.members.leads for machine in simulation.machines) == 1
    late = {row.walk for row in trace if row.event == "trained" and row.time > UNTIL - 60}
    assert late == {1, 2, 3}


def said_to(effects: list, node: int) -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, Send) and effect.to == node]


def beat(number: int) -> Message:
    return Message("beat", term=1, note=encode(View(Claim(1, NOBODY.score, 0), number, NOBODY, 2, 0)))


def test_a_bystander_that_wakes_deposes_nobody() -> None:
    """It has missed the heartbeats of a minute, and its clock runs out before it hears of them."""
    _, neighbour, bystander = machines(MultiWalk(1, aggregator=0), 3)
    context = Context(0.0, random.Random(0))
    for machine in (neighbour, bystander):
        machine.handle(Started(), context)
        for context.now in (20.0, 21.0, 22.0):
            machine.handle(Received(0, beat(int(context.now)), ""), context)
    for second in range(23, 83):
        context.now = float(second)
        neighbour.handle(Received(0, beat(second), ""), context)
    context.now = 82.5
    (ballot,) = said_to(bystander.handle(TimerFired("watch"), context), 1)
    assert decode(ballot.note).ballot.term == 2
    (answer,) = said_to(neighbour.handle(Received(2, ballot, ""), context), 2)
    assert neighbour.members.ballot == NOBODY
    bystander.handle(Received(1, answer, ""), context)
    context.now = 85.0
    bystander.handle(TimerFired("quiet"), context)
    assert not bystander.members.leads
    assert bystander.members.claim.term_id == neighbour.members.claim.term_id == (1, 0)


def test_an_aggregator_that_is_dead_is_replaced_all_the_same() -> None:
    for seed in range(3):
        _, trace = play(MultiWalk(2), graphs.cycle(6), Fault("kill", at=40.0, node=0), until=80.0, seed=seed)
        elected = [row.time for row in trace if row.event == "elected"]
        assert elected
        assert elected[0] < 40.0 + 15.0


# -- a planned stop ------------------------------------------------------------------------------------------------


def machines(protocol: MultiWalk, nodes: int):
    return [protocol.resilient_form().machine(around) for around in all_network_views(graphs.complete(nodes))]


def test_an_aggregator_that_left_in_order_goes_on_with_its_reign_and_its_walks() -> None:
    protocol, context = MultiWalk(2), Context(0.0, random.Random(0))
    before, after = machines(protocol, 3)[0], machines(protocol, 3)[0]
    before.handle(Started(), context)
    before.handle(TimerFired("beat"), context)
    past = remembered(before.farewell())
    assert [what.walk for what in past.here] == [1]
    context.now = 5.0
    effects = after.handle(Rejoined(before.farewell()), context)
    assert after.members.leads
    assert after.mixer.tickets == before.mixer.tickets
    assert after.copies.here == before.copies.here
    assert [effect.slot for effect in effects if type(effect).__name__ == "Train"] == ["walk/1"]
    assert not after.members.sightings.unseen(2, after.members.beat, awaited=True)
    dead = machines(protocol, 3)[0]
    dead.handle(Rejoined(before.keepsake()), context)  # one that died has an older checkpoint: its walk is elsewhere
    assert not dead.copies.here
    assert dead.members.claim == NOBODY


def deliver(nodes: list, effects: dict[int, list], now: float) -> dict[int, list]:
    """All heartbeats among these effects reach their nodes; what these do about it."""
    told = [(node, e.to, e.message) for node, done in effects.items() for e in done if isinstance(e, Send)]
    found: dict[int, list] = {}
    for sender, to, message in told:
        found.setdefault(to, []).extend(nodes[to].handle(Received(sender, message, ""), Context(now, random.Random(0))))
    return found


def test_where_all_nodes_were_killed_a_later_term_begins_at_once() -> None:
    """They waited fourteen heartbeats for an aggregator that nobody knew of, and then began with term 2 again."""
    protocol = MultiWalk(2, heartbeat=1.0)
    nodes = machines(protocol, 4)
    for node in nodes:
        node.handle(Started(), Context(0.0, random.Random(0)))
        node.members.claim = node.members.claim._replace(term=7)
    keepsakes, nodes = [node.keepsake() for node in nodes], machines(protocol, 4)
    for node, memory in zip(nodes, keepsakes, strict=True):
        node.handle(Rejoined(memory), Context(0.0, random.Random(0)))
        assert node.keepsake() == memory
    said = {v: node.handle(TimerFired("beat"), Context(1.0, random.Random(0))) for v, node in enumerate(nodes)}
    while said:
        said = deliver(nodes, said, 1.1)
    assert {node.members.ballot.term for node in nodes} == {8}
    for node in nodes:
        node.handle(TimerFired("quiet"), Context(3.2, random.Random(0)))
    assert [node.members.leads for node in nodes] == [True, False, False, False]


def test_who_remembers_most_calls_the_election() -> None:
    """Where the first to call it had an old checkpoint, as its disk was full, terms began with 2 again."""
    protocol, context = MultiWalk(1), Context(1.0, random.Random(0))
    before, back, forgetful = machines(protocol, 3)
    before.handle(Started(), Context(0.0, random.Random(0)))
    before.members.claim = before.members.claim._replace(term=7)
    back.handle(Rejoined(before.keepsake()), Context(0.0, random.Random(0)))
    forgetful.handle(Rejoined(b""), Context(0.0, random.Random(0)))
    proposed = Message("beat", note=encode(View(NOBODY, 0, forgetful.members._myself(2), 2, 0)))
    effects = back.handle(Received(2, proposed, ""), context)
    assert back.members.ballot.term == 8
    deliver({2: forgetful, 0: before}, {1: effects}, 1.1)
    assert forgetful.members.ballot.term == 8
    back.handle(Received(0, beat(30), ""), context)  # somebody aggregates, whatever the term
    assert back.members.claim.node == 0


def test_forged_counts_of_incidents_do_not_chase_each_other() -> None:
    """On a circle each of three was later than another: heartbeats flooded the network until all had been restarted."""
    nodes = [MultiWalk(2).resilient_form().machine(around) for around in all_network_views(graphs.cycle(6))]
    forged = (0, 0, 2**31 - 1, 2**31 - 1, 2**31 + 4, 2**31 + 4)
    for node, incidents in zip(nodes, forged, strict=True):
        node.handle(Started(), Context(0.0, random.Random(0)))
        node.members.incidents = incidents
    said = {v: node.members._tell_all() for v, node in enumerate(nodes)}
    rounds = 0
    while said and rounds < 20:
        said, rounds = deliver(nodes, {v: heartbeats(effects) for v, effects in said.items()}, 0.1), rounds + 1
    assert rounds < 20
    nodes[1].members.incidents = nodes[0].members.incidents + 3  # what is not forged is heard
    deliver(nodes, {1: nodes[1].members._tell_all()}, 0.2)
    assert nodes[0].members.incidents == nodes[1].members.incidents


def heartbeats(effects: list) -> list:
    return [effect for effect in effects if isinstance(effect, Send) and effect.message.kind == "beat"]


def test_one_that_comes_back_alone_waits_for_what_others_know() -> None:
    protocol, context = MultiWalk(1), Context(1.0, random.Random(0))
    back = machines(protocol, 3)[2]
    back.handle(Rejoined(b""), Context(0.0, random.Random(0)))
    nobody = Message("beat", note=encode(View(NOBODY, 0, NOBODY, 2, 0)))
    back.handle(Received(1, nobody, ""), context)  # one neighbour has been dead as well, the other has not spoken yet
    assert back.members.ballot == NOBODY
    back.handle(Received(0, beat(30), ""), context)
    assert back.members.claim.node == 0


def test_a_walk_that_nobody_took_any_more_goes_on_its_way_after_the_stop() -> None:
    protocol = MultiWalk(1, aggregator=1)
    before, after = machines(protocol, 2)[0], machines(protocol, 2)[0]
    for seed in range(20):  # until the dice send it on
        before = machines(protocol, 2)[0]
        context = Context(0.0, random.Random(seed))
        before.handle(Started(), context)
        before.handle(Trained("walk/1", 1), context)
        if before.hops.leaving:
            break
    assert before.hops.leaving
    effects = after.handle(Rejoined(before.farewell()), Context(9.0, random.Random(1)))
    held = after.hops.token(1) or after.copies.here.get(1)
    assert held is not None
    assert held.ticket == before.hops.token(1).ticket
    assert any(isinstance(effect, Send) or type(effect).__name__ == "Train" for effect in effects)


def test_who_comes_back_to_a_new_aggregator_judges_none_of_its_walks() -> None:
    protocol, context = MultiWalk(2), Context(0.0, random.Random(0))
    before, after = machines(protocol, 3)[0], machines(protocol, 3)[0]
    before.handle(Started(), context)
    after.handle(Rejoined(before.farewell()), context)
    newer = before.copies.here[1]._replace(walk=2, term_id=(2, 1), ticket=8, hop=1)
    after.handle(Received(1, newer.message("walk"), "in/2"), context)
    effects = after.handle(Trained("walk/2", 2), context)
    assert not [effect for effect in effects if getattr(effect, "event", "") == "retired"]


def test_the_ledger_compares_an_aggregate_with_that_of_the_same_reign() -> None:
    """A node that aggregates a second time begins with what others learned meanwhile: that does not come in twice."""
    protocol = MultiWalk(2)
    sent: list[TraceRow] = [
        TraceRow(0.0, 0, "combine", "copy/1", detail={"initial": 1.0}),
        TraceRow(0.0, 0, "record", "copy/1", walk=1, detail="aggregate"),
        TraceRow(1.0, 0, "train", "initial", walk=1, number=0),
        TraceRow(2.0, 0, "trained", "initial", walk=1, number=0),
        TraceRow(3.0, 0, "combine", "copy/1", detail={"initial": 1.0, "update": 1.0}),
        TraceRow(3.0, 0, "counted", walk=1, number=3),
        TraceRow(3.0, 0, "record", "copy/1", walk=3, detail="aggregate"),  # of another term
    ]
    assert Ledger(protocol, 2, 1).play(sent).sound
