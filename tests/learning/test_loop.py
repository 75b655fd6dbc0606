"""Somebody else's loop as a task: the same training as ours has the same history, and mistakes are told in one line."""

from __future__ import annotations

import copy
import functools
import re
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import walktalk as wt
from walktalk.core.errors import DataError, ModelError, UserError
from walktalk.learning import LoopTrainer, TrainingRows
from walktalk.learning.samples import Sampler
from walktalk.learning.state_tree import PackedForm, TreeForm

GRAPH = wt.graphs.complete(4)
PLAIN = wt.SGD(lr=0.05, momentum=0.0, nesterov=False)
DIGITS = wt.tasks.digits(nodes=4, alpha=1.0, seed=0)
PARTS = [(DIGITS.inputs[part], DIGITS.targets[part]) for part in DIGITS.parts]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(64, 10)


def batches(rng: np.random.Generator, samples: int, batch_size: int, steps: int) -> Tensor:
    """What our own training draws with the same key."""
    key = torch.tensor([rng.bit_generator.seed_seq.entropy])
    sampler = Sampler([np.arange(samples)], batch_size, torch.device("cpu"))
    return sampler.batches(torch.tensor([0]), key, steps)[:, 0]


def by_torch(state: dict[str, Tensor], data: tuple[Tensor, Tensor], lr, steps, batch_size, rng) -> dict[str, Tensor]:
    module = net()
    module.load_state_dict(state)
    optimizer = torch.optim.SGD(module.parameters(), lr)
    for places in batches(rng, len(data[0]), batch_size, steps):
        optimizer.zero_grad()
        functional.cross_entropy(module(data[0][places]), data[1][places]).backward()
        optimizer.step()
    return module.state_dict()


def by_numpy(state: dict[str, np.ndarray], data: tuple[Tensor, Tensor], **given: Any) -> dict[str, np.ndarray]:
    w, b = state["weight"], state["bias"]
    for places in batches(given["rng"], len(data[0]), given["batch_size"], given["steps"]):
        x, y = data[0][places].numpy(), data[1][places].numpy()
        scores = np.exp(x @ w.T + b)
        error = scores / scores.sum(1, keepdims=True) - np.eye(10)[y]
        w, b = w - given["lr"] * error.T @ x / len(x), b - given["lr"] * error.mean(0)
    return {"weight": w, "bias": b}


def numpy_step(state, data, lr, steps, batch_size, rng):
    return by_numpy(state, data, lr=lr, steps=steps, batch_size=batch_size, rng=rng)


def measured(state: dict[str, Any], data: tuple[Tensor, Tensor]) -> dict[str, float]:
    scores = torch.as_tensor(state["weight"]).float(), torch.as_tensor(state["bias"]).float()
    outputs = data[0] @ scores[0].T + scores[1]
    right = (outputs.argmax(1) == data[1]).float().mean()
    return {"loss": float(functional.cross_entropy(outputs, data[1])), "accuracy": float(right)}


OURS = wt.tasks.torch(net(), functional.cross_entropy, PARTS, test=DIGITS.test)
THEIRS = {
    "torch": wt.tasks.loop(by_torch, net().state_dict(), PARTS, evaluate=measured, test=DIGITS.test),
    "numpy": wt.tasks.loop(
        numpy_step,
        {name: tensor.numpy().astype(float) for name, tensor in net().state_dict().items()},
        PARTS,
        evaluate=measured,
        test=DIGITS.test,
    ),
}


@functools.cache
def ours(algorithm: str) -> Any:
    return wt.train(OURS, algorithm, GRAPH, optimizer=PLAIN, stop=24, evaluate=12, progress=False)


AGREE = [(library, one) for library in THEIRS for one in ("multi_walk", "async_gossip", "d_psgd", "fedavg")]
TWICE = [one for one in AGREE if one[0] == "numpy" and one[1] != "multi_walk"]  # the same algorithm, once more


@pytest.mark.parametrize(
    ("library", "algorithm"), [pytest.param(*one, marks=[pytest.mark.slow] * (one in TWICE)) for one in AGREE]
)
@pytest.mark.filterwarnings("ignore:algorithm")  # that it has another name here
def test_the_same_training_has_our_history(library, algorithm):
    expected = ours(algorithm)
    run = wt.train(THEIRS[library], algorithm, GRAPH, optimizer=PLAIN, stop=24, evaluate=12, progress=False)
    exact = ["iteration", "time", "bits"]
    assert run.history[exact].equals(expected.history[exact])
    for column in ("train_loss", "test_loss", "test_accuracy", "consensus", "mean_train_loss"):
        assert run.history[column].to_numpy() == pytest.approx(expected.history[column].to_numpy(), rel=1e-4, abs=1e-6)
    state = run.model.state
    assert torch.as_tensor(state["weight"]).float().numpy() == pytest.approx(
        expected.model.weight.detach().numpy(), rel=1e-3, abs=1e-5
    )
    assert run.by_node["train_loss"].to_numpy() == pytest.approx(expected.by_node["train_loss"].to_numpy(), rel=1e-4)


def test_nodes_with_more_work_take_longer_as_ours_do():
    how = {"optimizer": PLAIN, "stop": 16, "evaluate": 8, "progress": False, "local_steps": [1, 2, 9, 2]}
    expected, run = (wt.train(task, "async_gossip", GRAPH, **how).history for task in (OURS, THEIRS["numpy"]))
    assert run[["iteration", "time", "bits"]].equals(expected[["iteration", "time", "bits"]])
    assert run["train_loss"].to_numpy() == pytest.approx(expected["train_loss"].to_numpy(), rel=1e-4)


# -- states ----------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    scale: np.ndarray
    count: int


TREE = {
    "layers": [np.ones((2, 3)), torch.full((2,), 0.5, dtype=torch.float64)],
    "pair": Pair(np.float32(2.0), 7),
    "nothing": None,
    "half": torch.ones(3, dtype=torch.bfloat16),
}


def test_a_tree_comes_back_as_it_was():
    form = TreeForm(TREE, "state")
    assert [leaf.name for leaf in form.leaves] == ["layers.0", "layers.1", "pair.scale", "pair.count", "half"]
    back = form.state(form.row(TREE, "state"))
    assert back["layers"][0].dtype == np.float64
    assert np.array_equal(back["layers"][0], TREE["layers"][0])
    assert back["layers"][1].dtype == torch.float64
    assert isinstance(back["pair"], Pair)
    assert (back["pair"].count, type(back["pair"].count)) == (7, int)
    assert back["nothing"] is None
    assert back["half"].dtype == torch.bfloat16
    back["layers"][0][:] = 5.0  # memory of its own
    assert np.array_equal(TREE["layers"][0], np.ones((2, 3)))


def test_the_order_of_names_does_not_matter():
    form = TreeForm({"b": np.ones(1), "a": np.zeros(2)}, "state")
    assert form.row({"a": np.zeros(2), "b": np.ones(1)}, "state").tolist() == [1.0, 0.0, 0.0]


def test_means_of_counters_are_rounded():
    form = TreeForm({"w": np.zeros(2), "t": 0}, "state")
    rows = [form.row({"w": np.full(2, k), "t": t}, "state") for k, t in ((0.0, 3), (1.0, 6))]
    mean = form.state((rows[0] + rows[1]) / 2)
    assert mean["t"] in (4, 5)
    assert mean["w"].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"w": np.zeros(2), "name": "x"}, "state: name is a string, which cannot be mixed"),
        ({"w": np.zeros(2), "yes": True}, "state: yes is a truth value"),
        ({"w": np.zeros(2), "classes": np.arange(3)}, "state: classes is an array of whole numbers (int64 [3])"),
        ({"w": np.zeros(2), "thing": object()}, "state: thing is of type object"),
        ({"w": np.zeros(2, dtype=complex)}, "state: w is complex"),
        ({"w": None}, "state: there is no number in it"),
        ({"a": {"b": 1.0}, "a.b": 2.0}, "state: two of its arrays are called a.b"),
    ],
)
def test_what_cannot_be_mixed_is_told_in_one_line(state, words):
    with pytest.raises(UserError, match=re.escape(words)) as found:
        wt.tasks.loop(lambda state, data: state, state, [[1]], evaluate=lambda state, data: 0.0)
    assert "\n" not in str(found.value)


def test_bytes_are_carried_as_they_are():
    form = PackedForm(1000)
    state = {"trees": bytes(range(256)), "n": 3, "names": ["a", None], "w": np.arange(4, dtype=np.int16).reshape(2, 2)}
    back = form.state(form.row(state, "state") * 1.0)
    assert (back["trees"], back["n"], back["names"]) == (state["trees"], 3, ["a", None])
    assert np.array_equal(back["w"], state["w"])
    with pytest.raises(UserError, match=r"it takes [\d,]+ bytes, and room is 1,000"):
        form.row({"trees": bytes(1000)}, "state")
    with pytest.raises(UserError, match="mixed number by number"):
        form.state(form.row(state, "state") * 0.5)
    keyed = {"by class": {0: 1.5, None: (1, [2])}, "texts": {"0": 3}}
    assert form.state(form.row(keyed, "state")) == keyed
    with pytest.raises(ModelError, match="state: classes has a key of type tuple; give texts or numbers"):
        form.row({"classes": {(1, 2): 3}}, "state")


def test_a_state_that_contains_itself_is_one_line():
    state: dict[str, Any] = {"w": np.ones(1)}
    state["again"] = [state]
    for room in (None, 1000):
        with pytest.raises(ModelError, match="state: it has more than 100 levels; does it contain itself"):
            small(state=state, room=room)


def test_what_wants_gradients_wants_them_still_in_whatever_mode_a_step_leaves():
    def step(state, data):
        assert torch.is_grad_enabled()
        assert isinstance(state["w"], nn.Parameter)
        assert not state["frozen"].requires_grad
        ((state["w"] - 1.0) ** 2).sum().backward()
        torch.set_grad_enabled(False)
        return {"w": state["w"] - 0.1 * state["w"].grad, "frozen": state["frozen"]}

    start = {"w": nn.Parameter(torch.zeros(2)), "frozen": torch.ones(1)}
    run = trained(small(step, state=start, evaluate=lambda state, data: float(state["w"].sum())))
    assert torch.is_grad_enabled()
    assert run.model.state["w"].requires_grad


# -- what a step is given, and mistakes in it ------------------------------------------------------------------------


def line(state, data, lr, steps, rng):
    """A line through the origin, by a few noisy steps."""
    for _ in range(steps):
        x, y = data[rng.integers(len(data))]
        state = state - lr * (state * x - y) * x
    return state


def off(state, data) -> float:
    return float(np.mean((state * data[:, 0] - data[:, 1]) ** 2))


POINTS = [np.array([[1.0, 2.0 + 0.1 * k], [0.5, 1.0]]) for k in range(4)]


def small(step=line, state=np.zeros(1), partitions=POINTS, evaluate=off, **more: Any) -> wt.Task:
    return wt.tasks.loop(step, state, partitions, evaluate=evaluate, **more)


def trained(task: wt.Task, algorithm: Any = "multi_walk", **more: Any) -> Any:
    return wt.train(task, algorithm, GRAPH, **{"stop": 12, "evaluate": 6, "progress": False, **more})


def test_a_step_is_given_what_it_names():
    seen = []

    def step(state, data, node, steps, batch_size, seed, lr, mine=3):
        seen.append((node, len(data), steps, batch_size, seed, lr, mine))
        return state

    names = ["a", "b", "c", "d"]
    task = small(step, partitions=dict(zip(names, POINTS, strict=True)))
    trained(task, batch_size=7, local_steps=2, optimizer=wt.SGD(lr=0.01), objective="sites")
    assert {one[0] for one in seen} <= set(names)
    assert {one[1:4] for one in seen} == {(2, 2, 7)}
    assert all(0 <= one[4] < 2**31 and one[6] == 3 for one in seen)
    assert len({one[4] for one in seen}) == len(seen)
    assert {round(one[5], 6) for one in seen} == {0.01}


def test_the_same_seed_has_the_same_history_whatever_a_step_draws_from():
    def step(state, data, rng):
        return state + rng.normal() + np.random.normal() + float(torch.randn(()))  # noqa: NPY002

    one, again, other = (trained(small(step), seed=seed).history for seed in (1, 1, 2))
    assert one.equals(again)
    assert not one.equals(other)


def test_a_step_without_a_rate_goes_as_far_as_the_schedule_says():
    def step(state, data):
        return state + 1.0

    trainer = LoopTrainer(small(step), optimizer=wt.SGD(lr=0.05, momentum=0.0, nesterov=False))
    rates = torch.tensor([0.05, 0.025, 0.1])
    given = TrainingRows(torch.ones(3, 1), torch.zeros(3, dtype=torch.int64), torch.arange(3), rates)
    assert trainer.train(given).rows[:, 0].tolist() == pytest.approx([2.0, 1.5, 3.0])


def test_memory_lives_where_the_study_says():
    def step(state, data, memory):
        return state + memory["v"], {"v": memory["v"] + 1.0}

    task = small(step, memory={"v": np.zeros(1)})
    rows = {
        where: float(trained(task, wt.MultiWalk(walks=1), optimizer_state=where).row) for where in ("visit", "walk")
    }
    assert rows["visit"] == 0.0  # each visit begins anew
    assert rows["walk"] > 10.0


def test_objective_and_test_data_are_those_of_every_task():
    parts = {"lyon": POINTS[0], "nice": np.tile(POINTS[3], (9, 1))}
    task = small(lambda state, data: state, np.ones(1), parts, test={"lyon": POINTS[0], "nice": POINTS[1]})
    graph, more = wt.graphs.complete(2), {"stop": 2, "progress": False}
    own = [off(np.ones(1), part) for part in parts.values()]
    by = {name: wt.train(task, "d2", graph, objective=name, **more) for name in ("samples", "sites")}
    assert by["samples"].history.train_loss[0] == pytest.approx((own[0] + 9 * own[1]) / 10)
    assert by["sites"].history.train_loss[0] == pytest.approx(sum(own) / 2)
    tests = [off(np.ones(1), POINTS[0]), off(np.ones(1), POINTS[1])]
    assert by["sites"].history.test_loss[0] == pytest.approx(sum(tests) / 2)
    assert by["sites"].by_node["test_loss"].tolist() == pytest.approx(tests)


def test_a_target_ends_a_run_and_faults_are_survived():
    run = trained(small(), stop=wt.Stop(iterations=400, target_loss=0.1))
    assert run.history.iteration.iloc[-1] < 400
    again = trained(small(), stop=60, faults=[{"kind": "kill", "node": 1, "at": 3.0}])
    assert again.history.train_loss.iloc[-1] < 0.2


def failing(state, data):
    return {}["weight"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"step": lambda state: state}, "step: <lambda> has to take a state and a node's data"),
        ({"step": lambda state, data, stepps: state}, "did you mean 'steps'?"),
        ({"step": lambda state, data, anchor=None: state}, "anchor and pull belong together"),
        ({"step": lambda state, data, memory: state}, "memory: step takes one, and none is given"),
        ({"step": 3}, "step: 3 is not possible"),
        ({"memory": np.zeros(1)}, "memory: step takes no argument memory"),
        ({"evaluate": lambda state: 0.0}, "evaluate: it is called as evaluate(state, data)"),
        ({"room": 0}, "room: 0 is not possible"),
        ({"partitions": [3]}, "partitions[0]: how many samples it has is not known"),
        ({"partitions": [[]]}, "partitions[0]: it has 0 samples"),
    ],
)
def test_mistakes_are_told_before_anything_runs(changed, words):
    with pytest.raises(UserError, match=re.escape(words)) as found:
        small(**changed)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"step": failing}, r"task loop: step fails: KeyError: 'weight' \(test_loop.py, line \d+\)"),
        ({"step": lambda state, data: None}, "step gave back nothing"),
        ({"step": lambda state, data: state[:0]}, r"it is float64 \[0\]|and the study's is float64 \[1\]"),
        ({"step": lambda state, data: {"w": state}}, "w is not the study's"),
        ({"step": lambda state, data: state.astype(int)}, "whole numbers"),
        ({"evaluate": lambda state, data: None}, "evaluate has to return a loss"),
        ({"evaluate": lambda state, data: {"auc": 1.0}}, "it gave only auc"),
        ({"evaluate": failing}, r"evaluate fails: KeyError.*line \d+"),
        (
            {"step": lambda state, data: (state, 0.5)},
            "step gave back a tuple of 2, and a state is a ndarray; it has to",
        ),
        ({"step": lambda state, data: ({}, 0.5), "state": {"w": np.ones(1)}, "room": 500}, "and a state is a dict; it"),
        ({"step": lambda state, data: data.__imul__(2.0)[0, :1]}, r"step has changed data in place, so that it would"),
        ({"evaluate": lambda state, data: "0.5"}, "with numbers; it gave a string"),
        ({"evaluate": lambda state, data: {"loss": 0.5, "auc": [1]}}, "with numbers; it gave auc: a single list"),
    ],
)
def test_mistakes_in_functions_name_file_and_line(changed, words):
    with pytest.raises(UserError, match=words) as found:
        trained(small(**changed))
    assert "\n" not in str(found.value)


def test_what_of_data_has_changed_is_named():
    rows = [{"x": np.arange(6.0).reshape(2, 3), "y": (torch.ones(2), ["a", "b"])} for _ in POINTS]

    def step(state, data):
        data["cached"] = 1  # harmless
        data["y"][0].zero_()
        return state

    with pytest.raises(ModelError, match=r"step has changed data\['y'\]\[0\] in place"):
        trained(small(step, partitions=rows, evaluate=lambda state, data: 1.0, samples=lambda data: 2))


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("scaffold", "adds something to every gradient, and step takes no correction"),
        ("fedprox", "step takes no anchor and pull"),
        ("gradient_tracking", "step takes no gradient"),
        ("qg_dsgdm", "step takes no correction"),
        ("centralized", "everybody's data at once"),
    ],
)
def test_algorithms_that_ask_for_more_are_refused_before_anything_is_trained(algorithm, words):
    task = small(lambda state, data: pytest.fail("it was trained"))
    with pytest.raises(UserError, match=words):
        trained(task, algorithm)


def test_a_step_that_takes_a_correction_can_have_scaffold():
    def step(state, data, lr, steps, rng, correction):
        for _ in range(steps):
            x, y = data[rng.integers(len(data))]
            state = state - lr * ((state * x - y) * x + (0.0 if correction is None else correction))
        return state

    assert trained(small(step), "scaffold", stop=80).history.train_loss.iloc[-1] < 0.1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"optimizer": "adam"}, "optimizer: a loop has its own"),
        ({"clip_norm": 1.0}, "optimizer: a loop has its own"),
        ({"precision": "bf16"}, "bf16 is the loop's own affair"),
        ({"evaluate": wt.Evaluate(validation=0.5)}, "a loop's data cannot be divided from outside"),
    ],
)
def test_settings_that_only_models_of_torch_follow_are_refused(more, words):
    with pytest.raises(UserError, match=words):
        trained(small(), **more)


# -- states that only whole can be merged ------------------------------------------------------------------------------


def grow(state, data):
    return {"words": [*state["words"], "x"]}


def count(state, data) -> float:
    return 1.0 / (1 + len(state["words"]))


def longest(states, weights):
    return max(states, key=lambda state: len(state["words"]))


def words_task(**more: Any) -> wt.Task:
    return wt.tasks.loop(grow, {"words": []}, [[1]] * 4, evaluate=count, room=2000, **more)


def test_one_walk_carries_bytes_and_others_need_to_know_how_they_are_merged():
    run = trained(words_task(), wt.MultiWalk(walks=1))
    assert 1 <= len(run.model.state["words"]) <= 12
    assert run.history.train_loss.iloc[-1] < 0.5
    with pytest.raises(UserError, match="nothing says how states of bytes are merged"):
        trained(words_task(), wt.MultiWalk(walks=2))
    several = trained(words_task(merge=longest), wt.MultiWalk(walks=2))
    assert several.history.train_loss.iloc[-1] < 0.5
    assert several.history.consensus.iloc[1:].isna().all()
    for algorithm in ("d2", "fedavg", {"name": "multi_walk", "walks": 2, "compression": "int8"}):
        with pytest.raises(UserError, match=r"merge|compressed"):
            trained(words_task(merge=longest), algorithm)


def test_arrays_are_merged_by_the_persons_function():
    calls = []

    def largest(states, weights):
        calls.append(len(states))
        assert sum(weights) == pytest.approx(1.0)
        return np.max(states, axis=0)

    task = small(lambda state, data: state + 1.0, merge=largest)
    run = trained(task, wt.MultiWalk(walks=3), stop=30)
    assert calls
    assert float(run.row) == round(float(run.row))  # a mean would not be whole


# -- what is kept, and where a task goes ------------------------------------------------------------------------------


def test_the_model_is_saved_and_goes_on(tmp_path):
    state = {"w": np.zeros(1), "t": 0}

    def step(state, data):
        return {"w": state["w"] + 0.25, "t": state["t"] + 1}

    task = wt.tasks.loop(step, state, POINTS, evaluate=lambda state, data: off(state["w"], data))
    run = trained(task, wt.MultiWalk(walks=1), objective="sites")
    run.save(tmp_path / "kept")
    again = trained(task, wt.MultiWalk(walks=1), objective="sites", init=tmp_path / "kept", stop=1)
    assert again.history.train_loss[0] == pytest.approx(run.history.train_loss.iloc[-1])
    saved = run.model.state_dict()
    assert (saved["w"].dtype, saved["t"].dtype) == (torch.float64, torch.int64)
    assert copy.deepcopy(run.model).state["t"] == run.model.state["t"]
    with pytest.raises(UserError, match="init"):
        trained(task, init={"v": torch.zeros(1)})


def test_fresh_states_are_drawn_by_seed():
    def start(seed):
        return np.random.default_rng(seed).normal(size=1)

    task = small(state=start)
    first = [trained(task, seed=seed, stop=1).history.train_loss[0] for seed in (1, 1, 2)]
    assert first[0] == first[1] != first[2]


def test_a_task_is_split_and_ordered_by_nodes():
    parts = dict(zip("abcd", POINTS, strict=True))
    task = small(partitions=parts, test=parts)
    assert np.array_equal(task.ordered(["d", "b", "a", "c"]).loop.data[0], POINTS[3])
    alone = task.only(1)
    assert (alone.nodes, len(alone.loop.data), len(alone.loop.tests)) == (1, 1, 1)
    assert np.array_equal(small(partitions=parts, part="c").loop.data[0], POINTS[2])
    trainer = LoopTrainer(alone, local_steps=2)
    given = TrainingRows(torch.zeros(1, 1), torch.tensor([0]), torch.tensor([5]), torch.tensor([0.1]))
    assert trainer.train(given).rows.shape == (1, 1)


def test_another_task_is_not_taken_for_it(tmp_path):
    trained(small(), out=tmp_path / "study", stop=4)
    with pytest.raises(UserError, match=r"study"):
        trained(small(partitions=[one + 1.0 for one in POINTS]), out=tmp_path / "study", stop=4, resume=True)


def test_other_processes_have_the_same_history(tmp_path, monkeypatch):
    (tmp_path / "lines_of_ours.py").write_text(
        "import numpy as np\nimport walktalk as wt\n"
        "def lines(nodes: int = 4) -> wt.Task:\n"
        "    parts = [np.array([[1.0, 2.0 + k], [0.5, 1.0]]) for k in range(nodes)]\n"
        "    def step(state, data, lr, rng):\n"
        "        x, y = data[rng.integers(len(data))]\n"
        "        return state - lr * (state * x - y) * x\n"
        "    return wt.tasks.loop(step, np.zeros(1), parts,\n"
        "        evaluate=lambda state, data: float(np.mean((state * data[:, 0] - data[:, 1]) ** 2)))\n"
    )
    monkeypatch.chdir(tmp_path)
    found = [
        wt.compare(
            "lines_of_ours:lines",
            ["multi_walk", "fedavg"],
            GRAPH,
            stop=12,
            repetitions=2,
            workers=workers,
            progress=False,
        ).history
        for workers in (1, 2)
    ]
    assert found[0].equals(found[1])


# -- libraries -------------------------------------------------------------------------------------------------------


def test_jax_states_stay_jax_arrays():
    jax = pytest.importorskip("jax", reason="JAX is not installed")

    def step(state, data, lr):
        x, y = jax.numpy.asarray(data[:, 0]), jax.numpy.asarray(data[:, 1])
        loss = lambda state: ((x * state["dense"]["kernel"] - y) ** 2).mean()  # noqa: E731
        assert isinstance(state["dense"]["kernel"], jax.Array)
        return jax.tree.map(lambda one, slope: one - lr * slope, state, jax.grad(loss)(state))

    state = {"dense": {"kernel": jax.numpy.zeros(1)}}
    task = small(step, state, evaluate=lambda state, data: off(np.asarray(state["dense"]["kernel"]), data))
    run = trained(task, stop=60)
    assert run.history.train_loss.iloc[-1] < 0.2
    assert isinstance(run.model.state["dense"]["kernel"], jax.Array)


@pytest.mark.slow  # it reads half of scikit-learn
def test_a_mixture_of_scikit_learn_is_trained():
    from sklearn.mixture import GaussianMixture

    rng = np.random.default_rng(0)
    parts = [np.concatenate([rng.normal(-3 + 0.2 * k, 1, (30, 2)), rng.normal(3, 1, (30, 2))]) for k in range(4)]

    def mixture(state: dict[str, np.ndarray]) -> GaussianMixture:
        model = GaussianMixture(
            2,
            covariance_type="diag",
            max_iter=1,
            init_params="random",
            weights_init=state["weights"] / state["weights"].sum(),
            means_init=state["means"],
            precisions_init=1 / state["covariances"],
        )
        return model

    def step(state, data):
        model = mixture(state).fit(data)
        return {"weights": model.weights_, "means": model.means_, "covariances": model.covariances_}

    def evaluate(state, data) -> float:
        model = mixture(state)
        model.weights_, model.means_, model.covariances_ = (state[name] for name in ("weights", "means", "covariances"))
        model.precisions_cholesky_ = 1 / np.sqrt(state["covariances"])
        return -float(model.score(data))

    start = {"weights": np.full(2, 0.5), "means": np.array([[-1.0, 0.0], [1.0, 0.0]]), "covariances": np.ones((2, 2))}
    task = wt.tasks.loop(step, start, parts, evaluate=evaluate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that one pass is not enough
        run = trained(task, stop=8, objective="sites")
    assert run.history.train_loss.iloc[-1] < run.history.train_loss[0] - 0.5
    assert sorted(run.model.state["means"][:, 0].round()) == [-3.0, 3.0]


@pytest.mark.parametrize("name", ["test_loss", "train_loss", "test_accuracy", "bits"])
def test_what_is_measured_has_no_name_that_another_column_has(name):
    task = small(evaluate=lambda state, data: {"loss": 1.0, "accuracy": 0.9, name: 2.0}, test=POINTS[0])
    with pytest.raises(ModelError, match=f"evaluate gave {name}, which is a column of every history"):
        trained(task)


def test_unusable_answers_of_functions_are_one_line():
    with pytest.raises(DataError, match="samples: 'x' is not possible; allowed: a function that gives a whole number"):
        small(samples=lambda data: "x")
    with pytest.raises(DataError, match="samples: nan is not possible"):
        small(samples=lambda data: float("nan"))
    with pytest.raises(ModelError, match=r"samples: 3 is not possible; allowed: a function samples\(data\)"):
        small(samples=3)
    with pytest.raises(ModelError, match=r"step: <lambda> takes any keyword, .*functools\.wraps"):
        wt.tasks.loop(lambda state, data, **rest: state, {"w": np.ones(2)}, [[1], [2]], evaluate=lambda state, data: {})
    for number in (np.nan, 1e300):
        with pytest.raises(ModelError, match="state: it begins with a number that is not finite, or beyond"):
            wt.tasks.loop(lambda state, data: state, {"w": np.array([number])}, [[1], [2]], evaluate=lambda *_: {})
    with pytest.raises(ModelError, match="merge gave back nothing; it has to return the merged state"):
        trained(small(merge=lambda states, weights: None), wt.MultiWalk(walks=2))
    with pytest.raises(ModelError, match="what step gave back is of type generator; the study's state has w"):
        trained(small(lambda state, data: (yield state), state={"w": np.zeros(1)}, evaluate=lambda state, data: 1.0))
