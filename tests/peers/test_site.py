"""Somebody else's loop trains a node's models: what is handed over, what is refused, and what happens where it dies."""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import walktalk as wt
from walktalk.api.talk import Talk
from walktalk.api.visit import load_optimizer
from walktalk.core.errors import DataError, SpecError, StudyError, UnavailableError, UserError
from walktalk.learning import tasks
from walktalk.protocols import FedProx, Scaffold
from walktalk.runtimes.peers import OutsideTrainer, check_outside, load_cluster, norm_of
from walktalk.runtimes.peers.node.news import News
from walktalk.runtimes.peers.node.outside import Answer
from walktalk.runtimes.peers.wire import local
from walktalk.runtimes.semantics import Work
from walktalk.studies import make_spec
from walktalk.studies.peers import study_keys
from walktalk.testing.cluster import wait_for

START = {"x": torch.zeros(4), "bn.running_mean": torch.ones(2), "head": torch.ones(3).half(), "count": torch.tensor(7)}

OUTSIDE = {"name": "outside", "state": "start.safetensors"}


def write_cluster(folder: Path, **study: Any) -> Path:
    tasks.write_state(START, folder / "start.safetensors")
    content = {
        "name": "mine",
        "study": {
            "name": "mine",
            "network": {"topology": "complete", "nodes": 3},
            "task": OUTSIDE,
            "algorithms": [{"name": "multi_walk"}],
            "stop": {"iterations": 60},
            **study,
        },
        "folder": "records",
        "wait": 20.0,
        "nodes": {name: {"address": "127.0.0.1"} for name in ("lyon", "nice", "paris")},
    }
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def work(model: torch.Tensor, walk: int = 1, state: torch.Tensor | None = None) -> Work:
    return Work(0, "walk/1", walk, 1, False, model, 5, 0.1, 2.0, 3, None, None, 0.0, state)


class OneNode:
    """The trainer of one node with nothing else of it, and what becomes of its visits."""

    def __init__(self, folder: Path, **study: Any) -> None:
        self.config = write_cluster(folder, **study)
        cluster = load_cluster(self.config)
        assert isinstance(cluster.study, dict)
        spec = make_spec(cluster.study)
        task = tasks.build("outside", 3, 0, "lyon", **spec.task.settings)
        self.trainer = OutsideTrainer(task, 3, cluster.folder / "lyon", "lyon")
        self.trainer.node.facts = study_keys(spec, cluster)
        self.trainer.open()
        self.answers: list[Answer] = []

    def site(self, name: str = "lyon", **options: Any) -> wt.Site:
        return wt.site(self.config, name, start=False, **options)

    def begin(self, wanted: Work) -> threading.Thread:
        thread = threading.Thread(target=lambda: self.answers.append(self.trainer.visit(wanted)), daemon=True)
        thread.start()
        return thread

    @contextmanager
    def visited(self, wanted: Work | None = None, **options: Any) -> Iterator[wt.Visit]:
        """A visit that is under way, of a script that ends afterwards."""
        thread = self.begin(wanted or work(self.trainer.initial_row(0)))
        with self.site(**options) as site:
            visit = next(iter(site))
            yield visit
        if visit.is_over:
            thread.join(10.0)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OneNode]:
    made = OneNode(tmp_path)
    yield made
    made.trainer.close("the test is over")


def warnings_of(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)


def test_a_model_comes_and_goes_as_it_is(node: OneNode) -> None:
    with node.visited() as visit:
        assert (visit.node, visit.walk, visit.steps, visit.lr, visit.weight) == ("lyon", 1, 3, 0.2, 2.0)
        assert visit.deadline is None
        assert {name: array.dtype for name, array in visit.state.items()} == {
            "x": np.float32, "bn.running_mean": np.float32, "head": np.float16, "count": np.int64,
        }  # fmt: skip
        assert visit.state["count"] == 7
        visit.state["x"] += 2.0  # in place: the memory is shared
        given = {**visit.tensors, "head": torch.full((3,), 0.5).half()}
        assert visit.finish(given, samples=10, steps=3, metrics={"auc": 0.75, "nothing": float("nan")})
    (answer,) = node.answers
    assert answer.row is not None
    assert answer.row.tolist() == [0.5] * 3 + [2.0] * 4 + [1.0] * 2
    assert (answer.metrics, answer.samples, answer.steps) == ({"auc": 0.75}, 10, 3)
    assert node.trainer.initial_row(0).tolist() == [1.0] * 3 + [0.0] * 4 + [1.0] * 2


def test_a_module_is_loaded_and_given_back_with_what_travels_of_it_alone(tmp_path: Path) -> None:
    """A frozen base, tied weights and what torch has put around a module do not matter."""

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = torch.nn.Linear(2, 2).requires_grad_(False)
            self.x = torch.nn.Parameter(torch.ones(4))
            self.tied = self.x
            self.head = torch.nn.Parameter(torch.ones(3).half())
            self.bn = torch.nn.BatchNorm1d(2, affine=False)
            self.register_buffer("count", torch.tensor(7))

    node = OneNode(tmp_path)
    module = torch.nn.DataParallel(Tied())
    try:
        with node.visited() as visit:
            assert visit.weight == 2.0
            visit.load(module)
            assert module.module.tied.tolist() == [0.0] * 4
            with torch.no_grad():
                module.module.x += 1.0
            assert visit.finish(module)
    finally:
        node.trainer.close("")
    assert node.answers[0].row is not None
    assert node.answers[0].row[3:7].tolist() == [1.0] * 4


MISTAKES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda s: {k: v for k, v in s.items() if k != "x"}, "x is missing"),
    (lambda s: {**s, "y": s["x"].copy()}, "y is none of the study's"),
    (lambda s: {**s, "x": np.zeros(5, np.float32)}, r"x is float32\[5\] and was float32\[4\]"),
    (lambda s: {**s, "x": np.zeros(4)}, r"x is float64\[4\] and was float32\[4\]"),
    (lambda s: 3.0, "a module or a mapping of names to arrays is needed, not float"),
]


@pytest.mark.parametrize(("change", "words"), MISTAKES, ids=["missing", "more", "shape", "kind", "no state"])
def test_other_names_shapes_and_kinds_are_one_line_on_both_sides(
    change: Callable[[dict[str, Any]], Any], words: str, node: OneNode, caplog: pytest.LogCaptureFixture
) -> None:
    with node.visited() as visit:
        with pytest.raises(DataError, match=words) as raised:
            visit.finish(change(dict(visit.state)))
        assert "\n" not in str(raised.value)
        assert not visit.is_over
        assert visit.finish()  # nothing is lost: it can be given back as it should be
    if "not float" not in words:
        wait_for(lambda: "lyon: its script: what was given back" in warnings_of(caplog), "a line at the node")
    assert len(node.answers) == 1


UNUSABLE = [
    (lambda visit: visit.finish(metrics=[1.0]), r"metrics: \[1.0\] is not possible; allowed: a mapping"),
    (lambda visit: visit.finish(metrics={f"m{k}": 1.0 for k in range(101)}), "metrics: 101 at once; allowed: 100"),
    (lambda visit: visit.finish(metrics={"bits": 3.0}), "metrics: bits is a column that every history has"),
    (lambda visit: visit.finish(samples="many"), "samples: 'many' is not possible; allowed: a whole number"),
    (lambda visit: visit.finish({**visit.state, "x": "text"}), r"state: x is no array of numbers \(str\)"),
    (lambda visit: visit.load({}), "load takes a module, not dict; the arrays themselves are visit.tensors"),
]


@pytest.mark.parametrize(("wrong", "words"), UNUSABLE, ids=["metrics", "too many", "column", "samples", "text", "load"])
def test_what_cannot_be_used_is_one_line_and_the_visit_goes_on(
    wrong: Callable[[wt.Visit], Any], words: str, node: OneNode
) -> None:
    with node.visited() as visit:
        with pytest.raises(DataError, match=words):
            wrong(visit)
        assert visit.finish()
    assert len(node.answers) == 1
    assert not node.trainer.missing or "said what cannot be" not in node.trainer.missing


def test_a_node_that_fails_is_an_error_in_the_script_and_not_the_end_of_the_run(node: OneNode) -> None:
    with node.site() as site:
        node.trainer.tell_over("the node has ended with an error: no room", failed=True)
        with pytest.raises(UnavailableError, match=r"node lyon: .* error: no room; its log says more: .*; start this"):
            next(iter(site))


def test_numbers_that_are_not_finite_count_nothing_and_are_named(
    node: OneNode, caplog: pytest.LogCaptureFixture
) -> None:
    with node.visited() as visit:
        visit.state["x"][2] = np.inf
        assert not visit.finish()
    said = "x has numbers that are not finite, or enormous"
    assert f"lyon: visit 1 counts nothing: {said}" in warnings_of(caplog)
    wait_for(lambda: f"lyon: its script: {said}" in warnings_of(caplog), "a line at the node")
    (answer,) = node.answers
    assert answer.row is not None
    assert not math.isfinite(norm_of(answer.row))  # by which the node leaves it out, as a training of our own


def test_numbers_that_no_node_takes_do_not_count_in_the_script_either(node: OneNode) -> None:
    for number, counts in ((1e18, True), (1e30, False)):  # whose squares are beyond all numbers
        with node.visited() as visit:
            visit.state["x"][:] = number
            assert visit.finish() is counts


def test_what_is_given_back_lies_in_the_row_as_it_is_numbered_however_it_lies_in_memory() -> None:
    weight = torch.arange(24.0).reshape(2, 3, 2, 2)
    layout = tasks.StateLayout.of({"w": weight})
    row = torch.zeros(24)
    talk = SimpleNamespace(_back=SimpleNamespace(numbers=lambda place, count: row))
    Talk.put(talk, {"w": weight.to(memory_format=torch.channels_last)}, layout, 0)
    assert row.tolist() == list(range(24))


def test_a_visit_is_given_back_once(node: OneNode, caplog: pytest.LogCaptureFixture) -> None:
    with node.visited() as visit:
        assert visit.finish()
        with pytest.raises(DataError, match="lyon: visit 1 was given back before"):
            visit.finish()
        with pytest.raises(DataError, match="was given back before"):
            visit.skip()
    wait_for(lambda: "lyon: its script: visit 1 was given back before" in warnings_of(caplog), "a line at the node")
    assert len(node.answers) == 1


def test_a_visit_that_comes_too_late_counts_nothing(node: OneNode, caplog: pytest.LogCaptureFixture) -> None:
    wanted = work(node.trainer.initial_row(0))
    with node.visited(wanted) as visit:
        assert node.trainer.release(wanted)  # its walk has been handed on
        assert not visit.finish()
    assert warnings_of(caplog).count("it took too long, and its model has gone on without it") == 2
    assert node.answers == [Answer()]


def test_what_is_done_is_not_handed_on(node: OneNode) -> None:
    wanted = work(node.trainer.initial_row(0))
    with node.visited(wanted) as visit, node.trainer._changed:  # before the thread that waits for it has seen it
        said = {"say": "finish", "visit": visit.number}
        node.trainer._open.answer = node.trainer._answer(said)  # type: ignore[union-attr]
        assert not node.trainer.release(wanted)


def test_a_model_in_pieces_is_refused_and_says_how_to_gather_it(node: OneNode) -> None:
    class InPieces(torch.Tensor):  # as a DTensor is
        def full_tensor(self) -> torch.Tensor:
            return self

    with node.visited() as visit:
        pieces = torch.zeros(4).as_subclass(InPieces)
        with pytest.raises(DataError, match=r"x is spread over several processes; .* get_model_state_dict and "):
            visit.finish({**visit.tensors, "x": pieces})
        with torch.device("meta"):
            module = torch.nn.Module()
            module.x = torch.nn.Parameter(torch.zeros(4))
        with pytest.raises(DataError, match="x is spread over several processes"):
            visit.load(module)
        visit.skip()


@pytest.mark.parametrize(("knows", "expected"), [(True, 1.0), (False, 2.0)])
def test_who_does_not_ask_for_the_weight_goes_further_by_it(knows: bool, expected: float, node: OneNode) -> None:
    with node.visited() as visit:
        visit.state["x"] += visit.weight / 2.0 if knows else 1.0  # its node counts twice
        visit.state["bn.running_mean"][:] = 3.0
        assert visit.finish()
    (answer,) = node.answers
    assert answer.row is not None
    assert answer.row[3:7].tolist() == [expected] * 4
    assert answer.row[7:].tolist() == [3.0] * 2  # a statistic is none of it


def test_a_visit_is_skipped(node: OneNode) -> None:
    with node.visited() as visit:
        visit.skip()
    assert node.answers == [Answer()]


def test_who_goes_on_without_finishing_has_skipped(node: OneNode, caplog: pytest.LogCaptureFixture) -> None:
    node.begin(work(node.trainer.initial_row(0)))
    with node.site() as site:
        for visit in site:
            assert visit.number == 1
            threading.Timer(0.05, node.trainer.tell_over, ["the run is over"]).start()
    assert site.over == "the run is over"
    assert "visit 1 was neither finished nor skipped" in warnings_of(caplog)


def test_a_script_of_another_study_is_refused(node: OneNode, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "other").mkdir()
    algorithms = [{"name": "multi_walk", "walks": 3}]
    other = write_cluster(tmp_path / "other", optimizer={"lr": 0.5}, algorithms=algorithms)
    text = yaml.safe_load(other.read_text())
    other.write_text(yaml.safe_dump({**text, "folder": str(tmp_path / "records")}))
    with pytest.raises(UserError, match="node lyon refuses this script: it is of another study: ") as raised:
        wt.site(other, "lyon", start=False).__enter__()
    assert "algorithms.0.walks is 3 there and 1 at the node; optimizer.lr is 0.5 there and 0.05" in str(raised.value)
    assert "{" not in str(raised.value)  # what differs alone, not the sections that it stands in
    assert "lyon: refused a script" in warnings_of(caplog)
    assert node.trainer.missing


def test_two_scripts_for_one_node(node: OneNode, caplog: pytest.LogCaptureFixture) -> None:
    with node.site():
        with pytest.raises(UserError, match=f"another script trains here, process {os.getpid()}"):
            node.site().__enter__()
        assert not node.trainer.missing
    assert "refused a script" in warnings_of(caplog)
    wait_for(lambda: bool(node.trainer.missing), "the end of the first")
    with node.site():
        assert not node.trainer.missing


def test_a_script_that_dies_is_missed_and_taken_again(node: OneNode) -> None:
    assert node.trainer.missing == "no script trains here; start yours, with wt.site(…, name='lyon')"
    thread = node.begin(work(node.trainer.initial_row(0), walk=-1))
    site = node.site().__enter__()
    visit = next(iter(site))
    site._talk.hang_up()  # as the system does for a process that is killed
    wait_for(lambda: "has ended without a word" in node.trainer.missing, "the loss")
    assert not node.trainer.planned
    assert thread.is_alive()  # the node's own model waits for whoever comes
    with node.site() as site:
        again = next(iter(site))
        assert again.number == visit.number
        assert again.finish()
    thread.join(10.0)
    assert node.answers[0].row is not None


def test_a_walk_does_not_wait_for_a_script_that_is_gone(node: OneNode) -> None:
    wanted = work(node.trainer.initial_row(0))
    thread = node.begin(wanted)
    site = node.site().__enter__()
    next(iter(site))
    site._talk.hang_up()
    assert node.trainer.release(wanted)
    thread.join(10.0)
    assert node.answers == [Answer()]


@pytest.mark.parametrize(
    ("error", "planned", "words"),
    [(KeyboardInterrupt(), True, "was stopped"), (ValueError("no\ndata"), False, "has ended with ValueError: no data")],
    ids=["Ctrl-C", "error"],
)
def test_a_script_says_why_it_goes(error: BaseException, planned: bool, words: str, node: OneNode) -> None:
    with pytest.raises(type(error)), node.site():
        raise error
    wait_for(lambda: words in node.trainer.missing, "its last word")
    assert node.trainer.planned is planned


def test_it_reports_progress(node: OneNode) -> None:
    heard = []
    node.trainer.node.progress = lambda: heard.append(time.monotonic())
    node.trainer.node.limit = lambda: 7.0
    with node.visited() as visit:
        assert 0.0 < visit.seconds_left <= 7.0
        before = len(heard)
        visit.progress(0.4)
        wait_for(lambda: len(heard) > before, "news")
        visit.skip()


def test_the_script_measures_a_model_as_it_comes(node: OneNode) -> None:
    found: list[Any] = []
    row = torch.arange(9.0)

    def evaluate(visit: wt.Visit) -> dict[str, float]:
        return {"train_loss": float(visit.state["x"].sum()), "auc": 0.5}

    def ask() -> None:
        found.append(node.trainer.measure(row))
        node.trainer.tell_over("the run is over")

    with node.site(evaluate=evaluate) as site:
        threading.Thread(target=ask, daemon=True).start()
        assert list(site) == []
    assert found == [{"train_loss": 3.0 + 4 + 5 + 6, "auc": 0.5}]
    assert not node.trainer.measure(row)  # nobody is there any more


def test_its_optimizer_is_kept_as_the_study_says(tmp_path: Path) -> None:
    module = torch.nn.Linear(3, 1)
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    tasks.write_state(optimizer, tmp_path / "adam.safetensors")
    node = OneNode(tmp_path, task={"name": "outside", "state": "start.safetensors", "optimizer": "adam.safetensors"})
    try:
        width = node.trainer.state_width
        assert width == 2 * 4 + 2  # two moments of each number, two counts of steps
        with node.visited(work(node.trainer.initial_row(0), state=torch.zeros(width))) as visit:
            assert float(visit.optimizer["0.step"]) == 0.0
            assert visit.finish(optimizer=optimizer)
        kept = node.answers[0].state
        assert kept is not None
        node.answers.clear()
        with node.visited(work(node.trainer.initial_row(0), state=kept)) as visit:
            other = torch.optim.Adam(module.parameters())
            load_optimizer(other, visit.optimizer)
            assert torch.equal(other.state[module.weight]["exp_avg"], optimizer.state[module.weight]["exp_avg"])
            with pytest.raises(DataError, match="the optimizer does not have the arrays of the study"):
                visit.finish(optimizer={"0.step": torch.ones(())})
            visit.skip()
    finally:
        node.trainer.close("")


def test_private_arrays_stay_at_their_node(tmp_path: Path) -> None:
    node = OneNode(tmp_path, task={**OUTSIDE, "private": ["head", "bn.*"]}, training={"optimizer_state": "node"})
    trainer = node.trainer
    try:
        row = trainer.initial_row(0)
        assert (row.tolist(), trainer.parameters, trainer.width, trainer.state_width) == ([0.0] * 4, 4, 4, 6)
        with node.visited(work(row, state=torch.zeros(6))) as visit:
            assert visit.weight
            assert visit.state["head"].tolist() == [1.0] * 3  # as all nodes begin
            new = {name: array + 1 for name, array in visit.state.items()}
            assert visit.finish({**new, "head": new["head"] * 2, "count": visit.state["count"]})
        (answer,) = node.answers
        assert answer.row is not None
        assert answer.row.tolist() == [1.0] * 4
        assert answer.state is not None
        assert answer.state.tolist() == [1.0, 4.0, 4.0, 4.0, 2.0, 2.0]
        with node.visited(work(row + 7, state=answer.state)) as visit:  # the model of somebody else
            assert (visit.state["x"][0], visit.state["head"][0], visit.state["bn.running_mean"][0]) == (7.0, 4.0, 2.0)
            visit.skip()
        found: list[Any] = []
        with node.site(evaluate=lambda visit: {"train_loss": float(visit.state["head"].sum())}) as site:
            threading.Timer(0.1, lambda: found.append(trainer.measure(row, answer.state))).start()
            threading.Timer(0.3, lambda: trainer.tell_over("the run is over")).start()
            assert list(site) == []
        assert found == [{"train_loss": 12.0}]
        assert {name: part.tolist() for name, part in trainer.private_part(answer.state).items()} == {
            "head": [4.0] * 3, "bn.running_mean": [2.0] * 2,
        }  # fmt: skip
        assert trainer.named(row)["head"].tolist() == [1.0] * 3
    finally:
        trainer.close("")


@pytest.mark.parametrize(
    ("private", "words"), [("tail", "no array of floats is called 'tail'"), ("*", "all arrays are")]
)
def test_private_arrays_have_to_be_there_and_others_too(private: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        OneNode(tmp_path, task={**OUTSIDE, "private": private})


def test_only_the_same_user_comes_in(node: OneNode, monkeypatch: pytest.MonkeyPatch) -> None:
    path = node.trainer._folder / local.SOCKET
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(UnavailableError, match="only user 12345, whose node it is, may come"):
        node.site().__enter__()
    assert node.trainer.missing


def test_a_folder_has_one_node_and_what_a_killed_one_left_is_no_obstacle(node: OneNode, tmp_path: Path) -> None:
    cluster = load_cluster(node.config)
    second = OutsideTrainer(tasks.build("outside", 3, 0, "lyon", state=str(tmp_path / "start.safetensors")), 1,
                            cluster.folder / "lyon", "lyon")  # fmt: skip
    with pytest.raises(StudyError, match="another node lyon works in"):
        second.open()
    node.trainer.close("")  # its socket's file stays, as that of one that was killed
    assert (cluster.folder / "lyon" / local.SOCKET).exists()
    second.open()
    second.close("")


def test_a_node_that_is_stopped_is_named_and_a_link_in_its_place_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script waited for its welcome for ever; and it talked to whatever the link led to."""
    monkeypatch.setattr(local, "ANSWERS_WITHIN", 0.1)
    config = write_cluster(tmp_path)
    folder = load_cluster(config).folder / "lyon"
    folder.mkdir(parents=True)
    with local.listen(folder):  # nobody ever accepts
        with pytest.raises(
            UnavailableError, match=rf"node lyon, process {os.getpid()}, does not answer; is it stopped"
        ):
            wt.site(config, name="lyon").__enter__()
        (folder / local.SOCKET).rename(tmp_path / "elsewhere")
        (folder / local.SOCKET).symlink_to(tmp_path / "elsewhere")
        assert local.connect(folder) is None


def test_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    deep = tmp_path / ("long-" * 12) / ("path-" * 12)
    deep.mkdir(parents=True)
    node = OneNode(deep)
    with node.site():
        assert not node.trainer.missing
    node.trainer.close("")


def test_nonsense_at_the_socket_ends_nothing(node: OneNode, caplog: pytest.LogCaptureFixture) -> None:
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 40, b"\x02\0\0\0[]", b'\x0d\0\0\0{"version":1}'):
        end = local.connect(node.trainer._folder)
        assert end is not None
        end._end.sendall(data)
        end.close()
    with node.visited() as visit:
        visit._talk.say({"say": "sing"})
        wait_for(lambda: bool(node.trainer.missing), "a refusal")
    assert "said what cannot be" in node.trainer.missing
    with node.site():
        assert not node.trainer.missing


def test_mistakes_before_anything_is_trained(tmp_path: Path) -> None:
    config = write_cluster(tmp_path)
    (tmp_path / "records").touch()  # a file, where a folder is to be
    with pytest.raises(UserError, match=r"folder: .*lyon cannot be written \(Not a directory\); give the cluster"):
        wt.site(config, "lyon").__enter__()
    (tmp_path / "records").unlink()
    with pytest.raises(SpecError, match=r"name: 'lion' is not in .*; did you mean 'lyon'?"):
        wt.site(config, "lion")
    ours = write_cluster(tmp_path, task={"name": "digits"})
    with pytest.raises(SpecError, match=r"task.name: digits is trained by walktalk itself"):
        wt.site(ours, "lyon")
    with pytest.raises(UnavailableError, match="node lyon does not run here"):
        wt.site(write_cluster(tmp_path), "lyon", start=False).__enter__()
    with pytest.raises(DataError, match=r"task.state: there is no file"):
        tasks.build("outside", 3, 0, "lyon", state=str(tmp_path / "none"))
    with pytest.raises(DataError, match=r"task.samples: lyon has none"):
        tasks.build("outside", 3, 0, "lyon", state=str(tmp_path / "start.safetensors"), samples={"nice": 3})
    of_others = write_cluster(tmp_path, task={**OUTSIDE, "samples": {"lyon": 1, "nice": 1, "pariss": 1}})
    with pytest.raises(DataError, match=r"task.samples: pariss is no node of the cluster, .*; did you mean 'paris'\?"):
        wt.site(of_others, "lyon")
    too_few = write_cluster(tmp_path, task={**OUTSIDE, "samples": {"lyon": 1, "nice": 1}})
    with pytest.raises(DataError, match=r"task.samples: paris has none"):
        wt.site(too_few, "lyon")
    with pytest.raises(DataError, match="x has numbers that are not finite"):
        tasks.write_state({"x": torch.tensor([np.nan])}, tmp_path / "bad")
    with pytest.raises(DataError, match="no array of floating-point numbers"):
        tasks.write_state({"x": torch.tensor([1])}, tmp_path / "bad")
    with pytest.raises(UnavailableError, match="in the simulator"):
        wt.run_study(make_spec(load_cluster(config).study), tmp_path / "out")


def test_algorithms_that_need_our_gradients_are_refused() -> None:
    with pytest.raises(UnavailableError, match="because it corrects every gradient of a training"):
        check_outside(Scaffold())
    with pytest.raises(UnavailableError, match="pulls every step"):
        check_outside(FedProx(mu=0.1))
    check_outside(FedProx(mu=0.0))


def test_the_first_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in `docs/script.md` and in the README, with a model and a loop of the reader's."""
    root = Path(__file__).parents[2]
    blocks = re.findall(r"^```py(?:thon)?\n(.*?)^```", (root / "docs" / "script.md").read_text(), re.M | re.S)
    short = [
        b for b in re.findall(r"^```py\n(.*?)^```", (root / "README.md").read_text(), re.M | re.S) if "wt.site" in b
    ]
    monkeypatch.chdir(tmp_path)
    for text in (blocks[0], short[0]):
        node = OneNode(tmp_path)
        thread = node.begin(work(node.trainer.initial_row(0)))
        threading.Thread(target=lambda: (thread.join(30.0), node.trainer.tell_over("done")), daemon=True).start()  # noqa: B023

        class Model(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                for name, array in START.items():
                    part = self if "." not in name else self.register_module("bn", torch.nn.Module()) or self.bn
                    part.register_buffer(name.rpartition(".")[2], array.clone())

        exec(
            compile(text, "script.md", "exec"),
            {"wt": wt, "model": Model(), "train": lambda model: 0.5, "data": range(10), "auc": 0.75},
        )
        node.trainer.close("")
        (answer,) = node.answers
        assert answer.row is not None
        assert answer.samples == 10
        assert set(answer.metrics.values()) <= {0.5, 0.75}


def test_walks_that_are_handed_on_for_days_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    news = News(SimpleNamespace(name="lyon", number=0, neighbours={"nice": 1}))  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO):
        for _ in range(50):
            news.event("handed_on", 1, 1, 0)
            news.event("handed_on", 1, 2, 0)
    assert [record.getMessage() for record in caplog.records] == [f"lyon: hands walk {walk} on" for walk in (1, 2)]
