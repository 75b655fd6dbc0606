"""Models that come to a node visit a plain loop, a Lightning trainer, and trainers of Hugging Face and TRL."""

from __future__ import annotations

import importlib.util
import logging
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

import walktalk.torch
from tests.peers.test_site import OneNode, work
from walktalk.core.errors import DataError, UnavailableError
from walktalk.learning import tasks
from walktalk.torch import Visits, start_file, write_start

START = {"weight": torch.full((1, 3), 2.0), "bias": torch.zeros(1)}


class StandIn:
    """What adapters use of a visit, without a node."""

    def __init__(self, tensors: Mapping[str, Tensor], steps: int = 2) -> None:
        self.tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        self.steps, self.is_over = steps, False
        self.given: dict[str, Any] = {}
        self.back: dict[str, Tensor] = {}
        self.skipped, self.shares = False, list[float]()

    def load(self, module: nn.Module, optimizer: Any = None) -> None:
        inside = tasks.unwrapped(module).state_dict()
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                inside[name].copy_(tensor)

    def finish(self, state: Any, **given: Any) -> bool:
        arrays = tasks.named_arrays(state)
        self.back = {name: arrays[name].clone() for name in self.tensors}
        self.given, self.is_over = given, True
        return True

    def skip(self) -> None:
        self.skipped = self.is_over = True

    def progress(self, share: float = 0.0) -> None:
        self.shares.append(share)


def stand_ins(count: int = 3, tensors: Mapping[str, Tensor] = START, **more: Any) -> list[Any]:
    return [StandIn({name: one + k for name, one in tensors.items()}, **more) for k in range(count)]


def trained(module: nn.Module, visits: Visits, most: int = 100) -> int:
    """A loop as people write it; how many steps it made."""
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for step in range(1, most + 1):
        loss = module(torch.ones(4, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not visits.step(loss=loss, samples=4, auc=step):
            return step
    return most


def test_a_plain_loop_trains_each_model_for_as_many_steps_as_the_study_says():
    given, module = stand_ins(), nn.Linear(3, 1)
    visits = Visits(given, module=module)
    assert trained(module, visits) == 1 + 3 * 2  # the first only waits for a model
    for k, visit in enumerate(given):
        begun = nn.Linear(3, 1)
        begun.load_state_dict({name: one + k for name, one in START.items()})
        optimizer, losses = torch.optim.SGD(begun.parameters(), 0.1), []
        for _ in range(2):
            loss = begun(torch.ones(4, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert torch.equal(visit.back["weight"], begun.weight)
        assert visit.given["steps"] == 2
        assert visit.given["samples"] == 8
        assert visit.given["metrics"]["train_loss"] == pytest.approx(sum(losses) / 2)
        assert visit.given["metrics"]["auc"] == 3 + 2 * k  # the last that was measured in it
    assert visits.over
    assert not visits.step()


def test_a_loop_of_its_own_is_one_visit_each():
    given, module = stand_ins(steps=7), nn.Linear(3, 1)
    seen = []
    for visits in Visits(given, module=module):
        seen.append(module.bias.item())
        with torch.no_grad():
            module.bias += 1
        visits.report(auc=0.5, name="no number")
    assert seen == [0.0, 1.0, 2.0]
    assert [float(visit.back["bias"]) for visit in given] == [1.0, 2.0, 3.0]
    assert [visit.given["metrics"] for visit in given] == [{"auc": 0.5}] * 3


def test_an_optimizer_that_is_handed_over_begins_anew_and_one_that_is_not_stays():
    for handed in (True, False):
        given, module = stand_ins(2), nn.Linear(3, 1)
        optimizer = torch.optim.Adam(module.parameters(), 0.1)
        seen = []
        for _ in Visits(given, "", module, optimizer if handed else None):
            seen.append(len(optimizer.state))
            module(torch.ones(1, 3)).sum().backward()
            optimizer.step()
        assert seen == [0, 0 if handed else 2]
        assert (given[0].given["optimizer"] is optimizer) == handed


def test_a_script_that_ends_gives_back_what_it_has_done():
    given, module = stand_ins(steps=5), nn.Linear(3, 1)
    with Visits(given, module=module) as visits:
        trained(module, visits, most=3)
    assert given[0].given["steps"] == 2
    with Visits(stand_ins(1), module=module) as visits:
        visits.begin()
        (waits,) = (visits.visit,)
    assert waits is not None
    assert waits.skipped  # nothing was trained

    def fails() -> None:
        with Visits(given[1:], module=module) as visits:
            visits.begin()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert not given[1].is_over  # the node is told that the script has died


def test_what_is_frozen_does_not_travel(tmp_path):
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    write_start(module, tmp_path / "whole.safetensors")
    assert set(load_file(tmp_path / "whole.safetensors")) == set(module.state_dict())
    module[0].requires_grad_(False)
    write_start(module, tmp_path / "part.safetensors")
    assert "0.weight" not in load_file(tmp_path / "part.safetensors")
    assert "1.running_mean" in load_file(tmp_path / "part.safetensors")
    module.requires_grad_(False)
    with pytest.raises(DataError, match="nothing of it trains"):
        write_start(module, tmp_path / "none.safetensors")


def test_mistakes_are_told_in_one_line():
    with pytest.raises(DataError, match="steps: 0 is not possible"):
        Visits([], steps=0)
    with pytest.raises(DataError, match="nothing is known to train"):
        Visits(stand_ins()).begin()
    spread = nn.Linear(3, 1, device="meta")
    with pytest.raises(DataError, match="weight is spread over several processes"):
        Visits(stand_ins(), module=spread).begin()


def test_the_first_site_writes_the_file_that_all_begin_with(tmp_path):
    study = {"task": {"name": "outside", "state": "start.safetensors"}, "network": {"topology": "complete", "nodes": 2}}
    content = {"name": "mine", "study": {"name": "mine", "algorithms": [{"name": "multi_walk"}], **study}}
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(content | {"folder": "records", "nodes": {"a": {}, "b": {}}}))
    assert start_file(path) == tmp_path / "start.safetensors"
    study["task"] = {"name": "digits"}
    path.write_text(yaml.safe_dump(content | {"study": {**content["study"], **study}, "nodes": {"a": {}, "b": {}}}))
    assert start_file(path) is None


def test_a_visit_of_a_node_hands_over_what_was_trained(tmp_path):
    """Over the node's own socket and shared memory."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x, self.head = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(3).half())
            self.bn = nn.Module()
            self.bn.register_buffer("running_mean", torch.zeros(2))
            self.register_buffer("count", torch.tensor(0))

    node, module = OneNode(tmp_path), Net()
    thread = node.begin(work(node.trainer.initial_row(0)))
    with Visits(node.site(), module=module) as visits:
        assert visits.begin()
        assert module.x.tolist() == [0.0] * 4
        with torch.no_grad():
            module.x += 0.5
        assert visits.count(loss=torch.tensor(0.25), samples=6) is False
        visits.finish()
        thread.join(10.0)
    node.trainer.close("the test is over")
    (answer,) = node.answers
    assert answer.row is not None
    assert answer.row[:4].tolist() == [1.0] * 4  # half a step, and its weight is 2
    assert (answer.samples, answer.steps, dict(answer.metrics)) == (6, 1, {"train_loss": 0.25})


@pytest.mark.parametrize(("name", "extra"), [("lightning", "lightning"), ("transformers", "language")])
def test_without_its_library_an_adapter_says_what_to_install(name, extra, monkeypatch):
    for library in ("lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    path = Path(walktalk.torch.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"fresh_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(adapter := importlib.util.module_from_spec(spec))
    with pytest.raises(UnavailableError, match=rf"pip install 'walktalk\[{extra}\]'"):
        adapter.SiteCallback([])


# -- Lightning -------------------------------------------------------------------------------------------------------


def test_a_lightning_trainer_is_visited(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed: walktalk[lightning]")
    from walktalk.lightning import SiteCallback

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Line(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Linear(3, 1)

        def training_step(self, batch: Any, number: int) -> Tensor:
            return functional.mse_loss(self.inside(batch[0]), batch[1])

        def validation_step(self, batch: Any, number: int) -> None:
            self.log("valid_loss", self.training_step(batch, number))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    given = stand_ins(3, {f"inside.{name}": one for name, one in START.items()})
    data = torch.utils.data.TensorDataset(torch.ones(8, 3), torch.zeros(8, 1))
    loader = torch.utils.data.DataLoader(data, 2)
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    trainer = lightning.Trainer(
        max_epochs=-1, callbacks=[SiteCallback(given)], accelerator="cpu", default_root_dir=tmp_path, **quiet
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(Line(), loader, loader)
    assert trainer.global_step == 6
    assert [visit.given["steps"] for visit in given] == [2, 2, 2]
    assert [visit.given["samples"] for visit in given] == [4, 4, 4]
    losses = [(1 + 0.92**2) / 2 * (6 + 4 * k) ** 2 for k in range(3)]  # a step takes 8 % of the way
    assert [visit.given["metrics"]["train_loss"] for visit in given] == pytest.approx(losses)
    assert "valid_loss" in given[2].given["metrics"]  # an epoch has four steps
    assert all(visit.is_over for visit in given)


# -- Hugging Face ----------------------------------------------------------------------------------------------------


def tiny() -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: walktalk[language]")
    pytest.importorskip("accelerate", reason="accelerate is not installed: walktalk[language]")
    torch.manual_seed(0)
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=32, **shape))


def texts() -> list[dict[str, Any]]:
    rng = torch.Generator().manual_seed(0)
    some = torch.randint(32, (24, 6), generator=rng)
    return [{"input_ids": one, "labels": one} for one in some]


def arguments(folder: Path, **more: Any) -> dict[str, Any]:
    said = {"output_dir": str(folder), "max_steps": 50, "per_device_train_batch_size": 2, "report_to": "none"}
    return said | {"use_cpu": True, "disable_tqdm": True, "logging_steps": 2, "save_strategy": "no", **more}


def test_a_trainer_of_hugging_face_is_visited(tmp_path):
    model = tiny()
    import transformers

    from walktalk.transformers import SiteCallback

    start = {name: one.clone() for name, one in tasks.named_arrays(model).items()}
    given = [StandIn(start) for _ in range(3)]
    how = transformers.TrainingArguments(**arguments(tmp_path, eval_strategy="steps", eval_steps=4))
    data = texts()
    callbacks = [SiteCallback(given)]
    trainer = transformers.Trainer(model, how, train_dataset=data, eval_dataset=data[:4], callbacks=callbacks)
    trainer.train()
    assert trainer.state.global_step == 6
    assert [visit.given["steps"] for visit in given] == [2, 2, 2]
    assert [visit.given["samples"] for visit in given] == [4, 4, 4]
    assert all(visit.given["metrics"]["train_loss"] > 2.0 for visit in given)
    assert ["eval_loss" in visit.given["metrics"] for visit in given] == [False, True, False]
    name = "model.layers.0.self_attn.q_proj.weight"
    assert all(not torch.equal(visit.back[name], start[name]) for visit in given)


def test_adapters_travel_alone(tmp_path):
    model = tiny()
    peft = pytest.importorskip("peft", reason="peft is not installed")
    import transformers

    from walktalk.transformers import SiteCallback

    model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    write_start(model, tmp_path / "start.safetensors")
    start = load_file(tmp_path / "start.safetensors")
    assert len(start) == 2
    assert all(".lora_" in name for name in start)
    base = model.base_model.model.model.layers[0].mlp.up_proj.weight.clone()
    given = [StandIn(start) for _ in range(2)]
    how = transformers.TrainingArguments(**arguments(tmp_path))
    transformers.Trainer(model, how, train_dataset=texts(), callbacks=[SiteCallback(given, steps=3)]).train()
    assert [visit.given["steps"] for visit in given] == [3, 3]
    assert any(not torch.equal(given[1].back[name], start[name]) for name in start)
    assert torch.equal(model.base_model.model.model.layers[0].mlp.up_proj.weight, base)
    model.load_state_dict(given[1].back, strict=False)
    model.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(tiny(), tmp_path / "adapter")
    name = next(name for name in start if "lora_B" in name)
    assert torch.equal(again.state_dict()[name], given[1].back[name])


@pytest.mark.slow  # TRL reads half of its trainers
def test_a_trainer_of_trl_is_visited(tmp_path):
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    from walktalk.transformers import SiteCallback

    model = tiny()
    import datasets
    import tokenizers
    import transformers

    letters = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz .!_")}
    inside = tokenizers.Tokenizer(tokenizers.models.BPE(letters, []))
    tokens = transformers.PreTrainedTokenizerFast(tokenizer_object=inside, eos_token="!", pad_token="_")
    data = datasets.Dataset.from_dict({"text": ["a walk and a talk.", "a talk and a walk."] * 6})
    start = {name: one.clone() for name, one in tasks.named_arrays(model).items()}
    given = [StandIn(start) for _ in range(2)]
    how = trl.SFTConfig(**arguments(tmp_path), max_length=16)
    trl.SFTTrainer(model, how, train_dataset=data, processing_class=tokens, callbacks=[SiteCallback(given)]).train()
    assert [visit.given["steps"] for visit in given] == [2, 2]
