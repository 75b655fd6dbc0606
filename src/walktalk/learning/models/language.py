"""Any language model of `transformers` as a classifier: tokens in, one score per class out."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from walktalk.core.errors import DataError, ModelError, UnavailableError
from walktalk.learning.arithmetic import is_out_of_memory
from walktalk.learning.data import home

# -- MultiNLI (Williams et al. 2018): JSON lines in a folder, or the Hugging Face hub ---------------------------------

# -- The Hugging Face hub: whether it answers, asked once and briefly, and what its libraries say while they load -----
# Its clients ask again and again for every file before they give up, which is half a minute of silence for a data set
# and a whole one for a model, and none of them can be told to ask less often.

PATIENCE = 5.0  # seconds until it has to answer
ERASE_LINE = "\r\x1b[2K"  # whatever stands on the terminal's current line


@contextmanager
def hub(what: str) -> Iterator[bool]:
    """A context in which `what` comes from the hub or its cache here; from the cache alone if the hub does not answer.

    Says what is being fetched, since that may take long; gives whether the hub answers.
    """
    say(f"getting {what} from the Hugging Face hub, or its cache here …")
    if answers():
        yield True
        return
    switches = [
        module for name in ("huggingface_hub.constants", "datasets.config") if (module := sys.modules.get(name))
    ]
    before = [getattr(module, "HF_HUB_OFFLINE", False) for module in switches]
    set_offline(switches, [True] * len(switches))
    try:
        yield False
    finally:
        set_offline(switches, before)


def set_offline(switches: list[Any], values: list[bool]) -> None:
    """Does what the variable HF_HUB_OFFLINE does, which is read at import."""
    for module, value in zip(switches, values, strict=True):
        module.HF_HUB_OFFLINE = value


def answers() -> bool:
    """Whether the hub answers at all."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # of the client for HTTP, which differs between versions
        return False
    return True


def say(text: str) -> None:
    """Prints a line for the person who waits."""
    start = ERASE_LINE if sys.stderr.isatty() else ""
    print(f"{start}{text}", file=sys.stderr, flush=True)


# Libraries that say much while they load: a person's mistake is to be one line, not the last of thirty.

TALKERS = ("huggingface_hub", "datasets", "transformers")


@contextmanager
def quietly() -> Iterator[None]:
    """Hides warnings of these libraries, such as those of every retry, and the progress of loading weights."""
    before = {name: logging.getLogger(name).level for name in TALKERS}
    for name in TALKERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with no_bar_of_weights():
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def no_bar_of_weights() -> Iterator[None]:
    """Hides transformers' own progress bars; those of the hub's downloads, which take long, stay as they are."""
    if "transformers" not in sys.modules:
        yield
        return
    bars: Any = import_module("transformers.utils.logging")
    hub: Any = import_module("huggingface_hub.utils")
    downloads, weights = not hub.are_progress_bars_disabled(), bars.is_progress_bar_enabled()
    bars.disable_progress_bar()  # and those of downloads along with it
    if downloads:
        hub.enable_progress_bars()
    try:
        yield
    finally:
        if weights:
            bars.enable_progress_bar()


# -- MultiNLI (Williams et al. 2018): JSON lines in a folder, or the Hugging Face hub ---------------------------------

LABELS = ("entailment", "neutral", "contradiction")
HUB = "nyu-mll/multi_nli"
FOLDER = "multinli"


class Pair(NamedTuple):
    """A pair of sentences with their relation."""

    premise: str
    hypothesis: str
    label: int
    genre: str


def multinli(folder: str | None) -> tuple[list[Pair], list[Pair]]:
    """Gets training and matched development examples from a folder or the hub."""
    place = Path(folder) if folder else home() / FOLDER
    if place.is_dir():
        return from_folder(place)
    if folder:
        raise DataError(f"folder: there is no folder {folder}")
    return from_hub(place)


def from_folder(folder: Path) -> tuple[list[Pair], list[Pair]]:
    """Reads the files of a folder by their names: those with `train` in them, and the matched development set."""
    found = sorted(folder.glob("*.jsonl"))
    train = [path for path in found if "train" in path.name]
    test = [path for path in found if "mismatched" not in path.name and ("dev" in path.name or "valid" in path.name)]
    for what, paths in (("training", train), ("development", test)):
        if not paths:
            raise DataError(f"folder: no {what} file (*train*.jsonl, *dev_matched*.jsonl) in {folder}")
    return [p for path in train for p in read(path)], [p for path in test for p in read(path)]


def read(path: Path) -> list[Pair]:
    """Reads all examples of a file that have a label: `-` marks those on which people did not agree."""
    pairs = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    pair = _pair(line, f"{path}, line {number}")
                    if pair is not None:
                        pairs.append(pair)
    except UnicodeDecodeError as error:
        raise DataError(f"folder: {path} is not UTF-8 text ({error.reason}); save it as UTF-8") from error
    except OSError as error:
        raise DataError(f"folder: {path} cannot be read ({error.strerror}); see that you may read it") from error
    if not pairs:
        raise DataError(f"folder: {path} has no examples")
    return pairs


def _pair(line: str, where: str) -> Pair | None:
    try:
        entry = json.loads(line)
        premise = entry["premise"] if "premise" in entry else entry["sentence1"]
        hypothesis = entry["hypothesis"] if "hypothesis" in entry else entry["sentence2"]
        label, genre = entry["gold_label"], entry["genre"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(
            f"folder: {where} is not an example (premise, hypothesis, gold_label, genre): {error}"
        ) from error
    if label == "-":
        return None
    if label not in LABELS:
        raise DataError(f"folder: {where} has gold_label {label!r}; allowed: {', '.join(LABELS)}, -")
    if not isinstance(genre, str) or not genre.strip():
        raise DataError(f"folder: {where} has an empty genre")
    return Pair(str(premise), str(hypothesis), LABELS.index(label), genre)


def from_hub(place: Path) -> tuple[list[Pair], list[Pair]]:
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"folder: MultiNLI is not in {place}; put its JSON lines there, name its folder, or install `datasets` "
            "(pip install 'walktalk[language]') to get it from the Hugging Face hub"
        ) from error
    with quietly(), hub(HUB) as answers:
        try:
            splits = datasets.load_dataset(HUB)
        except Exception as error:  # the hub's client raises many kinds
            words = " ".join(str(error).split())[:300] if answers else "it does not answer, and its cache has none"
            raise DataError(
                f"folder: {HUB} cannot be had from the Hugging Face hub ({words}); put its JSON lines in {place}, or "
                "name their folder with --set task.folder=FOLDER"
            ) from error
    return _of_hub(splits["train"]), _of_hub(splits["validation_matched"])


def _of_hub(rows: Iterable[Any]) -> list[Pair]:
    return [
        Pair(row["premise"], row["hypothesis"], int(row["label"]), row["genre"]) for row in rows if row["label"] >= 0
    ]


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
