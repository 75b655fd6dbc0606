"""How fast adapters train through one frozen base: all nodes' batches as one, beside one adapter after another.

    python benchmarks/adapters.py --out out/adapters.json

The base is a Llama of random weights in the shape of SmolLM2-135M (`--config FILE`, a `config.json` of transformers,
takes another): nothing has to be there but torch and transformers. On a CPU take a small one: `--layers 2 --hidden 64
--device cpu --width 4`. Ways, each timed after its gradients were compared with those in full precision:

- `loop`: one adapter after another, each through the base by itself, as a plain PyTorch loop does it;
- `alone`: the same as one CUDA graph of one adapter (GPU only);
- `joined`: all at once, casts to 16 bits before every product;
- `base16`: the base held in 16 bits;
- `compiled`: and its blocks compiled, once for all of them;
- `attention`: and attention by a kernel of our own.

Every number is printed and written as soon as it is known, so a run that is cut short is not lost.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.learning import Arithmetic, OptimizerSpec, Task, Trainer, TrainingRows
from walktalk.learning.adapters import lora
from walktalk.learning.models.language import LanguageClassifier
from walktalk.learning.stacked import SequentialModel, SharedBaseModel
from walktalk.learning.stacked.choice import gradients_of
from walktalk.learning.training.forms import GraphedTraining, RowTraining
from walktalk.testing.bench.training import peak_rate

SMOLLM2 = {
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1_536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8_192,
    "rope_theta": 100_000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
WAYS = ("loop", "alone", "joined", "base16", "compiled", "attention")


def main() -> None:
    options = arguments()
    torch.manual_seed(0)
    began = time.perf_counter()
    task, parameters = make_task(options)
    arithmetic = Arithmetic(options.precision, fused=False)  # what it would choose is timed here way by way
    optimizer = OptimizerSpec("adam", 1e-4)
    trainer = Trainer(
        task,
        batch_size=options.batch,
        local_steps=options.steps,
        optimizer=optimizer,
        device=options.device,
        arithmetic=arithmetic,
    )
    assert isinstance(trainer.model, SharedBaseModel), f"it would train as {type(trainer.model).__name__}"
    estimate, trainer.rows_at_once = trainer.rows_at_once, None  # as many as were asked for, whatever it thinks of that
    facts: dict[str, Any] = {
        "settings": vars(options),
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "parameters": parameters,
        "trained": trainer.parameters,
        "bytes sent": trainer.payload_bytes,
        "bytes of all": 4 * parameters,
        "rows that fit, as estimated": estimate,
        "seconds to load": time.perf_counter() - began,
        "operations a model-step": operations(task.model, options),
        "operations/s of a large product": peak_rate(options.device),
    }
    bench = Bench(trainer, options, facts)
    print(json.dumps({key: value for key, value in facts.items() if key != "settings"}), flush=True)
    for way in options.ways.split(","):
        bench.measure(way)


class Bench:
    """Measures one way after another and writes down what it finds."""

    def __init__(self, trainer: Trainer, options: argparse.Namespace, facts: dict[str, Any]) -> None:
        self.trainer, self.options, self.facts = trainer, options, facts
        assert isinstance(trainer.model, SharedBaseModel)
        self.model = trainer.model
        width, batch = options.width, options.batch  # as wide as what is timed: blocks are compiled for one shape only
        noise = torch.randn(width, trainer.width, generator=torch.Generator().manual_seed(0)).to(trainer.device)
        self.rows = trainer.initial_row(0) + 0.02 * noise  # an adapter whose B is zero gives A no gradient
        self.x, self.y = (
            t[: width * batch].unflatten(0, (width, batch)) for t in (trainer.data.inputs, trainer.data.targets)
        )
        with Arithmetic("fp32").products(trainer.device):
            self.model.arithmetic = Arithmetic("fp32")
            self.exact = gradients_of(self.model, self.rows, self.x, self.y).clone()
        self.model.arithmetic = trainer.arithmetic
        if options.device == "cuda":
            torch.cuda.empty_cache()

    def measure(self, way: str) -> None:
        began = time.perf_counter()
        if self.options.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        try:
            error, train, width = getattr(self, way)()
        except Exception as problem:  # the next way may still work
            print(f"{way}: not here ({' '.join(str(problem).split())[:300]})", flush=True)
            return
        for _ in range(2):
            train()
        ready = time.perf_counter() - began
        rate = self.rate(train, width)
        tokens = rate * self.options.batch * self.options.tokens
        found = {
            "model-steps/s": rate,
            "tokens/s": tokens,
            "of a large product's rate": rate
            * self.facts["operations a model-step"]
            / self.facts["operations/s of a large product"],
            "gradients off by": error,
            "seconds until ready": ready,
        }
        if self.options.device == "cuda":
            found["GB at most"] = torch.cuda.max_memory_allocated() / 1e9
        self.facts[way] = found
        print(way, json.dumps({key: float(f"{value:.4g}") for key, value in found.items()}), flush=True)
        if self.options.out:
            Path(self.options.out).parent.mkdir(parents=True, exist_ok=True)
            Path(self.options.out).write_text(json.dumps(self.facts, indent=1))

    def rate(self, train: Callable[[], object], width: int) -> float:
        wait(self.options.device)
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < self.options.seconds:
            train()
            done += 1
            wait(self.options.device)
        return done * width * self.options.steps / (time.perf_counter() - began)

    # -- ways ---------------------------------------------------------------------------------------------------------

    def loop(self) -> tuple[float, Callable[[], object], int]:
        """One after another, by torch's own autograd and optimizer."""
        device, module = self.trainer.device, self.trainer.template
        trained = [p for p in module.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(trained, lr=1e-4)
        inputs, targets = self.trainer.data.inputs, self.trainer.data.targets

        def train() -> None:
            for _ in range(self.options.steps):
                batch = torch.randint(0, len(inputs), (self.options.batch,), device=device)
                with self.trainer.arithmetic.forward(device):
                    outputs = module(inputs[batch])
                optimizer.zero_grad()
                functional.cross_entropy(outputs.float(), targets[batch]).backward()
                optimizer.step()

        return 0.0, train, 1

    def alone(self) -> tuple[float, Callable[[], object], int]:
        """One adapter as one CUDA graph."""
        one = SequentialModel(self.trainer.template, self.trainer.model.loss)
        one.arithmetic, one.draws = self.trainer.arithmetic, False
        error = self.error(one)
        graphs = self.options.device == "cuda"
        training = RowTraining(one, self.trainer.optimizer, self.trainer.data, self.options.steps, graphs)
        given = TrainingRows(*self.wave(1), on_loan=True)
        return error, lambda: training(given), 1

    def joined(self) -> tuple[float, Callable[[], object], int]:
        return self.all_at_once(None)

    def base16(self) -> tuple[float, Callable[[], object], int]:
        return self.all_at_once(torch.bfloat16)

    def compiled(self) -> tuple[float, Callable[[], object], int]:
        self.model.undo_compilation()
        assert self.model.compile_blocks(), "no blocks that repeat"
        return self.all_at_once(torch.bfloat16)

    def attention(self) -> tuple[float, Callable[[], object], int]:
        assert self.model.attend(ours=True), "no attention that a kernel of ours fits"
        return self.compiled()

    def all_at_once(self, kind: torch.dtype | None) -> tuple[float, Callable[[], object], int]:
        self.model.hold_base(kind if self.options.precision == "bf16" else None)
        error = self.error(self.model)
        self.trainer.forms.graphed = GraphedTraining(
            self.trainer.forms.stacked
        )  # a graph knows the kernels that it was recorded with
        given = self.wave(self.options.width)
        return error, lambda: self.trainer.train(TrainingRows(*given)), self.options.width

    def error(self, model: Any) -> float:
        with self.trainer.arithmetic.products(self.trainer.device), warnings.catch_warnings():
            found = gradients_of(model, self.rows, self.x, self.y)
        return float((found - self.exact).norm() / self.exact.norm())

    def wave(self, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        device = self.trainer.device
        rows = self.trainer.initial_row(0).repeat(width, 1)
        numbers = torch.arange(width, device=device)
        state = torch.zeros(width, self.trainer.state_width, device=device)
        return rows, numbers % self.trainer.task.nodes, numbers, torch.full((width,), 1e-4, device=device), state


def operations(model: nn.Module, options: argparse.Namespace) -> int:
    """Of a step's products: forward through the base and back to its inputs, twice two for every weight and token."""
    weights = sum(
        p.numel() for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n and "lm_head" not in n
    )
    return 4 * weights * options.batch * options.tokens


def make_task(options: argparse.Namespace) -> tuple[Task, int]:
    from transformers import LlamaConfig, LlamaForCausalLM

    settings = dict(SMOLLM2 if options.config is None else json.loads(Path(options.config).read_text()))
    settings |= {"num_hidden_layers": options.layers} if options.layers else {}
    if options.hidden:
        settings |= {"hidden_size": options.hidden, "intermediate_size": 8 * options.hidden // 3, "vocab_size": 1_000}
        settings |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    base = LlamaForCausalLM(LlamaConfig(**settings))
    base.config.use_cache = False
    module = LanguageClassifier(lora(base, options.rank, targets=options.targets.split(",")), 0, [5, 6, 7])
    samples = max(options.width * options.batch, 200)
    tokens = torch.randint(1, settings["vocab_size"], (samples, options.tokens))
    labels = torch.randint(0, 3, (samples,))
    parts = np.array_split(np.arange(samples), max(options.width, 1))
    task = Task("adapters", module, functional.cross_entropy, tokens, labels, parts, pretrained=True)
    return task, sum(p.numel() for p in base.parameters())


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def arguments() -> argparse.Namespace:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if on_gpu else "cpu")
    parser.add_argument("--precision", default="bf16" if on_gpu else "fp32", choices=("fp32", "tf32", "bf16"))
    parser.add_argument("--config", help="config.json of another Llama")
    parser.add_argument("--layers", type=int, default=0, help="0: as the configuration says")
    parser.add_argument("--hidden", type=int, default=0, help="0: as the configuration says")
    parser.add_argument("--width", type=int, default=20, help="adapters at once")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--targets", default="q_proj,v_proj")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--steps", type=int, default=1, help="of one training")
    parser.add_argument("--seconds", type=float, default=3.0, help="that each way is timed")
    parser.add_argument("--ways", default=",".join(WAYS) if on_gpu else "loop,joined")
    parser.add_argument("--out", help="a JSON file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
