"""The trainer: batches, evaluation, fresh weights, states, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import walktalk as wt
from tests.learning import plain
from walktalk.core.errors import DataError, ModelError, UnavailableError, UserError
from walktalk.learning import EvaluationSamples, OptimizerSpec, Schedule, Task, Trainer, TrainingRows, tasks
from walktalk.learning.evaluation import dimension_of_classes, hits
from walktalk.learning.samples import Sampler
from walktalk.learning.stacked import TracedModel
from walktalk.learning.stacked.choice import gradients_of, plain_gradient, stack
from walktalk.learning.stacked.model import sum_of_losses
from walktalk.learning.training import StackedTraining
from walktalk.transforms.codecs import hashed


def wave(trainer: Trainer, count: int, key: int = 0):
    rows = torch.stack([trainer.initial_row(k) for k in range(count)])
    return rows, torch.arange(count) % trainer.task.nodes, torch.arange(count) + key, torch.full((count,), 0.05)


# -- batches ----------------------------------------------------------------------------------------------------------


def test_draws_are_uniform():
    sampler = Sampler([np.arange(7), np.arange(7, 50)], 100, torch.device("cpu"))
    draws = sampler.batches(torch.tensor([0, 1]), torch.tensor([11, 12]), 500)
    for row, (low, high) in enumerate(((0, 7), (7, 50))):
        counts = torch.bincount(draws[:, row].flatten() - low, minlength=high - low).double()
        expected = counts.sum() / (high - low)
        chi2 = float(((counts - expected) ** 2 / expected).sum())
        freedom = high - low - 1
        assert chi2 < freedom + 5 * (2 * freedom) ** 0.5
        assert int(draws[:, row].min()) >= low
        assert int(draws[:, row].max()) < high


def test_bits_of_neighbouring_keys_and_counters_are_independent():
    bits = hashed(torch.arange(200).view(-1, 1), torch.arange(200).view(1, -1))
    signs = ((bits & 1) * 2 - 1).double()
    for other in (signs[1:], signs[:, 1:]):
        here = signs[: other.shape[0], : other.shape[1]]
        assert abs(float((here * other).mean())) < 5 / other.numel() ** 0.5
    assert int(bits.min()) >= 0
    assert int(bits.max()) < 2**31


def test_batches_do_not_depend_on_the_wave():
    sampler = Sampler([np.arange(9), np.arange(9, 30)], 8, torch.device("cpu"))
    parts, keys = torch.tensor([0, 1, 1, 0, 2]), torch.tensor([5, -6, 2**62, 8, 9])
    together = sampler.batches(parts, keys, 4)
    for k in range(5):
        assert torch.equal(together[:, k : k + 1], sampler.batches(parts[k : k + 1], keys[k : k + 1], 4))
    assert torch.equal(together[:2], sampler.batches(parts, keys, 2))  # nor on how many steps there are


def test_numpy_draws_what_torch_draws():
    sampler = Sampler([np.arange(9), np.arange(9, 30)], 8, torch.device("cpu"))
    parts, keys = torch.tensor([0, 1, 1, 0, 2]), torch.tensor([5, -6, 2**62, 2**63 - 1, -(2**63)])
    draws = hashed(keys.view(1, -1, 1), torch.arange(32).view(4, 1, 8))
    places = sampler.starts[parts].view(1, -1, 1) + draws % sampler.sizes[parts].view(1, -1, 1)
    assert torch.equal(sampler.batches(parts, keys, 4), sampler.samples[places])


def test_the_last_part_is_everybodys_data():
    parts = [np.array([4, 1]), np.array([0, 7, 9])]
    drawn = Sampler(parts, 64, torch.device("cpu")).batches(torch.tensor([2]), torch.tensor([3]), 4)
    assert set(drawn.flatten().tolist()) == {0, 1, 4, 7, 9}


def test_a_node_with_fewer_samples_than_a_batch():
    x, y = plain.images(3, 12), plain.classes(3)
    task = Task("tiny", plain.perceptron(), functional.cross_entropy, x, y, [np.array([0]), np.array([1, 2])])
    trainer = Trainer(task, batch_size=32)
    trained, _ = trainer.train(TrainingRows(*wave(trainer, 2)))
    assert torch.isfinite(trained).all()


# -- fresh weights ----------------------------------------------------------------------------------------------------


def test_initial_weights_depend_on_the_seed_alone_and_leave_torchs_own_alone():
    task = tasks.digits(nodes=3)
    state = torch.get_rng_state()
    first = plain.numbers(task.initial(5))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(77)
    assert torch.equal(plain.numbers(task.initial(5)), first)
    assert not torch.equal(plain.numbers(task.initial(6)), first)
    assert torch.equal(plain.numbers(task.initial(2**63 + 5)), first)  # seeds wrap around, and none is refused


def test_a_pretrained_model_starts_as_it_is():
    module = nn.Linear(4, 3)
    before = plain.numbers(module)
    task = Task(
        "own",
        module,
        functional.cross_entropy,
        plain.images(9, 4),
        plain.classes(9, count=3),
        [np.arange(9)],
        pretrained=True,
    )
    trainer = Trainer(task)
    trainer.train(TrainingRows(*wave(trainer, 2)))
    trainer.evaluate(wave(trainer, 2)[0])
    assert torch.equal(plain.numbers(task.initial(1)), before)
    assert torch.equal(trainer.initial_row(3), before)


def test_batch_norm_starts_afresh_too():
    task = Task(
        "own",
        plain.ConvNet("batch"),
        functional.cross_entropy,
        plain.images(9, 3, 8, 8),
        plain.classes(9),
        [np.arange(9)],
    )
    with torch.no_grad():
        task.model.train()(plain.images(4, 3, 8, 8) + 3)  # somebody has used it
    fresh = task.initial(0)
    assert torch.equal(fresh.block.one.running_mean, torch.zeros(6))


# -- training and measuring -------------------------------------------------------------------------------------------


def test_training_does_not_change_what_it_was_given():
    trainer = Trainer(tasks.digits(nodes=3), optimizer=OptimizerSpec("adam", 0.01))
    rows, parts, keys, lr = wave(trainer, 3)
    state = torch.zeros(3, trainer.state_width)
    before = rows.clone()
    trainer.train(TrainingRows(rows, parts, keys, lr, state))
    assert torch.equal(rows, before)
    assert not state.any()


def test_a_state_that_is_carried_is_a_training_that_goes_on():
    task = Task(
        "own", plain.perceptron(), functional.cross_entropy, plain.images(40, 12), plain.classes(40), [np.arange(40)]
    )
    spec = OptimizerSpec("sgd", 0.05, 0.9, True)
    trainer = Trainer(task, batch_size=8, local_steps=2, optimizer=spec)
    row, part, lr = trainer.initial_row(0)[None], torch.tensor([0]), torch.tensor([0.05])
    first, state = trainer.train(TrainingRows(row, part, torch.tensor([1]), lr, torch.zeros(1, trainer.state_width)))
    second, _ = trainer.train(TrainingRows(first, part, torch.tensor([2]), lr, state))
    one = trainer.module(row[0]).train()
    optimizer = torch.optim.SGD(one.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for key in (1, 2):
        batches = trainer.data.sampler.batches(part, torch.tensor([key]), 2)[:, 0]
        plain.train(one, optimizer, functional.cross_entropy, [(task.inputs[b], task.targets[b]) for b in batches])
    plain.close(second, plain.numbers(one)[None], 1e-5)


def test_evaluation_is_the_loss_over_samples_and_the_share_of_hits():
    task = tasks.digits(nodes=4, alpha=1.0)
    trainer = Trainer(task)
    rows = wave(trainer, 3)[0]
    losses, accuracies = trainer.evaluate(rows)
    for k in range(3):
        model = trainer.module(rows[k])
        with torch.no_grad():
            assert functional.cross_entropy(model(task.inputs), task.targets).item() == pytest.approx(
                float(losses[k]), rel=1e-5
            )
            x, y = task.test
            assert (model(x).argmax(1) == y).float().mean().item() == pytest.approx(float(accuracies[k]), abs=1e-6)


def test_a_model_whose_outputs_are_not_numbers_has_no_accuracy():
    trainer = Trainer(tasks.digits(nodes=4))
    rows = wave(trainer, 3)[0]
    expected = trainer.evaluate(rows)[1]
    rows[1] = math.nan
    losses, accuracies = trainer.evaluate(rows)
    assert losses.isnan().tolist() == accuracies.isnan().tolist() == [False, True, False]
    assert torch.equal(accuracies[::2], expected[::2])


def test_a_class_may_be_ruled_out_by_minus_infinity():
    scores = torch.tensor([[1.0, -math.inf], [-math.inf, -math.inf], [math.inf, 0.0], [math.nan, 0.0]])
    found = hits(scores[None], torch.zeros(4, dtype=torch.int64), 2)[0]
    assert found.isnan().tolist() == [False, True, True, True]
    assert float(found[0]) == 1.0


def test_evaluation_in_pieces_is_evaluation(monkeypatch):
    trainer = Trainer(tasks.digits(nodes=4))
    rows = wave(trainer, 5)[0]
    whole = trainer.evaluate(rows)
    monkeypatch.setattr("walktalk.learning.evaluation.NUMBERS_AT_ONCE", 1)
    for a, b in zip(whole, trainer.evaluate(rows), strict=True):
        assert torch.allclose(a, b, rtol=1e-6)


def test_evaluation_on_some_samples():
    task = tasks.digits(nodes=4)
    trainer = Trainer(task, evaluation=EvaluationSamples(50))
    assert len(trainer.evaluator.sample) == 50
    assert len(set(trainer.evaluator.sample.tolist())) == 50
    rows = wave(trainer, 1)[0]
    with torch.no_grad():
        expected = functional.cross_entropy(
            trainer.module(rows[0])(task.inputs[trainer.evaluator.sample]), task.targets[trainer.evaluator.sample]
        )
    assert float(trainer.evaluate(rows)[0]) == pytest.approx(float(expected), rel=1e-5)
    assert len(Trainer(task, evaluation=EvaluationSamples(10**9)).evaluator.sample) == len(task.inputs)


def test_bytes_on_the_wire():
    trainer = Trainer(tasks.digits(nodes=2), optimizer=OptimizerSpec("adam", 0.01))
    parameters = 64 * 64 + 64 + 64 * 10 + 10
    assert trainer.payload_bytes == 4 * parameters
    assert trainer.state_bytes == 4 * (2 * parameters + 1)
    assert Trainer(tasks.digits(nodes=2), optimizer=OptimizerSpec("sgd", 0.1)).state_bytes == 0


@pytest.mark.parametrize("settings", [{"batch_size": 0}, {"local_steps": 0}, {"batch_size": -3}])
def test_impossible_settings(settings):
    with pytest.raises(ModelError, match=f"training.{next(iter(settings))}"):
        Trainer(tasks.digits(nodes=2), **settings)


def test_a_task_without_nodes_or_with_an_empty_one():
    x, y = plain.images(3, 12), plain.classes(3)
    for parts, words in (([], "no node"), ([np.arange(3), np.array([], int)], "node 1 has no samples")):
        with pytest.raises(DataError, match=words):
            Task("own", plain.perceptron(), functional.cross_entropy, x, y, parts)
    with pytest.raises(DataError, match="3 inputs but 2 targets"):
        Task("own", plain.perceptron(), functional.cross_entropy, x, y[:2], [np.arange(2)])


# -- the rate over a run ----------------------------------------------------------------------------------------------


def test_schedule_of_the_paper():
    schedule = Schedule(warmup=0.1, decay_at=(0.75, 0.9), factor=0.1)
    assert schedule.factor_at(0.05) == pytest.approx(0.5)
    assert schedule.factor_at(0.1) == 1.0
    assert schedule.factor_at(0.7499) == 1.0
    assert schedule.factor_at(0.75) == pytest.approx(0.1)
    assert schedule.factor_at(0.9) == pytest.approx(0.01)
    assert schedule.factor_at(1.0) == pytest.approx(0.01)
    assert 0 < schedule.factor_at(0.0) <= 0.01  # a rate of exactly 0 would waste the first training


def test_schedule_rises_then_falls():
    schedule = Schedule(0.2, (0.5,), 0.5)
    factors = [schedule.factor_at(k / 1000) for k in range(1001)]
    top = factors.index(max(factors))
    assert factors[: top + 1] == sorted(factors[: top + 1])
    assert factors[top:] == sorted(factors[top:], reverse=True)
    assert Schedule().factor_at(0.3) == 1.0


@pytest.mark.parametrize(
    "settings",
    [
        {"warmup": -0.1},
        {"warmup": 1.0},
        {"decay_at": (0.9, 0.75)},
        {"decay_at": (0.0,)},
        {"decay_at": (1.0,)},
        {"decay_at": (0.5, 0.5)},
        {"factor": 0.0},
        {"factor": 1.5},
    ],
)
def test_impossible_schedules(settings):
    with pytest.raises(ModelError, match=f"schedule.{next(iter(settings))}"):
        Schedule(**settings)


# -- waves that fit ---------------------------------------------------------------------------------------------------


@pytest.fixture
def stacked_on_a_cpu(monkeypatch):
    """A convolutional model in waves, as a GPU has it: on a CPU it would be trained alone."""
    monkeypatch.setattr("walktalk.learning.stacked.choice.is_better_alone", lambda module: False)
    monkeypatch.setattr("walktalk.learning.trainer.BYTES_IN_CACHE", 2**40)


@pytest.mark.usefixtures("stacked_on_a_cpu")
def test_a_wave_that_does_not_fit_is_trained_in_pieces(monkeypatch):
    x, y = plain.images(20, 3, 8, 8), plain.classes(20)
    task = Task("own", plain.ConvNet("batch"), functional.cross_entropy, x, y, [np.arange(20)])
    spec = OptimizerSpec("sgd", 0.05, 0.9)
    whole = Trainer(task, batch_size=8, local_steps=2, optimizer=spec)
    assert whole.rows_at_once is not None
    assert whole.rows_at_once > 100
    monkeypatch.setattr("walktalk.learning.arithmetic.CPU_BYTES", 2**31 // whole.rows_at_once * 2)
    pieces = Trainer(task, batch_size=8, local_steps=2, optimizer=spec)
    assert pieces.rows_at_once in (1, 2)
    rows, parts, keys, lr = wave(whole, 5)
    state = torch.zeros(5, whole.state_width)
    for given in (None, state):
        for a, b in zip(
            whole.train(TrainingRows(rows, parts, keys, lr, given)),
            pieces.train(TrainingRows(rows, parts, keys, lr, given)),
            strict=True,
        ):
            if a is not None:
                plain.close(b, a, 1e-5)


@pytest.mark.usefixtures("stacked_on_a_cpu")
@pytest.mark.parametrize("words", ["CUDA out of memory. Tried to allocate", "[enforce fail] can't allocate memory"])
def test_a_wave_that_does_not_fit_after_all_is_halved_and_goes_on(words, monkeypatch):
    trainer = Trainer(normalized_task(), batch_size=8, local_steps=2, optimizer=OptimizerSpec("sgd", 0.05, 0.9))
    rows, parts, keys, lr = wave(trainer, 9)
    state = torch.zeros(9, trainer.state_width)
    expected, measured = trainer.train(TrainingRows(rows, parts * 0, keys, lr, state)), trainer.evaluate(rows)
    train, mean, widths = trainer.forms.stacked.__call__, trainer.evaluator._with_twin, []

    def with_little_memory(work):
        def limited(given, *rest):
            widths.append(len(given.rows if isinstance(given, TrainingRows) else given))
            if widths[-1] > 3:
                raise (torch.OutOfMemoryError if "CUDA" in words else RuntimeError)(words)
            return work(given, *rest)

        return limited

    monkeypatch.setattr(trainer.forms, "stacked", with_little_memory(train))
    monkeypatch.setattr(trainer.forms.same_bits, "stacked", with_little_memory(train))
    monkeypatch.setattr(trainer.evaluator, "_with_twin", with_little_memory(mean))
    for a, b in zip(expected, trainer.train(TrainingRows(rows, parts * 0, keys, lr, state)), strict=True):
        plain.close(b, a, 1e-6)
    assert widths == [9, 5, 3, 3, 3]
    trainer.train(TrainingRows(rows, parts * 0, keys, lr))
    assert widths[5:] == [3, 3, 3]  # it remembers
    for a, b in zip(measured, trainer.evaluate(rows), strict=True):
        assert torch.allclose(a, b, rtol=1e-6)


@pytest.mark.usefixtures("stacked_on_a_cpu")
def test_one_model_that_does_not_fit_ends_in_one_line(monkeypatch):
    trainer = Trainer(normalized_task(), batch_size=8)

    def never(*given):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(StackedTraining, "__call__", never)
    monkeypatch.setattr(trainer.forms.same_bits, "single", None)
    with pytest.raises(UnavailableError, match=r"not even one model fits .* smaller batch_size"):
        trainer.train(TrainingRows(*wave(trainer, 4)))


@pytest.mark.usefixtures("stacked_on_a_cpu")
def test_other_errors_of_torch_are_not_taken_for_a_lack_of_memory(monkeypatch):
    trainer = Trainer(normalized_task(), batch_size=8)

    def fails(*given):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(StackedTraining, "__call__", fails)
    with pytest.raises(RuntimeError, match="shapes"):
        trainer.train(TrainingRows(*wave(trainer, 4)))


def test_memory_of_a_wave_is_counted():
    """Two hidden layers of 100: their inputs and outputs, for 8 samples, and little else."""
    from walktalk.learning.stacked import TracedModel

    module = nn.Sequential(nn.Linear(50, 100), nn.Tanh(), nn.Linear(100, 5))
    model = TracedModel(module, functional.mse_loss)
    found = model.activation_bytes(model.layout.row(module), torch.randn(8, 50), torch.randn(8, 5))
    weights = 4 * sum(p.numel() for p in module.parameters())
    activations = 4 * 8 * (50 + 100 + 5 + 5)
    assert activations <= found <= activations + 2 * weights


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("width", [1, 3, 17, 130])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_graphs_give_what_eager_training_gives(width, name):
    from walktalk.learning import Arithmetic

    spec = OptimizerSpec(name, 0.01)
    made = [
        Trainer(tasks.digits(nodes=4), optimizer=spec, device="cuda", arithmetic=Arithmetic(graphs=graphs))
        for graphs in (False, True)
    ]
    rows = torch.stack([made[0].initial_row(k) for k in range(width)])
    parts, keys = torch.arange(width, device="cuda") % 4, torch.arange(width, device="cuda")
    lr, state = torch.full((width,), 0.01, device="cuda"), torch.zeros(width, made[0].state_width, device="cuda")
    for given in (None, state):
        for _ in range(2):  # captured, then replayed
            eager, graphed = (trainer.train(TrainingRows(rows, parts, keys, lr, given)) for trainer in made)
            assert made[1].forms.graphed is not None
            assert made[1].forms.graphed.works
            # A wave of 130 comes in pieces, whose products are summed in another order; and the first steps of Adam
            # are little more than the sign of the gradient, which for a tiny one is a matter of that order.
            tolerance = 1e-2 if name == "adam" else 1e-5
            assert float((eager[0] - graphed[0]).norm()) <= tolerance * float((eager[0] - rows).norm())
            if given is not None:
                assert float((eager[1] - graphed[1]).norm()) <= tolerance * float(eager[1].norm())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_a_large_model_is_graphed_row_by_row(monkeypatch, name):
    from walktalk.learning import Arithmetic
    from walktalk.learning.stacked import SequentialModel, choice

    monkeypatch.setattr(choice, "STACKED_UP_TO", 0)  # as if it were large
    spec = OptimizerSpec(name, 0.01, weight_decay=0.01)
    made = [
        Trainer(tasks.digits(nodes=4), optimizer=spec, device="cuda", arithmetic=Arithmetic(graphs=graphs))
        for graphs in (False, True)
    ]
    assert all(isinstance(trainer.model, SequentialModel) and not trainer.model.draws for trainer in made)
    rows = torch.stack([made[0].initial_row(k) for k in range(3)])
    given = torch.arange(3, device="cuda"), torch.arange(3, device="cuda"), torch.full((3,), 0.01, device="cuda")
    states = torch.zeros(3, made[0].state_width, device="cuda")
    for state in (None, states if made[0].state_width else None):
        results = [trainer.train(TrainingRows(rows, *given, state)) for trainer in made]
        wave = made[0].forms.stacked(TrainingRows(rows, *given, state))  # the general way, any number of rows
        for found in results:
            assert float((found[0] - wave[0]).norm()) <= 1e-3 * float((wave[0] - rows).norm())
            assert (found[1] is None) == (state is None)
            if found[1] is not None:
                assert float((found[1] - wave[1]).norm()) <= 1e-4 * float(wave[1].norm())
    alone = [trainer.forms.by_row for trainer in made]
    assert alone[0] is not None
    assert alone[1] is not None
    assert alone[0].graph is None
    assert alone[1].graph is not None


# -- normalization buffers --------------------------------------------------------------------------------------------


def normalized_task() -> Task:
    x, y = plain.images(60, 3, 8, 8) * 2 + 1, plain.classes(60)
    return Task("own", plain.ConvNet("batch"), functional.cross_entropy, x, y, [np.arange(60)], (x, y))


def test_buffers_travel_or_belong_to_the_batch():
    travel, batch = (Trainer(normalized_task(), batch_size=8, local_steps=3, buffers=b) for b in ("travel", "batch"))
    statistics = 2 * (6 + 6)
    assert travel.payload_bytes == batch.payload_bytes + 4 * statistics
    rows = torch.stack([batch.initial_row(k) for k in (0, 1)])
    fresh = torch.tensor([0.0] * 6 + [1.0] * 6 + [0.0] * 6 + [1.0] * 6).expand(2, -1)
    given = (torch.zeros(2, dtype=torch.int64), torch.tensor([1, 2]), torch.full((2,), 0.05))
    without, _ = batch.train(TrainingRows(rows, *given))
    with_, _ = travel.train(TrainingRows(torch.cat((rows, fresh), 1), *given))
    plain.close(without, with_[:, : batch.width], 1e-6)  # training is the same: it uses the batch either way


def test_buffers_of_a_run_in_python():
    data = [(part.inputs, part.targets) for part in [normalized_task()] * 2]
    task = wt.tasks.torch(plain.ConvNet("batch"), functional.cross_entropy, data)
    travel, batch = (
        wt.train(
            task, wt.MultiWalk(walks=1), wt.graphs.complete(2), stop=wt.Stop(iterations=4), device="cpu", buffers=b
        )
        for b in ("travel", "batch")
    )
    assert len(travel.row) == len(batch.row) + 2 * (6 + 6)
    with pytest.raises(UserError, match=r"training\.buffers: .none. is not possible; allowed: travel, batch"):
        wt.train(task, wt.MultiWalk(walks=1), wt.graphs.complete(2), device="cpu", buffers="none")


@pytest.mark.parametrize("limit", [2**24, 1], ids=["stacked", "one by one"])
def test_without_buffers_a_batch_is_measured_by_its_own_statistics(limit, monkeypatch):
    monkeypatch.setattr("walktalk.learning.stacked.choice.STACKED_UP_TO", limit)
    task = normalized_task()
    trainer = Trainer(task, batch_size=8, buffers="batch")
    row = trainer.initial_row(0)
    one = trainer.module(row)
    with torch.no_grad():
        expected = functional.cross_entropy(one.train()(task.inputs), task.targets)
        assert float(trainer.evaluate(row[None])[0]) == pytest.approx(float(expected), rel=1e-4)
        ready = trainer.module(row)  # and the module has statistics of its own to be used with
        assert not ready.training
        assert torch.allclose(ready(task.inputs), one.train()(task.inputs), atol=0.05)
        assert ready.block.one.momentum == 0.1


def test_an_unknown_way_with_buffers():
    with pytest.raises(ModelError, match=r"training.buffers: 'node' is unknown; allowed: travel, batch"):
        Trainer(tasks.digits(nodes=2), buffers="node")


class Masked(nn.Module):
    """A linear model of scores, some of which a mask forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.norm = nn.Linear(12, 10), nn.BatchNorm1d(12)
        self.register_buffer("mask", torch.tensor([0.0] * 9 + [-math.inf]))

    def forward(self, x):
        return self.out(self.norm(x)) + self.mask


def test_a_mask_with_infinities_stays_at_home():
    model = Masked()
    x, y = plain.images(40, 12), plain.classes(40, count=9)
    task = Task("own", model, functional.cross_entropy, x, y, [np.arange(40)])
    trainer = Trainer(task, batch_size=8)
    assert trainer.width == 12 * 10 + 10 + 4 * 12  # the statistics travel, the mask does not
    rows, parts, keys, lr = wave(trainer, 3)
    trained, _ = trainer.train(TrainingRows(rows, parts * 0, keys, lr))
    mixed = trained.mean(0)
    assert torch.isfinite(mixed).all()
    module = trainer.module(mixed)
    assert set(module.state_dict()) == set(model.state_dict())  # and is there again in the model that comes out
    assert torch.equal(module.mask, model.mask)


def test_the_persons_own_model_is_left_as_it_was():
    model = Masked()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x, y = plain.images(40, 12), plain.classes(40, count=9)
    task = Task("own", model, functional.cross_entropy, x, y, [np.arange(40)])
    trainer = Trainer(task, batch_size=8)
    trainer.train(TrainingRows(*wave(trainer, 2)))
    trainer.evaluate(trainer.initial_row(0)[None])
    assert trainer.template is not model
    assert model.training
    assert {name: tensor.tolist() for name, tensor in model.state_dict().items()} == {
        name: tensor.tolist() for name, tensor in before.items()
    }


# -- which answers are right ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outputs", "targets", "by_cross_entropy", "dimension"),
    [
        ((10,), (), True, 2),  # one answer a sample
        ((10,), (), False, 2),
        ((4, 6, 7), (6, 7), True, 2),  # a class for every pixel
        ((6, 4), (6,), False, 3),  # a word for every place, in a language model
        ((6, 6), (6,), True, 2),  # both would fit
        ((6, 6), (6,), False, 3),
        ((), (), True, None),  # a single score
        ((6,), (6,), False, None),  # as many scores as targets: nothing to choose from
    ],
)
def test_where_the_classes_are(outputs, targets, by_cross_entropy, dimension):
    found = dimension_of_classes(torch.zeros(3, 5, *outputs), torch.zeros(5, *targets), by_cross_entropy)
    assert found == dimension


def test_accuracy_of_a_class_for_every_pixel():
    torch.manual_seed(0)
    x, y = plain.images(20, 3, 4, 4), torch.randint(0, 5, (20, 4, 4))
    task = Task("own", nn.Conv2d(3, 5, 1), functional.cross_entropy, x, y, [np.arange(20)], (x, y))
    trainer = Trainer(task, batch_size=4)
    row = trainer.initial_row(0)
    with torch.no_grad():
        expected = (trainer.module(row)(x).argmax(1) == y).float().mean()
    assert float(trainer.evaluate(row[None])[1]) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("own_loss", [True, False])
def test_a_row_has_the_same_bits_alone_and_in_any_wave(own_loss):
    """A slow machine cuts a run into other waves than a fast one: the records must not show it."""
    generator = torch.Generator().manual_seed(0)
    parts = [(torch.randn(40, 4, generator=generator), torch.randn(40, generator=generator)) for _ in range(3)]

    def squares(outputs, targets):
        return ((outputs[..., 0] - targets) ** 2).mean()

    def squashed(outputs, targets):
        return (torch.tanh(outputs[..., 0]) - targets).abs().mean()

    task = wt.tasks.torch(torch.nn.Linear(4, 1), squares if own_loss else squashed, parts)
    trainer = Trainer(task, optimizer=OptimizerSpec(lr=0.02, momentum=0.9, nesterov=True))
    row = trainer.initial_row(0)
    rows, keys, rates = torch.stack([row, row + 0.1, row - 0.1]), torch.tensor([5, 6, 7]), torch.full((3,), 0.02)
    together, _ = trainer.train(TrainingRows(rows, torch.tensor([0, 1, 2]), keys, rates))
    for k in range(3):
        alone, _ = trainer.train(TrainingRows(rows[k : k + 1], torch.tensor([k]), keys[k : k + 1], rates[k : k + 1]))
        assert torch.equal(alone[0], together[k])


CLASSES = torch.randint(0, 3, (5, 7, 4), generator=torch.Generator().manual_seed(1))
NUMBERS = torch.rand(5, 7, 3, 4, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        *((loss, NUMBERS) for loss in (functional.mse_loss, torch.nn.SmoothL1Loss())),
        (torch.nn.CrossEntropyLoss(label_smoothing=0.1), CLASSES),
        (functional.cross_entropy, NUMBERS.softmax(2)),
        (torch.nn.CrossEntropyLoss(), torch.where(CLASSES == 2, -100, CLASSES)),  # what does not count
        pytest.param(
            functional.mse_loss, NUMBERS[:, :, :1], marks=pytest.mark.filterwarnings("ignore:Using a target size")
        ),
    ],
)
def test_the_gradient_of_a_loss_has_the_same_bits_in_any_wave_and_is_the_losss_own(loss, targets):
    outputs = torch.randn(5, 7, 3, 4, generator=torch.Generator().manual_seed(3))
    for rows in range(1, 6):
        given = outputs[:rows].clone().requires_grad_()
        found = torch.autograd.grad(sum_of_losses(loss, given, targets[:rows]), given)[0]
        for row in range(rows):
            own = outputs[row].clone().requires_grad_()
            single = torch.autograd.grad(sum_of_losses(loss, own[None], targets[row : row + 1]), own)[0]
            assert torch.equal(found[row], single)
            torch.testing.assert_close(single, torch.autograd.grad(loss(own, targets[row]), own)[0])


@pytest.mark.parametrize(("limit", "widths"), [(1, [1, 1, 1, 1]), (2**30, [4])])
def test_where_every_wave_is_of_one_row_nothing_is_computed_twice(limit, widths, monkeypatch):
    """What is twice as wide as it needs to be, so that a row has the bits of a wave, needs waves to be like."""
    monkeypatch.setattr("walktalk.learning.trainer.BYTES_IN_CACHE", limit)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)  # with dropout: no plain layers for a row alone
    x, y = torch.randn(24, 4, 8), torch.arange(24) % 3
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(32, 3))
    task = Task("own", model, functional.cross_entropy, x, y, [np.arange(24)])
    trainer, seen = Trainer(task, batch_size=4, local_steps=1), []
    train = StackedTraining.__call__

    def counted(self, given):
        seen.append(len(given.rows))
        return train(self, given)

    monkeypatch.setattr(StackedTraining, "__call__", counted)
    trainer.train(TrainingRows(*wave(trainer, 4)))
    assert seen == widths


def test_a_gru_and_a_transformer_alone_have_the_gradients_of_plain_ones():
    """Of one row the products are written otherwise than of a wave."""
    torch.manual_seed(0)
    words = torch.randint(0, 9, (8, 5))
    for name in ("gru", "text"):
        inner = nn.GRU(6, 6, batch_first=True) if name == "gru" else nn.TransformerEncoderLayer(6, 2, 8, 0.0)
        model = Words(inner)
        stacked = stack(model, functional.cross_entropy, words, words[:, 0] % 3)
        assert isinstance(stacked, TracedModel)
        rows = stacked.layout.row(model)[None]
        found = gradients_of(stacked, rows, words[None], words[None, :, 0] % 3)
        expected = plain_gradient(stacked, rows[0], words, words[:, 0] % 3)
        assert float((found - expected).norm()) < 1e-4 * float(expected.norm())


class Words(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.words, self.inner, self.head = nn.Embedding(9, 6), inner, nn.Linear(6, 3)

    def forward(self, tokens):
        out = self.inner(self.words(tokens))
        return self.head((out[0] if isinstance(self.inner, nn.GRU) else out).mean(1))
