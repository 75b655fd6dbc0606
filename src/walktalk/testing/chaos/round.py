"""Chaos on this machine: real nodes that meet with every kind of failure while they train; then the ledger is checked.

One round: start all nodes and let them train; inject the faults of the plan, in an order that the seed decides;
then a quiet time, and the verdict (`verdict`). What must hold in every round:

- no hang: every node that is left trains on, answers, and leaves in order when it is asked to;
- one aggregator, and every walk exactly once: R of them (gossip: every node that is left exchanges models again);
- every number of every model is finite;
- no update is counted twice, and of what each half of a split network learned nine tenths are in the model;
- the loss on the data of the nodes that are left is at most a tenth above that of an undisturbed run which never had
  the data of those that are not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from walktalk.core.errors import StudyError
from walktalk.records import TraceRow, load_checkpoint
from walktalk.runtimes.peers import Roster, merge, read_event_log, roster_on_disk
from walktalk.studies.peers import local_cluster
from walktalk.studies.planning import Preparation, prepare
from walktalk.studies.spec import spec_mapping
from walktalk.testing.chaos.cables import Cables, Disk, plugged_in
from walktalk.testing.chaos.disturbance import FOLDER, Disturbance
from walktalk.testing.chaos.injectors import inject
from walktalk.testing.chaos.plan import ChaosPlan
from walktalk.testing.chaos.scripts import cluster_of_scripts
from walktalk.testing.chaos.verdict import (
    BEGINNINGS,
    JUDGED,
    LedgerCheck,
    Left,
    Verdict,
    compare,
    copies_of_walks,
    recoveries,
    replacements,
    taking_part,
)


def chaos_round(
    plan: ChaosPlan,
    seed: int,
    folder: Path,
    say: Callable[[str], None] = lambda line: None,
    worker: int = 0,
    keep: Callable[[Verdict], None] = lambda verdict: None,
) -> Verdict:
    """One round, from the start of the nodes to the verdict.

    - `plan`, `seed`: what happens, and in which order to whom.
    - `folder`: for what the nodes write.
    - `say`: told in words what is done.
    - `worker`: rounds that run at the same time have different ones.
    - `keep`: called with the verdict while the folder is still whole: its disks are gone afterwards.
    """
    ready, rng = prepare(plan.spec(seed), "cpu"), random.Random(seed)
    run = ready.runs[0]
    cluster = local_cluster(ready.spec, run, folder, plan.least)
    if plan.outside:
        cluster = cluster_of_scripts(ready, cluster, folder)
    with ExitStack() as stack:
        guests = sum(fault.kind == "join" for fault in plan.happens)
        cables = stack.enter_context(Cables(plan.nodes + guests, worker)) if plan.real_cuts else None
        if cables is not None:
            cluster = plugged_in(cluster, cables)
        filled = [rng.randrange(plan.nodes)] if any(fault.kind == "disk" for fault in plan.faults) else []
        disks = {node: stack.enter_context(Disk(folder / f"node-{node}")) for node in filled}
        disturbance = Disturbance(plan, cluster, run.setup.graph, rng, say, cables, disks, spec_mapping(ready.spec))
        disturbance.run(inject)
        say("checking the ledger")
        verdict = _verdict(plan, seed, ready, disturbance)
        keep(verdict)
    return verdict


def _verdict(plan: ChaosPlan, seed: int, ready: Preparation, done: Disturbance) -> Verdict:
    run, folder, names = ready.runs[0], done.cluster.folder, done.names
    trace = by_data([read_event_log(folder / name) for name in (*names, FOLDER)], done.stands_for)
    end = next(row.time for row in reversed(trace) if row.event == "chaos_over")
    judged = next(row.time for row in reversed(trace) if row.event == JUDGED)
    ledger = LedgerCheck(run.setup.protocol, plan.nodes, sum(row.event in BEGINNINGS for row in trace)).play(trace)
    ledger.judge()
    left = what_is_left(
        roster_on_disk(done.cluster, done.graph), {done.names[node]: done.number(node) for node in done.members()}
    )
    alive = left.data
    walking = plan.walking
    walks, copies = copies_of_walks(trace, judged, end) if walking else (0, 0)
    busy = taking_part(trace, end - plan.settle, end) | (set(alive) - {done.number(node) for node in done.lonely()})
    verdict = Verdict(
        seed,
        plan.algorithm,
        plan.walks if walking else 0,
        tuple(done.log),
        tuple(sorted(set(range(plan.nodes)) - set(alive))),
        sum(kill.aggregator for kill in done.kills),
        tuple(done.stuck),
        tuple(node for node in alive if node not in busy),
        done.silent(),
        tuple(done.aggregating()),
        tuple(done.failures),
        tuple(name for name in names if not _finite(folder / name)),
        sum(row.event == "trained" for row in trace),
        ledger.mixings,
        max(ledger.counted, ledger.worst) if plan.mixes_plainly else 0.0,
        ledger.twice,
        ledger.uneven,
        ledger.halves if plan.mixes_plainly else (),
        walks,
        copies,
        compare(ready, trace, left, (judged, end)),
        seconds=done.seconds,
    )
    return replace(verdict, **_times(trace, plan)) if walking else verdict


def what_is_left(roster: Roster, data: Mapping[str, int]) -> Left:
    """The graph in the end: one that joined has the data of another, but neighbours of its own.

    - `roster`: who came and left.
    - `data`: by name of those that are left, whose data each has.
    """
    names = sorted(data, key=lambda name: data[name])
    place = {number: index for index, number in enumerate(roster.network.present)}
    graph = roster.network.graph().part(place[roster.number(name)] for name in names)
    return Left([data[name] for name in names], graph.connected())


def by_data(event_logs: list[list[TraceRow]], stands_for: Mapping[int, int]) -> list[TraceRow]:
    """One trace, in which who joined has the number of the one whose data it has: the arithmetic knows data by number.

    The event logs are merged under the nodes' own numbers: messages to the two would else have the same names.

    - `event_logs`: of everybody.
    - `stands_for`: by the place of a guest's event log among them, whose data it has.
    """
    said = {row.node: number for guest, number in stands_for.items() for row in event_logs[guest] if row.node >= 0}

    def known(row: TraceRow) -> TraceRow:
        return row._replace(node=said.get(row.node, row.node), peer=said.get(row.peer, row.peer))

    trace = merge(event_logs)
    return [known(row) for row in trace] if said else trace


def _times(trace: list[TraceRow], plan: ChaosPlan) -> dict[str, Any]:
    """How soon failures were noticed and mended."""
    found = recoveries(trace)
    return {
        "detection": tuple(round(seconds / plan.heartbeat, 2) for seconds, _ in found),
        "recovery": tuple(round(seconds / plan.heartbeat, 2) for _, seconds in found),
        "replacement": tuple(round(times, 2) for times in replacements(trace)),
    }


def _finite(folder: Path) -> bool:
    """Whether every number of a node's checkpoint is; one that has none has nothing to say."""
    path = folder / "checkpoint.safetensors"
    try:
        return not path.exists() or all(bool(t.isfinite().all()) for t in load_checkpoint(path)[0].values())
    except StudyError:
        return False
