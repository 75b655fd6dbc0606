"""Low-rank adapters: their gradients, their format, and what they are merged to."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

import walktalk as wt
from walktalk.core.errors import ModelError
from walktalk.learning import Arithmetic, OptimizerSpec, Task, Trainer, TrainingRows
from walktalk.learning.models import LoraLinear
from walktalk.learning.stacked import SharedBaseModel
from walktalk.learning.stacked.choice import gradients_of, lighten, plain_gradient, probe, stack
from walktalk.learning.stacked.shared_base import has_adapters, repeated_blocks

WIDE, WORDS, PLACES = 16, 20, 6


class Block(nn.Module):
    """Attention and a perceptron, with the names that language models have."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDE)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDE, WIDE) for _ in range(4))
        self.up, self.down = nn.Linear(WIDE, 2 * WIDE), nn.Linear(2 * WIDE, WIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v = (f(y).unflatten(-1, (2, -1)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        x = x + self.o_proj(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(functional.silu(self.up(x)))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDE), nn.Linear(WIDE, 3)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if tokens.dim() != 2:  # which torch.fx cannot follow, and which no GPU has to be asked for
            raise ValueError("one text or no text")
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, -1])


@pytest.fixture
def transformer():
    torch.manual_seed(0)
    return Transformer()


def task_of(model: nn.Module, nodes: int = 4) -> Task:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, WORDS, (64, PLACES), generator=generator)
    parts = np.array_split(np.arange(64), nodes)
    return Task("words", model, functional.cross_entropy, tokens, tokens[:, 0] % 3, parts, pretrained=True)


def with_noise(model: nn.Module) -> nn.Module:
    """B is zero at first; not here."""
    for part in model.modules():
        if isinstance(part, LoraLinear):
            nn.init.normal_(part.lora_B.weight, generator=torch.Generator().manual_seed(2))
    return model


@pytest.mark.parametrize(
    "given",
    [{}, {"targets": ["*_proj", "down"], "also": "head"}, {"mixing": "freeze-a"}, {"targets": "up", "alpha": 1}],
)
def test_a_wave_has_the_gradients_of_plain_models(transformer, given):
    model = with_noise(wt.lora(transformer, 3, **given))
    task = task_of(model)
    joined = stack(model, task.loss, task.inputs, task.targets)
    assert isinstance(joined, SharedBaseModel)
    rows = torch.stack([joined.layout.row(model)] * 3) * torch.tensor([[1.0], [1.1], [0.9]])
    x, y = task.inputs[:15].view(3, 5, -1), task.targets[:15].view(3, 5)
    found = joined.layout.gather(gradients_of(joined, rows, x, y), 3)
    expected = torch.stack([plain_gradient(joined, rows[k], x[k], y[k]) for k in range(3)])
    assert float((found - expected).norm()) < 1e-4 * float(expected.norm())


def test_training_starts_at_the_base_and_learns(transformer):
    model = wt.lora(transformer, 4, targets=["q_proj", "v_proj", "up"], also="head")
    task = task_of(model)
    torch.testing.assert_close(model(task.inputs), transformer(task.inputs))
    run = wt.train(
        task,
        wt.AsyncGossip(),
        wt.graphs.complete(4),
        optimizer=wt.Adam(lr=0.02),
        batch_size=16,
        local_steps=2,
        stop=wt.Stop(iterations=60),
        evaluate=60,
    )
    assert len(run.row) == 2 * (2 * 4 * 32 + 4 * 48) + 3 * 17
    assert run.history["train_loss"].iloc[-1] < 0.5 * run.history["train_loss"].iloc[0]
    assert torch.equal(run.model.blocks[0].q_proj.base_layer.weight, transformer.blocks[0].q_proj.weight)


def test_merged_is_the_same_model_with_plain_layers(transformer):
    model = with_noise(wt.lora(transformer, 3))
    whole, tokens = wt.adapters.merged(model), task_of(model).inputs
    assert list(whole.state_dict()) == list(transformer.state_dict())
    torch.testing.assert_close(whole(tokens), model(tokens))
    assert not torch.allclose(whole(tokens), transformer(tokens))


def test_adapters_come_back_from_a_folder(transformer, tmp_path):
    model = with_noise(wt.lora(transformer, 3, alpha=7, also="head"))
    wt.adapters.save_adapter(model, tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["modules_to_save"]) == (3, 7.0, ["head"])
    shapes = {name: list(tensor.shape) for name, tensor in load_file(tmp_path / "adapter_model.safetensors").items()}
    assert shapes["base_model.model.blocks.1.q_proj.lora_A.weight"] == [3, WIDE]
    assert shapes["base_model.model.blocks.1.v_proj.lora_B.weight"] == [WIDE, 3]
    assert shapes["base_model.model.head.weight"] == [3, WIDE]
    assert len(shapes) == 2 * 2 * 2 + 2
    again, tokens = wt.adapters.load_adapter(transformer, tmp_path), task_of(model).inputs
    torch.testing.assert_close(again(tokens), model(tokens))
    assert [n for n, p in again.named_parameters() if p.requires_grad] == [
        n for n, p in model.named_parameters() if p.requires_grad
    ]


@pytest.mark.slow  # importing peft takes several seconds
def test_peft_reads_what_is_written_and_the_other_way_round(transformer, tmp_path):
    peft = pytest.importorskip("peft")
    tokens = task_of(transformer).inputs
    model = with_noise(wt.lora(transformer, 3, alpha=7))
    wt.adapters.save_adapter(model, tmp_path / "ours", base="somewhere")
    theirs = peft.PeftModel.from_pretrained(Transformer(), tmp_path / "ours")
    theirs.base_model.model.load_state_dict(
        {
            k.replace("_proj.", "_proj.base_layer.") if any(n in k for n in ("q_proj", "v_proj")) else k: v
            for k, v in transformer.state_dict().items()
        },
        strict=False,
    )
    torch.testing.assert_close(theirs(tokens), model(tokens))
    config = peft.LoraConfig(
        r=2, lora_alpha=5, target_modules=["up", "o_proj"], modules_to_save=["head"], use_rslora=True
    )
    theirs = peft.get_peft_model(transformer, config)
    for name, parameter in theirs.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    theirs.save_pretrained(tmp_path / "theirs")
    torch.manual_seed(0)
    ours = wt.adapters.load_adapter(Transformer(), tmp_path / "theirs")
    torch.testing.assert_close(ours(tokens), theirs.eval()(tokens))


@pytest.mark.slow
def test_a_peft_model_goes_through_its_base_as_one_batch(transformer):
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(
        transformer, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], lora_dropout=0.1)
    )
    trainer = Trainer(task_of(model), batch_size=4, local_steps=2, optimizer=OptimizerSpec("adam", 0.01))
    assert isinstance(trainer.model, SharedBaseModel)
    assert trainer.width == 2 * 2 * 2 * 2 * WIDE


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"targets": "nothing"}, "no linear layer's name ends in 'nothing'; there are head, q_proj, k_proj"),
        ({"rank": 0}, "adapter.rank: 0 is not possible"),
        (
            {"rank": WIDE + 1},
            rf"adapter.rank: {WIDE + 1} is more than '.*q_proj' has, which goes from {WIDE} to {WIDE}",
        ),
        ({"dropout": 1.0}, "adapter.dropout"),
        ({"mixing": "both"}, "allowed: factors, freeze-a, product"),
        ({"also": "tail"}, "no part is called 'tail'"),
    ],
)
def test_mistakes_are_told(transformer, given, words):
    with pytest.raises(ModelError, match=words.replace("(", r"\(")):
        wt.lora(transformer, **given)


def test_no_adapter_there(transformer, tmp_path):
    with pytest.raises(ModelError, match="no adapters"):
        wt.adapters.save_adapter(transformer, tmp_path)
    with pytest.raises(ModelError, match="holds no adapter of peft"):
        wt.adapters.load_adapter(transformer, tmp_path)


def test_a_base_in_16_bits_is_about_as_exact_as_casts(transformer):
    model = with_noise(wt.lora(transformer, 3))
    task = task_of(model)
    joined = stack(model, task.loss, task.inputs, task.targets)
    assert isinstance(joined, SharedBaseModel)
    joined.arithmetic = Arithmetic("bf16")
    errors = lighten(joined, task.inputs, task.targets)
    assert 1e-4 < errors["16 bits"] < 0.2
    assert joined.base is torch.bfloat16
    assert joined.worker.blocks[0].q_proj.base_layer.weight.dtype == torch.bfloat16
    assert transformer.blocks[0].q_proj.weight.dtype == torch.float32
    joined.hold_base(None)
    assert joined.worker.words.weight.data_ptr() == transformer.words.weight.data_ptr()


def test_only_blocks_that_repeat_are_compiled(transformer):
    task = task_of(wt.lora(transformer, 3))
    joined = stack(task.model, task.loss, task.inputs, task.targets)
    assert isinstance(joined, SharedBaseModel)
    assert [part for part in repeated_blocks(joined.worker) if has_adapters(part)] == list(joined.worker.blocks)
    with_head = wt.lora(transformer, 3, also="blocks.*.norm")
    assert not SharedBaseModel(with_head, task.loss).compile_blocks()


@pytest.mark.gpu
def test_on_a_gpu_a_wave_is_one_graph_through_one_base(transformer):
    task = task_of(with_noise(wt.lora(transformer, 4)), 8)
    trainer = Trainer(task, batch_size=8, device="cuda", arithmetic=Arithmetic("bf16"))
    assert isinstance(trainer.model, SharedBaseModel)
    assert trainer.forms.graphed is not None
    rows, numbers = trainer.initial_row(0).repeat(8, 1), torch.arange(8, device="cuda")
    rates = torch.full((8,), 0.1, device="cuda")
    trained, _ = trainer.train(TrainingRows(rows, numbers, numbers, rates))
    assert trainer.forms.graphed.works
    plain = Trainer(task, batch_size=8)
    expected, _ = plain.train(TrainingRows(rows.cpu(), numbers.cpu(), numbers.cpu(), rates.cpu()))
    change, wanted = (trained - rows).cpu(), expected - rows.cpu()
    assert float((change - wanted).norm()) < 0.1 * float(wanted.norm())


class Wary(Transformer):
    """Looks at numbers, so a GPU has to be waited for, and nothing can be captured."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if int(tokens.min()) < 0:
            raise ValueError("no such word")
        return super().forward(tokens)


@pytest.mark.gpu
def test_on_a_gpu_a_model_that_looks_at_numbers_trains_without_a_graph():
    torch.manual_seed(0)
    trainer = Trainer(task_of(wt.lora(Wary(), 4), 8), batch_size=8, device="cuda", arithmetic=Arithmetic("bf16"))
    rows, numbers = trainer.initial_row(0).repeat(8, 1), torch.arange(8, device="cuda")
    stream = torch.cuda.current_stream()
    with pytest.warns(UserWarning, match="look at numbers"):
        first, _ = trainer.train(TrainingRows(rows, numbers, numbers, torch.full((8,), 0.1, device="cuda")))
    assert torch.cuda.current_stream() == stream
    assert len(torch.randn(2, device="cuda")) == 2  # torch's own numbers can still be drawn
    again, _ = trainer.train(TrainingRows(rows, numbers, numbers, torch.full((8,), 0.1, device="cuda")))
    assert torch.equal(first, again)
    assert not torch.equal(first, rows)


@pytest.mark.gpu
def test_compiled_blocks_have_the_gradients_of_plain_ones(transformer):
    task = task_of(with_noise(wt.lora(transformer, 4)).cuda())
    inputs, targets = task.inputs.cuda(), task.targets.cuda()
    joined = stack(task.model, task.loss, inputs, targets)
    assert isinstance(joined, SharedBaseModel)
    rows, x, y = probe(joined, inputs, targets)
    expected = gradients_of(joined, rows, x, y).clone()
    assert joined.compile_blocks()
    found = gradients_of(joined, rows, x, y)
    assert float((found - expected).norm()) < 1e-3 * float(expected.norm())
