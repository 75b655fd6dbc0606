"""Options of a training that people expect: clipping, a cosine, an early end; in Python and in a specification."""

from __future__ import annotations

import functools
import math
import warnings

import pytest
import torch
from torch import nn

import walktalk as wt
from walktalk.core.errors import UserError
from walktalk.learning.optimizers import Clipped, OptimizerSpec, Spread, row_optimizer, to_rows, to_vector
from walktalk.studies import dump_spec, make_spec, run_study

CYCLE = wt.graphs.cycle(3)


def line(noise: float = 0.0, nodes: int = 3) -> wt.Task:
    """A straight line through points."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, 40, 4, generator=generator)
    y = x @ torch.tensor([1.0, -2.0, 0.5, 3.0]) + noise * torch.randn(nodes, 40, generator=generator)
    model = nn.Linear(4, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    parts = [(x[k], y[k]) for k in range(nodes)]
    return wt.tasks.torch(model, lambda o, t: ((o[..., 0] - t) ** 2).mean(), parts, test=parts[0], name="line")


def trained(task=None, **given):
    usual = {"stop": 60, "evaluate": 10, "device": "cpu", "optimizer": wt.SGD(lr=0.02)}
    return wt.train(task or line(), given.pop("protocol", wt.MultiWalk(walks=2)), CYCLE, **{**usual, **given})


@pytest.mark.parametrize("name", ["sgd", "adam", "rmsprop"])
def test_clipping_is_torchs(name):
    """Every row as torch.nn.utils.clip_grad_norm_ and the optimizer of torch.optim would have it."""
    sizes = (6, 3)
    generator = torch.Generator().manual_seed(1)
    rows, gradients = torch.randn(2, 9, generator=generator), torch.randn(2, 9, generator=generator)
    gradients[1] *= 0.01  # shorter than the norm: it stays
    ours = Clipped(row_optimizer(OptimizerSpec(name=name, lr=0.1)), 0.5)
    spread = Spread(2, sizes)
    wave = ours.begin(torch.tensor([0.1, 0.1]), None, spread)
    weights = to_vector(rows, spread)
    wave.step(weights, to_vector(gradients, spread))
    alone = rows[0].clone()
    state = torch.zeros(ours.state_width(9))
    ours.step_alone(alone, gradients[0].clone(), state, 0.1)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[name]
    for row, gradient, found in zip(rows, gradients, to_rows(weights, spread), strict=True):
        parameters = [nn.Parameter(part.clone()) for part in row.split(sizes)]
        for parameter, part in zip(parameters, gradient.split(sizes), strict=True):
            parameter.grad = part.clone()
        norm = nn.utils.clip_grad_norm_(parameters, 0.5)
        assert (norm > 0.5) == bool(gradient.norm() > 0.5)
        kind(parameters, lr=0.1).step()
        torch.testing.assert_close(found, torch.cat([p.detach() for p in parameters]))
    torch.testing.assert_close(alone, to_rows(weights, spread)[0])


def test_no_step_is_longer_than_the_clipped_gradient():
    """Plain SGD moves by at most rate · norm in a step, whatever the gradient."""
    rate, norm, steps = 0.5, 0.01, 5
    run = trained(optimizer=wt.SGD(lr=rate, momentum=0.0), clip_norm=norm, local_steps=steps, stop=1, evaluate=1)
    start = run.trainer.initial_row(0)  # the module's own weights
    moved = float((run.row - start).norm())
    assert 0 < moved <= rate * norm * steps * (1 + 1e-5)


def test_clipping_is_in_the_specification_and_refused_where_it_makes_no_sense():
    spec = make_spec({"training": {"clip_norm": 1.0}})
    assert spec.training.clip_norm == 1.0
    assert "clip_norm" not in dump_spec(make_spec({}))  # so that a study of before is still the same text
    with pytest.raises(UserError, match=r"training\.clip_norm: -1 .*allowed: a number above 0"):
        trained(clip_norm=-1)


def test_a_cosine_from_the_full_rate_to_what_is_left():
    schedule = wt.Schedule(warmup=0.2, cosine_to=0.1)
    assert schedule.factor_at(0.1) == pytest.approx(0.5)
    assert schedule.factor_at(0.2) == pytest.approx(1.0)
    assert schedule.factor_at(0.6) == pytest.approx(0.55)
    assert schedule.factor_at(1.0) == pytest.approx(0.1)
    factors = [wt.Schedule(cosine_to=0.0).factor_at(k / 50) for k in range(51)]
    assert factors == pytest.approx([(1 + math.cos(math.pi * k / 50)) / 2 for k in range(51)])
    with pytest.raises(UserError, match="exclude each other"):
        wt.Schedule(decay_at=(0.5,), cosine_to=0.0)
    with pytest.raises(UserError, match=r"schedule\.cosine_to: .*exclude each other"):
        make_spec({"schedule": {"decay_at": [0.5], "cosine_to": 0.0}})


def test_cosine_by_its_name_is_the_one_of_the_specification():
    by_name, by_object = trained(schedule="cosine"), trained(schedule=wt.Schedule(cosine_to=0.0))
    assert list(by_name.history["train_loss"]) == list(by_object.history["train_loss"])
    assert list(by_name.history["train_loss"]) != list(trained().history["train_loss"])
    with pytest.raises(UserError, match=r"schedule: 'linear' is not possible; allowed: 'cosine', wt\.Schedule"):
        trained(schedule="linear")


def test_patience_ends_a_run_that_learns_no_more():
    """With rate almost 0 nothing is ever learned: two evaluations in a row are not lower than the first."""
    still = trained(optimizer=wt.SGD(lr=1e-12, momentum=0.0), stop=wt.Stop(iterations=500, patience=3))
    assert list(still.history["iteration"]) == [0, 10, 20, 30]
    learning = trained(stop=wt.Stop(iterations=60, patience=3))
    assert learning.history["iteration"].iloc[-1] == 60


def test_the_model_of_an_early_end_is_the_one_that_was_measured():
    """A run that ends at an accuracy has the history, the trace and the model of that moment, whatever was planned."""
    task = wt.tasks.digits(nodes=4)
    given = {"stop": wt.Stop(iterations=400, target_accuracy=0.5), "evaluate": 20, "device": "cpu"}
    run = wt.train(task, wt.AsyncGossip(), wt.graphs.cycle(4), **given)
    accuracies = list(run.history["test_accuracy"])
    assert accuracies[-1] >= 0.5 > max(accuracies[:-1])
    last = int(run.history["iteration"].iloc[-1])
    assert last < 400
    assert float(run.trainer.evaluate(run.row[None])[1]) == pytest.approx(accuracies[-1])
    assert (run.trace["event"] == "trained").sum() == last
    same = wt.train(task, wt.AsyncGossip(), wt.graphs.cycle(4), stop=400, evaluate=20, device="cpu").history
    assert list(run.history["train_loss"]) == list(same["train_loss"])[: len(run.history)]


def test_early_ends_are_refused_where_nobody_can_see_them(tmp_path):
    pytest.importorskip("zenoh")
    for name, value in (("patience", 2), ("target_accuracy", 0.5)):
        stop = wt.Stop(iterations=10, **{name: value})
        with pytest.raises(UserError, match=rf"stop\.{name}: is for the simulator"):
            wt.compare("digits", "async_gossip", "cycle", stop=stop, engine="peers", out=tmp_path / "x")
    with pytest.raises(UserError, match="patience: may never be reached"):
        make_spec({"stop": {"patience": 3}})


def test_an_early_end_is_the_same_after_an_interruption(tmp_path):
    spec = make_spec(
        {
            "task": {"name": "digits"},
            "network": {"topology": "cycle", "nodes": 4},
            "algorithms": [{"name": "async_gossip"}],
            "stop": {"iterations": 200, "patience": 2},
            "evaluate": {"every": 10},
            "optimizer": {"name": "sgd", "lr": 1e-12},
        }
    )
    whole = run_study(spec, tmp_path / "study", device="cpu")
    again = run_study(spec, tmp_path / "study", device="cpu", resume=True)
    assert list(whole.history["iteration"]) == list(again.history["iteration"]) == [0, 10, 20]


OPTIMIZERS = [
    ("adam", wt.Adam(lr=1e-3)),
    (torch.optim.Adam, wt.Adam(lr=1e-3)),
    (functools.partial(torch.optim.SGD, lr=0.02, momentum=0.9, nesterov=True), wt.SGD(lr=0.02)),
    (torch.optim.SGD, wt.SGD(lr=1e-3, momentum=0.0)),
    ({"name": "sgd", "lr": 0.02}, wt.SGD(lr=0.02)),
]


@pytest.mark.parametrize(("given", "same"), OPTIMIZERS, ids=lambda one: str(one)[:30])
def test_an_optimizer_by_name_by_class_or_by_partial(given, same):
    assert list(trained(optimizer=given).history["train_loss"]) == list(trained(optimizer=same).history["train_loss"])


def test_further_settings_of_torch_go_into_the_specification():
    amsgrad = functools.partial(torch.optim.Adam, lr=0.01, amsgrad=True)
    run = trained(optimizer=amsgrad)
    assert run.base.spec.optimizer.build().extra == {"amsgrad": True}
    assert list(run.history["train_loss"]) != list(trained(optimizer=wt.Adam(lr=0.01)).history["train_loss"])
    with pytest.raises(UserError, match=r"optimizer\.amsgard: is an unknown key; .*did you mean 'amsgrad'"):
        make_spec({"optimizer": {"name": "adam", "amsgard": True}})


WRONG = {
    "batch_size": (0, r"training\.batch_size: 0 is not possible; allowed: a whole number from 1"),
    "local_steps": ("five", r"training\.local_steps: 'five' is not possible; allowed: a whole number"),
    "optimizer_state": ("nodes", r"training\.optimizer_state: 'nodes' .* did you mean 'node'"),
    "precision": ("fp16", r"training\.precision: 'fp16' is not possible; allowed: fp32, tf32, bf16"),
    "optimizer": (3, r"optimizer: 3 is not possible; allowed: wt\.SGD\(\)"),
    "stop": ("soon", r"stop: 'soon' is not possible; allowed: a number of iterations, or wt\.Stop"),
    "evaluate": (-5, r"evaluate\.every: -5 is not possible; allowed: a whole number"),
    "timing": (1.0, r"timing: 1\.0 is not possible; allowed: wt\.PoissonTiming"),
    "faults": ("kill", r"faults: 'kill' is not possible; allowed: a list of wt\.Fault"),
    "seed": (-1, r"seed: -1 is not possible; allowed: a whole number from 0"),
    "engine": ("ray", r"engine: 'ray' is not possible; allowed: sim, peers"),
    "device": ("tpu", r"device: 'tpu' is not possible; allowed: auto, cpu, cuda"),
    "callbacks": ([3], r"callbacks: 3 is not possible; allowed: wt\.Callback objects"),
    "resume": (True, r"resume and overwrite are about a folder; say which with out="),
    "init": (3, r"init: a safetensors file, a state dict or a module is needed, not int"),
    "protocol": (wt.MultiWalk, r"algorithms\.0: .*allowed: an object, as in MultiWalk\(\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_line_that_says_what_is_allowed(name):
    value, words = WRONG[name]
    with pytest.raises(UserError, match=words) as told:
        trained(**{name: value})
    assert "\n" not in str(told.value)


def test_wrong_things_in_the_first_three_places():
    with pytest.raises(UserError, match=r"task: int is not possible; allowed: a task such as wt\.tasks\.torch"):
        wt.train(3, wt.AsyncGossip(), CYCLE)
    with pytest.raises(UserError, match="a walktalk or networkx graph is needed, not list"):
        wt.train(line(), wt.AsyncGossip(), [(0, 1)])
    with pytest.raises(UserError, match=r"wt\.compare takes a list"):
        wt.train(line(), [wt.AsyncGossip()], CYCLE)
    with pytest.raises(UserError, match=r"call it, as in wt\.graphs\.cycle"):
        wt.train(line(), wt.AsyncGossip(), wt.graphs.cycle)


def test_faults_happen():
    run = trained(protocol=wt.AsyncGossip(), faults=[wt.Fault("kill", at=2.0, node=1)], stop=90)
    assert "killed" in set(run.trace["event"]) or "kill" in set(run.trace["event"])
    assert run.trace.query("event == 'trained' and node == 1 and time > 2.0").empty


def test_a_run_that_diverges_says_when_and_where_it_began():
    with pytest.warns(
        UserWarning,
        match=r"multi_walk-2, repetition 0, iteration \d+: the loss is not a number; it began "
        r"with a training at node [012]; a smaller optimizer\.lr",
    ):
        trained(optimizer=wt.SGD(lr=1e6))
    with pytest.warns(UserWarning, match=r"the loss is [\d.e+]+, \d+ times what it was at the start"):
        trained(optimizer=wt.SGD(lr=1.1, momentum=0.0), stop=20, evaluate=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(stop=200)
