"""Natural language inference with any transformer: tiny random ones here, nothing is downloaded."""

from __future__ import annotations

import json
import shutil
import sys
from importlib import import_module

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.learning import plain
from walktalk.core.errors import DataError, UnavailableError
from walktalk.learning import OptimizerSpec, Trainer, TrainingRows, tasks
from walktalk.learning.models import language as multinli
from walktalk.learning.models.language import check_reads, hub
from walktalk.learning.stacked import SequentialModel, SharedBaseModel, stack

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = [
    "premise",
    "hypothesis",
    "does",
    "the",
    "imply",
    "yes",
    "maybe",
    "no",
    "answer",
    "a",
    "b",
    "c",
    "d",
    "e",
    "f",
    "g",
    "h",
    "cat",
    "dog",
    "runs",
    "sleeps",
    "or",
    "and",
    "?",
    ":",
    ",",
    ".",
]
GENRES = ("fiction", "travel", "slate")


def example(k: int, genre: str | None = None) -> dict:
    return {
        "premise": f"the {'cat' if k % 2 else 'dog'} runs",
        "hypothesis": f"a {'cat' if k % 3 else 'dog'} sleeps",
        "gold_label": multinli.LABELS[k % 3],
        "genre": genre or GENRES[k % 3],
    }


def write(folder, train: list[dict], dev: list[dict] | None = None):
    for name, rows in (("train_subset", train), ("dev_matched", dev or [example(k) for k in range(9)])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write(tmp_path_factory.mktemp("multinli"), [example(k) for k in range(60)])


def test_adapters_alone_train_and_travel(models, data):
    adapter = {"kind": "lora", "rank": 2}
    whole = tasks.mnli(nodes=3, model=models["opt"], folder=data).model
    for head, also in (("causal", 0), ("classification", 3 * 16)):
        task = tasks.mnli(nodes=3, model=models["opt"], folder=data, head=head, adapter=adapter)
        trainer = Trainer(task, batch_size=4, local_steps=1)
        assert isinstance(trainer.model, SharedBaseModel)
        assert trainer.width == 2 * 2 * 2 * 2 * 16 + also < sum(p.numel() for p in whole.parameters()) // 4
    for wrong, words in (
        ({"rank": "x"}, "adapter.rank"),
        ({"kind": "other"}, "adapter.kind"),
        ({"r": 1}, "unknown key"),
    ):
        with pytest.raises(DataError, match=words):
            tasks.mnli(nodes=3, model=models["opt"], folder=data, adapter=wrong)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two-layer models of two families, with a tokenizer of thirty words."""
    vocabulary = {word: k for k, word in enumerate(["<pad>", "<unk>", "</s>", *WORDS])}
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    core.normalizer = tokenizers.normalizers.Lowercase()
    core.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Punctuation()]
    )
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", unk_token="<unk>", eos_token="</s>"
    )
    common = {
        "vocab_size": len(vocabulary),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "eos_token_id": 2,
        "bos_token_id": 2,
    }
    configs = {
        "opt": transformers.OPTConfig(**common, ffn_dim=32, word_embed_proj_dim=16),
        "llama": transformers.LlamaConfig(**common, intermediate_size=32, num_key_value_heads=1),
    }
    made = {}
    for name, config in configs.items():
        folder = tmp_path_factory.mktemp(name)
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        wrapped.save_pretrained(folder)
        made[name] = str(folder)
    return made


KINDS = [("opt", "classification"), ("opt", "causal"), ("llama", "classification"), ("llama", "causal")]


@pytest.mark.parametrize(("name", "head"), KINDS)
def test_stacked_gradients_are_those_of_a_plain_loop(models, data, name, head):
    task = tasks.mnli(nodes=3, model=models[name], head=head, folder=data)
    for module in task.model.modules():  # OPT drops out by default; other draws cannot be compared
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    task.model.inner.config.dropout = task.model.inner.config.attention_dropout = 0.0
    for module in task.model.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    model = stack(task.model, task.loss, task.inputs, task.targets)
    layout, made = model.layout, plain.copies(task.model, 3)
    rows = torch.stack([layout.row(m) for m in made])
    picks = plain.classes(3, 8, seed=2, count=60)
    wave = model.wave(
        layout.spread_out(rows[:, : layout.parameter_width]), rows[:, layout.parameter_width :], torch.arange(3)
    )
    found = layout.gather(wave(task.inputs[picks], task.targets[picks], 0), 3)
    expected = []
    for one, pick in zip(made, picks, strict=True):
        one.zero_grad()
        functional.cross_entropy(one(task.inputs[pick]), task.targets[pick]).backward()
        named = dict(one.named_parameters())
        expected.append(
            torch.cat(
                [
                    (named[e.name].grad if named[e.name].grad is not None else torch.zeros(e.shape)).flatten()
                    for e in layout.parameters
                ]
            )
        )
    plain.close(found, torch.stack(expected), 1e-4)


@pytest.mark.parametrize(("name", "head"), KINDS)
def test_it_learns_row_by_row(models, data, name, head):
    task = tasks.mnli(nodes=3, model=models[name], head=head, folder=data)
    trainer = Trainer(task, batch_size=16, local_steps=100, optimizer=OptimizerSpec("adam", 5e-3))
    rows = torch.stack([trainer.initial_row(k) for k in (0, 1)])
    assert torch.equal(rows[0], rows[1])  # pretrained: every run starts alike
    before = trainer.evaluate(rows)[0]
    part, keys, lr = torch.full((2,), 3), torch.tensor([1, 2]), torch.full((2,), 5e-3)
    trained, _ = trainer.train(TrainingRows(rows, part, keys, lr))
    assert trainer.evaluate(trained)[0].mean() < 0.85 * before.mean()
    short = Trainer(task, batch_size=16, local_steps=2, optimizer=OptimizerSpec("adam", 5e-3))
    state = torch.zeros(2, trainer.state_width)
    both, new = short.train(TrainingRows(rows, part, keys, lr, state))
    alone, _ = short.train(TrainingRows(rows[1:], part[1:], keys[1:], lr[1:], state[1:]))
    plain.close(alone - rows[1:], both[1:] - rows[1:], 0.01)  # Adam divides by gradients that are almost zero
    assert new.shape == state.shape
    scores = trainer.module(trained[0])(task.inputs[:5])
    assert scores.shape == (5, 3)


def test_large_models_go_one_at_a_time(models, data, monkeypatch):
    monkeypatch.setattr("walktalk.learning.stacked.choice.STACKED_UP_TO", 100)
    trainer = Trainer(tasks.mnli(nodes=3, model=models["opt"], folder=data), batch_size=4, local_steps=1)
    assert type(trainer.model) is SequentialModel
    assert trainer.rows_at_once == 1
    rows = torch.stack([trainer.initial_row(0)] * 3)
    trained, _ = trainer.train(TrainingRows(rows, torch.tensor([0, 1, 2]), torch.arange(3), torch.full((3,), 0.1)))
    assert not torch.equal(trained[0], trained[1])


def test_padding_changes_nothing(models, data):
    for name, head in KINDS:
        model = tasks.mnli(nodes=3, model=models[name], head=head, folder=data).model.eval()
        tokens = tasks.mnli(nodes=3, model=models[name], head=head, folder=data).inputs[:4]
        longer = functional.pad(tokens, (0, 7), value=model.pad)
        with torch.no_grad():
            assert torch.allclose(model(tokens), model(longer), atol=1e-5), (name, head)


def test_a_gguf_file(models, data, tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "tiny.gguf"
    write_gguf(gguf, path, models["llama"])
    task = tasks.mnli(nodes=3, model=str(path), tokenizer=models["llama"], folder=data)
    assert task.model.answers is not None  # a GGUF file is a causal model
    other = tasks.mnli(nodes=3, model=models["llama"], head="causal", folder=data)
    with torch.no_grad():
        assert torch.allclose(task.model.eval()(task.inputs[:4]), other.model.eval()(other.inputs[:4]), atol=1e-4)


def write_gguf(gguf, path, folder) -> None:
    """A Llama as llama.cpp has it: other names, and the rows of queries and keys in another order."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    config, state = model.config, model.state_dict()
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }

    def add(name, tensor):
        writer.add_tensor(name, np.ascontiguousarray(tensor.float().numpy()))

    add("token_embd.weight", state["model.embed_tokens.weight"])
    add("output_norm.weight", state["model.norm.weight"])
    add("output.weight", state["lm_head.weight"])
    for layer in range(config.num_hidden_layers):
        for theirs, ours in names.items():
            tensor = state[f"model.layers.{layer}.{theirs}.weight"]
            heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(ours)
            if heads:
                tensor = tensor.reshape(heads, 2, -1, tensor.shape[1]).swapaxes(1, 2).reshape(tensor.shape)
            add(f"blk.{layer}.{ours}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# -- data -------------------------------------------------------------------------------------------------------------


def test_splits(models, data):
    by_genre = tasks.mnli(nodes=3, model=models["opt"], split="genre", folder=data)
    assert all(len(set(by_genre.labels[part])) == 1 for part in by_genre.parts)
    assert by_genre.details["genres"] == sorted(GENRES)
    dirichlet = tasks.mnli(nodes=5, alpha=0.2, model=models["opt"], folder=data)
    assert sum(map(len, dirichlet.parts)) == 60
    assert len(tasks.mnli(nodes=2, model=models["opt"], samples=10, test_samples=4, folder=data).inputs) == 10


def test_official_names_and_labels_without_agreement(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "gold_label": label, "genre": "x"} for label in ("neutral", "-")]
    (tmp_path / "multinli_1.0_train.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "multinli_1.0_dev_matched.jsonl").write_text(json.dumps(rows[0]))
    (tmp_path / "multinli_1.0_dev_mismatched.jsonl").write_text("not looked at")
    train, test = multinli.from_folder(tmp_path)
    assert train == test == [multinli.Pair("a", "b", 1, "x")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{broken", "line 2 is not an example"),
        (json.dumps({"premise": "a"}), "line 2 is not an example"),
        (json.dumps({**example(0), "gold_label": "hmm"}), "gold_label 'hmm'; allowed: entailment"),
        (json.dumps({**example(0), "genre": " "}), "line 2 has an empty genre"),
    ],
)
def test_broken_lines(tmp_path, line, words):
    folder = write(tmp_path, [example(0)])
    with (tmp_path / "train_subset.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=words):
        tasks.mnli(nodes=1, folder=folder)


def test_missing_files_and_folders(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="no training file"):
        tasks.mnli(folder=str(tmp_path))
    with pytest.raises(DataError, match="there is no folder"):
        tasks.mnli(folder=str(tmp_path / "nowhere"))
    monkeypatch.setenv("WALKTALK_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setitem(sys.modules, "datasets", None)  # not installed
    with pytest.raises(DataError, match=r"MultiNLI is not in .*pip install"):
        tasks.mnli()


def test_models_that_cannot_be_had(data, models, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="cannot be loaded as a classification model"):
        tasks.mnli(model=str(tmp_path), folder=data)
    with pytest.raises(DataError, match="there is no file"):
        tasks.mnli(model=str(tmp_path / "no.gguf"), folder=data)
    with pytest.raises(DataError, match="exclude each other"):
        tasks.mnli(alpha=1.0, split="genre", folder=data)
    with pytest.raises(DataError, match="nodes: 100 is more than the 60 samples"):
        tasks.mnli(nodes=100, model=models["opt"], folder=data)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UnavailableError, match=r"pip install 'walktalk\[language\]'"):
        tasks.mnli(folder=data)


def test_a_file_that_is_not_utf8(tmp_path):
    folder = write(tmp_path, [example(0)])
    with (tmp_path / "train_subset.jsonl").open("ab") as file:
        file.write('{"premise": "café"}'.encode("latin-1"))
    with pytest.raises(DataError, match=r"folder: .*train_subset.jsonl is not UTF-8 text"):
        tasks.mnli(nodes=1, folder=folder)


def test_damaged_weights(data, models, tmp_path, capfd):
    folder = shutil.copytree(models["opt"], tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"model: .* cannot be loaded .*name another with --set task.model=FOLDER"):
        tasks.mnli(model=str(folder), folder=data)
    tasks.mnli(nodes=3, model=models["opt"], folder=data)
    assert "Loading weights" not in capfd.readouterr().err


def test_a_folder_without_a_tokenizer(data, models, tmp_path):
    folder = shutil.copytree(models["opt"], tmp_path / "mute", ignore=shutil.ignore_patterns("*token*"))
    with pytest.raises(DataError, match=r"tokenizer: .* name one with --set task.tokenizer=FOLDER"):
        tasks.mnli(model=str(folder), folder=data)
    tasks.mnli(nodes=3, model=str(folder), tokenizer=models["llama"], folder=data)


def test_places_that_are_not_there(data, models, tmp_path):
    nowhere = str(tmp_path / "nowhere")
    with pytest.raises(
        DataError, match=rf"^model: there is no folder {nowhere}; name one with --set task.model=FOLDER"
    ):
        tasks.mnli(model=nowhere, folder=data)
    with pytest.raises(DataError, match=rf"^tokenizer: there is no folder {nowhere}; name one with --set task.token"):
        tasks.mnli(model=models["opt"], tokenizer=nowhere, folder=data)


def test_texts_that_the_model_cannot_read_are_found_before_the_training(models, tmp_path):
    folder = write(tmp_path, [example(k) for k in range(30)] + [{**example(0), "premise": "the cat " * 100}])
    with pytest.raises(DataError, match=r"max_length: texts of 90 tokens are too long .* has 64 positions"):
        tasks.mnli(nodes=3, model=models["opt"], max_length=90, folder=folder)
    tasks.mnli(nodes=3, model=models["opt"], max_length=60, folder=folder)
    tasks.mnli(nodes=3, model=models["llama"], max_length=90, folder=folder)  # its positions have no end
    task = tasks.mnli(nodes=3, model=models["opt"], max_length=60, folder=folder)
    with pytest.raises(DataError, match=r"tokenizer: it has a word of number 1000, but the model has only 30"):
        check_reads(task.model, torch.tensor([[3, 1000]]))


def test_a_hub_that_does_not_answer_is_asked_once(data, monkeypatch, capsys):
    constants = import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(DataError, match=r"model: some/model .*the Hugging Face hub does not answer.*task.model=FOLDER"):
        tasks.mnli(model="some/model", folder=data)
    assert "getting some/model from the Hugging Face hub" in capsys.readouterr().err
    assert constants.HF_HUB_OFFLINE is False
    with hub("something") as answers:
        assert not answers
        assert constants.HF_HUB_OFFLINE is True
    monkeypatch.setattr("walktalk.learning.models.language.answers", lambda: True)
    with hub("something") as answers:
        assert answers
        assert constants.HF_HUB_OFFLINE is False
