"""`walktalk collect`: one folder with the run's model, from nodes that run, have ended, or were killed."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from walktalk.api import Audience, Callback, show_folder
from walktalk.core.errors import StudyError
from walktalk.protocols import AGGREGATE, MEMBER
from walktalk.records import TraceRow, read_history, read_trace, save_checkpoint
from walktalk.report import open_study, page_parts, replay_data, results_table
from walktalk.runtimes.peers import (
    Cluster,
    Fleet,
    ReplaySetup,
    archive_earlier_run,
    check_record,
    free_ports,
    make_certificates,
    make_cluster,
    merge,
    read_event_log,
    read_record,
    replay,
)
from walktalk.runtimes.peers.node.event_log import PIECE, BestCopy, Copy, FileServer, read_lines
from walktalk.runtimes.semantics import Evaluate
from walktalk.studies import build_graph, make_spec
from walktalk.studies.collecting import collect, run_and_collect
from walktalk.studies.collecting.gather import (
    Best,
    CopyFound,
    Gathered,
    _counts_in,
    not_written,
    participants,
    read_copy,
)
from walktalk.studies.collecting.outcome import Account, choose, choose_best, mean_weights, measured_history
from walktalk.studies.peers import NodeJob, run_node
from walktalk.studies.planning import build_evaluate, prepare

NAMES = ["lyon", "nice", "paris"]


def a_cluster(
    folder: Path, algorithm: dict[str, object], also: dict[str, object] | None = None, **changes: object
) -> Cluster:
    study = {
        "name": "collected",
        "network": {"topology": "complete", "nodes": 3},
        "task": {"name": "digits", "alpha": 1.0},
        "algorithms": [algorithm],
        "stop": {"iterations": 60},
        "evaluate": {"every": 20},
        **(also or {}),
    }
    nodes = {
        name: {"site": name[0], "address": f"127.0.0.1:{port}"} for name, port in zip(NAMES, free_ports(3), strict=True)
    }
    content = {"name": "cities", "study": study, "folder": str(folder), "pace": 0.02, "wait": 60.0, "nodes": nodes}
    return make_cluster({**content, **changes})


def started(cluster: Cluster) -> Fleet:
    return Fleet(run_node, [NodeJob(cluster, name, deployed=True) for name in cluster.nodes], list(cluster.nodes))


class Board(Callback):
    """Keeps what a tracker would be given."""

    def __init__(self) -> None:
        self.rows, self.sites, self.ended = [], [], None

    def on_evaluation(self, row):
        self.rows.append(row)

    def on_sites(self, sites):
        self.sites = sites

    def on_end(self, result):
        self.ended = result


@pytest.mark.parametrize(
    "algorithm", [{"name": "multi_walk", "walks": 2}, {"name": "async_gossip"}], ids=lambda given: given["name"]
)
def test_a_run_ends_with_its_model_in_a_folder_as_any_studys(algorithm, tmp_path):
    also = {
        "evaluate": {"every": 20, "validation": 0.1},
        "objective": {"weights": "samples", "cap": 4.0, "equal_pace": True},
        "training": {"local_steps": {"epochs": 0.2}, "batch_size": [16, 32, 8]},
    }
    cluster = a_cluster(tmp_path / "records", algorithm, also, stay=60.0)
    fleet = started(cluster)
    try:
        found = collect(cluster, tmp_path / "out", wait=True, seconds=20.0)
        fleet.wait()  # they leave by themselves, once they were collected
    finally:
        fleet.stop()
    assert not fleet.failed()
    assert found.state == "finished"
    assert [(one.name, one.state, one.source) for one in found.nodes] == [
        (name, "finished", "its answer") for name in NAMES
    ]
    assert sum(one.iterations for one in found.nodes) >= 60

    # the weights have names, and are those that the arithmetic of the trace gives
    ready = prepare(make_spec(cluster.study), "cpu")
    run = ready.runs[0]
    module = ready.trainer.module(run.initial)
    weights = load_file(found.model)
    module.load_state_dict(weights, strict=True)
    trace = merge(read_event_log(tmp_path / "records" / name) for name in NAMES)
    again = replay(trace, ReplaySetup.of(run.setup, run.initial, build_evaluate(ready.spec)), ready.trainer)
    wanted = ready.trainer.module(again.output).state_dict()
    start = ready.trainer.module(run.initial).state_dict()
    for name, tensor in wanted.items():  # what arrived after it was collected, on a busy machine, is little
        assert (weights[name] - tensor).norm() < 0.05 * (tensor - start[name]).norm()

    # the folder is a study's, with the nodes' names
    history = read_history(tmp_path / "out" / "history.csv")
    assert list(history["iteration"])[1:3] == [20, 40]
    assert history["train_loss"].iloc[-1] < history["train_loss"].iloc[0]
    assert history["test_accuracy"].notna().all()
    study = open_study(tmp_path / "out")
    sites, by_walk = study.sites, study.models
    assert list(sites["node"]) == NAMES
    assert sites["train_loss"].between(0, history["train_loss"].iloc[0]).all()
    assert list(sites["train_loss"]) == pytest.approx([one.loss for one in found.nodes], rel=1e-4)
    assert sites[["valid_loss", "valid_accuracy", "test_loss"]].notna().all().all()
    walks = {f"walk {walk}" for walk in range(1, algorithm.get("walks", 0) + 1)}
    assert (
        set() if by_walk is None else set(by_walk["model"])
    ) == walks  # of each walk, how good it was where it came by last
    parts = page_parts(study)
    assert parts.name == cluster.study.get("name", cluster.name)  # a study without a name is headed by its cluster's
    page = parts.sections
    assert all(name in page["sites"] for name in NAMES)
    assert ("Every model on every site" in page["sites"]) is bool(walks)

    # whose loss it is, and the best model beside the last
    assert study.summary["objective"] == "the mean over all samples"
    assert "The training loss is the mean over all samples." in results_table(study.summary).note
    assert "by valid_loss" in found.best
    assert found.best in page["participants"]
    best = load_file(found.model.with_name("best.safetensors"))
    assert {name: tensor.shape for name, tensor in best.items()} == {n: t.shape for n, t in weights.items()}
    module.load_state_dict(best, strict=True)
    row = ready.trainer.model.layout.row(module)[None]
    assert float(ready.trainer.measure(row)["valid_loss"]) < float(
        ready.trainer.measure(run.initial[None])["valid_loss"]
    )
    board = Board()
    show_folder(Audience(board), tmp_path / "out", found)
    assert [row["iteration"] for row in board.rows] == list(history["iteration"])
    assert [site["node"] for site in board.sites if not isinstance(site.get("model"), str)] == NAMES
    assert board.ended is found
    assert study.engine == study.summary["engine"] == "peers"
    assert study.node_names == tuple(NAMES)
    assert replay_data(tmp_path / "out")["network"]["names"] == NAMES
    assert found.copy in page_parts(study).sections["participants"]
    assert len(read_trace(next((tmp_path / "out").rglob("trace.parquet")))) == len(
        merge(read_event_log(path) for path in (tmp_path / "out").rglob("nodes/*"))
    )
    with pytest.raises(StudyError, match="holds the finished results of this study"):
        collect(cluster, tmp_path / "out")

    # later, when nobody is there any more, it comes out the same from what they have left
    later = collect(cluster, tmp_path / "later", seconds=0.1)
    assert {one.source for one in later.nodes} == {"its folder"}
    for name, tensor in load_file(later.model).items():
        torch.testing.assert_close(tensor, weights[name])
    assert later.copy == found.copy

    # a disk is gone with its node: what it has done, the others know, and no sum lacks it
    shutil.rmtree(tmp_path / "records" / "nice")
    without = collect(cluster, tmp_path / "without", seconds=0.1)
    assert [(one.state, one.source) for one in without.nodes][1] == ("gone", "what others say")
    for one, then in zip(without.nodes, later.nodes, strict=True):
        assert 0.9 * then.iterations <= one.iterations <= then.iterations  # its last ones nobody may have heard of
        assert 0.8 * then.bytes <= one.bytes <= then.bytes
    total = sum(one.iterations for one in without.nodes)
    assert without.summary["cluster"]["iterations"] == total
    assert read_history(tmp_path / "without" / "history.csv")["iteration"].iloc[-1] == total
    assert "what others say" not in page_parts(open_study(tmp_path / "later")).sections["participants"]
    assert f"{without.nodes[1].iterations:,}" in page_parts(open_study(tmp_path / "without")).sections["participants"]


def test_the_aggregator_is_killed_and_its_successors_copy_is_the_valid_one(tmp_path):
    algorithm = {"name": "multi_walk", "walks": 2, "heartbeat": 0.2}
    cluster = a_cluster(tmp_path / "records", algorithm, lease=1.0)
    cluster = cluster.model_copy(update={"study": {**cluster.study, "stop": {"iterations": 100_000}}})
    fleet = started(cluster)

    def rows() -> list[TraceRow]:
        return [row for name in NAMES for row in read_event_log(tmp_path / "records" / name)]

    def check(event: str, others: bool) -> None:
        said = rows()
        wrote = any(row.node == 0 for row in said)  # the first node's own event log: killed before, it leaves nothing
        if wrote and any(row.event == event and (row.node > 0 or not others) for row in said):
            raise InterruptedError

    try:
        with pytest.raises(InterruptedError):
            _until(fleet, lambda: check("trained", others=False))
        fleet.signal(0, signal.SIGKILL)
        fleet.processes[0].join()
        with pytest.raises(InterruptedError):
            _until(fleet, lambda: check("counted", others=True))  # the next one has mixed a walk
        found = collect(cluster, tmp_path / "out")
    finally:
        fleet.stop()
    assert found.state == "running"
    assert found.nodes[0].state == "gone"
    assert found.nodes[0].source == "its folder"
    heir = next(
        name for number, name in enumerate(NAMES) if any(r.event == "elected" and r.node == number for r in rows())
    )
    assert found.copy.startswith(f"the copy of {heir}, which aggregates the walks, in term ")
    assert "the highest; lyon aggregated before" in found.copy
    assert torch.isfinite(torch.cat([tensor.flatten() for tensor in load_file(found.model).values()])).all()


def collecting_node(job: NodeJob) -> None:
    """In a process of its own, as all nodes; the first collects when the run is over."""
    if job.name != NAMES[0]:
        run_node(job)
    else:
        run_and_collect(job, job.cluster.folder.parent / "out")


def test_a_node_collects_at_the_end_over_mutual_tls(tmp_path):
    make_certificates(tmp_path / "certs", {name: ["127.0.0.1"] for name in NAMES})
    algorithm, certificates = {"name": "multi_walk", "walks": 2}, str(tmp_path / "certs")
    cluster = a_cluster(tmp_path / "records", algorithm, certificates=certificates, stay=60.0)
    fleet = Fleet(collecting_node, [NodeJob(cluster, name, deployed=True) for name in NAMES], NAMES)
    try:
        fleet.wait()
    finally:
        fleet.stop()
    assert not fleet.failed()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["cluster"]["state"] == "finished"
    assert [one["source"] for one in summary["cluster"]["nodes"]] == ["its answer"] * 3
    assert summary["cluster"]["copy"].startswith("the copy of lyon, which aggregates the walks")
    signed_record_agrees(summary["cluster"]["nodes"], tmp_path)
    with pytest.raises(StudyError, match="holds the finished results"):  # before anything is trained
        run_and_collect(NodeJob(cluster, "lyon", deployed=True), tmp_path / "out")


def signed_record_agrees(nodes, folder: Path) -> None:
    """Every site has signed what its event log says of it, and the operator all of that."""
    record = read_record(folder / "out" / "record.json")
    checked = check_record(record, folder / "certs" / "ca.pem")
    assert checked.complaints == []
    model = (folder / "out" / "runs" / "multi_walk-2" / "0" / "model.safetensors").read_bytes()
    assert record["result"]["model_sha256"] == hashlib.sha256(model).hexdigest()
    for site, told in zip(checked.sites, sorted(nodes, key=lambda one: one["name"]), strict=True):
        sent = {peer: flow["bytes"] for peer, flow in site.flows("sent").items() if peer in NAMES}
        assert site.number("iterations") == told["iterations"]
        assert told["bytes"] <= sum(sent.values()) < 1.1 * told["bytes"]  # heartbeats go on while it is collected
        assert site.said["state"] == "over"
        assert site.number("samples") == told["samples"]
    assert sum(site.models("received", peer) for site in checked.sites for peer in NAMES) > 10


def _until(fleet: Fleet, check) -> None:
    """As `Fleet.wait`, but the nodes go on when the check raises."""
    while True:
        fleet.processes[1].join(0.1)
        assert fleet.processes[1].is_alive()
        check()


# -- which copy counts ----------------------------------------------------------------------------------------------


def copy(node: str, role: str, key: int, value: float, moment: float = 0.0) -> CopyFound:
    return CopyFound(node, {"w": torch.full((2,), value)}, role, key, moment)


def recorded(time: float, node: int, role: str, key: int) -> TraceRow:
    return TraceRow(time, node, "record", "slot", walk=key, detail=role)


def account(*trace: TraceRow, states: tuple[str, ...] = ("finished",) * 3, **more: str) -> Account:
    return Account(NAMES, trace, dict(zip(NAMES, states, strict=True)), more.pop("family", "walks"), **more)


def test_of_two_aggregators_the_one_of_the_highest_term_counts():
    known = account(recorded(1.0, 1, AGGREGATE, 2), recorded(2.0, 0, AGGREGATE, 1), TraceRow(3.0, 2, "trained"))
    valid = choose([copy("lyon", AGGREGATE, 1, 1.0), copy("nice", AGGREGATE, 2, 2.0)], known)
    assert valid.nodes == ("nice",)
    assert "in term 2, the highest; lyon aggregated before; brought up to date in iteration 0 of 1" in valid.words


def test_where_the_aggregators_copy_cannot_be_had_the_walks_latest_copies_count():
    trace = [recorded(1.0, 0, AGGREGATE, 0), recorded(1.0, 1, MEMBER, 1), recorded(2.0, 2, MEMBER, 1)]
    known = account(*trace, recorded(1.5, 1, MEMBER, 2), states=("gone", "training", "training"))
    valid = choose([copy("nice", MEMBER, 1, 9.0), copy("paris", MEMBER, 1, 1.0)], known)
    assert valid.words == "the latest copy of walk 1, because lyon aggregated last, but its copy cannot be had"
    assert valid.weights["w"].tolist() == [1.0, 1.0]  # of paris, where the walk was later
    valid = choose([copy("nice", MEMBER, 2, 3.0), copy("paris", MEMBER, 1, 1.0)], known)
    assert valid.weights["w"].tolist() == [2.0, 2.0]
    assert valid.words.startswith("the mean of the latest copies of walks 1, 2, because")


def test_without_an_aggregator_it_is_the_mean_over_those_that_are_left():
    copies = [
        copy(name, MEMBER, number, value)
        for (number, name), value in zip(enumerate(NAMES), (1.0, 2.0, 6.0), strict=True)
    ]
    trace = [recorded(1.0, number, MEMBER, number) for number in range(3)]
    valid = choose(copies, account(*trace, family="gossip"))
    assert valid.weights["w"].tolist() == [3.0, 3.0]
    assert valid.words == "the mean of the latest copies of lyon, nice, paris, because nobody aggregates"
    valid = choose(copies, account(*trace, family="gossip", states=("gone", "finished", "finished")))
    assert valid.weights["w"].tolist() == [4.0, 4.0]
    assert valid.words.endswith("; without lyon")
    valid = choose(copies, account(*trace, family="gossip", wanted="node"))
    assert valid.weights["w"].tolist() == [1.0, 1.0]


def test_copies_of_different_models_are_not_mixed():
    with pytest.raises(StudyError, match="not of one model"):
        mean_weights([{"w": torch.zeros(2)}, {"w": torch.zeros(3)}])
    counted = [{"n": torch.tensor(3), "w": torch.zeros(2)}, {"n": torch.tensor(4), "w": torch.ones(2)}]
    assert mean_weights(counted)["n"] == 3
    assert mean_weights(counted)["w"].tolist() == [0.5, 0.5]
    with pytest.raises(StudyError, match="no node has a copy"):
        choose([], account())


# -- history --------------------------------------------------------------------------------------------------------


def test_a_loss_is_the_mean_over_the_data_of_nodes_that_live():
    def measured(time, node, loss, samples, **more):
        return TraceRow(time, node, "measured", detail={"loss": loss, "samples": samples, **more})

    trace = [
        measured(0.5, 0, 4.0, 10, accuracy=0.5, tested=1),
        measured(0.6, 1, 1.0, 30, accuracy=1.0, tested=3),
        TraceRow(1.0, 0, "trained"),
        TraceRow(1.1, 0, "send", "walk/1", peer=1, bytes=100),
        TraceRow(1.2, 0, "superseded", "walk/1", peer=1, bytes=100),
        TraceRow(1.3, 0, "send", "", peer=1, bytes=64),
        TraceRow(1.4, 1, "trained"),
        TraceRow(1.5, 1, "lost", peer=0),
        TraceRow(1.6, 1, "trained"),
    ]
    rows = measured_history(trace, "mw", Evaluate(every=2))
    assert [(row.iteration, row.time) for row in rows] == [(0, 0.5), (2, 1.4), (3, 1.6)]
    assert [row.train_loss for row in rows] == [4.0, pytest.approx(1.75), 1.0]
    assert [row.test_accuracy for row in rows] == [0.5, pytest.approx(0.875), 1.0]
    assert [row.bits for row in rows] == [0, 8 * 64, 8 * 64]
    assert rows[-1].model_bits == 0
    by_time = measured_history(trace, "mw", Evaluate(every=None, seconds=1.0))
    assert [row.time for row in by_time] == [0.5, 1.0, 1.6]


def test_a_diverged_node_makes_the_loss_no_number():
    trace = [TraceRow(0.0, 0, "measured", detail={"samples": 3}), TraceRow(1.0, 0, "trained")]
    assert np.isnan(measured_history(trace, "mw", Evaluate(every=1))[-1].train_loss)


# -- what a node hands out ------------------------------------------------------------------------------------------


def a_desk(folder: Path) -> FileServer:
    model = nn.Linear(2, 1)
    copies = Copy(torch.arange(3.0), AGGREGATE, 4)
    return FileServer(
        folder,
        lambda: copies,
        lambda row: {"weight": row[:2].view(1, 2), "bias": row[2:]} | dict(model.named_buffers()),
    )


def test_the_best_copy_outlives_a_worse_one_and_the_node(tmp_path):
    def best(value, place):
        return BestCopy(Copy(torch.full((3,), place), AGGREGATE, 4), "valid_accuracy", value, int(place))

    file_server = a_desk(tmp_path)
    file_server.keep_best(None)
    for value, place in ((0.5, 1.0), (0.8, 2.0), (0.6, 3.0)):
        file_server.keep_best(best(value, place))
    answer = json.loads(file_server.answer({"copy": "1"}, {}))
    assert answer["best"] == {"role": AGGREGATE, "key": 4, "measure": "valid_accuracy", "value": 0.8, "iteration": 2}
    again = a_desk(tmp_path)  # the next life
    again.keep_best(best(0.7, 9.0))
    again.put_copies()
    found = read_copy("lyon", tmp_path / "best.safetensors")
    assert found.best == Best("valid_accuracy", 0.8, 2)
    assert found.weights["bias"].tolist() == [2.0]


def test_the_best_of_a_cluster_is_an_aggregates_or_the_mean_of_members():
    def copy(node, role, key, value, weight):
        return CopyFound(node, {"w": torch.tensor([weight])}, role, key, 1.0, Best("valid_loss", value, 30))

    known = Account(NAMES, [TraceRow(0.0, 0, "trained")] * 60, {}, "walks")
    members = [copy("lyon", MEMBER, 0, 0.4, 1.0), copy("nice", MEMBER, 1, 0.2, 3.0)]
    mean = choose_best(members, known)
    assert mean.weights["w"].tolist() == [2.0]
    assert mean.words == (
        "the mean of the copies of lyon, nice around iteration 30 of 60, by valid_loss 0.3, the mean over nodes of "
        "what each measured last"
    )
    aggregates = [copy("paris", AGGREGATE, 1, 0.3, 5.0), copy("brest", AGGREGATE, 2, 0.25, 7.0)]
    assert choose_best([*members, *aggregates], known).weights["w"].tolist() == [7.0]
    assert choose_best([members[0]._replace(best=None)], known) is None


def test_a_node_hands_out_its_diary_and_its_copy_and_nothing_else(tmp_path):
    file_server = a_desk(tmp_path)
    (tmp_path / "trace-17.jsonl").write_bytes(b"x" * (PIECE + 5))
    (tmp_path / "data.csv").write_text("secret")
    listing = json.loads(file_server.answer({}, {"done": True}))
    assert listing == {"files": {"trace-17.jsonl": PIECE + 5}, "copy": {"role": AGGREGATE, "key": 4}, "done": True}
    assert json.loads(file_server.answer({"copy": "1"}, {}))["files"].keys() == {"trace-17.jsonl", "copy.safetensors"}
    assert read_copy("lyon", tmp_path / "copy.safetensors").weights["weight"].tolist() == [[0.0, 1.0]]
    assert file_server.answer({"file": "trace-17.jsonl", "from": str(PIECE)}, {}) == b"x" * 5
    for name in ("data.csv", "../lyon/trace-17.jsonl", "trace-17.jsonl/..", "/etc/passwd", "checkpoint.safetensors"):
        with pytest.raises(ValueError, match="no such file"):
            file_server.answer({"file": name}, {})


def test_a_node_stays_for_who_waits_and_no_longer(tmp_path):
    file_server = a_desk(tmp_path)
    assert not file_server.awaited
    file_server.answer({}, {})
    assert not file_server.awaited  # somebody looked; nobody waits
    file_server.answer({"waits": "1"}, {})
    assert file_server.awaited
    file_server.answer({"collected": "1"}, {})
    assert not file_server.awaited


def test_what_a_node_cannot_have_written_is_not_believed(tmp_path):
    (tmp_path / "in" / "nice").mkdir(parents=True)
    mine, others = TraceRow(1.0, 1, "trained"), TraceRow(2.0, 0, "trained")
    lines = "".join(json.dumps(row) + "\n" for row in (mine, others, mine))
    (tmp_path / "in" / "nice" / "trace-1.jsonl").write_text(lines)
    cluster = a_cluster(tmp_path / "records", {"name": "async_gossip"})
    assert Gathered(cluster, tmp_path / "in").lives() == {"nice": [[mine]]}
    save_checkpoint(tmp_path / "x.safetensors", {"w": torch.zeros(1)}, {"role": "member"})
    assert read_copy("nice", tmp_path / "x.safetensors") is None


def test_a_fresh_start_sets_aside_what_a_run_from_before_has_left(tmp_path):
    (tmp_path / "trace-1.jsonl").write_text("old")
    (tmp_path / "copy.safetensors").write_text("old")
    (tmp_path / "blocked").write_text("")
    archive_earlier_run(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocked", "earlier"]
    assert len(list((tmp_path / "earlier").glob("*/*"))) == 2
    archive_earlier_run(tmp_path)  # nothing is left to do
    assert len(list((tmp_path / "earlier").iterdir())) == 1


def test_nobody_answers_and_nothing_is_there(tmp_path):
    cluster = a_cluster(tmp_path / "records", {"name": "async_gossip"})
    with pytest.raises(StudyError, match=r"nobody answers, and .* has no node's folder; start the nodes"):
        collect(cluster, tmp_path / "out", seconds=0.1)
    assert not (tmp_path / "out").exists()
    assert build_graph(make_spec(cluster.study)).nodes == 3


# -- a bad member ----------------------------------------------------------------------------------------------------


class Claims:
    """A connection to a node that says it has files without end."""

    def __init__(self, size: int) -> None:
        self.size, self.fetched = size, 0

    def ask(self, names: list[str], *_: object, **__: object) -> dict[str, dict[str, object] | None]:
        return {name: {"files": {"trace-1.jsonl": self.size, "copy.safetensors": self.size}} for name in names}

    def fetch(self, name: str, file: str, size: int, to: Path) -> bool:
        self.fetched += size
        return True


def test_of_who_is_gone_others_tell_and_one_that_lies_changes_nothing(tmp_path: Path) -> None:
    cluster = a_cluster(tmp_path / "records", {"name": "async_gossip"})
    gathered = Gathered(cluster, tmp_path / "here", left=frozenset({"paris"}))
    for name, told in {
        "lyon": {"nice": [100, 5000], "paris": [7, 70]},
        "paris": {"nice": [98, 4900]},
        "liar": {"nice": [10**14, 10**14], "paris": [1, 2, 3], "lyon": "many"},
        "stranger": None,
    }.items():
        gathered.heard[name] = _counts_in(told)
    found = {one.name: one for one in participants(cluster, gathered, {})}
    assert (found["nice"].iterations, found["nice"].bytes, found["nice"].state) == (100, 5000, "gone")
    assert (found["paris"].iterations, found["paris"].state) == (7, "left")
    assert (found["lyon"].iterations, found["lyon"].state, found["lyon"].source) == (0, "", "")
    assert not_written(list(found.values()), []) == (107, 5070)
    assert [row[2:5] for row in measured_history([], "x", Evaluate())] == []


def test_an_endless_file_is_not_fetched(tmp_path: Path) -> None:
    """4.2 GB were written in 25 s."""
    lines: list[str] = []
    gathered = Gathered(a_cluster(tmp_path, {"name": "multi_walk"}), tmp_path / "out", say=lines.append)
    claims = Claims(2**41)
    gathered.ask(claims, 1.0)  # type: ignore[arg-type]
    gathered.fetch_event_logs(claims)  # type: ignore[arg-type]
    assert gathered._fetch_copy(claims, "lyon") is None  # type: ignore[arg-type]
    assert claims.fetched == 0
    assert any(line.startswith("lyon: its event log is left out") for line in lines)
    assert any(line.startswith("lyon: its copy of the model is left out") for line in lines)


@pytest.mark.parametrize("line", [b"[1] \n", b"[" * 900_000, b"x" * 100], ids=["many", "deep", "long"])
def test_a_small_file_that_becomes_a_large_one_takes_little_memory(line: bytes, tmp_path: Path) -> None:
    """3.1 MB of event log took 6.6 GB of memory."""
    packer, path = zlib.compressobj(9, wbits=31), tmp_path / "trace-1.jsonl.gz"
    data = b"".join(packer.compress(line * (1_000_000 // len(line) + 1)) for _ in range(200)) + packer.flush()
    path.write_bytes(data)
    tracemalloc.start()
    try:
        assert read_lines([path]) == []
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 50e6
