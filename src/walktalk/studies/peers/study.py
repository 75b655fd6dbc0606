"""A study on real peers: the same specification, nodes as processes, and the same folder in the end.

`run_on_peers` starts all nodes on this machine; `run_node` is one of a deployment on several. A node builds everything
from the specification by itself and keeps only its own part of the data. The history is computed afterwards, from the
merged trace, by the executor of the simulator: measuring disturbs nobody, and every run checks the engine.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from walktalk.errors import SpecError, StudyError, UnavailableError
from walktalk.graphs import Graph
from walktalk.learning import Trainer, frozen_numbers
from walktalk.records import RunFolder, TraceWriter, check_folder, opened_folder
from walktalk.runtimes.peers import (
    Cluster,
    Fleet,
    Newcomer,
    Node,
    NodeSetup,
    Place,
    ReplaySetup,
    end_process,
    facts_of,
    finished_before,
    free_ports,
    leave_on_signals,
    make_cluster,
    quiet_process,
    replay,
    set_aside,
    shown,
)
from walktalk.studies.building import (
    AlgorithmPlan,
    Foundation,
    PlannedRun,
    Preparation,
    Progress,
    RunRecord,
    build_evaluate,
    build_rate,
    build_stop,
    build_trainer,
    check_travels,
    lay_foundation,
    pick_device,
    prepare,
)
from walktalk.studies.peers.progress import Reporter, Watch
from walktalk.studies.peers.resume import read_beginning, whole_trace, write_beginning
from walktalk.studies.peers.seat import Seat, take_seat
from walktalk.studies.results import StudyResult, history_row, study_result, trace_columns, write_run
from walktalk.studies.spec import StudySpec, dump_spec, load_spec, make_spec, spec_mapping

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeJob:
    """One node of one run, as it is handed to a process."""

    cluster: Cluster
    name: str
    rejoin: bool = False
    device: str = "cpu"
    beginning: Path | None = None  # of a run that goes on (`resume`)
    join: Newcomer | None = None  # it was not in the file, and joins while the others run
    place: Place | None = None  # where one that joins is
    metrics: str | int | None = None  # where to show metrics, in place of what the cluster's file says
    deployed: bool = False  # for itself, not in a fleet: it measures on test samples too, and hands out its copy


def run_on_peers(
    spec: StudySpec,
    out: str | PathLike[str],
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "cpu",
    pace: float = 0.0,
    progress: Callable[[Progress], None] | None = None,
) -> StudyResult:
    """All runs of a study, one after the other, each with one process a node on this machine.

    Args:
        spec: What is to be run.
        out: The folder for its records.
        resume: Go on where an interrupted run of this study stopped in that folder.
        overwrite: Replace what is in that folder, when the new results are whole; without it they are refused.
        device: auto, cpu or cuda: of the arithmetic afterwards; nodes train on the CPU.
        pace: Seconds that a training takes at least, so that more nodes than processors take turns.
        progress: Called now and then with how far things are.
    """
    if spec.faults or spec.availability is not None:
        raise UnavailableError(
            "faults and availability: are for the simulator; on real peers, `walktalk chaos` makes them happen"
        )
    check_ends(spec)
    check_travels(spec, "the nodes' processes")
    taking = {"resume": resume, "overwrite": overwrite}
    check_folder(out, dump_spec(spec), **taking, engine="peers")  # before any data is read
    ready = prepare(spec, pick_device(device))
    for run in ready.runs:
        if "peers" not in run.setup.protocol.runtimes:
            raise UnavailableError(f"{run.label} runs in the simulator only; leave it out or use --engine sim")
        run.setup.protocol.check_graph(run.setup.graph)  # nodes alone see their neighbours only, and would wait forever
    with opened_folder(out, dump_spec(spec), **taking, engine="peers") as folder:
        records: list[RunRecord] = []
        reporter = Reporter(progress, ready.runs)
        for index, run in enumerate(ready.runs):
            here = folder.run(run.label, run.repetition)
            reporter.report(index, records)
            if not here.model.exists():  # else it was finished before, and its records are made again from its trace
                tell = partial(reporter.now_and_then, index, records=records)
                _run_fleet(ready, run, here, pace, tell)
            records.append(_record(ready, run, here))
        reporter.report(len(records), records)
        result = study_result(spec, records, folder, engine="peers", trainer=ready.trainer)
    for word in result.summary.get("notes", ()):
        log.warning("%s", word)
    return result


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
    """One node, from its first connection to its end; the process leaves when it is told to.

    Args:
        job: Which node of which cluster.
        ends: Called in the end with whether the run is over, which it is not where the node was asked to leave.
        meets: Called with the node before it runs, for trials of what goes wrong.
    """
    quiet_process()
    spec = make_spec(job.cluster.study) if isinstance(job.cluster.study, dict) else load_spec(job.cluster.study)
    check_ends(spec)
    base = lay_foundation(spec)
    _check_names(job.cluster, base.graph)
    seat = take_seat(job.cluster, base.graph, job.name, job.rejoin, job.join, job.place)
    setup, trainer = _node_setup(seat, base, job)
    if job.rejoin and finished_before(setup.folder, setup.stop):
        log.info("%s: the run is over, as its checkpoint says; --fresh begins anew", job.name)
        ends(True)
        return
    if job.deployed and not job.rejoin:
        set_aside(setup.folder)
    seat.remember()
    with shown(seat.cluster.metrics_of(job.name) if job.metrics is None else job.metrics) as show:
        node = Node(setup, trainer)
        meets(node)
        leave_on_signals(node.leave)
        show(node)
        try:
            node.run()
        finally:
            ends(node.end.seen)
    if node.trainings.busy or not node.link.closed:
        end_process()


def _node_setup(seat: Seat, base: Foundation, job: NodeJob) -> tuple[NodeSetup, Trainer]:
    cluster, spec, graph = seat.cluster, base.spec, base.graph
    plan = _chosen(base.algorithms, cluster.algorithm)
    task = base.task_of(seat.data)
    if not job.deployed:
        task = replace(task, test=None)  # a fleet's history is computed afterwards, from all data
    trainer = build_trainer(spec, task, job.device)
    initial, before = trainer.initial_row(base.initial_seed(cluster.repetition)).cpu(), (0, 0, 0.0)
    study = study_facts(cluster, base, plan)
    if seat.joins is not None:
        seat = seat.join(facts_of({"algorithm": plan.protocol.hardened(), **study}, initial))
        cluster = seat.cluster
    number = seat.number
    if job.beginning is not None:
        begun = read_beginning(job.beginning)
        initial, before = begun.model, (begun.iterations[number], begun.bytes[number], begun.seconds)
    setup = NodeSetup(
        protocol=plan.protocol,
        around=replace(seat.around, resources=own_resources(), samples=len(task.parts[0])),
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
        optimizer_state=plan.optimizer_state,
        part=0,
        rejoin=job.rejoin,
        pace=cluster.pace,
        wait_for_neighbours=cluster.wait,
        samples=len(task.parts[0]),
        study=study,
        frozen=frozen_numbers(trainer.template),
        largest=cluster.largest,
        tested=0 if task.test is None else len(task.test[0]),
        named=(lambda row: trainer.module(row).state_dict()) if job.deployed else None,
        secret=job.deployed,
        stay=cluster.stay,
        keep_traces=math.inf if cluster.keep_traces is None else 1e6 * cluster.keep_traces,
    )
    return setup, trainer


def study_facts(cluster: Cluster, base: Foundation, plan: AlgorithmPlan) -> dict[str, Any]:
    """What must be the same on all nodes of a cluster, beside the model and the algorithm; not when it ends.

    Of the task its name and numbers: a text may be a folder, which every site has elsewhere.
    """
    spec, graph = spec_mapping(base.spec), base.graph
    network = f"{graph.name}, {graph.edges} edges, {hashlib.blake2b(graph.edge_list().tobytes()).hexdigest()}"
    task = {key: value for key, value in spec["task"].items() if key == "name" or not isinstance(value, str)}
    sections = {"task": task, **{name: spec[name] for name in ("optimizer", "schedule", "training")}}
    sections["optimizer"] = {**sections["optimizer"], "lr": plan.lr}
    sections["training"] = {**sections["training"], "optimizer_state": plan.optimizer_state}
    facts = {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}
    run = {"seed": base.spec.seed, "repetition": cluster.repetition, "nodes": " ".join(cluster.file_names)}
    return {"network": network, **facts, **run}


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


def local_cluster(spec: StudySpec, run: PlannedRun, folder: Path, pace: float = 0.0) -> Cluster:
    """All nodes of a run on this machine, on free ports."""
    ports = free_ports(run.setup.graph.nodes)
    called = run.setup.graph.names or range(len(ports))
    nodes = {
        f"node-{number}": {"address": f"127.0.0.1:{port}", "part": part}
        for number, (port, part) in enumerate(zip(ports, called, strict=True))
    }
    study = spec_mapping(spec)
    return make_cluster(
        {
            "name": "local",
            "study": study,
            "algorithm": run.label,
            "repetition": run.repetition,
            "folder": str(folder),
            "pace": pace,
            "nodes": nodes,
        }
    )


def _run_fleet(
    ready: Preparation, run: PlannedRun, here: RunFolder, pace: float, tell: Callable[[Watch], None]
) -> None:
    cluster = local_cluster(ready.spec, run, here.nodes, pace)
    names, beginning = list(cluster.nodes), write_beginning(ready, run, here)
    watch = Watch(cluster.folder, read_beginning(beginning).seconds if beginning is not None else 0.0)
    fleet = Fleet(run_node, [NodeJob(cluster, name, beginning=beginning) for name in names], names)
    fleet.wait(lambda: tell(watch))
    if fleet.failed():
        raise StudyError(f"{run.label}: {', '.join(fleet.failed())} ended with an error; what it was is printed above")


def _record(ready: Preparation, run: PlannedRun, here: RunFolder) -> RunRecord:
    """The run's trace, history and model, from what its nodes wrote down."""
    setup = run.setup
    trace = whole_trace(here, setup.graph.nodes)
    if not trace:
        raise StudyError(f"{here.nodes}: what the nodes wrote down is gone, so the run's records cannot be made again")
    lost = next((row.time for row in trace if row.event == "all_lost"), None)
    if lost is not None:
        log.warning(
            "%s: all walks were lost by %.0f s and nobody starts them again; the run ended there (guard: "
            "aggregator would)",
            run.label,
            lost,
        )
    with TraceWriter(here.trace) as writer:
        writer.write(trace_columns(trace))
    again = ReplaySetup.of(setup, run.initial.cpu(), build_evaluate(ready.spec))
    replayed = replay(trace, again, ready.trainer)
    history = [history_row(run.label, run.repetition, m) for m in replayed.measurements]
    trained = sum(row.event == "trained" for row in trace)
    record = RunRecord(run.label, run.repetition, history, [], replayed.output, trained)
    write_run(here, record, ready.trainer)
    return record
