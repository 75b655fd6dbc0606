"""Natural language inference with a pretrained transformer: the paper's second task (Section 6, Table 6)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import torch
from annotated_types import Ge, Gt
from torch import nn
from torch.nn import functional

from walktalk.core.errors import DataError, ModelError
from walktalk.core.seeds import Seed, as_seed
from walktalk.core.settings import misfit
from walktalk.learning.adapters import settings_from, with_lora
from walktalk.learning.models.language import Head, Pair, check_reads, encode, lengths, load_language_model, multinli
from walktalk.learning.partition import by_key, iid, own_part, true_dirichlet
from walktalk.learning.samples import seeded
from walktalk.learning.task import Task

Split: TypeAlias = Literal["iid", "genre"]
NEW_HEADS = ("score", "classifier", "classification_head")  # as models of transformers call them
ANSWERS = ("yes", "maybe", "no")  # entailment, neutral, contradiction
QUESTION = "Premise: {}\nHypothesis: {}"
ASKED = QUESTION + "\nDoes the premise imply the hypothesis, yes, maybe or no? Answer:"


def mnli(
    nodes: int = 20,
    alpha: Annotated[float, Gt(0)] | None = None,
    seed: int | Seed = 0,
    *,
    model: str = "facebook/opt-125m",
    head: Head | None = None,
    tokenizer: str | None = None,
    split: Split | None = None,
    samples: Annotated[int, Ge(1)] | None = None,
    test_samples: Annotated[int, Ge(1)] = 2000,
    max_length: Annotated[int, Ge(1)] = 96,
    folder: str | None = None,
    adapter: dict[str, Any] | None = None,
    part: int | None = None,
) -> Task:
    """Does the premise imply the hypothesis? Split iid, by genre, or by Dirichlet(alpha) over genres.

    Args:
        nodes: how many nodes the data is split over.
        alpha: of a Dirichlet split over genres. None: as `split` says.
        seed: of the split, of a new head and of the choice of samples.
        model: a name on the Hugging Face hub, a folder, or a GGUF file.
        head: a new classification head, or the words yes, maybe, no of a causal model. None: what the model has.
        tokenizer: a name or folder, if not the model's own.
        split: in place of alpha.
        samples: only that many pairs for training.
        test_samples: pairs for the test.
        max_length: tokens of a pair; what is longer is cut.
        folder: where the data is, if not in the cache.
        adapter: train and send adapters alone: `{kind: lora, rank: 16, alpha: 32, targets: [q_proj, v_proj]}`, also
            `dropout`, `also` (parts that train as a whole) and `mixing` (factors, freeze-a, product). None: train all.
        part: a node's number: then it is that node's task, with its samples alone. None: everybody's.
    """
    if alpha is not None and split is not None:
        raise DataError(f"alpha: {alpha} and split: {split} exclude each other; leave one out")
    for name, value in (("samples", samples), ("test_samples", test_samples), ("max_length", max_length)):
        if value is not None and value < 1:
            raise misfit(name, value, "a whole number, 1 or more", DataError)
    root = as_seed(seed)
    train, test = multinli(folder)
    train, test = _some(train, samples, root.child("samples")), _some(test, test_samples, root.child("test samples"))
    genres = np.array([p.genre for p in train])
    parts = _parts(genres, nodes, root.child("partition"), alpha, split)
    codes, names = np.unique(genres, return_inverse=True)[1], sorted({p.genre for p in train})
    mine = own_part(parts, part)
    if mine is not None:
        train, codes, parts = [train[k] for k in mine], codes[mine], [np.arange(len(mine))]
    with seeded(root.child("head").integer % 2**63, torch.device("cpu")):  # a new head's weights
        module, tokens = load_language_model(model, tokenizer, head, ANSWERS)
        if adapter is not None:
            module = adapted(module, adapter)
    asked = module.answers is not None
    form, pad = ASKED if asked else QUESTION, int(module.pad)  # type: ignore[arg-type]
    encoded = [
        (
            encode(tokens, [form.format(p.premise, p.hypothesis) for p in pairs], max_length, pad, keep_end=asked),
            torch.tensor([p.label for p in pairs]),
        )
        for pairs in ((train, test) if mine is None else (train,))
    ]
    for tokens_of_part, _ in encoded:
        check_reads(module, tokens_of_part)
    return Task(
        "mnli",
        module,
        functional.cross_entropy,
        *encoded[0],
        parts,
        encoded[1] if mine is None else None,
        labels=codes,
        pretrained=True,
        lengths=partial(lengths, pad=pad),
        details={"genres": names},
    )


def adapted(module: nn.Module, adapter: dict[str, Any]) -> nn.Module:
    """Adds adapters as the specification says; a new head trains with them."""
    try:
        settings = settings_from(adapter)
        heads = [name for name in NEW_HEADS if hasattr(module.inner, name)]
        if not settings.also and module.answers is None:
            settings = replace(settings, also=tuple(heads))
        return with_lora(module, settings)
    except ModelError as error:
        raise DataError(str(error)) from error


def _some(pairs: list[Pair], count: int | None, seed: Seed) -> list[Pair]:
    """Chooses that many of them, evenly chosen, in their order."""
    if count is None or count >= len(pairs):
        return pairs
    return [pairs[k] for k in np.sort(seed.numpy().permutation(len(pairs))[:count])]


def _parts(genres: np.ndarray, nodes: int, seed: Seed, alpha: float | None, split: Split | None) -> list[np.ndarray]:
    if alpha is not None:
        return true_dirichlet(genres, nodes, alpha, seed)
    return by_key(genres, nodes, seed) if split == "genre" else iid(len(genres), nodes, seed)
