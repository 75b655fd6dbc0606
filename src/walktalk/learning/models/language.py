"""Any language model of `transformers` as a classifier: tokens in, one score per class out."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn

from walktalk.core.errors import DataError, ModelError, UnavailableError
from walktalk.learning.data.multinli import hub, quietly
from walktalk.learning.memory import is_out_of_memory

Head: TypeAlias = Literal["classification", "causal"]
REPOSITORY = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # the form of a name on the hub
KEPT_POSITIONS = 8  # a model may keep some of its positions for itself: RoBERTa two


class LanguageClassifier(nn.Module):
    """A transformer with a classification head, or a causal one whose answers are words.

    Tokens [B, T] are padded on the right. With answers, the score of a class is that of its word as the next token, so
    nothing new has to be learned; the scores of all other words, and of all other places, are never computed.
    """

    def __init__(self, inner: nn.Module, pad: int, answers: Sequence[int] | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.pad = pad
        self.answers = None if answers is None else list(answers)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = tokens.ne(self.pad)
        if self.answers is None:
            scores: Tensor = self.inner(input_ids=tokens, attention_mask=mask.long()).logits
            return scores
        # No mask: a causal model never looks ahead, so what is padded on the right reaches no place that is read. With
        # one, transformers asks the device whether anything is masked, which waits, and takes slower kernels.
        base: Any = self.inner.base_model
        with nothing_packed:
            hidden: Tensor = base(input_ids=tokens).last_hidden_state
        place = (mask.sum(1) - 1).view(-1, 1, 1).expand(-1, 1, hidden.shape[2])
        head: Any = self.inner.get_output_embeddings()  # type: ignore[operator]
        words: Tensor = head(hidden.gather(1, place).squeeze(1))
        return torch.stack([words[:, answer] for answer in self.answers], dim=1)


class NothingPacked:
    """Inside this context, transformers does not look whether a row holds several texts.

    None does here, and looking means to wait
    for the device, which a CUDA graph cannot. Nor does it see that a graph is recorded: some versions then make a mask
    that tells no more than "causal", for which there are slower kernels, and compiled blocks would be compiled anew."""

    REPLACED: ClassVar[dict[str, Callable[..., Any]]] = {
        "find_packed_sequence_indices": lambda position_ids: None,
        "is_tracing": lambda tensor=None: False,
    }

    def __init__(self) -> None:
        self.lock, self.inside = threading.Lock(), 0
        self.before: dict[str, Any] = {}

    def __enter__(self) -> None:
        masks = sys.modules.get("transformers.masking_utils")
        with self.lock:
            self.inside += 1
            if self.inside == 1 and masks is not None:  # threads may be inside together; the first and the last count
                self.before = {name: getattr(masks, name) for name in self.REPLACED if hasattr(masks, name)}
                for name in self.before:
                    setattr(masks, name, self.REPLACED[name])

    def __exit__(self, *error: object) -> None:
        masks = sys.modules.get("transformers.masking_utils")
        with self.lock:
            self.inside -= 1
            if self.inside == 0 and masks is not None:
                for name, original in self.before.items():
                    setattr(masks, name, original)


nothing_packed = NothingPacked()


def load_language_model(
    name: str, tokenizer_name: str | None, head: Head | None, classes: Sequence[str]
) -> tuple[nn.Module, Any]:
    """A model and its tokenizer, by a name on the hub, a folder, or a GGUF file; `classes` are the answers' words."""
    transformers = _transformers()
    is_gguf = name.endswith(".gguf")
    if head is None:
        head = "causal" if is_gguf else "classification"  # a GGUF file holds a causal model
    place, file = name, {}
    if is_gguf:
        if not Path(name).is_file():
            raise DataError(f"model: there is no file {name}; name one with --set task.model=FILE")
        place, file = str(Path(name).parent), {"gguf_file": Path(name).name}
    kinds = {
        "causal": transformers.AutoModelForCausalLM,
        "classification": transformers.AutoModelForSequenceClassification,
    }
    more = {} if head == "causal" else {"num_labels": len(classes)}
    wanted = f"a {head} model of transformers"
    inner = loaded("model", name, wanted, lambda: kinds[head].from_pretrained(place, **file, **more))
    nn.Module.float(inner)  # transformers' own refuses a model from a GGUF file, which is a plain one by now
    words_of = {} if tokenizer_name else file
    speaker = tokenizer_name or place
    tokens = loaded(
        "tokenizer",
        tokenizer_name or name,
        "a tokenizer",
        lambda: transformers.AutoTokenizer.from_pretrained(speaker, **words_of),
    )
    if not tokens(" ".join(classes))["input_ids"]:  # from a folder without one, transformers makes one of no words
        raise DataError(f"tokenizer: {speaker} has none that knows a word; name one with --set task.tokenizer=FOLDER")
    pad = next((n for n in (tokens.pad_token_id, tokens.eos_token_id) if n is not None), 0)
    inner.config.pad_token_id = pad
    inner.config.use_cache = False
    return LanguageClassifier(inner, pad, answer_tokens(tokens, classes) if head == "causal" else None), tokens


def loaded(key: str, name: str, wanted: str, load: Callable[[], Any]) -> Any:
    """What a folder or the hub has under this name; a `DataError` says which setting is to be mended, and how."""
    here = Path(name).exists()
    if not here and not REPOSITORY.fullmatch(name):
        raise DataError(f"{key}: there is no folder {name}; name one with --set task.{key}=FOLDER")
    with quietly(), nullcontext(True) if here else hub(name) as answers:  # also about a new head's weights: meant to be
        try:
            return load()
        except Exception as error:  # transformers, safetensors and the hub's client raise many kinds
            if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and is_out_of_memory(error)):
                raise
            words = " ".join(str(error).split())[:300]
            if not here:
                words = f"there is no such folder, and {words if answers else 'the Hugging Face hub does not answer'}"
            raise DataError(
                f"{key}: {name} cannot be loaded as {wanted} ({words}); name another with --set task.{key}=FOLDER"
            ) from error


def check_reads(model: nn.Module, texts: Tensor) -> None:
    """Checks that the model takes these texts [N, T]: in the middle of a training its error would be a riddle."""
    words: Any = model.inner.get_input_embeddings()  # type: ignore[operator, union-attr]
    known, most = getattr(words, "num_embeddings", None), int(texts.max())
    if known is not None and most >= known:
        raise DataError(
            f"tokenizer: it has a word of number {most}, but the model has only {known}; take the model's own"
        )
    longest = texts[lengths(texts, int(model.pad)).argmax()][None]  # type: ignore[arg-type]
    try:
        with torch.no_grad():
            model(longest)
    except (IndexError, RuntimeError) as error:
        positions = getattr(model.inner.config, "max_position_embeddings", None)  # type: ignore[union-attr]
        if not isinstance(positions, int) or longest.shape[1] < positions - KEPT_POSITIONS:
            raise  # for another reason
        raise DataError(
            f"max_length: texts of {longest.shape[1]} tokens are too long for the model, which has {positions} "
            "positions; take a smaller one with --set task.max_length=N"
        ) from error


def answer_tokens(tokens: Any, words: Sequence[str]) -> list[int]:
    """The first token of each word, as it follows a colon; they must differ."""
    first = [tokens(f" {word}", add_special_tokens=False)["input_ids"][0] for word in words]
    if len(set(first)) < len(words):
        raise ModelError(f"model: its tokenizer begins some of {', '.join(words)} alike, so they cannot be told apart")
    return first


def encode(tokens: Any, texts: Sequence[str], length: int, pad: int, *, keep_end: bool) -> Tensor:
    """Turns texts into token numbers [N, length].

    Cut where too long, at the end or at the beginning, and padded on the right.
    """
    tokens.truncation_side = "left" if keep_end else "right"
    rows = tokens(list(texts), truncation=True, max_length=length)["input_ids"]
    longest = max(len(row) for row in rows)
    out = torch.full((len(rows), longest), pad, dtype=torch.int64)
    for place, row in zip(out, rows, strict=True):
        place[: len(row)] = torch.tensor(row)
    return out


def lengths(tokens: Tensor, pad: int) -> Tensor:
    """How many tokens of each text [N, T] there are before nothing but padding follows; at least one."""
    places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    return (tokens.ne(pad) * places).amax(1).clamp(min=1)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise UnavailableError("language models need the extra `language`: pip install 'walktalk[language]'") from error
    return transformers
