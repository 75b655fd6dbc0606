"""What it costs to have a node's models trained by a script of one's own (`wt.site`).

    OMP_NUM_THREADS=1 python benchmarks/visits.py [--megabytes 1.08 500] [--models resnet20 transformer] [--visits 30]

Two processes: this one is the node's trainer, without its network; the other is a script with a plain loop in torch.

- Hand-over: from the moment at which the node has a model to train until the script has its arrays (come), of loading
  them into a module (load), and from `visit.finish(module)` until the node goes on (give); beside one copy of as many
  bytes in memory, in turns, the best of each.
- Overhead: a visit of ResNet-20 (0.27 M parameters, 5 steps of 32 images) or of a transformer (135 M, 5 steps of 8
  texts of 32 words). Its cost: what of a visit is not the script's own steps, to those. And all of it, beside our own
  trainer's training of one model, as a node does it, in turns. The best of each: what else runs makes others slower.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

import walktalk as wt
from walktalk.learning import Trainer, TrainingRows
from walktalk.learning.models import resnet20
from walktalk.runtimes.peers import OutsideTrainer, load_cluster
from walktalk.runtimes.semantics import Work
from walktalk.studies import make_spec
from walktalk.studies.peers import study_keys

STEPS, LR = 5, 0.05


class Transformer(nn.Module):
    """A language model of 135 million parameters: 12 layers, 32,000 words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(32_000, 768), nn.Parameter(torch.zeros(32, 768))
        layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        self.head = nn.Linear(768, 32_000)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        length = words.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.layers(self.words(words) + self.places[:length], mask=mask, is_causal=True)
        return self.head(hidden).transpose(1, 2)  # [B, words, places], as the loss takes them


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {"resnet20": (resnet20, 32), "transformer": (Transformer, 8)}
"""Models by name, and samples of a step."""


def one_layer(megabytes: float) -> nn.Module:
    """A module of so many bytes, in as many arrays as a model of that size has."""
    count = max(1, int(megabytes * 1e6 / 4 / 50))
    return nn.ParameterList([nn.Parameter(torch.ones(count)) for _ in range(50)])


def data(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(0)
    if name == "transformer":
        words = torch.randint(0, 32_000, (200, 33), generator=dice)
        return words[:, :-1], words[:, 1:]
    return torch.randn(1000, 3, 32, 32, generator=dice), torch.randint(0, 10, (1000,), generator=dice)


def steps(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, batch: int) -> None:
    """What a person's script does between two models; with images as a CPU likes them, as our trainer has them."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(STEPS):
        some = torch.randint(0, len(inputs), (batch,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(as_images(inputs[some])), targets[some]).backward()
        optimizer.step()


def as_images(thing: Any) -> Any:
    """A model or images in the order in which a CPU computes fastest; others as they are."""
    return thing.to(memory_format=torch.channels_last) if isinstance(thing, nn.Module) or thing.dim() == 4 else thing


def seconds(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def hand_over(site: wt.Site, megabytes: float) -> dict[str, list[float]]:
    """When models came and went, by the clock that both processes have, and seconds of a copy in memory."""
    found: dict[str, list[float]] = {"came": [], "load": [], "went": [], "copy": []}
    model, other = one_layer(megabytes), torch.ones(int(megabytes * 1e6 / 4))
    numbers = torch.ones(len(other))
    for visit in site:
        assert visit.tensors
        found["came"].append(time.monotonic())
        found["load"].append(seconds(partial(visit.load, model)))
        found["copy"].append(seconds(lambda: other.copy_(numbers)))
        found["went"].append(time.monotonic())
        visit.finish(model)
    return found


def training(site: wt.Site, name: str) -> dict[str, list[float]]:
    """Seconds of a whole visit with its training, of the script's own steps in it, and of our own trainer's."""
    found: dict[str, list[float]] = {"visit": [], "steps": [], "ours": []}
    torch.manual_seed(0)
    (make, batch), (inputs, targets) = MODELS[name], data(name)
    task = wt.tasks.torch(make(), nn.functional.cross_entropy, [(inputs, targets)])
    ours = Trainer(task, batch_size=batch, local_steps=STEPS)
    net = as_images(make())
    row = ours.initial_row(0)
    given = TrainingRows(row[None], torch.tensor([0]), torch.tensor([1]), torch.tensor([LR]))
    steps(net, inputs, targets, batch)
    ours.train(given)
    asked = time.monotonic()
    for visit in site:
        visit.load(net)
        found["steps"].append(seconds(lambda: steps(net, inputs, targets, batch)))
        visit.finish(net)
        found["visit"].append(time.monotonic() - asked)
        found["ours"].append(seconds(lambda: ours.train(given)))
        asked = time.monotonic()
    return found


def script(config: str, megabytes: float, name: str) -> None:
    """The other process."""
    torch.set_num_threads(1)
    with wt.site(config, "one", start=False) as site:
        found = hand_over(site, megabytes) if megabytes else training(site, name)
    print(json.dumps(found))


def measured(megabytes: float, name: str, visits: int) -> dict[str, list[float]]:
    """What the script has measured, with this process as its node; `megabytes`: 0 for a model and its training."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        made = one_layer(megabytes) if megabytes else MODELS[name][0]()
        wt.tasks.write_state(made, folder / "start.safetensors")
        del made
        study = {
            "network": {"topology": "complete", "nodes": 2},
            "task": {"name": "outside", "state": "start.safetensors"},
            "algorithms": [{"name": "async_gossip"}],
            "stop": {"time": 1.0},
        }
        config = folder / "cluster.yaml"
        config.write_text(yaml.safe_dump({"study": study, "folder": "records", "nodes": {"one": {}, "two": {}}}))
        cluster = load_cluster(config)
        assert isinstance(cluster.study, dict)
        spec = make_spec(cluster.study)
        task = wt.tasks.build("outside", 2, 0, "one", **spec.task.settings)
        trainer = OutsideTrainer(task, STEPS, cluster.folder / "one", "one")
        trainer.node.facts = study_keys(spec, cluster)
        trainer.open()
        command = [sys.executable, __file__, "--script", str(config), "--megabytes", str(megabytes), "--models", name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
            model, called, back = trainer.initial_row(0), [], []
            for number in range(visits):
                called.append(time.monotonic())
                answer = trainer.visit(Work(0, "model", -1, number, False, model, 1, LR, 1.0, STEPS))
                back.append(time.monotonic())
                assert answer.row is not None
                time.sleep(0.05)  # the script asks for the next one meanwhile, as while a node mixes
            trainer.tell_over("enough")
            assert other.stdout is not None
            found: dict[str, list[float]] = json.loads(other.stdout.read())
        trainer.close("enough")
        if megabytes:
            found["come"] = [came - asked for came, asked in zip(found["came"], called, strict=True)]
            found["give"] = [had - went for had, went in zip(back, found["went"], strict=True)]
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, nargs="*", default=[1.08, 500.0])
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--visits", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--script", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.script:
        script(given.script, given.megabytes[0], given.models[0])
        return
    torch.set_num_threads(1)
    rows = []
    for megabytes in given.megabytes:
        found = measured(megabytes, "resnet20", given.visits)
        copy = min(found["copy"])
        for way in ("come", "load", "give"):
            value = min(found[way][1:])  # the first finds its pages; what else runs only makes others slower
            name = f"{megabytes:g} MB to {way}"
            rows.append({"name": name, "value": value, "baseline": copy, "ratio": value / copy, "unit": "s"})
    for name in given.models:
        found = measured(0.0, name, given.visits)
        costs = [visit - own for visit, own in zip(found["visit"], found["steps"], strict=True)]
        cost, own = min(costs[1:]), min(found["steps"][1:])
        rows.append({"name": f"{name}: a visit's cost to its steps", "value": cost, "baseline": own,
                     "ratio": cost / own, "unit": "s"})  # fmt: skip
        visit, ours = (min(found[what][1:]) for what in ("visit", "ours"))
        rows.append({"name": f"{name}: a visit to our own trainer", "value": visit, "baseline": ours,
                     "ratio": visit / ours, "unit": "s"})  # fmt: skip
    if given.json:
        print(json.dumps(rows))
    for row in () if given.json else rows:
        print(f"{row['name']:36} {1e3 * row['value']:9.2f} ms  {1e3 * row['baseline']:9.2f} ms  {row['ratio']:6.3f}")


if __name__ == "__main__":
    main()
