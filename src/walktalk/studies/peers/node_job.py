"""One node of a run, from its job to its end: its place in the cluster, its data and settings, and the node itself.

A node's place comes from the cluster's file, from what it remembers of who joined and left, or from joining a cluster
that runs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from walktalk.core.errors import SpecError, StudyError, UnavailableError
from walktalk.graphs import Graph
from walktalk.learning import Task, Trainer, TrainingRows, frozen_numbers, persons_module, schema_of, tasks
from walktalk.protocols import NetworkView
from walktalk.records import load_checkpoint, save_checkpoint, write_unless_there
from walktalk.runtimes.peers import (
    MEMBERS_FILE,
    Cluster,
    JoinRequest,
    Node,
    NodeSetup,
    OutsideTrainer,
    Place,
    Roster,
    Standing,
    archive_earlier_run,
    ask_to_join,
    check_name,
    check_outside,
    edition_of,
    end_process,
    facts_of,
    finished_before,
    from_text,
    leave_on_signals,
    network_view,
    quiet_process,
    shown,
    was_let_go,
    what_is_wrong,
    with_known_ports,
    with_own_port,
)
from walktalk.runtimes.simulator import all_network_views
from walktalk.studies.planning import (
    AlgorithmPlan,
    Foundation,
    build_foundation,
    build_rate,
    build_stop,
    build_trainer,
    keeps_memory,
    work_of_nodes,
)
from walktalk.studies.spec import StudySpec, load_spec, make_spec, spec_mapping

log = logging.getLogger(__name__)

PRIVATE = "private.safetensors"  # in a node's folder: its part of the model that nobody else has
PLACE = "place.json"  # in the folder of one that joined: what was said when it did


@dataclass(frozen=True)
class Seat:
    """The place of one node in its cluster.

    Args:
        cluster: with all that are known to have joined, and this node's own port.
        roster: who belongs.
        graph: that of the file.
        name: the node's.
        place: where it is.
        joins: what it asks for, where it has still to join.
        joined_now: whether it has just joined.
    """

    cluster: Cluster
    roster: Roster
    graph: Graph
    name: str
    place: Place
    joins: JoinRequest | None = None
    joined_now: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the node itself."""
        return self.cluster.folder / self.name

    @property
    def number(self) -> int:
        """The number of the node."""
        return self.roster.number(self.name)

    @property
    def data(self) -> tasks.Node:
        """Whose data it has. One that joins has its own, under its name, or those of the number that it was told."""
        part = self.place.part
        if self.name in self.cluster.file_names:
            return tasks.Node(self.cluster.part(self.name), self.cluster.file_names.index(self.name))
        return tasks.Node(None, part) if isinstance(part, int) else tasks.Node(part or self.name, tasks.NEWCOMER)

    @property
    def around(self) -> NetworkView:
        """What the node knows of the network at first."""
        known = all_network_views(self.graph)
        one = known[self.number] if self.number < len(known) else NetworkView(self.number, len(known), (), ())
        return network_view(one, self.roster, self.name)

    def dials(self, other: str) -> str | None:
        """Where it connects to one that becomes its neighbour, as far as is known now (`Cluster.dialled`)."""
        return with_known_ports(self.cluster).dialled(self.name, other, self.roster)

    def join(self, facts: Mapping[str, Any], needs: Iterable[int] = ()) -> Seat:
        """Join a cluster that runs; `UnavailableError` where it does not let this node in.

        - `facts`: of its study.
        - `needs`: nodes of the file that its algorithm needs as neighbours, such as a server.
        """
        assert self.joins is not None
        asked, needed = self.joins, tuple(self.cluster.file_names[node] for node in needs)
        if needed and not asked.neighbours:
            asked = replace(asked, neighbours=needed)
        for name in needed:
            if name not in asked.neighbours:
                given = ", ".join(asked.neighbours)
                raise SpecError(f"--neighbours: {name} must be among them, because it is the server (you gave {given})")
        ask_to_join(self.cluster, self.name, self.place, asked, facts, self.roster)
        neighbours = ", ".join(self.roster.known[peer] for peer in self.roster.neighbours(self.name))
        log.info("%s: has joined; its neighbours are %s", self.name, neighbours)
        cluster = _with_own(self.cluster.with_joined(self.roster.entries.values()), self.name, self.place)
        return replace(self, cluster=cluster, joins=None, joined_now=True)

    def remember(self) -> None:
        """Write down where a node that joined is, for a later life. Who belongs the node writes down itself."""
        if self.name not in self.cluster.file_names:
            place = self.place
            if place.found and not self.cluster.told(place):  # nobody needs to know its port: any will do the next time
                place = place.model_copy(update={"address": place.host})
            write_unless_there(self.folder / PLACE, place.model_dump_json() + "\n")


def find_seat(
    cluster: Cluster, graph: Graph, name: str, rejoin: bool, join: JoinRequest | None, place: Place | None
) -> Seat:
    """Find where a node belongs.

    Args:
        cluster: as in the file.
        graph: the study's.
        name: the node's.
        rejoin: whether it remembers an earlier life.
        join: what it asks for, where it is to join a cluster that runs.
        place: where one is that is not in the file; what it said when it joined, if left out.
    """
    check_name(name)
    folder, roster = cluster.folder / name, cluster.roster(graph)
    if rejoin:
        _recall(folder / MEMBERS_FILE, roster)
    belongs = roster.has(name) and roster.standing(name) is Standing.MEMBER
    if not belongs and join is None:
        raise SpecError(_not_in(cluster, name, left=roster.has(name)))
    if belongs and join is not None and name in cluster.file_names:
        belongs = False  # whether it was let go meanwhile, the others know: they refuse one that belongs
    if name in cluster.file_names:
        own = cluster.nodes[name]
    else:
        own = place or _earlier_place(folder) or Place.model_validate({})
        if cluster.relay and "address" not in own.model_fields_set:  # it does not say that it can be reached
            own = own.model_copy(update={"reachable": False})
    cluster = with_own_port(_with_own(cluster.with_joined(roster.entries.values()), name, own), name)
    own = cluster.nodes[name]
    if not own.has_port and cluster.told(own) and name not in cluster.file_names:
        raise SpecError(f"--address {own.address}: one that joins needs a port there, e.g. {own.address}:7447")
    moved = belongs and name in roster.entries and name not in cluster.file_names
    moved = moved and roster.entries[name].address != cluster.told(own)
    asks = (join or JoinRequest()) if not belongs or moved else None
    return Seat(cluster, roster, graph, name, own, asks)


def _with_own(cluster: Cluster, name: str, place: Place) -> Cluster:
    joined = cluster.joined if name in cluster.file_names else {**cluster.joined, name: cluster.joined.get(name, -1)}
    return cluster.model_copy(update={"nodes": {**cluster.nodes, name: place}, "joined": joined})


def _recall(path: Path, roster: Roster) -> None:
    """Merge what an earlier life knew of who belongs."""
    if not path.is_file():
        return
    try:
        roster.join(from_text(path.read_text()))
    except (OSError, ValueError) as error:
        raise StudyError(f"{path} cannot be read: {error}; begin anew with --fresh") from error


def _earlier_place(folder: Path) -> Place | None:
    with suppress(OSError, ValueError):
        return Place.model_validate(json.loads((folder / PLACE).read_text()))
    return None


def _not_in(cluster: Cluster, name: str, left: bool) -> str:
    if left:
        return f"--name {name}: it has left the cluster for good; --join lets it come again"
    names = ", ".join(cluster.file_names)
    return (
        f"--name {name!r} is not in the cluster; its nodes are {names}; --join {cluster.file_names[0]} joins it while "
        "it runs"
    )


@dataclass(frozen=True)
class Beginning:
    """Where a resumed run starts from."""

    model: Tensor
    seconds: float
    iterations: list[int]  # by node
    bytes: list[int]  # by node
    states: Tensor | None = None  # by node, where parts of models are private


def read_beginning(path: Path) -> Beginning:
    """Read where a resumed run starts from."""
    tensors, facts = load_checkpoint(path)
    model, states = tensors["model"], tensors.get("states")
    return Beginning(model, facts["seconds"], facts["iterations"], facts["bytes"], states)


@dataclass(frozen=True)
class NodeJob:
    """One node of one run, as it is handed to a process."""

    cluster: Cluster
    name: str
    rejoin: bool = False
    device: str = "cpu"
    beginning: Path | None = None  # of a run that goes on (`resume`)
    join: JoinRequest | None = None  # it was not in the file, and joins while the others run
    place: Place | None = None  # where one that joins is
    metrics: str | int | None = None  # where to show metrics, in place of what the cluster's file says
    deployed: bool = False  # for itself, not in a fleet: it measures on test samples too, and hands out its copy


def check_ends(spec: StudySpec) -> None:
    """Nobody in a real cluster sees all data, and no evaluation is done while it runs."""
    for name in ("target_accuracy", "patience"):
        if getattr(spec.stop, name) is not None:
            raise UnavailableError(
                f"stop.{name}: is for the simulator; on real peers nobody sees test data while they run: use "
                "stop.target_loss, iterations or time"
            )


def run_node(
    job: NodeJob, ends: Callable[[bool], None] = lambda over: None, meets: Callable[[Node], None] = lambda node: None
) -> None:
    """Run one node, from its first connection to its end; the process leaves when it is told to.

    Args:
        job: Which node of which cluster.
        ends: Called in the end with whether the run is over, which it is not where the node was asked to leave.
        meets: Called with the node before it runs, for trials of what goes wrong.
    """
    quiet_process()
    spec = make_spec(job.cluster.study) if isinstance(job.cluster.study, dict) else load_spec(job.cluster.study)
    check_ends(spec)
    base = build_foundation(spec)
    _check_names(job.cluster, base.graph)
    if job.deployed:
        _say_of_kit(job.cluster, job.name)
    seat = find_seat(job.cluster, base.graph, job.name, job.rejoin, job.join, job.place)
    check_outside_samples(spec, seat.cluster)
    setup, trainer = _node_setup(seat, base, job)
    if job.rejoin and finished_before(setup.folder, setup.stop):
        log.info("%s: the run is over, as its checkpoint says; --fresh begins anew", job.name)
        ends(True)
        return
    if job.deployed and not job.rejoin:
        archive_earlier_run(setup.folder)
    seat.remember()
    with opened(trainer), shown(seat.cluster.metrics_of(job.name) if job.metrics is None else job.metrics) as show:
        node = Node(setup, trainer)
        if isinstance(trainer, OutsideTrainer):
            trainer.node.iterations = lambda: node.progress.tally.iterations
        if job.beginning is not None and (states := read_beginning(job.beginning).states) is not None:
            node.models.interpreter.states[node.models.me, ""] = states[seat.number]
        meets(node)
        leave_on_signals(node.leave)
        show(node.health)
        if job.rejoin and seat.joins is None:
            threading.Thread(target=_stop_if_let_go, args=(seat, node), name="belongs", daemon=True).start()
        try:
            node.run()
        except Exception as error:
            if isinstance(trainer, OutsideTrainer):
                trainer.tell_over(f"the node has ended with an error: {' '.join(str(error).split())}", failed=True)
            raise
        finally:
            keep_private(node, trainer, setup.folder)
            if isinstance(trainer, OutsideTrainer):
                trainer.tell_over("the run is over" if node.progress.end.seen else "the node has left")
            ends(node.progress.end.seen)
    if node.training.queue.busy or not node.link.connections.closed:
        end_process()


def _say_of_kit(cluster: Cluster, name: str) -> None:
    """Warn of what is changed or at its end in the kit that the cluster's file lies in, if it does."""
    for line in what_is_wrong(cluster.home):
        log.warning("%s: its kit: %s", name, line)


@contextmanager
def opened(trainer: Trainer | OutsideTrainer) -> Iterator[None]:
    """Lets a script come, where one trains; in the end it is told."""
    if not isinstance(trainer, OutsideTrainer):
        yield
        return
    trainer.open()
    try:
        yield
    finally:
        trainer.close("the node has ended with an error")


def check_outside_samples(spec: StudySpec, cluster: Cluster) -> None:
    """Raise a `DataError` where the samples of a task that scripts train are not those of a cluster's nodes."""
    if spec.task.name == "outside":
        parts = [cluster.part(name) or str(number) for number, name in enumerate(cluster.file_names)]
        tasks.check_samples(spec.task.settings.get("samples"), parts, list(cluster.nodes))


def study_keys(spec: StudySpec, cluster: Cluster) -> dict[str, Any]:
    """A cluster's study, key by key, as a script and its node compare it."""
    chosen = {"name": cluster.name, "algorithm": cluster.algorithm, "repetition": cluster.repetition}
    found: dict[str, Any] = {}
    for name, section in {**spec_mapping(spec), "cluster": chosen}.items():
        if isinstance(section, Mapping):
            found |= {f"{name}.{key}": value for key, value in section.items()}
        else:
            found[name] = section
    return found


def _stop_if_let_go(seat: Seat, node: Node) -> None:
    """Stop a node that was let go while it was dead: it would train alone, and nobody would tell it."""
    try:
        gone = was_let_go(seat.cluster, seat.name, seat.place, node.neighbours.facts, seat.roster)
    except Exception as error:  # nobody is there who could say so, or it belongs
        log.debug("%s: nobody says that it does not belong: %s", seat.name, error)
        return
    if gone:
        node.fail(SpecError(_not_in(seat.cluster, seat.name, left=True)))


def _node_setup(seat: Seat, base: Foundation, job: NodeJob) -> tuple[NodeSetup, Trainer | OutsideTrainer]:
    cluster, spec, graph = seat.cluster, base.spec, base.graph
    plan = _chosen(base.algorithms, cluster.algorithm)
    task = base.task_of(seat.data)
    if not job.deployed:
        task = replace(task, test=None)  # a fleet's history is computed afterwards, from all data
    trainer = _trainer(seat, base, plan, task, job)
    initial, before = trainer.initial_row(base.initial_seed(cluster.repetition)).cpu(), (0, 0, 0.0)
    study = study_facts(cluster, base, plan) | task_facts(task)
    if seat.joins is not None:
        facts = facts_of({"algorithm": plan.protocol.resilient_form(), **study}, initial)
        seat = seat.join(facts, needs=plan.protocol.meets_newcomers)
        cluster = seat.cluster
    number = seat.number
    if job.beginning is not None:
        begun = read_beginning(job.beginning)
        initial, before = begun.model, (begun.iterations[number], begun.bytes[number], begun.seconds)
    called = [job.name, seat.data.name or str(seat.data.number)]
    samples = int(task.details.get("samples", len(task.parts[0])))
    counts = spec.minimizes.count(samples, called)
    setup = NodeSetup(
        protocol=plan.protocol,
        around=replace(seat.around, resources=own_resources(), samples=counts),
        objective=spec.minimizes,
        seed=base.root.child("run", plan.label, cluster.repetition),
        stop=build_stop(spec),
        initial=initial,
        before=before,
        endpoint=cluster.endpoint(job.name, graph, seat.roster),
        roster=seat.roster,
        dials=seat.dials,
        joins=seat.joined_now,
        folder=cluster.folder / job.name,
        lr=plan.lr,
        schedule=build_rate(spec),
        optimizer_state="node" if task.private else plan.optimizer_state,
        part=0,
        rejoin=job.rejoin,
        pace=cluster.pace,
        wait_for_neighbours=cluster.wait,
        samples=counts,
        owned=0 if spec.minimizes.is_declared else samples,
        study=study,
        frozen=None if isinstance(trainer, OutsideTrainer) else frozen_numbers(trainer.template),
        largest=cluster.largest,
        tested=0 if task.test is None else len(task.test[0]),
        best_by=spec.evaluate.best_asked if job.deployed else None,
        named=_named(trainer) if job.deployed else None,
        secret=job.deployed,
        stay=cluster.stay,
        at_least=cluster.at_least,
        schema=schema_of(task),
        edition=edition_of(cluster.home),
        keep_traces=math.inf if cluster.keep_traces is None else 1e6 * cluster.keep_traces,
    )
    return setup, trainer


@dataclass(frozen=True)
class SiteTrial:
    """What a node would train, made as it would make it, without joining anybody."""

    graph: Graph
    task: Task
    trainer: Trainer | OutsideTrainer
    initial: Tensor  # the first model
    lr: float
    facts: Mapping[str, Any]  # that all nodes must have alike

    def train(self) -> Tensor:
        """Train the first model on one node's data as a visit does, and return the result."""
        assert not isinstance(self.trainer, OutsideTrainer)
        device = self.trainer.device
        parts, keys = torch.tensor([0], device=device), torch.tensor([1], device=device)
        given = TrainingRows(self.initial[None].to(device), parts, keys, torch.tensor([self.lr], device=device))
        return self.trainer.train(given)[0][0].cpu()


def try_site(cluster: Cluster, name: str, device: str = "auto") -> SiteTrial:
    """Build what a node of a cluster would train, with its own data; every mistake in it shows.

    Args:
        cluster: as in the file.
        name: of a node that is in it.
        device: auto, cpu or cuda.
    """
    spec = make_spec(cluster.study) if isinstance(cluster.study, dict) else load_spec(cluster.study)
    check_ends(spec)
    base = build_foundation(spec)
    _check_names(cluster, base.graph)
    cluster.number(name)
    seat = Seat(cluster, cluster.roster(base.graph), base.graph, name, cluster.nodes[name])
    plan = _chosen(base.algorithms, cluster.algorithm)
    task = base.task_of(seat.data)
    trainer = _trainer(seat, base, plan, task, NodeJob(cluster, name, device=device, deployed=True))
    initial = trainer.initial_row(base.initial_seed(cluster.repetition)).cpu()
    study = study_facts(cluster, base, plan) | task_facts(task)
    frozen = None if isinstance(trainer, OutsideTrainer) else frozen_numbers(trainer.template)
    facts = facts_of({"algorithm": plan.protocol.resilient_form(), **study}, initial, frozen)
    return SiteTrial(base.graph, task, trainer, initial, plan.lr, facts)


def _trainer(seat: Seat, base: Foundation, plan: AlgorithmPlan, task: Task, job: NodeJob) -> Trainer | OutsideTrainer:
    """What trains at a node: ours, on its data, or a script that comes."""
    if isinstance(task, tasks.LoopTask) and not task.loop.changes_gradients:
        check_outside(plan.protocol)
    if not isinstance(task.model, tasks.Outside):
        return build_trainer(base.spec, task, job.device, node=seat.data)
    check_outside(plan.protocol)
    _, steps = work_of_nodes(base.spec, task, seat.data)
    steps = steps if isinstance(steps, int) else steps[0]
    memory = keeps_memory(base.spec) if task.private else True
    trainer = OutsideTrainer(task, steps, seat.folder, seat.name, memory)
    trainer.node.facts = study_keys(base.spec, seat.cluster)
    return trainer


def _named(trainer: Trainer | OutsideTrainer) -> Callable[[Tensor], Mapping[str, Tensor]]:
    """What gives a row's weights by name, for whoever collects."""
    if isinstance(trainer, OutsideTrainer):
        return trainer.named
    return lambda row: trainer.module(row).state_dict()


def keep_private(node: Node, trainer: Trainer | OutsideTrainer, folder: Path) -> None:
    """Write the private part of a node's model beside its checkpoint, by name: nobody else has it."""
    state = node.models.interpreter.states.get((node.models.me, ""))
    if isinstance(trainer, OutsideTrainer):
        part = trainer.private_part(state) if isinstance(state, Tensor) else {}
        if part:
            save_checkpoint(folder / PRIVATE, part, {"node": node.link.endpoint.name})
    elif trainer.private is not None and isinstance(state, Tensor):
        numbers = trainer.private.numbers(state[None])[0]
        save_checkpoint(folder / PRIVATE, trainer.private.by_name(numbers.cpu()), {"node": node.link.endpoint.name})


def study_facts(cluster: Cluster, base: Foundation, plan: AlgorithmPlan) -> dict[str, Any]:
    """What must be the same on all nodes of a cluster, beside the model and the algorithm; not when it ends.

    Of the task its name and numbers: a text may be a folder, which every site has elsewhere.
    """
    spec, graph = spec_mapping(base.spec), base.graph
    network = f"{graph.name}, {graph.edges} edges, {hashlib.blake2b(graph.edge_list().tobytes()).hexdigest()}"
    task = {key: value for key, value in spec["task"].items() if key == "name" or not isinstance(value, str)}
    if task["name"] == "outside":  # how many samples each has the nodes tell: one that joins is in its own file alone
        del task["samples"]
    sections = {"task": task, **{name: spec[name] for name in ("objective", "optimizer", "schedule", "training")}}
    sections["optimizer"] = {**sections["optimizer"], "lr": plan.lr}
    sections["training"] = {**sections["training"], "optimizer_state": plan.optimizer_state}
    facts = {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}
    run = {"seed": base.spec.seed, "repetition": cluster.repetition, "nodes": " ".join(cluster.file_names)}
    return {"network": network, **facts, **run}


def task_facts(task: Task) -> dict[str, Any]:
    """What of a task's code can be compared: two sites may have two versions of it under one name.

    Types of layers and the name of the loss, not their settings in words, which differ between versions of torch.
    """
    loss = getattr(task.loss, "__qualname__", type(task.loss).__qualname__)
    layers = " ".join(type(layer).__name__ for layer in persons_module(task.model).modules())
    facts = {"layers": layers, "loss": loss} | ({"private": " ".join(task.private)} if task.private else {})
    if isinstance(task.model, tasks.Outside):  # of one node its samples are told, and not as many as in a simulation
        facts |= {"arrays": task.model.layout.digest, "optimizer arrays": task.details["optimizer"].digest}
    return facts


def _check_names(cluster: Cluster, graph: Graph) -> None:
    """Where the graph has names, a cluster's nodes have the same, in the same order: its numbers are theirs."""
    if graph.names is not None and tuple(map(cluster.part, cluster.file_names)) != graph.names:
        raise SpecError(
            f"nodes: are {', '.join(cluster.file_names)}, but those of the study's graph are {', '.join(graph.names)}; "
            "list them by these names, in this order"
        )


def own_resources() -> tuple[float, float, float]:
    """Bandwidth, which the node measures as it sends, memory in bytes and processors: what counts in an election."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0.0, float(memory), float(os.cpu_count() or 1)


def _chosen(plans: list[AlgorithmPlan], label: str) -> AlgorithmPlan:
    for plan in plans:
        if label in ("", plan.label):
            return plan
    raise SpecError(f"algorithm: {label!r} is not in the study; its algorithms are {', '.join(p.label for p in plans)}")
