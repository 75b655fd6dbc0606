"""MultiNLI (Williams et al. 2018): JSON lines in a folder, or the Hugging Face hub."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from walktalk.core.errors import DataError
from walktalk.learning.data.files import home
from walktalk.learning.data.hub import hub, quietly

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
