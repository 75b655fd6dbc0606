"""MultiNLI (Williams et al. 2018): JSON lines in a folder, or the Hugging Face hub."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from walktalk.core.errors import DataError
from walktalk.learning.data.files import home

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
