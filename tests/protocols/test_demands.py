"""What protocols demand before anything runs: of the graph, and of the study's optimizer."""

from __future__ import annotations

import subprocess
import sys

import pytest

import walktalk as wt
from walktalk import graphs
from walktalk.core.errors import SpecError, UserError
from walktalk.core.seeds import Seed
from walktalk.core.settings import settings_of
from walktalk.protocols import (
    D2,
    KGT,
    PROTOCOLS,
    SGP,
    AsyncGossip,
    Centralized,
    Combine,
    Context,
    Effect,
    Event,
    FedAvg,
    GradientTracking,
    Machine,
    NetworkView,
    Protocol,
    QGDSGDm,
    Scaffold,
    Started,
    SyncGossip,
    Train,
    Trained,
)
from walktalk.protocols.registry import OURS, class_called
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import RunSetup, Simulation
from walktalk.studies import make_spec
from walktalk.studies.spec import StudySpec


@pytest.mark.parametrize("name", ["qg_dsgdm", "scaffold", "k_gt"])
def test_a_study_says_that_a_momentum_lets_it_diverge_and_what_to_do(name: str) -> None:
    given = {"algorithms": [{"name": name}], "network": {"topology": "star", "nodes": 5}}
    with pytest.raises((UserError, ValueError), match="set momentum to 0"):
        StudySpec.model_validate(given)
    StudySpec.model_validate({**given, "optimizer": {"momentum": 0}})


@pytest.mark.parametrize("protocol", [QGDSGDm(), Scaffold(), KGT()], ids=lambda p: p.label)
def test_train_says_so_in_one_line(protocol: Protocol) -> None:
    task = wt.tasks.digits(nodes=4)
    with pytest.raises(UserError, match=r"optimizer.momentum: with 0.9 .* set momentum to 0") as caught:
        wt.train(task, protocol, graphs.star(4), optimizer=wt.SGD(momentum=0.9))
    assert "\n" not in str(caught.value)


def test_without_its_own_momentum_it_takes_any() -> None:
    QGDSGDm(beta=0.0).check_momentum(0.9)
    FedAvg().check_momentum(0.9)


def test_settings_that_are_inherited_have_their_meaning_from_there() -> None:
    assert settings_of(FedAvg)["server"].meaning.startswith("the node that is the server")


def test_a_protocol_lists_its_demands() -> None:
    assert [demand.words for demand in FedAvg(server=2).demands][1].startswith("links of node 2")
    with pytest.raises(SpecError, match="take star"):
        FedAvg(server=2).check_graph(graphs.star(5))


class Hurried(Protocol):
    """Trains at twice the rate, and tells what it was told."""

    heard: list[float]

    def machine(self, network_view: NetworkView) -> Machine:
        return Listening(self.heard)


class Listening(Machine):
    def __init__(self, heard: list[float]) -> None:
        self.heard = heard

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Trained):
            self.heard.append(event.lr)
        if isinstance(event, (Started, Trained)):
            return [Combine("model", {"initial": 1.0}), Train("model", rate=2.0)]
        return []


def test_the_learning_rate_that_is_reported_is_the_schedules() -> None:
    protocol = Hurried()
    protocol.heard = []
    run = RunSetup(
        protocol, graphs.complete(1), Seed(1), Stop(iterations=4), lr=0.3, schedule=lambda progress: 1.0 - progress
    )
    Simulation(run).advance()
    assert protocol.heard == pytest.approx([0.3, 0.3 * 0.75, 0.3 * 0.5, 0.3 * 0.25])


def test_the_reference_runs_beside_those_for_one_way_links() -> None:
    """It uses no link at all."""
    for graph in (graphs.exponential(8), graphs.one_peer_exponential(8)):
        for protocol in (Centralized(), SGP()):
            protocol.check_graph(graph)
    run = RunSetup(Centralized(), graphs.exponential(5), Seed(1), Stop(iterations=9))
    assert sum(row.event == "trained" for row in Simulation(run).advance().trace) == 9


def test_the_registry_calls_algorithms_as_they_call_themselves() -> None:
    """It names them without having read their files."""
    assert {name: PROTOCOLS[name].name for name in OURS} == {name: name for name in OURS}
    assert class_called("AsyncGossip") is PROTOCOLS["async_gossip"]
    assert class_called("Gossip") is None


def test_asking_for_one_algorithm_reads_no_other() -> None:
    asks = "import sys, walktalk.protocols as p; p.PROTOCOLS['d2']"
    code = f"{asks}; print(*[one for one in sys.modules if 'gossip.' in one])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["walktalk.protocols.gossip.d2"]


def test_names_of_others_lead_to_algorithms_that_there_are() -> None:
    assert set(PROTOCOLS.elsewhere.values()) <= set(PROTOCOLS)
    assert not set(PROTOCOLS.elsewhere) & set(PROTOCOLS)
    assert {name for name, _ in PROTOCOLS.aliases.values()} <= set(PROTOCOLS)
    assert not set(PROTOCOLS.aliases) & {*PROTOCOLS, *PROTOCOLS.elsewhere}
    with pytest.raises(SpecError, match="did you mean 'slowmo'"):
        PROTOCOLS.find("DecentLaM")
    with pytest.raises(SpecError, match="did you mean 'fedopt' with optimizer: yogi"):
        PROTOCOLS.find("fedyogi")


def test_the_names_of_the_field_are_accepted_and_one_line_says_which_algorithm_it_is() -> None:
    known = {"d_psgd": SyncGossip, "ad_psgd": AsyncGossip, "dsgt": GradientTracking, "exact_diffusion": D2}
    for name, kind in known.items():
        with pytest.warns(UserWarning, match=f"^algorithm {name}: here called {kind.name}$"):
            assert PROTOCOLS.find(name) is kind
    for name, (here, settings) in PROTOCOLS.aliases.items():
        PROTOCOLS[here](**settings)
        with pytest.warns(UserWarning, match=name):
            assert PROTOCOLS.known_as(name) == (here, settings)


def test_a_study_takes_the_names_of_the_field() -> None:
    with pytest.warns(UserWarning, match="here called") as told:
        spec = make_spec({"algorithms": [{"name": ["d_psgd", "fedadam"]}, {"name": "fedavgm", "server_rate": 0.5}]})
    named = [(one.name, one.title) for one in spec.algorithms]
    assert named == [
        ("sync_gossip", "sync_gossip"),
        ("fedopt", "fedopt-adam"),
        ("fedopt", "fedopt-momentum-server_rate0.5"),
    ]
    assert {str(one.message) for one in told} == {
        "algorithm d_psgd: here called sync_gossip",
        "algorithm fedadam: here called fedopt with optimizer: adam",
        "algorithm fedavgm: here called fedopt with optimizer: momentum",
    }
    conflict = r"optimizer: fedadam is fedopt with optimizer: adam \(you gave yogi\)"
    with pytest.warns(UserWarning, match="here called"), pytest.raises(SpecError, match=conflict):
        make_spec({"algorithms": [{"name": "fedadam", "optimizer": "yogi"}]})
