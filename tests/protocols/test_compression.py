"""Compression around any protocol: what stays as it is, what is counted, and that both ends of a link agree."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.support.mechanisms import ONE_OF_EACH, slow_unless
from tests.support.unlike import run
from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import (
    HEADER_BYTES,
    INITIAL,
    PROTOCOLS,
    SWIFT,
    AsyncGossip,
    AsyncSGD,
    ChocoSGD,
    Combine,
    Compressed,
    Context,
    DivShare,
    Effect,
    Event,
    GradientTracking,
    Machine,
    Message,
    MultiWalk,
    NetworkView,
    NoLoCo,
    PeerFound,
    Protocol,
    Received,
    RelaySGD,
    Send,
    Started,
    StreamingDiLoCo,
    SyncGossip,
    compressed,
)
from walktalk.protocols.effects import Arrival
from walktalk.protocols.wrappers.compression import CodedNode
from walktalk.protocols.wrappers.error_feedback import ASK, WHOLE, FeedbackNode, arrivals_with_feedback
from walktalk.protocols.wrappers.screening import MeetingNode, ScreenedNode
from walktalk.protocols.wrappers.wrapped import Wrapped, WrappedNode
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, NetworkTiming, PoissonTiming, RunSetup
from walktalk.runtimes.stacked import Engine
from walktalk.studies import make_spec, run_study
from walktalk.testing import CHECKS, ENGINES, QuadraticTrainer, Replay, check_protocol
from walktalk.transforms.codecs import codec_named

CODECS = (("bf16", None), ("int8", None), ("int4", None), ("int4", True), ("top_k(0.3)", None))
NETWORK = NetworkTiming(compute=1.0, spread=0.5, latency=0.3, bandwidth=2000.0)


def compressible() -> list[Protocol]:
    """Every registered protocol that sends models and has no codec of its own; those that send parts are below."""
    made = [one() for one in PROTOCOLS.values()]
    return [p for p in made if p.messages and not any(arrival.codec for arrival in p.messages.values())]


IN_PARTS = (StreamingDiLoCo(patience=0.4), NoLoCo(fragments=3), RelaySGD("two_binary"), DivShare(fragments=2, peers=2))


def graph_for(protocol: Protocol) -> Graph:
    return graphs.build(protocol.made_for, 5) if protocol.made_for else graphs.erdos_renyi(5, p=0.6, seed=2)


def asked(engine: str, protocol: Protocol, iterations: int = 60) -> None:
    """All that is asked of every protocol, of one run."""
    with tempfile.TemporaryDirectory() as folder:
        run = ENGINES[engine](protocol, graph_for(protocol), Stop(iterations=iterations), Path(folder))
    for check in CHECKS:
        check(run)


@pytest.mark.parametrize(
    "protocol",
    [pytest.param(one, marks=slow_unless(one.name in ONE_OF_EACH)) for one in compressible()],
    ids=lambda p: p.name,
)
def test_every_protocol_keeps_its_promises_with_every_codec(protocol):
    for codec, feedback in CODECS:
        asked("sim", compressed(protocol, codec, feedback))


@pytest.mark.slow
def test_the_statistics_of_an_update_that_is_encoded_are_the_trained_ones():
    check_protocol(compressed(AsyncSGD(), "bf16"), engines=("sim",))  # a server that is sent updates, not models


@pytest.mark.parametrize("protocol", IN_PARTS, ids=lambda p: p.name)
def test_parts_of_models_are_encoded_as_models_are(protocol):
    """Every message has the bytes of its part's code, and nothing else of the protocol changes."""
    coded, numbers = compressed(protocol, "int8"), 5
    asked("sim", coded, 30)
    sends = [row for row in simulated(coded, graph_for(protocol))[0] if row.event == "send"]
    assert sends
    for row in sends:
        codec = coded.messages[row.detail["kind"]].codec
        assert codec.endswith("+int8")
        note = 4 if protocol.name == "relay_sgd" else 0  # of how many models a sum is
        assert row.bytes == HEADER_BYTES + note + codec_named(codec).size(numbers)


@pytest.mark.parametrize("protocol", IN_PARTS, ids=lambda p: p.name)
def test_where_nothing_of_a_part_is_left_out_models_are_the_same(protocol):
    ends = [run(one, graph_for(protocol), 8).members for one in (protocol, compressed(protocol, "top_k(1)"))]
    np.testing.assert_allclose(*ends, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("protocol", IN_PARTS, ids=lambda p: p.name)
@pytest.mark.parametrize(("codec", "feedback"), CODECS)
def test_the_whole_suite_with_parts(engine, protocol, codec, feedback):
    check_protocol(compressed(protocol, codec, feedback), engines=(engine,))


@pytest.mark.parametrize(
    ("protocol", "asks"), [(SWIFT(), True), (DivShare(), True), (SyncGossip(resilient=False), False)]
)
def test_who_may_miss_messages_asks_for_whole_ones(protocol, asks):
    """Also without a form of its own for failures: what a later message makes void leaves a gap in its stream."""
    node = compressed(protocol, "int8", True).machine(NetworkView(0, 4, (1, 3), (2, 2)))
    assert node.askable == ({1, 3} if asks else set())


@pytest.mark.slow
@pytest.mark.parametrize("protocol", compressible(), ids=lambda p: p.name)
@pytest.mark.parametrize(("codec", "feedback"), CODECS)
def test_the_whole_suite_with_every_codec(protocol, codec, feedback):
    check_protocol(compressed(protocol, codec, feedback), engines=("sim",))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "protocol"), list(enumerate(compressible())), ids=lambda p: getattr(p, "name", None)
)
def test_the_whole_suite_on_real_nodes(number, protocol):
    """Each protocol with one of the codecs, in turn: half a minute each."""
    check_protocol(compressed(protocol, *CODECS[number % len(CODECS)]), engines=("peers",))


@pytest.mark.parametrize(
    "protocol",
    [
        compressed(MultiWalk(3, heartbeat=0.2), "int8"),
        compressed(SyncGossip(), "top_k(0.3)"),
        compressed(GradientTracking(), "bf16"),
    ],
    ids=lambda p: p.label,
)
def test_on_real_nodes_it_keeps_them_too(protocol):
    asked("peers", protocol)


def test_32_bits_are_the_protocol_itself():
    for codec in ("none", "fp32"):
        assert not isinstance(compressed(SyncGossip(), codec), Compressed)
    plain, coded = (
        make_spec({"algorithms": [{"name": "sync_gossip", **more}], "stop": {"iterations": 40}})
        for more in ({}, {"compression": "none"})
    )
    with tempfile.TemporaryDirectory() as folder:
        results = [Path(folder) / name for name in ("plain", "coded")]
        for spec, out in zip((plain, coded), results, strict=True):
            run_study(spec, out=out)
        assert results[0].joinpath("history.csv").read_bytes() == results[1].joinpath("history.csv").read_bytes()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("codec", ["bf16", "int8", "int4"])
def test_bits_are_those_of_the_code(engine, codec):
    """Every message is a header and a code of the stated size; only what a protocol says beside models is as before."""
    if engine == "peers" and codec != "int8":
        pytest.skip("one codec is enough on real nodes")
    with tempfile.TemporaryDirectory() as folder:
        run = ENGINES[engine](compressed(SyncGossip(), codec), graphs.cycle(4), Stop(iterations=40), Path(folder))
    sizes = {row.bytes for row in run.trace if row.event == "send"}
    assert sizes == {HEADER_BYTES + codec_named(codec).size(run.model_bytes // 4)}


@pytest.mark.parametrize(("codec", "bits"), [("bf16", 16), ("int8", 8), ("int4", 4)])
def test_the_stated_factor(codec, bits):
    """Of a model of a million numbers next to nothing is added to the bits of the numbers."""
    assert codec_named(codec).size(10**6) * 8 / 10**6 == pytest.approx(bits, abs=0.04)


def test_what_cannot_be_compressed_says_why():
    with pytest.raises(SpecError, match="codec of its own, int8"):
        compressed(ChocoSGD(), "int8")
    with pytest.raises(SpecError, match="sends no models"):
        compressed(AsyncGossip("matrix"), "int8")
    with pytest.raises(SpecError, match="compressed already"):
        compressed(compressed(SyncGossip(), "int8"), "int4")
    with pytest.raises(SpecError, match="int7"):
        compressed(SyncGossip(), "int7")
    for entry, words in (
        ({"name": "choco_sgd", "compression": "int8"}, r"algorithms\.0\.compression: choco_sgd has a codec of its own"),
        ({"name": "sync_gossip", "error_feedback": True}, "error_feedback: True has no meaning without compression"),
        (
            {"name": "sync_gossip", "compression": "none", "error_feedback": True},
            r"error_feedback: compression none leaves nothing out to feed back; take int8, or false",
        ),
        (
            {"name": "sync_gossip", "compression": "top_k(2)"},
            r"algorithms\.0\.compression: 'top_k\(2\)' is not possible",
        ),
        (
            {"name": "sync_gossip", "compression": "int7"},
            r"algorithms\.0\.compression: 'int7' is not possible; allowed: bf",
        ),
        (
            {"name": "sync_gossip", "compression": "part"},
            r"compression: part would leave out the same numbers in every",
        ),
        ({"name": "multi_walk", "compression": "part(1, 4)+int8"}, r"compression: part\(1, 4\)\+int8 would leave out"),
        (  # what it offers is what it takes
            {"name": "sync_gossip", "compression": "parts"},
            r"compression: 'parts' is not possible; allowed: bf16, int8, int4, top_k,( \w+,)* none or module:object$",
        ),
        ({"name": "sync_gossip", "compression": "part(0, 2)+int7"}, r"compression: 'int7' is not possible"),
    ):
        with pytest.raises(SpecError, match=words):
            make_spec({"algorithms": [entry]})


def test_all_that_a_protocol_says_of_itself_is_asked_of_the_one_inside():
    """Whatever is added to what protocols say must be added to the wrapper, or it would speak for itself."""
    asked_of_all = {name for name in dir(Protocol) if not name.startswith("_")}
    itself = {"name", "usual", "pools_data", "check_momentum"}  # what pools data sends nothing; made of what is asked
    itself |= {"also_known_as", "known_forms", "proved", "bound"}  # the field's names and theory are of what is inside
    itself |= {"other_forms", "listed_last"}  # of a class, as `usual` is
    itself |= {"elastic", "hardened"}  # what `nodes_come_and_go` and `resilient_form` are made of, which are asked
    assert asked_of_all - itself <= {*vars(Compressed), *vars(Wrapped)}


def test_all_that_a_machine_can_be_asked_is_asked_of_the_one_inside():
    asked_of_all = {name for name in dir(Machine) if not name.startswith("_")}
    for one in (CodedNode, FeedbackNode, ScreenedNode, MeetingNode):
        assert asked_of_all <= {*vars(one), *vars(WrappedNode)}


def test_a_study_names_and_describes_it():
    entries = [{"name": "multi_walk", "walks": 4, "compression": ["none", "int8", "top_k(0.01)"]}]
    spec = make_spec({"algorithms": [*entries, {"name": "sync_gossip", "compression": "int4", "error_feedback": True}]})
    assert [one.title for one in spec.described.values()] == [
        "4 walks",
        "4 walks, int8",
        "4 walks, top_k(0.01)",
        "gossip in rounds, int4 with feedback",
    ]
    labels = ["multi_walk-4", "multi_walk-4-int8", "multi_walk-4-top_k0.01", "sync_gossip-int4-feedback"]
    assert list(spec.described) == labels


def test_optimizer_states_travel_beside_the_code():
    """As many bytes more as a state has, and the same states arrive: with nothing left out, nothing changes."""
    runs = []
    for codec in ("none", "top_k(1)"):
        trainer = QuadraticTrainer(4, momentum=0.9)
        setup = RunSetup(
            compressed(MultiWalk(2), codec), graphs.cycle(4), Seed(5), Stop(iterations=80), PoissonTiming(),
            model_bytes=20, state_bytes=20, optimizer_state="walk",
        )  # fmt: skip
        engine = Engine(trainer, [setup], [trainer.initial()])
        trace = engine.advance(1.0).traces[0]
        runs.append((engine.output(0).numpy(), {row.bytes for row in trace if row.event == "send"}))
    np.testing.assert_allclose(runs[0][0], runs[1][0], rtol=1e-4, atol=1e-4)
    assert runs[0][1] == {HEADER_BYTES + 40}
    assert runs[1][1] == {HEADER_BYTES + 4 + 40, HEADER_BYTES + 4 + 40 + 20}  # whole, or 8 bytes for each of 5 numbers


# -- error feedback ---------------------------------------------------------------------------------------------------


def simulated(protocol: Protocol, graph: Graph, seed: int = 3, faults: tuple[Fault, ...] = ()) -> tuple[list, Replay]:
    trainer = QuadraticTrainer(graph.nodes)
    plan = FaultPlan(faults, Seed(2))
    stop, look = Stop(iterations=150), Evaluate(every=50)
    setup = RunSetup(protocol, graph, Seed(seed), stop, NETWORK, look, lr=0.1, model_bytes=20, faults=plan)
    trace = Engine(trainer, [setup], [trainer.initial()]).advance(1.0).traces[0]
    initial = trainer.initial().double().numpy()
    return trace, Replay(initial, trainer.curvature, trainer.centres[:-1], trainer.steps, np.eye(graph.nodes))


@pytest.mark.parametrize("protocol", [MultiWalk(3), AsyncGossip(), SyncGossip()], ids=lambda p: p.label)
def test_both_ends_of_a_link_have_the_same_reference(protocol):
    """After every message: what the sender keeps of the stream is what the receiver has, when nothing is on its way."""
    trace, replay = simulated(compressed(protocol, "int4", True), graphs.cycle(5))
    under_way: dict[tuple[int, int, str], int] = {}
    kinds: dict[int, str] = {}
    compared = 0

    def watch(seen: Replay, row) -> None:
        nonlocal compared
        if row.event == "send" and row.slot:
            kinds[row.number] = row.detail["kind"].removeprefix(WHOLE)
            stream = (row.node, row.peer, kinds[row.number])
            under_way[stream] = under_way.get(stream, 0) + 1
        elif row.event == "receive" and row.slot:
            under_way[row.peer, row.node, kinds[row.number]] -= 1
        elif row.event == "combine" and row.slot.startswith("heard/"):
            _, sender, kind = row.slot.split("/")
            if under_way[int(sender), row.node, kind] == 0:
                compared += 1
                ours, theirs = seen.slots[row.node][row.slot], seen.slots[int(sender)][f"sent/{row.node}/{kind}"]
                np.testing.assert_allclose(ours, theirs, atol=1e-9)

    replay.play(trace, watch)
    assert compared > 50


class Told(Machine):
    """Writes down what it hears; says a model to its neighbour whenever it is started again."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, str]] = []

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Received):
            self.heard.append((event.message.round, event.slot))
        if isinstance(event, Started):
            return [Send(1, Message("news", round=7), INITIAL)]
        return []


NEWS = {"news": Arrival("news/{round}/{sender}")}
OUTSIDE = Context(0.0, random.Random(0))


def pair(askable: tuple[int, ...] = ()) -> tuple[FeedbackNode, FeedbackNode]:
    return tuple(FeedbackNode(Told(), NEWS, "int8", askable) for _ in range(2))


def said(node: FeedbackNode) -> Send:
    return next(e for e in node.handle(Started(), OUTSIDE) if isinstance(e, Send))


def hears(node: FeedbackNode, send: Send) -> list[Effect]:
    slot = arrivals_with_feedback(NEWS, "int8")[send.message.kind].slot_of(0, send.message)
    return node.handle(Received(0, send.message, slot), OUTSIDE)


def test_the_first_goes_whole_and_the_next_do_not():
    sender, _ = pair()
    assert [said(sender).message.kind for _ in range(3)] == ["whole-news", "news", "news"]


def test_a_message_that_overtakes_another_waits_for_it():
    sender, receiver = pair()
    first, second, third = (said(sender) for _ in range(3))
    assert not [e for e in hears(receiver, third) if isinstance(e, Combine)]
    hears(receiver, first)
    assert len(receiver.inner.heard) == 1
    effects = hears(receiver, second)
    assert len(receiver.inner.heard) == 3
    assert sum(isinstance(e, Combine) and e.into == "heard/0/news" for e in effects) == 2


def test_where_messages_are_lost_a_whole_one_is_asked_for_and_comes():
    sender, receiver = pair(askable=(0, 1))
    hears(receiver, said(sender))
    said(sender)  # lost
    (ask,) = [e for e in hears(receiver, said(sender)) if isinstance(e, Send)]
    assert (ask.to, ask.message.kind) == (0, ASK)
    sender.handle(Received(1, ask.message, ""), OUTSIDE)
    again = said(sender)
    assert again.message.kind == "whole-news"
    hears(receiver, again)
    assert len(receiver.inner.heard) == 2
    hears(receiver, said(sender))
    assert len(receiver.inner.heard) == 3


def test_a_neighbour_that_is_found_again_gets_a_whole_model():
    sender, _ = pair()
    said(sender)
    sender.handle(PeerFound(1), OUTSIDE)
    assert said(sender).message.kind == "whole-news"


def test_a_message_sent_again_is_the_same_message():
    sender, receiver = pair()
    hears(receiver, said(sender))
    effect = Send(1, Message("news", round=8), INITIAL)
    first, second = (sender._send(one)[-1] for one in (effect, effect._replace(again=True)))
    assert second == first._replace(again=True)
    assert len(sender._send(effect._replace(again=True))) == 1  # nothing is encoded a second time
    hears(receiver, first)
    hears(receiver, second)  # the protocol sees it, and knows what to do with it; the reference stays
    assert [round_ for round_, _ in receiver.inner.heard] == [7, 8, 8]


@pytest.mark.parametrize(("protocol", "asks"), [(SyncGossip(patience=2.0), True), (AsyncGossip(), False)])
def test_it_goes_on_where_every_fifth_message_is_lost(protocol, asks):
    """Exchanges in pairs say again what was lost, and that is enough; rounds go on, and ask for a whole model."""
    faults = (Fault("lose", at=0.0, share=0.2),)
    trace, _ = simulated(compressed(protocol, "int4", True), graphs.cycle(5), faults=faults)
    assert (ASK in {row.detail["kind"] for row in trace if row.event == "send"}) == asks
    assert any(row.event == "lost" for row in trace)
    late = [row for row in trace if row.event == "trained" and row.iteration > 100]
    assert {row.node for row in late} == set(range(5))


def test_what_top_k_leaves_out_is_sent_later():
    """Gossip that learns nothing comes to agree exactly, though every message holds a fifth of the numbers."""
    protocol, trainer = compressed(SyncGossip(), "top_k(0.2)"), QuadraticTrainer(5)
    setup = RunSetup(
        protocol, graphs.cycle(5), Seed(1), Stop(iterations=1500), NETWORK, lr=0.1, model_bytes=20,
        schedule=lambda progress: float(progress < 0.1),
    )  # fmt: skip
    engine = Engine(trainer, [setup], [trainer.initial()])
    spread = [m.consensus for m in engine.advance(1.0).measurements]
    assert max(spread) > 0.1
    assert spread[-1] < 1e-9


def test_on_digits_8_bits_learn_as_32_do():
    """The mean loss along the course, walks and gossip: noise of a 127th of the largest weight does not show in it."""
    content = {
        "repetitions": 3,
        "network": {"nodes": 10},
        "algorithms": [
            {"name": "multi_walk", "walks": 4, "compression": ["none", "int8"]},
            {"name": "async_gossip", "compression": ["none", "int8"]},
        ],
        "stop": {"iterations": 400},
        "evaluate": {"every": 50},
    }
    with tempfile.TemporaryDirectory() as folder:
        history = run_study(make_spec(content), out=Path(folder) / "study").history
    loss, ends = history.groupby("algorithm").train_loss.mean(), history[history.iteration == 400]
    numbers = 64 * 64 + 64 + 64 * 10 + 10
    for plain in ("multi_walk-4", "async_gossip-pairwise"):
        assert loss[f"{plain}-int8"] < 1.15 * loss[plain]
        for label, size in ((plain, 4 * numbers), (f"{plain}-int8", numbers + 4 * 5)):  # 5 blocks, a scale each
            assert (ends[ends.algorithm == label].bits % (8 * (HEADER_BYTES + size)) == 0).all()
