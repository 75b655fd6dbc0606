"""What TensorBoard, MLflow and Weights & Biases are given, read back with their own readers."""

from __future__ import annotations

import builtins
import sys

import pytest
from typer.testing import CliRunner

import walktalk as wt
from tests.api.test_training_options import line
from walktalk.api import Audience, watching
from walktalk.api.callbacks import numbers_of, run_name
from walktalk.cli.app import app
from walktalk.core.errors import UserError
from walktalk.runtimes.semantics import Stop
from walktalk.studies import make_spec
from walktalk.testing.cluster import running

ALGORITHMS = [wt.MultiWalk(), wt.AsyncGossip()]
RUNS = ["multi_walk-1/0", "async_gossip-pairwise/0"]


def logged(callback: wt.Callback) -> dict[str, list[tuple[int, float]]]:
    """Compare with this callback; what was measured, by run: iteration and training loss."""
    given = {"stop": 30, "evaluate": 10, "device": "cpu", "name": "logged", "callbacks": callback}
    history = wt.compare(line(), ALGORITHMS, wt.graphs.cycle(3), **given).history
    return {
        f"{label}/0": list(part[["iteration", "train_loss"]].itertuples(index=False, name=None))
        for label, part in history.groupby("algorithm")
    }


def alike(found: list[tuple[int, float]], expected: list[tuple[int, float]]) -> bool:
    """They keep 32 bits, or all."""
    return [a for a, _ in found] == [a for a, _ in expected] and [b for _, b in found] == pytest.approx(
        [b for _, b in expected], rel=1e-6
    )


def test_tensorboard_has_every_evaluation_and_the_settings(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    expected = logged(wt.TensorBoard(tmp_path))
    for run in RUNS:
        events = EventAccumulator(str(tmp_path / run)).Reload()
        assert {"train_loss", "test_loss", "bits", "consensus"} <= set(events.Tags()["scalars"])
        assert "test_accuracy" not in events.Tags()["scalars"]  # there is none
        assert alike([(e.step, e.value) for e in events.Scalars("train_loss")], expected[run])
        for node in range(3):  # at the end, how good its model is at every site
            (site,) = events.Scalars(f"site/{node}/train_loss")
            assert site.step == expected[run][-1][0]
        (text,) = events.Tensors("settings/text_summary")
        assert b"name: logged" in text.tensor_proto.string_val[0]


def test_a_study_of_the_command_line_too(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    study = tmp_path / "study.yaml"
    study.write_text(
        "{name: small, task: {name: quadratic}, network: {topology: cycle, nodes: 4}, stop: {iterations: 40},"
        " evaluate: {every: 20}, algorithms: [{name: async_gossip}]}"
    )
    words = ["run", str(study), "--out", str(tmp_path / "out"), "--tensorboard", str(tmp_path / "board")]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.output
    events = EventAccumulator(str(tmp_path / "board/async_gossip-pairwise/0")).Reload()
    assert [e.step for e in events.Scalars("train_loss")] == [0, 20, 40]


def test_mlflow_has_every_evaluation_and_the_settings(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # files will do; a database needs more packages
    uri = tmp_path.as_uri()
    expected = logged(wt.MLflow(uri=uri))
    client = mlflow.MlflowClient(tracking_uri=uri)
    place = client.get_experiment_by_name("logged")
    runs = {run.info.run_name: run for run in client.search_runs([place.experiment_id])}
    assert sorted(runs) == sorted(RUNS)
    for name, run in runs.items():
        assert run.info.status == "FINISHED"
        assert run.data.params["optimizer.lr"] == "0.05"
        found = client.get_metric_history(run.info.run_id, "train_loss")
        assert alike(sorted((m.step, m.value) for m in found), expected[name])


def records_of(content: bytes, block: int = 32768) -> list[bytes]:
    """The records of a run's file: LevelDB's log format, behind a header of seven bytes."""
    found, part, at = [], b"", 7
    while at + 7 <= len(content):
        if block - at % block < 7:  # what is left of a block is too short for a head
            at += block - at % block
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        part += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            found.append(part)
            part = b""
    return found


def test_weights_and_biases_has_every_evaluation(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    from wandb.proto import wandb_internal_pb2

    expected = logged(wt.WandB(folder=tmp_path, mode="offline"))
    found = {}
    for path in tmp_path.glob("wandb/offline-run-*/*.wandb"):
        name, rows = "", []
        for data in records_of(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "run":
                name = record.run.display_name or name
            elif record.WhichOneof("record_type") == "history":
                items = {(item.key or item.nested_key[0]): item.value_json for item in record.history.item}
                rows.append((int(items["_step"]), float(items["train_loss"])))
        found[name] = rows
    assert sorted(found) == sorted(RUNS)
    assert all(alike(found[name], expected[name]) for name in RUNS)


@pytest.mark.parametrize(
    ("make", "module", "words"),
    [
        (wt.TensorBoard, "torch.utils.tensorboard", r"tensorboard is not installed here; .*'walktalk\[tensorboard\]'"),
        (wt.MLflow, "mlflow", r"mlflow is not installed here; get it with: pip install 'walktalk\[mlflow\]'"),
        (wt.WandB, "wandb", r"wandb is not installed here; get it with: pip install 'walktalk\[wandb\]'"),
    ],
)
def test_without_the_package_one_line_says_how_to_get_it(make, module, words, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(UserError, match=words):
        make()


def test_nothing_of_them_is_imported_unasked(monkeypatch):
    seen = []
    plain = builtins.__import__

    def watching(name, *rest):
        seen.append(name.partition(".")[0])
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", watching)
    wt.train(line(), wt.AsyncGossip(), wt.graphs.cycle(3), stop=5, device="cpu")
    assert not {"tensorboard", "mlflow", "wandb"} & set(seen)


class Board(wt.Callback):
    """Keeps what a tracker would be given."""

    def __init__(self) -> None:
        self.began, self.rows, self.over, self.closed = "", [], False, False

    def on_start(self, settings):
        self.began = settings["name"]

    def on_evaluation(self, row):
        self.rows.append(dict(row))

    def on_end(self, result):
        self.over = True

    def close(self):
        self.closed = True


def test_a_node_of_a_cluster_is_a_run_of_its_own(tmp_path):
    board, spec = Board(), make_spec({"name": "coast", "algorithms": [{"name": "async_gossip"}]})
    with (
        running(wt.AsyncGossip(), wt.graphs.complete(3), tmp_path, Stop(iterations=60)) as cluster,
        watching(Audience(board), spec, "async_gossip-pairwise") as watcher,
    ):
        watcher.begin(cluster.nodes[1])
        cluster.wait()
    assert board.began == "coast"
    assert board.over
    assert board.closed
    last = board.rows[-1]
    assert run_name(last) == f"async_gossip-pairwise/{cluster.nodes[1].status()['name']}"
    assert max(node.progress.tally.iterations for node in cluster.nodes) >= 60  # others may hear of the end before that
    assert last["iteration"] == cluster.nodes[1].progress.tally.iterations
    assert 0 < last["own_iterations"] < last["iteration"]
    assert last["bits"] > 0
    assert numbers_of(last)["train_loss"] == cluster.nodes[1].status()["loss"]


def test_where_a_package_is_missing_collect_says_so_before_it_asks_anybody(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("nodes: {a: {address: '127.0.0.1:1'}}")
    words = ["collect", "--config", str(cluster), "--out", str(tmp_path / "out"), "--wandb", "mine"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 2
    assert "pip install 'walktalk[wandb]'" in ended.output
    assert not (tmp_path / "out").exists()
