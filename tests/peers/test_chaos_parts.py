"""The parts of chaos, without nodes: forged messages, what the ledger says, clocks that were wrong, resuming."""

from __future__ import annotations

import datetime
import errno
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict, replace
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.mechanisms import ours
from tests.support.runs import setup
from walktalk import graphs
from walktalk.core.errors import SpecError, StudyError
from walktalk.core.seeds import Seed
from walktalk.core.wall_clock import shift_wall_clock, wall_seconds
from walktalk.learning import TrainingRows, tasks
from walktalk.protocols import (
    AGGREGATE,
    INITIAL,
    MEMBER,
    PROTOCOLS,
    UPDATE,
    AsyncGossip,
    Message,
    MultiWalk,
    Received,
    Send,
    TokenSaga,
)
from walktalk.protocols.mechanisms.tokens.hops import Token
from walktalk.records import TraceRow, atomic
from walktalk.runtimes.peers import Connections, Entry, Parcel, Roster, Stamp, Standing, cluster_complaints, merge
from walktalk.runtimes.peers.identity.certificates import judge
from walktalk.runtimes.peers.identity.handshake import next_life
from walktalk.runtimes.peers.node.checkpoints import Checkpoints, Kept
from walktalk.runtimes.peers.node.members import Members
from walktalk.runtimes.peers.node.tally import Tally
from walktalk.runtimes.peers.operations.answers import read_answer
from walktalk.runtimes.peers.operations.ledger import Ledger, Sums
from walktalk.runtimes.peers.operations.replaying import clock_errors, correct_clocks
from walktalk.runtimes.semantics import Interpreter, Scale, Stop, parsed
from walktalk.runtimes.simulator import Fault, FaultPlan, PoissonTiming, Simulation
from walktalk.studies import build_graph, make_spec
from walktalk.studies.peers import local_cluster
from walktalk.studies.planning import build_trainer, prepare
from walktalk.testing.chaos import (
    ChaosPlan,
    Comparison,
    Half,
    Verdict,
    disturbance,
    faults_of,
    interrupted_rounds,
    known_rounds,
    series,
    summary,
    write_rounds,
)
from walktalk.testing.chaos.byzantine import DEEP, Forger, Said, forged, spoiled
from walktalk.testing.chaos.cables import Disk
from walktalk.testing.chaos.disturbance import CLOCK, Disturbance, shift_clock
from walktalk.testing.chaos.injectors import BEGIN, DO, free_disk
from walktalk.testing.chaos.misbehaviour import (
    ANSWERS,
    DEAF,
    FALSE_COUNTS,
    MISLEADS,
    MUTE,
    STALLS,
    Misbehaviour,
    mislead_operators,
)
from walktalk.testing.chaos.plan import BESIDE, COMING_AND_GOING, KINDS
from walktalk.testing.chaos.round import by_data, what_is_left
from walktalk.testing.chaos.scripts import cluster_of_scripts, train
from walktalk.testing.chaos.verdict import JUDGED, LedgerCheck, copies_of_walks, verdict_of

GOOD = Verdict(
    3, "multi_walk", 4, walks=4, aggregating=("node-1",), halves=(Half(100, 95),), loss=Comparison(1.0, 1.0, 0.1, 9)
)

# -- what is chosen, and what comes out ----------------------------------------------------------------------------


def test_blows_are_chosen_by_kind_and_a_wrong_word_is_named() -> None:
    assert [fault.kind for fault in faults_of(["restart", "kill"])] == ["aggregator", "random", "restart"]
    with pytest.raises(SpecError, match=r"--faults: 'flood' is not possible; allowed: kill, hang, stall, deaf, cut"):
        faults_of(["kill", "flood"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"aggregating": ()}, "aggregate: nobody"),
        ({"aggregating": ("node-1", "node-2")}, "aggregate: node-1 node-2"),
        ({"unsound": ("node-4",)}, "not finite: node-4"),
        ({"halves": (Half(100, 100), Half(200, 179))}, "179 of 200 updates of a half are in the model"),
        ({"silent": ("node-9",)}, "did not answer: node-9"),
        ({"counted": 1.5}, "counted twice"),
        ({"walks": 5}, "5 walks"),
        ({"loss": Comparison(1.2, 1.0, 0.1, 9)}, "1.20 times"),
        ({"loss": Comparison()}, "nan times"),
        ({"loss": Comparison(1.3, 1.0, 0.1, 9, 0.75)}, "75% of the iterations behind"),
        ({"uneven": 3}, "3 means of gradients do not count all nodes alike"),
        ({"broke": "no room"}, "broke off: no room"),
    ],
)
def test_every_check_can_fail_and_says_what_it_saw(changes: dict, said: str) -> None:
    assert GOOD.passed
    (failure,) = replace(GOOD, **changes).failures()
    assert said in failure


def test_every_fault_can_be_injected_and_every_algorithm_has_a_plan_or_says_why_not() -> None:
    faults = {fault.kind for kind in KINDS.values() for fault in kind.faults}
    assert faults == {*DO, *BEGIN}
    assert set(BEGIN) == set(BESIDE)
    for name in ours():
        plan = ChaosPlan(nodes=8, algorithm=name, faults=faults_of(tuple(KINDS)))
        if name in ("centralized", "choco_sgd", "ring_all_reduce"):
            with pytest.raises(SpecError, match="survives no failures"):
                plan.spec(0)
            continue
        plan.protocol.check_graph(build_graph(plan.spec(0)))
        happens = {fault.kind for fault in plan.happens}
        impossible = set() if plan.protocol.nodes_come_and_go else set(COMING_AND_GOING)
        assert faults - happens == {"script"} | impossible  # there are none
        outside = {fault.kind for fault in replace(plan, outside=True).happens}
        assert faults - outside == {"join"} | impossible


def test_a_script_of_a_round_trains_as_its_node_would(tmp_path: Path) -> None:
    ready = prepare(ChaosPlan(nodes=4).spec(0), "cpu")
    cluster = cluster_of_scripts(ready, local_cluster(ready.spec, ready.runs[0], tmp_path), tmp_path)
    spec = make_spec(cluster.study)
    part = tasks.build("outside", 4, 0, "2", **spec.task.settings)
    assert part.details["samples"] == len(ready.task.parts[2])
    trainer = build_trainer(ready.spec, ready.task.only(2), "cpu")
    row = ready.runs[0].initial
    given = TrainingRows(row[None], torch.tensor([0]), torch.tensor([7]), torch.tensor([0.03]))
    expected = trainer.module(trainer.train(given)[0][0]).state_dict()
    back: list[torch.nn.Module] = []
    came = trainer.module(row).state_dict()
    visit = SimpleNamespace(key=7, lr=0.03, load=lambda module: module.load_state_dict(came), finish=back.append)
    train(visit, trainer)  # type: ignore[arg-type]
    assert all(torch.equal(expected[name], array) for name, array in back[0].state_dict().items())
    assert part.model.layout.differences(back[0].state_dict()) == []  # type: ignore[union-attr, operator]


def test_what_a_round_does_is_said_again_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood at "checking the books" for minutes without a word."""
    said, now = list[str](), [0.0]
    monkeypatch.setattr("walktalk.testing.chaos.series.time.monotonic", lambda: now[0])
    doing = {3: ("checking the ledger", 0.0, 0.0)}
    for _ in range(200):
        now[0] += 0.1
        series._say_that_it_goes_on(doing, lambda seed, line: said.append(f"{now[0]:.1f} {seed}: {line}"))
    moments = [float(line.split()[0]) for line in said]
    assert max(later - sooner for sooner, later in pairwise([0.0, *moments])) <= 5.0
    assert said[-1].endswith("3: checking the ledger … 18 s")


class Misbehaving:
    """The parts of a node that are wrapped."""

    def __init__(self, folder: Path) -> None:
        self.setup = SimpleNamespace(folder=folder)
        self.trained, self.acknowledged, self.heard = list[Any](), list[Any](), list[Any]()
        thread = SimpleNamespace(_train=self.trained.append)
        self.training = SimpleNamespace(queue=SimpleNamespace(_thread=thread))
        closed = SimpleNamespace(closed=True)
        self.link = SimpleNamespace(acknowledge=self.acknowledged.append, connections=closed)
        self.runner = SimpleNamespace(handle=lambda event: self.heard.append(event) or ["an effect"])
        self.progress = SimpleNamespace(tally=Tally(0, 3))


def test_a_node_misbehaves_while_a_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Misbehaving(tmp_path)
    Misbehaviour(node)  # type: ignore[arg-type]
    came, beat = Received(1, Message("walk", 1), "in/1"), Received(1, Message("beat"), "")
    (tmp_path / DEAF).touch()
    node.link.acknowledge("this")
    (tmp_path / DEAF).unlink()
    node.link.acknowledge("that")
    assert node.acknowledged == ["that"]
    (tmp_path / MUTE).touch()
    assert node.runner.handle(came) == []
    assert node.runner.handle(beat) == ["an effect"]
    (tmp_path / MUTE).unlink()
    assert node.runner.handle(came) == ["an effect"]
    (tmp_path / STALLS).touch()
    monkeypatch.setattr("walktalk.testing.chaos.misbehaviour.time.sleep", lambda s: (tmp_path / STALLS).unlink())
    node.training.queue._thread._train("work")
    assert node.trained == ["work"]
    neighbour, dice = Tally(1, 3), random.Random(0)
    (tmp_path / FALSE_COUNTS).touch()
    node.progress.tally.add(iterations=3)
    neighbour.hear(0, node.progress.tally.encode(5.0, dice))
    assert neighbour.over([0])
    assert 3 < neighbour.counts[0].iterations < 100  # it is believed as far as it can have come
    assert node.progress.tally.own.iterations == 3


def test_who_misleads_operators_is_set_aside_and_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies: dict[str, Any] = {}

    def answer(self: object, question: str, reply: object, asker: str = "operator") -> None:
        replies[asker] = reply

    monkeypatch.setattr(Connections, "answer", answer)
    mislead_operators(tmp_path)
    for asker in ("operator", "*"):
        Connections.answer(None, "status", lambda asked: b"true", asker)  # type: ignore[arg-type]
    assert replies["operator"]({}) == b"true"
    (tmp_path / MISLEADS).touch()
    assert [replies["operator"]({}) for _ in ANSWERS] == list(ANSWERS)
    assert replies["*"]({}) == b"true"  # who wants to join is told the truth
    for told in ANSWERS:
        answers = {"node-0": read_answer(told), "node-1": read_answer(b'{"complaints": []}')}
        assert all(isinstance(line, str) for line in cluster_complaints(answers))


def test_who_has_left_for_good_is_out_of_the_mean() -> None:
    """Its model of long ago was in it to the end: an undisturbed run that lacked its data looked far better."""
    ledger = Ledger(PROTOCOLS.find("async_gossip")(), 3, 3)
    ledger.play([TraceRow(2.0, node, "record", INITIAL, walk=node, detail=MEMBER) for node in range(3)])
    assert len(ledger.interpreter.output.in_order()) == 3
    ledger.play([TraceRow(3.0, 0, "left_for_good", peer=2)])
    assert sorted(ledger.interpreter.output.members) == [0, 1]


def test_a_gradient_is_a_training_too_for_the_ledger() -> None:
    told = [TraceRow(1.0, 3, "differentiate", walk=1), TraceRow(2.0, 5, "differentiate", walk=1)]
    assert copies_of_walks(told, 0.0, 9.0) == (1, 1)


def test_what_a_killed_node_wrote_last_is_no_second_copy_of_a_walk() -> None:
    told = [TraceRow(1.0, 3, "kill"), TraceRow(0.9, 3, "train", walk=1), TraceRow(2.0, 5, "train", walk=1)]
    assert copies_of_walks(told, 0.0, 9.0) == (1, 0)
    assert copies_of_walks(told[1:], 0.0, 9.0) == (1, 1)
    back = [TraceRow(3.0, 3, "started"), TraceRow(4.0, 3, "train", walk=1)]
    assert copies_of_walks(told + back, 0.0, 9.0) == (1, 1)


def test_a_series_that_was_interrupted_goes_on_with_what_it_had(tmp_path: Path) -> None:
    plan = ChaosPlan(nodes=6)
    failed = replace(GOOD, seed=2, faults=("kill -9 node-1",), gone=(1,), broke="why")
    write_rounds(tmp_path, plan, [GOOD, failed])
    assert known_rounds(tmp_path, plan) == [failed, GOOD]
    assert verdict_of(json.loads(json.dumps(asdict(GOOD)))) == GOOD
    with pytest.raises(StudyError, match="another plan"):
        known_rounds(tmp_path, replace(plan, nodes=7))
    assert len(interrupted_rounds(tmp_path, plan)) == 2
    assert not interrupted_rounds(tmp_path, replace(plan, nodes=7))
    assert known_rounds(tmp_path / "nothing", plan) == []
    assert summary([GOOD, failed])["value"] == 1


def test_what_is_left_is_the_graph_of_the_end_and_not_that_of_the_file() -> None:
    """One that joined has the data of another and neighbours of its own: runs that it is held against have the same."""
    roster = Roster("test", graphs.cycle(6), tuple(f"n{k}" for k in range(6)), None)
    roster.join([roster.next("n2", Standing.LEAVING), roster.next("n2", Standing.LEFT)])
    roster.join([Entry("guest", 99, 0, "127.0.0.1:1", ("n0", "n5"), rank=1, by="guest")])
    data = {"n0": 0, "n1": 1, "n3": 3, "n5": 5, "guest": 2}  # n4 was killed: it belongs, and is not there
    left = what_is_left(roster, data)
    assert left.data == [0, 1, 2, 3, 5]
    edges = {tuple(left.data[end] for end in edge) for edge in left.graph.edge_list()}
    assert edges == {(0, 1), (0, 5), (0, 2), (2, 5), (1, 3)}  # n1 and n3 were around n2, and hold on to each other


# -- forged messages -----------------------------------------------------------------------------------------------


def test_forged_messages_are_made_of_what_was_said_and_no_bad_model_is_finite_and_of_the_usual_size() -> None:
    rng, true = random.Random(0), np.linspace(-1, 1, 50, dtype="<f4").view(np.uint8)
    said = [Said(Parcel(1, 2, Message("walk", 3, 7, 1, b"note of 16 bytes"), true.nbytes), true, "said/0")]
    kinds = set()
    for _ in range(300):
        parcel, payload, slot = forged(rng, said)
        assert payload is not None
        assert slot == "said/0"
        model = payload.view("<f4")
        same_model, same_words = np.array_equal(payload, true), parcel == said[0].parcel
        kinds.add((same_model, same_words))
        assert (parcel.message.kind, len(payload)) == ("walk", len(true))
        assert len(parcel.message.note) == 16 or parcel.message.note in (b"", DEEP)
        assert same_model or not np.isfinite(model).all() or np.linalg.norm(model.astype(float)) > 1e6
    assert kinds == {(True, True), (True, False), (False, True)}
    assert np.array_equal(true.view("<f4"), np.linspace(-1, 1, 50, dtype="<f4"))  # what is sent in truth is not touched
    assert len(spoiled(rng, np.zeros(7, np.uint8))) == 7


def test_the_books_know_which_model_a_liar_sends_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They took the last that anybody had made of that walk, though it was in the other half of a split network."""
    monkeypatch.setattr("walktalk.testing.chaos.byzantine.forged", lambda rng, said: said[0])
    rows: list[TraceRow] = []
    protocol, walk = MultiWalk(2).resilient_form(), Token(1, (1, 0), 1, 3).message("walk")
    interpreter = Interpreter(Sums(), protocol.messages, Scale(), rows.append, lambda: 0.0)
    interpreter.add_node(1, np.zeros(2, np.float32))
    numbers = count(7)
    link = SimpleNamespace(send=lambda parcel, payload: Stamp(5, next(numbers)))
    models, state = SimpleNamespace(me=1, interpreter=interpreter), SimpleNamespace(begun=True, alive={2})
    node: Any = SimpleNamespace(link=link, models=models, state=state)
    (tmp_path / "forges").touch()
    forger = Forger(node, tmp_path / "forges")

    def train(at: int, number: int) -> None:
        told = {"walk": 1, "number": number}
        rows.extend(TraceRow(0.0, at, event, "walk/1", **told, key=0, lr=0.1) for event in ("train", "trained"))
        rows.append(TraceRow(0.0, at, "combine", "walk/1", detail={"walk/1": 1.0, UPDATE: 1.0}))
        rows.append(TraceRow(0.0, at, "record", "walk/1", walk=1, detail=MEMBER))

    for at in (0, 1):
        rows.append(TraceRow(0.0, at, "combine", "walk/1", detail={INITIAL: 1.0}))
    train(1, 0)
    interpreter.slots[1]["walk/1"] = np.zeros(2, np.float32)
    said = Send(2, walk, "walk/1")
    packed = interpreter.pack(1, said)
    stamp = node.link.send(Parcel(1, 2, walk, 8), np.zeros(8, np.uint8))
    interpreter.sent(1, said, packed, stamp.number, stamp.incarnation)
    train(0, 1)  # elsewhere
    rows.append(TraceRow(0.0, 1, "combine", "walk/1", detail={INITIAL: 1.0}))  # the next walk of that number is here
    forger._forge()
    rows.append(TraceRow(0.0, 2, "receive", "in/1", 1, 1, number=8, key=5))
    ledger = LedgerCheck(MultiWalk(2), 3, 2).play(rows)
    assert not ledger.player.gaps
    assert ledger.interpreter.read(2, "in/1").tolist() == [1.0, 0.0]


# -- disks and clocks ----------------------------------------------------------------------------------------------

WRITER = """
import sys, time
for line in sys.stdin:
    try:
        with open(sys.argv[1], "ab", buffering=0) as file:
            print(file.write(bytes(8192)), flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""


@pytest.mark.parametrize("own", [True, False])
def test_a_full_disk_is_full_and_has_room_again(tmp_path: Path, own: bool) -> None:
    with Disk(tmp_path / "node") as disk:
        if own and not disk.own:
            pytest.skip("file systems can be made by root alone")
        if not own and disk.own:
            disk.__exit__(None, None, None)
            disk.own = False
        path = tmp_path / "node" / "file"
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdin is not None
        assert writer.stdout is not None

        def write() -> str:
            print(file=writer.stdin, flush=True)
            return writer.stdout.readline().strip()

        assert write() == "8192"
        disk.fill(writer.pid)
        assert write() == "OSError"
        disk.free()
        assert write() == "8192"
        writer.stdin.close()
        writer.wait()
        if own:
            assert os.path.ismount(tmp_path / "node")
    assert not os.path.ismount(tmp_path / "node")


def test_a_clock_jumps_when_the_file_says_so(tmp_path: Path) -> None:
    """For all that a node asks the time of day for: its traces, its lives, and certificates."""
    (tmp_path / CLOCK).write_text("-3600.0")
    try:
        shift_clock(tmp_path / CLOCK)
        assert wall_seconds() == pytest.approx(time.time() - 3600, abs=5)
        assert next_life(tmp_path) / 1e9 == pytest.approx(time.time() - 3600, abs=5)
        soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=6, hours=23, minutes=30)
        assert judge(soon, tmp_path).days == 7
    finally:
        shift_wall_clock(None)
    assert wall_seconds() == pytest.approx(time.time(), abs=5)


def test_wrong_clocks_are_found_by_messages_and_put_right() -> None:
    """One life of a node is an hour ahead, one of another a month behind; everybody else is right."""
    rng, month = random.Random(1), 30 * 86400.0
    wrong = {(2, 1): 3600.0, (3, 0): -month}
    rows: dict[int, list[TraceRow]] = {node: [] for node in range(5)}
    true: dict[int, list[float]] = {node: [] for node in range(5)}
    for number in range(400):
        now = 1000.0 + number / 10
        sender, receiver = rng.sample(range(5), 2)
        for node, when, event, peer in ((sender, now, "send", receiver), (receiver, now + 0.02, "receive", sender)):
            life, key = int(now >= 1020.0) if node == 2 else 0, 7 + (sender == 2 and now >= 1020.0)
            rows[node].append(
                TraceRow(when + wrong.get((node, life), 0.0), node, event, peer=peer, number=number, key=key)
            )
            true[node].append(when)
    right = correct_clocks(list(rows.values()))
    for node, event_log in enumerate(right):
        assert [row.time for row in event_log] == pytest.approx(true[node], abs=0.05)
    trace = merge(list(rows.values()))
    assert trace[-1].time < 41.0
    assert all(a.time <= b.time + 0.05 for a, b in pairwise(trace))


def test_a_guest_under_the_number_of_one_that_is_gone_turns_no_clock_back() -> None:
    """Node 0 numbers what it sends to each: its first words to node 1 and to the guest had the same name."""

    def told(start: float, to: int) -> tuple[list[TraceRow], list[TraceRow]]:
        sent = [TraceRow(start + n, 0, "send", peer=to, number=n, key=7) for n in range(3)]
        return sent, [TraceRow(row.time + 0.1, to, "receive", peer=0, number=row.number, key=7) for row in sent]

    early, gone = told(0.0, 1)
    late, guest = told(20.0, 900)
    trace = by_data([early + late, gone, guest], {2: 1})
    assert [row.time for row in trace if row.node == 1] == pytest.approx([0.1, 1.1, 2.1, 20.1, 21.1, 22.1])
    assert [row.time for row in trace] == sorted(row.time for row in trace)
    assert len({row.number for row in trace}) == 6
    assert {row.node for row in trace} == {0, 1} == {row.peer for row in trace}


def test_clocks_that_agree_are_left_alone() -> None:
    assert clock_errors({(0, 1): 0.3, (1, 0): -0.2}, 2) == [0.0, 0.0]  # to within a second
    assert clock_errors({(0, 1): 5.0, (1, 0): 5.0}, 2) == [0.0, 0.0]  # slow, but possible


def test_a_node_starts_and_goes_on_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is a `StudyError` to whoever writes a file whole; who was started then ended with a traceback."""

    def full(part: Path, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    keeper = Checkpoints(tmp_path)
    assert keeper.save(Kept({}, {}, 1, 1, 1))
    first = next_life(tmp_path)
    monkeypatch.setattr(atomic, "finish", full)
    assert next_life(tmp_path) > first
    assert not keeper.save(Kept({}, {}, 2, 2, 2))
    loaded = keeper.load()
    assert loaded is not None
    assert loaded.iterations == 1


def test_who_joins_is_taken_in_though_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node ended, with the word that there is no room for its list of members; now it writes it down later."""
    full = [True]

    def finish(part: Path, path: Path) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        part.replace(path)

    monkeypatch.setattr(atomic, "finish", finish)
    roster = Roster("test", graphs.cycle(3), ("n0", "n1", "n2"), None)
    setup = SimpleNamespace(folder=tmp_path, roster=roster, around=None)
    link, rest = SimpleNamespace(endpoint=SimpleNamespace(name="n0")), [None] * 5  # type: ignore[var-annotated]
    parts: Any = (setup, SimpleNamespace(alive=set()), link, *rest)

    def is_written_once_there_is_room(members: Members) -> None:
        members.compare()
        assert not list(tmp_path.iterdir())
        full[0], members._compare_at = False, 0.0
        members.compare()
        assert [path.name for path in tmp_path.iterdir()] == ["roster.json"]

    members = Members(*parts)
    members._write_down(roster)
    is_written_once_there_is_room(members)
    (tmp_path / "roster.json").unlink()
    full[0] = True
    roster.join([Entry("n3", 77, 0, "127.0.0.1:1", ("n0",), rank=1, by="n3")])
    is_written_once_there_is_room(Members(*parts))  # of a later life


@pytest.mark.parametrize(("answers_at", "silent"), [(3, ()), (100, ("guest-0",))])
def test_one_that_is_slow_to_answer_in_the_end_is_asked_again(
    answers_at: int, silent: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have a few seconds for it; one that had no processor for two of them counted as dead."""
    clock, asked = count(), count(1)
    monkeypatch.setattr("walktalk.testing.chaos.disturbance.time", SimpleNamespace(monotonic=lambda: next(clock)))
    chaos = object.__new__(Disturbance)
    chaos.plan, chaos.names, chaos.gone = ChaosPlan(nodes=2), ["node-0", "node-1", "guest-0"], {1}
    well = {"aggregates": False}
    chaos.ask = lambda seconds: {  # type: ignore[method-assign]
        "node-0": {"aggregates": True},
        "guest-0": well if next(asked) >= answers_at else None,
    }
    chaos._hear_last_words()
    assert chaos.silent() == silent
    assert chaos.aggregating() == ["node-0"]


# -- the ledger -----------------------------------------------------------------------------------------------------


def test_the_ledger_says_how_much_of_each_half_is_in_the_model() -> None:
    """The simulator's split, told as a round tells it: nothing is kept of a half that never meets the other again."""
    kept = {}
    for healed in (True, False):
        split = Fault("partition", at=40.0, seconds=120.0 if healed else None, nodes=(4, 5, 6, 7))
        run = setup(
            MultiWalk(2).resilient_form(),
            graphs.complete(8),
            faults=FaultPlan((split,), Seed(1)),
            stop=Stop(time=220.0),
            timing=PoissonTiming(d=0.3),
            seed=Seed(1),
        )
        trace = [row for row in Simulation(run).advance().trace if row.event not in ("partition", "heal")]
        told = [TraceRow(40.0, -1, "partition", detail="4 5 6 7"), TraceRow(160.0, -1, "heal", detail="4 5 6 7")]
        trace = sorted([*trace, *told], key=lambda row: row.time)
        ledger = LedgerCheck(MultiWalk(2), 8, sum(row.event == "train" for row in trace)).play(trace)
        ledger.judge()
        kept[healed] = sorted(half.share for half in ledger.halves)
        assert all(half.updates > 50 for half in ledger.halves)
    assert kept[True][0] >= 0.9
    assert kept[False][0] <= 0.2


@pytest.mark.parametrize(("how", "carried", "kept"), [("stop", False, 1), ("kill", False, 0), ("kill", True, 1)])
def test_an_update_on_its_way_when_all_are_stopped_in_order_is_not_lost(how: str, carried: bool, kept: int) -> None:
    """It comes into the model after that; where all are killed, what was in it, or with a walk, before that counts."""
    rows = [
        TraceRow(0.0, 0, "combine", "copy/1", detail={"initial": 1.0}),
        TraceRow(0.0, 0, "record", "copy/1", walk=1, detail="aggregate"),
        TraceRow(1.0, -1, "partition", detail="1"),
        TraceRow(2.0, 0, "train", "initial", walk=1, number=0),
        TraceRow(3.0, 0, "trained", "initial", walk=1, number=0),
        TraceRow(4.0, -1, "heal", detail="1"),
        *[TraceRow(4.0, 0, "combine", "walk/1", detail={"initial": 1.0, "update": 1.0})] * carried,
        *[TraceRow(4.0, 0, "record", "walk/1", walk=1, detail="member")] * carried,
        TraceRow(5.0, -1, "restart_of_all", detail=how),
        TraceRow(6.0, 0, "combine", "copy/1", detail={"initial": 1.0, "update": 1.0}),
        TraceRow(6.0, 0, "record", "copy/1", walk=1, detail="aggregate"),
    ]
    ledger = LedgerCheck(MultiWalk(2), 2, 1).play(rows)
    ledger.judge()
    assert ledger.halves == (Half(0, 0), Half(1, kept))


@pytest.mark.parametrize("forges", [False, True])
def test_what_a_forger_offers_again_is_not_counted_twice(forges: bool) -> None:
    """Its forged answers end its own exchanges, and it offers the same model anew: to others that is another offer."""
    offer = {"kind": "offer", "into": "offer/1"}
    rows = [
        TraceRow(0.0, 0, "combine", "model", detail={"initial": 1.0}),
        TraceRow(0.0, 1, "combine", "model", detail={"initial": 1.0}),
        *[TraceRow(1.0, 1, "forges", detail="1")] * forges,
    ]
    for number in (1, 2):
        rows += [
            TraceRow(number + 1.0, 1, "send", "model", peer=0, number=number, detail=offer),
            TraceRow(number + 1.5, 0, "receive", "offer/1", peer=1, number=number, detail=offer),
            TraceRow(number + 1.5, 0, "combine", "model", detail={"model": 0.5, "offer/1": 0.5}),
        ]
    assert LedgerCheck(AsyncGossip(), 2, 0).play(rows).twice == (0 if forges else 1)


def test_one_that_joins_answers_twice_with_the_model_that_it_was_offered_and_nothing_counts_twice() -> None:
    """Its first answer is the offer itself, which changes nothing; until it trains it has nothing else to say."""
    rows = [TraceRow(0.0, 0, "combine", "model", detail={"initial": 1.0})]
    for number in (1, 3):
        rows += [
            TraceRow(number, 0, "combine", "open/1", detail={"model": 1.0}),
            TraceRow(number, 0, "send", "open/1", 1, number=number, detail={"kind": "offer", "into": "offer/0"}),
            TraceRow(number, 1, "receive", "offer/0", 0, number=number),
            *[TraceRow(number, 1, "combine", "model", detail={"offer/0": 1.0})] * (number == 1),
            TraceRow(number, 1, "combine", "given/0", detail={"offer/0" if number == 1 else "model": 1.0}),
            TraceRow(number, 1, "send", "given/0", 0, number=number + 1, detail={"kind": "answer", "into": "answer/1"}),
            TraceRow(number, 0, "receive", "answer/1", 1, number=number + 1),
            TraceRow(number, 0, "combine", "model", detail={"model": 1.0, "answer/1": 0.5, "open/1": -0.5}),
        ]
    assert LedgerCheck(AsyncGossip(), 2, 0).play(rows).twice == 0


@pytest.mark.parametrize("again", [False, True], ids=["another answer", "the same answer again"])
def test_one_that_comes_back_may_offer_its_old_model_in_another_exchange(again: bool) -> None:
    rows = [TraceRow(0.0, node, "combine", "model", detail={"initial": 1.0 + node}) for node in (0, 1)]
    for number in (1, 2):
        given = [TraceRow(number, 1, "combine", "given/0", detail={"model": 1.0})] * (number == 1 or not again)
        rows += [
            TraceRow(number, 0, "combine", "open/1", detail={"model": 1.0}),
            *given,
            *[TraceRow(number, 1, "saved", number=1)] * (number == 1),
            TraceRow(number, 1, "send", "given/0", 0, number=number, detail={"kind": "answer", "into": "answer/1"}),
            TraceRow(number, 0, "receive", "answer/1", 1, number=number),
            TraceRow(number, 0, "combine", "model", detail={"model": 1.0, "answer/1": 0.5, "open/1": -0.5}),
            *[TraceRow(number, 1, "rejoined", number=1)] * (number == 1),
        ]
    assert LedgerCheck(AsyncGossip(), 2, 0).play(rows).twice == again


@pytest.mark.parametrize("twice", [False, True])
def test_a_walk_that_counts_a_node_twice_in_its_mean_of_gradients_is_found(twice: bool) -> None:
    graph = graphs.complete(4)
    run = setup(TokenSaga(walks=2).resilient_form(), graph, stop=Stop(iterations=120))
    trace, noted = [TraceRow(0.0, -1, JUDGED)], 0
    for row in Simulation(run).advance().trace:
        terms = dict(parsed(row.detail)) if row.event == "combine" and row.slot.startswith("mean/") else {}
        noted += bool(terms.get("gradient"))
        lost = twice and noted == 40 and "noted/" in str(terms)  # as if the node had forgotten what it noted
        trace.append(row._replace(detail={s: w for s, w in terms.items() if "noted" not in s}) if lost else row)
    ledger = LedgerCheck(TokenSaga(walks=2), 4, sum(row.event == "differentiate" for row in trace)).play(trace)
    assert bool(ledger.uneven) == twice


def test_a_disk_is_free_again_when_what_waited_is_written() -> None:
    """All were killed half a second later, and a node took fifteen seconds of its trace with it."""
    complains = [["its trace cannot be written: 900 lines wait; is the disk full?"], None, ["it leaves"]]
    asked: list[str] = []

    def ask(seconds: float) -> dict[str, dict[str, list[str]] | None]:
        said = complains[len(asked)]
        asked.append("full" if disk.full else "free")
        return {"node-0": None if said is None else {"complaints": said}}

    disk = SimpleNamespace(full=True)
    disk.free = lambda: setattr(disk, "full", False)
    chaos = SimpleNamespace(disks={0: disk}, living=lambda: [0], names=["node-0"], ask=ask)
    free_disk(chaos, 0)  # type: ignore[arg-type]
    assert asked == ["free"] * 3  # until it has no complaint about its trace; a node that does not answer may have one
    free_disk(chaos, 0)  # type: ignore[arg-type]
    assert len(asked) == 3  # it was not full


def test_a_starved_machine_gets_a_longer_quiet_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight seconds on an idle machine; where others use it, until enough is trained to be compared, or never is."""
    clock = [0.0]
    passes = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda s: clock.__setitem__(0, clock[0] + s))
    monkeypatch.setattr(disturbance, "time", passes)

    def quiet_time(trainings_a_second: float) -> float:
        began, chaos = clock[0], Disturbance.__new__(Disturbance)
        chaos.trained = {}

        def ask(seconds: float) -> dict[str, dict[str, int] | None]:
            silent = None if int(clock[0]) % 2 else {"iterations": 10}  # counts as what it last said
            return {"a": {"iterations": int(trainings_a_second * (clock[0] - began))}, "b": silent}

        monkeypatch.setattr(chaos, "ask", ask, raising=False)
        chaos._keep_quiet(8.0, 200)
        return clock[0] - began

    assert quiet_time(50) == 8
    assert quiet_time(10) == 20
    assert quiet_time(0) == disturbance.STARVING


@pytest.mark.parametrize(
    ("worst", "counted", "twice", "sound"),
    [(1.0, 1.0, 0, True), (0.2, 0.0, 0, True), (1.1, 1.0, 0, False), (1.0, 1.1, 0, False), (0.5, 0.5, 1, False)],
)
def test_the_ledger_finds_each_kind_of_double_count_by_itself(
    worst: float, counted: float, twice: int, sound: bool
) -> None:
    ledger = Ledger(MultiWalk(2), 3, 2)
    ledger.worst, ledger.counted, ledger.uses.twice = worst, counted, twice
    assert ledger.sound is sound


def test_an_update_that_is_in_an_aggregate_one_and_a_half_times_is_found() -> None:
    """From the trace to the verdict: a training, and an aggregate that holds it so often."""
    for weight, sound in ((1.0, True), (1.5, False)):
        rows = [
            TraceRow(0.0, 0, "combine", "walk/1", detail={INITIAL: 1.0}),
            TraceRow(0.0, 0, "train", "walk/1", walk=1, number=0, key=0, lr=0.1),
            TraceRow(1.0, 0, "trained", "walk/1", walk=1, number=0, key=0, lr=0.1),
            TraceRow(1.0, 0, "combine", "walk/1", detail={"walk/1": 1.0, UPDATE: weight}),
            TraceRow(1.0, 0, "record", "walk/1", walk=1, detail=AGGREGATE),
        ]
        ledger = Ledger(MultiWalk(1), 2, 1).play(rows)
        assert ledger.worst == weight
        assert ledger.sound is sound
