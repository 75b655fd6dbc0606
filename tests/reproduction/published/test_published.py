"""Tables that others published, as studies: their settings, their bytes, and what is made of a folder of histories."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support.unlike import LR, run
from walktalk.chains import metropolis_hastings
from walktalk.cli.app import app
from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed
from walktalk.graphs import complete, cycle
from walktalk.records import read_history
from walktalk.reproduction import published
from walktalk.reproduction.published.relay_sgd import BYTES_OF_A_MODEL, EPOCHS, STEPS, WORKERS, FirstCode, peers
from walktalk.reproduction.published.sorted_mnist import CodedCECA, grid
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import EvaluateOp, Fault, FaultPlan, RunSetup, Simulation
from walktalk.studies.planning import build_foundation

TABLE1 = published.find_table("table1")


@pytest.mark.parametrize("name", published.TABLES)
@pytest.mark.parametrize("scale", published.SCALES)
def test_every_cell_is_a_study(name, scale):
    table = published.find_table(name)
    for row, column in table.cells():
        spec = table.spec(row, column, scale)
        assert spec.algorithms[0].lr == row.cells[column].lr
        assert build_foundation(spec).graph.nodes == spec.network.nodes


def test_settings_are_the_published_ones():
    spec = TABLE1.spec(TABLE1.row("relay-m-chain"), "alpha0.01", "paper")
    assert spec.stop.iterations == 310_400 == WORKERS * EPOCHS * STEPS
    assert (spec.optimizer.momentum, spec.optimizer.nesterov, spec.optimizer.weight_decay) == (0.9, True, 1e-4)
    assert spec.task.settings["alpha"] == 0.01
    assert spec.algorithms[0].lr == 0.125
    assert TABLE1.spec(TABLE1.row("relay-chain"), "alpha0.01", "paper").optimizer.momentum == 0.0


@pytest.mark.parametrize("norm", ["batch", "group", "evonorm"])
def test_quasi_global_momentum_is_measured_with_every_norm_of_its_table(norm):
    table = published.find_table("qg")
    for name in ("dsgd-m", "qg", "walks4"):
        settings = table.spec(table.row(f"{name}-{norm}"), "alpha0.1", "paper").task.settings
        assert settings["norm"] == norm
        assert settings.get("groups") == (2 if norm == "group" else None)


@pytest.mark.parametrize(
    ("name", "messages"),
    [("dpsgd-ring", 2.0), ("qg-ring", 2.0), ("d2-ring", 2.0), ("sgp-exponential", 2.0), ("relay-chain", 30 / 16)],
)
def test_the_ledger_has_the_published_bytes(name, messages):
    """1,428,804 MiB a worker at epoch 198 on the ring: 198 × 97 × 2 models. A chain's ends send one in place of two.

    When a run ends, the second exchange of SGP's last step is still to come.
    """
    epochs = 2  # every one is like the others
    changes = {
        "timing": {"model": "network", "compute": 1.0},  # all nodes in step
        "task": {"name": "digits"},
        "stop": {"iterations": epochs * STEPS * WORKERS},
        "evaluate": {"every": epochs * STEPS * WORKERS},
    }
    spec = TABLE1.spec(TABLE1.row(name), "alpha1", "paper", changes)
    foundation = build_foundation(spec)
    sizes = {"payload_bytes": BYTES_OF_A_MODEL, "state_bytes": 0, "local_steps": 1, "private": None}
    trainer = type("Sizes", (), {**sizes, "task": digits()})()
    plan = foundation.algorithms[0]
    setup = foundation.conditions(trainer).setup(plan, foundation.root)
    ops = Simulation(replace(setup, keep_trace=False)).advance().ops
    last = [op for op in ops if isinstance(op, EvaluateOp)][-1]
    assert last.iteration == epochs * STEPS * WORKERS
    each = last.model_bits / 8 / WORKERS + (BYTES_OF_A_MODEL if name == "sgp-exponential" else 0)
    assert each == epochs * STEPS * messages * BYTES_OF_A_MODEL
    if messages == 2.0:
        assert 198 / epochs * each == 198 * 97 * 2 * 9_750_922 * 4
        assert round(198 / epochs * each / 2**20) == 1_428_804


def digits():
    from walktalk.learning import tasks

    return tasks.digits(nodes=WORKERS, alpha=None, seed=0)


def test_a_grid_does_not_wrap_around():
    graph = grid(24)
    assert graph.edges == 6 * 3 + 5 * 4
    assert sorted(graph.neighbours(0)) == [1, 4]


def test_rows_and_columns_by_name():
    assert [(row.name, column) for row, column in TABLE1.cells(["d2-ring"], ["alpha0.1"])] == [("d2-ring", "alpha0.1")]
    with pytest.raises(SpecError, match="row of table1"):
        TABLE1.cells(["d3-ring"])
    with pytest.raises(SpecError, match="column of table1"):
        TABLE1.cells([], ["alpha7"])


def test_the_command_runs_rows_together_and_shows_them(tmp_path):
    run = ["published", "run", "table1", "--rows", "dpsgd-ring,walks4-ring", "--columns", "alpha0.1"]
    run += ["--out", str(tmp_path), "--device", "cpu"]
    first = CliRunner().invoke(app, run)
    assert first.exit_code == 0, first.output
    assert "2 runs at once" in first.output
    assert "D-PSGD, ring" in first.output
    table = np.genfromtxt(tmp_path / "table1" / "compared.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    assert list(table["row"]) == ["dpsgd-ring", "walks4-ring"]
    assert np.all((table["ours"] >= 0) & (table["ours"] <= 100))
    again = CliRunner().invoke(app, run)
    assert again.exit_code == 0, again.output
    assert "runs at once" not in again.output  # what is there is kept
    assert CliRunner().invoke(app, ["published", "list"]).exit_code == 0


def test_peers_are_in_the_order_of_the_published_code():
    meets = [peers(16).rounds.targets(0, k) for k in range(10)]
    assert meets == [(1,), (1,), (4,), (8,), (1,), (4,), (4,), (2,), (1,), (1,)]


def test_cells_side_by_side_are_those_of_one_process(tmp_path):
    changes = {"stop": {"iterations": 48}, "evaluate": {"every": 48, "samples": 50}}
    which = {"rows": ["dpsgd-ring", "sgp-m-exponential"], "columns": ["alpha1"]}
    settings, said = published.CellSettings("smoke", changes, device="cpu"), []
    published.run_table(TABLE1, tmp_path / "two", settings, processes=2, say=said.append, **which)
    published.run_table(TABLE1, tmp_path / "one", settings, **which)
    for name in ("dpsgd-ring", "sgp-m-exponential"):
        two, one = ((tmp_path / folder / "table1" / "alpha1" / f"{name}.csv").read_text() for folder in ("two", "one"))
        assert two == one
        assert any(line.startswith(f"{name} alpha1: ") and "model-steps/s" in line for line in said)


def test_a_run_in_small_has_no_difference_and_says_its_own_rate(tmp_path):
    settings = published.CellSettings("smoke", lr=0.05, device="cpu")
    published.run_table(TABLE1, tmp_path, settings, rows=["dpsgd-ring"], columns=["alpha1"])
    (cell,) = published.compared(TABLE1, tmp_path)
    assert cell.published == 87.4
    assert cell.lr == 0.05  # in place of the published 0.4
    assert cell.difference is None
    assert "in small" in published.as_markdown(TABLE1, [cell])


def test_a_cell_that_diverged_is_called_so(tmp_path):
    changes = {"algorithms": [{"name": "local_dsgd", "label": "dpsgd-ring", "lr": 1e30}], "schedule": {"warmup": 0.0}}
    settings = published.CellSettings("smoke", changes, device="cpu")
    published.run_table(TABLE1, tmp_path, settings, rows=["dpsgd-ring"], columns=["alpha1"])
    (cell,) = published.compared(replace(TABLE1, paper=TABLE1.smoke), tmp_path)
    assert cell.diverged
    assert cell.difference is None
    assert "| diverged | – | – | – | – | – |" in published.as_markdown(TABLE1, [cell])


def test_what_was_published_as_diverging_has_no_difference():
    table = published.find_table("table2")
    row, steps = table.row("qg-ring"), table.paper["stop"]["iterations"]
    known = row.cells["lost10"].value
    cell = published.Compared(row, "lost10", 0.05, known, 65.0, {"train_loss": 0.5}, steps, 1.0, steps)
    assert cell.difference is None
    assert "| quasi-global momentum, ring | 10 | 0.05 | diverges | 65.0 | – |" in published.as_markdown(table, [cell])


def test_weights_on_the_ring_are_at_the_limit_of_d2():
    """It asks for eigenvalues above −1/3; on an odd ring there is room."""
    lowest = [np.linalg.eigvalsh(metropolis_hastings(cycle(nodes)).matrix.toarray())[0] for nodes in (16, 15)]
    assert lowest[0] == pytest.approx(-1 / 3, abs=1e-12)
    assert lowest[1] > -1 / 3 + 0.01


def test_who_misses_a_message_of_the_authors_first_code_is_left_with_less_than_a_model():
    """On a ring: 1/3 + 1/3 with one lost, and (1/3) / (2/3) with both; what was meant would be one."""
    faults = FaultPlan((Fault("lose", at=0.0, share=0.4),), Seed(1))
    run = RunSetup(FirstCode(missing="divide"), cycle(5), Seed(1), Stop(time=30.5), faults=faults, model_bytes=400)
    mixes = [row.detail for row in Simulation(run).advance().trace if row.event == "combine" and row.slot == "mixed"]
    sums = {(len(weights), round(sum(weights.values()), 9)) for weights in mixes}
    assert sums == {(3, 1.0), (2, round(2 / 3, 9)), (1, 0.5)}


def test_an_unknown_scale_is_one_line():
    result = CliRunner().invoke(app, ["published", "run", "table1", "--scale", "huge"])
    assert result.exit_code == 2
    assert "allowed: smoke, paper" in result.output


def test_cells_of_two_columns_that_share_their_data_are_kept_apart(tmp_path):
    """They have the same name; messages are lost in one of them."""
    changes = {"stop": {"iterations": 160}, "evaluate": {"every": 80, "samples": 50}}
    table = published.find_table("table2")
    which = {"rows": ["qg-ring"], "columns": ["lost0", "lost10"]}
    published.run_table(table, tmp_path, published.CellSettings("smoke", changes, device="cpu"), **which)
    histories = [read_history(tmp_path / "table2" / column / "qg-ring.csv") for column in which["columns"]]
    assert [list(history["iteration"]) for history in histories] == [[0, 80, 160]] * 2
    assert histories[0]["train_loss"].iloc[-1] != histories[1]["train_loss"].iloc[-1]


def test_what_the_published_code_does_by_the_name_of_ceca():
    """x̂ is that of before the last round with digit 1; 5 is 101."""
    nodes, rounds, m = 6, 11, 0
    ended = run(CodedCECA(), complete(nodes), rounds)
    x = stale = np.repeat(ended.trainer.initial().double().numpy()[None], nodes, 0)
    for t in range(rounds):
        m = 0 if t % 3 == 0 else m
        step = LR * ended.trainer.gradients(x)
        if "101"[t % 3] == "1":
            stale, x, m = x, ((x - step) + np.roll(x - step, m + 1, 0)) / 2, 2 * m + 1
        else:
            x, m = ((m + 1) * (stale - step) + m * np.roll(x - step, m, 0)) / (2 * m + 1), 2 * m
    assert np.allclose(ended.members, x, atol=1e-5)
