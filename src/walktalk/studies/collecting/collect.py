"""`walktalk collect`: one folder as any study's, from whatever is left of a cluster, running, finished or half dead."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from walktalk.core.errors import StudyError
from walktalk.core.plugins import plugins_may_be_absent
from walktalk.graphs import Graph
from walktalk.records import (
    RUN_COLUMNS,
    RunFolder,
    TraceRow,
    TraceWriter,
    check_folder,
    opened_folder,
    save_checkpoint,
    write_history,
    write_text,
)
from walktalk.runtimes.peers import (
    BEST,
    OPERATOR,
    RECORD_FILE,
    RECORDS,
    Cluster,
    Node,
    OperatorConnection,
    Roster,
    Standing,
    everybody,
    make_record,
    merge,
    text_of,
    with_known_ports,
)
from walktalk.studies.collecting.gather import (
    Gathered,
    Participant,
    absent_in,
    as_facts,
    not_written,
    participants,
    state_of,
    too_few,
)
from walktalk.studies.collecting.outcome import Account, Valid, choose, choose_best, measured_history
from walktalk.studies.peers import NodeJob, run_node
from walktalk.studies.planning import RunRecord, build_evaluate
from walktalk.studies.results import study_result, trace_columns
from walktalk.studies.spec import StudySpec, dump_spec, load_spec, make_spec

LOOK_WHO_BELONGS = 20.0  # seconds, while the run goes on, until it is asked again who has joined and left
LOOK_EVERY = 1.0  # seconds, while the run goes on; nodes whose ports were not known before are looked for, too


@dataclass(frozen=True)
class Collected:
    """What a collection found and wrote: the model, the run's state, and what each node did."""

    folder: Path
    model: Path  # the weights by name
    state: str  # of the run: running, finished, or stopped
    copy: str  # which copy the model is, and why, in words
    nodes: list[Participant]
    summary: dict[str, Any]
    best: str = ""  # which copies the best model is, that nodes have kept beside the last; "": none
    too_few: str = ""  # that fewer took part than the cluster's file asks for, in words

    @property
    def absent(self) -> list[str]:
        """Nodes that were never there, as far as it is known."""
        return absent_in(self.nodes)


class Models(NamedTuple):
    """What a cluster has come to: its model, and the best that it has had."""

    last: Valid
    best: Valid | None  # None: nobody was asked to keep it

    @property
    def best_words(self) -> str:
        """Which copies the best model is; "" where there is none."""
        return "" if self.best is None else self.best.words


def collect(
    cluster: Cluster,
    out: str | PathLike[str],
    *,
    overwrite: bool = False,
    wait: bool = False,
    seconds: float = 3.0,
    say: Callable[[str], None] = lambda line: None,
    shown: Callable[[str], None] = lambda line: None,
    over: Callable[[], bool] | None = None,
) -> Collected:
    """Write a cluster's model, history and trace as a study's folder.

    Args:
        cluster: Whom to ask.
        out: The folder; one with finished results in it is refused.
        overwrite: Replace what is there, when the new results are whole.
        wait: Until the run is over; nodes stay until what they have is collected.
        seconds: How long to wait for answers.
        say: Called with a line when something begins that takes long.
        shown: Called with how far the run is, again and again while it waits.
        over: Asked while it waits, where somebody else knows that the run is over; may raise, to give up. What the
            nodes' folders on this machine say, if left out.
    """
    spec, taking = check_out(cluster, out, overwrite=overwrite)  # before anybody is asked
    with tempfile.TemporaryDirectory(prefix="walktalk-") as place:
        gathered = Gathered(cluster, Path(place), say)
        if wait:
            _await_the_end(gathered, seconds, (say, shown), over or gathered.ended_before)
        roster = _look_who_belongs(gathered, seconds)
        cluster = gathered.cluster
        with OperatorConnection(cluster) as caller:
            gathered.ask(caller, seconds, **({"waits": 1} if wait else {}))
            gathered.fetch_event_logs(caller)
            gathered.copy_from_folders()
            gathered.hear_from_folders()
            written = gathered.lives()
            if not written:
                raise StudyError(_nobody(cluster))
            found = [*gathered.fetch_copies(caller, spec.evaluate.model), *gathered.copies_from_folders()]
            copies = [gathered.placed_copy(copy) for copy in found]
            kept = [*gathered.fetch_best(caller), *gathered.copies_from_folders(BEST)]
            statements = gathered.fetch_statements(caller)
            nodes = participants(cluster, gathered, written)
            trace = merge([row for life in lives for row in life] for lives in written.values())
            states = {one.name: one.state for one in nodes}
            described, unseen = next(iter(spec.described.values())), not_written(nodes, trace)
            known = Account(
                list(cluster.nodes), trace, states, described.family, spec.evaluate.model, unseen.iterations
            )
            models = Models(choose(copies, known), choose_best([gathered.placed_copy(copy) for copy in kept], known))
            with opened_folder(out, dump_spec(spec), **taking) as folder:
                here = folder.run(spec.algorithms[0].title, 0)
                _keep_event_logs(Path(place), here)
                result = _write(spec, cluster, here, trace, models, nodes, folder, roster)
                _write_record(folder.path / RECORD_FILE, cluster, statements, result["cluster"], here.model)
            if wait:  # now it is safe here, and they may go
                caller.ask(gathered.answered, RECORDS, seconds, collected=1)
    model = Path(out) / here.model.relative_to(folder.path)
    few = too_few(cluster.at_least, nodes)
    return Collected(Path(out), model, state_of(nodes), models.last.words, nodes, result, models.best_words, few)


def check_out(
    cluster: Cluster, out: str | PathLike[str], *, overwrite: bool = False
) -> tuple[StudySpec, dict[str, Any]]:
    """The study that would be written to a folder, and how it is taken; a `StudyError` where that may not be."""
    spec = _spec_of(cluster)
    taking: dict[str, Any] = {
        "resume": not overwrite and not (Path(out) / "summary.json").exists(),
        "overwrite": overwrite,
        "engine": "peers",
    }
    check_folder(out, dump_spec(spec), **taking)
    return spec, taking


def _spec_of(cluster: Cluster) -> StudySpec:
    """The study, with the one run that the cluster makes; its task need not be installed where one collects."""
    with plugins_may_be_absent():
        spec = make_spec(cluster.study) if isinstance(cluster.study, dict) else load_spec(cluster.study)
    chosen = [one for one in spec.algorithms if cluster.algorithm in ("", one.title)][:1]
    if not chosen:
        labels = ", ".join(one.title for one in spec.algorithms)
        raise StudyError(f"algorithm: {cluster.algorithm!r} is not in the study; its algorithms are {labels}")
    return spec.model_copy(update={"algorithms": chosen, "repetitions": 1})


def _look_who_belongs(gathered: Gathered, seconds: float) -> Roster:
    """Who has joined and left by now; those who joined are asked from now on, those who left for good are not."""
    names = gathered.cluster.file_names
    nameless = Graph.from_edges(len(names), [])  # who is whose neighbour does not matter here
    gathered.cluster, roster = everybody(gathered.cluster, nameless, seconds)
    gathered.left = frozenset(name for name in gathered.cluster.nodes if _has_left(roster, name))
    return roster


def _has_left(roster: Roster, name: str) -> bool:
    return roster.standing(name) is Standing.LEFT


def _nobody(cluster: Cluster) -> str:
    return (
        f"nobody answers, and {cluster.folder} has no node's folder; start the nodes (`walktalk node`), or copy their "
        f"folders from their machines to {cluster.folder}/NAME"
    )


def _await_the_end(
    gathered: Gathered,
    seconds: float,
    tell: tuple[Callable[[str], None], Callable[[str], None]],
    over: Callable[[], bool],
) -> None:
    """Keep what nodes write down as they do, until all that answer have seen the end, or nobody answers any more."""
    seen, told = False, ""
    while True:
        _look_who_belongs(gathered, LOOK_EVERY)
        again = time.monotonic() + LOOK_WHO_BELONGS
        with OperatorConnection(gathered.cluster) as caller:
            while caller.addresses == with_known_ports(gathered.cluster).operator().connect:  # else some are new
                if time.monotonic() > again:
                    break
                gathered.ask(caller, min(seconds, LOOK_EVERY), waits=1)
                seen = seen or bool(gathered.answered)
                gathered.fetch_event_logs(caller)
                if all(answer.get("done") for answer in gathered.answered.values()) and (seen or over()):
                    return
                line = f"{len(gathered.answered)} of {len(gathered.cluster.nodes)} nodes answer"
                line = line if gathered.answered else "waits for the first node to answer"
                if line != told:
                    tell[0](line)
                    told = line
                done = max((int(answer.get("iterations", 0)) for answer in gathered.answered.values()), default=0)
                tell[1](f"{line}, {done:,} iterations")
                time.sleep(LOOK_EVERY)


def _keep_event_logs(gathered: Path, here: RunFolder) -> None:
    """What nodes wrote down, beside the trace that is made of it."""
    for path in sorted(gathered.glob("*/trace-*")):
        (here.nodes / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, here.nodes / path.parent.name / path.name)


def _write(
    spec: StudySpec,
    cluster: Cluster,
    here: RunFolder,
    trace: list[TraceRow],
    models: Models,
    nodes: list[Participant],
    folder: Any,
    roster: Roster,
) -> dict[str, Any]:
    """Write the run's records and the study's, with the summary."""
    unseen = not_written(nodes, trace)
    label = spec.algorithms[0].title
    with TraceWriter(here.trace) as writer:
        writer.write(trace_columns(trace))
    history = measured_history(trace, label, build_evaluate(spec), spec.algorithms[0].protocol().privacy, unseen)
    write_history(here.history, history, RUN_COLUMNS)
    save_checkpoint(here.model, models.last.weights, {"run": label, "copy": models.last.words})
    if models.best is not None:
        save_checkpoint(here.best, models.best.weights, {"run": label, "copy": models.best.words})
    trainings = unseen.iterations + sum(row.event == "trained" for row in trace)
    record = RunRecord(label, 0, history, trainings=trainings, nodes=len(nodes))
    deployed: dict[str, Any] = {
        "name": cluster.name,
        "state": state_of(nodes),
        "copy": models.last.words,
        "nodes": as_facts(nodes),
        "iterations": trainings,
        "missing": absent_in(nodes),
        "too_few": too_few(cluster.at_least, nodes),
    }
    if models.best is not None:
        deployed["best"] = models.best.words
    if roster.changed:
        joined = {name: list(roster.entries[name].neighbours) for name in cluster.joined}
        deployed["changes"] = {"joined": joined, "left": [n for n in cluster.nodes if _has_left(roster, n)]}
    sites = [
        {"algorithm": label, "node": one.name, "samples": one.samples, "train_loss": one.loss}
        | ({} if one.accuracy is None else {"test_accuracy": one.accuracy})
        | one.metrics
        for one in nodes
        if one.loss is not None
    ]
    sites += [
        {"algorithm": label, "node": one.name, "samples": one.samples, **measured, "model": walk}
        for one in nodes
        for walk, measured in one.by_walk.items()
    ]
    return study_result(spec, [record], folder, engine="peers", further={"cluster": deployed}, sites=sites).summary


def _write_record(
    path: Path, cluster: Cluster, statements: dict[str, dict[str, Any] | None], deployed: dict[str, Any], model: Path
) -> None:
    """Write the record of who trained what, with what came of it."""
    result = {key: deployed[key] for key in ("state", "copy", "iterations")}
    result["model_sha256"] = hashlib.sha256(model.read_bytes()).hexdigest()
    record = make_record(cluster.name, statements, result, cluster.own_credentials(OPERATOR))
    write_text(path, text_of(record))


log = logging.getLogger(__name__)


def run_and_collect(
    job: NodeJob, out: str | PathLike[str], meets: Callable[[Node], None] = lambda node: None
) -> Collected | None:
    """Run a node and, at the run's end, collect into a folder; None where the node left before.

    Args:
        job: The node.
        out: The folder; one with finished results in it is refused before anything is trained.
        meets: Called with the node before it runs.
    """
    check_out(job.cluster, out)
    collector = Collector(job, out)
    collector.start()
    run_node(job, collector.ends, meets)
    return collector.result()


class Collector(threading.Thread):
    """Collects beside the node at the end of the run, as an operator would; the node stays until that is done."""

    def __init__(self, job: NodeJob, out: str | PathLike[str]) -> None:
        super().__init__(name="collector", daemon=True)
        self._job, self._out = job, out
        self._ended: bool | None = None  # whether the run is over, once the node has ended
        self._found: Collected | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Collect once the run is over; runs in the thread."""
        try:
            self._found = collect(self._job.cluster, self._out, wait=True, say=self._say, over=self._over)
        except Exception as error:  # it is the main thread's to tell
            self._error = error

    def ends(self, over: bool) -> None:
        """The node ends: because the run is over, or before."""
        self._ended = over

    def result(self) -> Collected | None:
        """What was collected; waits for it."""
        if not self._ended:
            self._say("nothing, because this node left before the end of the run")
            return None
        self.join()
        if self._error is not None:
            raise self._error
        return self._found

    def _over(self) -> bool:
        return bool(self._ended)

    def _say(self, line: str) -> None:
        log.info("%s: collects: %s", self._job.name, line)
