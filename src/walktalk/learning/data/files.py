"""Finds, checks and fetches the files of a data set. Nothing is trained on a file that is not the published one."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from walktalk.errors import DataError

Say = Callable[[str], None]
PIECE = 2**20


@dataclass(frozen=True)
class Dataset:
    """The files of a data set, with their MD5 sums (which guard against damage, not against malice)."""

    name: str
    folder: str  # inside the data folder
    files: dict[str, str]  # name -> MD5
    urls: tuple[str, ...]  # an archive that has all of them, or one address a file
    archive_md5: str | None = None  # None: the addresses are of the files themselves


CIFAR10 = Dataset(
    "cifar10",
    "cifar-10-batches-bin",
    {
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    "c32a1d4ab5d03f1284b67883e8d87530",
)
FASHION = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
FASHION_MNIST = Dataset(
    "fashion_mnist",
    "fashion-mnist",
    {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    (
        f"{FASHION}train-images-idx3-ubyte.gz",
        f"{FASHION}train-labels-idx1-ubyte.gz",
        f"{FASHION}t10k-images-idx3-ubyte.gz",
        f"{FASHION}t10k-labels-idx1-ubyte.gz",
    ),
)
DATASETS = {dataset.name: dataset for dataset in (CIFAR10, FASHION_MNIST)}


def home() -> Path:
    """The folder with all data sets: the variable WALKTALK_DATA, or walktalk in the person's cache."""
    given = os.environ.get("WALKTALK_DATA")
    return Path(given) if given else Path.home() / ".cache" / "walktalk"


def locate(dataset: Dataset, folder: str | None = None) -> Path:
    """The folder with the data set's files, whole and unchanged; a `DataError` says what is wrong and what to do."""
    places = [Path(folder), Path(folder) / dataset.folder] if folder else [home() / dataset.folder]
    here = next((place for place in places if any((place / name).exists() for name in dataset.files)), None)
    if here is None:
        raise DataError(
            f"folder: no file of {dataset.name} in {places[0]}; get it with `walktalk data get {dataset.name}`"
            f" (or `--from FOLDER`), or name its folder"
        )
    check(dataset, here)
    return here


def check(dataset: Dataset, folder: Path) -> None:
    """That every file is there and is the published one, to the byte."""
    for name, expected in dataset.files.items():
        path = folder / name
        if not path.is_file():
            raise DataError(f"folder: {path} is missing; get it with `walktalk data get {dataset.name}`")
        if _known_good(path, expected):
            continue
        found = md5(path)
        if found != expected:
            raise DataError(
                f"folder: {path} is damaged or not the published file (MD5 {found}, not {expected}); delete it and "
                f"get it again with `walktalk data get {dataset.name}`"
            )
        _remember(path, expected)


_checked: dict[tuple[str, int, int], str] = {}  # (path, size, time of change) -> MD5: a study looks more than once


def _key(path: Path) -> tuple[str, int, int]:
    stat = path.stat()
    return str(path.resolve()), stat.st_size, stat.st_mtime_ns


def _known_good(path: Path, expected: str) -> bool:
    return _checked.get(_key(path)) == expected


def _remember(path: Path, expected: str) -> None:
    _checked[_key(path)] = expected


def md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def fetch(dataset: Dataset, source: str | None = None, say: Say = lambda text: None) -> Path:
    """Put the data set's files where tasks look for them, from a folder or from where they are published."""
    target = home() / dataset.folder
    if source is None and all((target / name).is_file() for name in dataset.files):
        check(dataset, target)
        say(f"{dataset.name} is in {target} already, complete and unchanged")
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:  # beside its place, so that moving is renaming
        part = Path(work) / "files"
        part.mkdir()
        if source is not None:
            _copy(dataset, locate(dataset, source), part)
        else:
            _download(dataset, part, Path(work), say)
        check(dataset, part)
        target.mkdir(exist_ok=True)
        for name in dataset.files:
            os.replace(part / name, target / name)
    say(f"{dataset.name} is in {target}, complete and unchanged")
    return target


def _copy(dataset: Dataset, source: Path, part: Path) -> None:
    for name in dataset.files:
        shutil.copyfile(source / name, part / name)


def _download(dataset: Dataset, part: Path, work: Path, say: Say) -> None:
    for url in dataset.urls:
        name = url.rsplit("/", 1)[1]
        say(f"fetching {url}")
        arrived = (work if dataset.archive_md5 else part) / name
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, arrived.open("wb") as file:
                shutil.copyfileobj(answer, file, PIECE)
        except (urllib.error.URLError, OSError) as error:
            raise DataError(
                f"{url} cannot be fetched ({error}); fetch it elsewhere and use `walktalk data get {dataset.name} "
                "--from FOLDER`"
            ) from error
        if dataset.archive_md5 is not None:
            _unpack(dataset, arrived, part)


def _unpack(dataset: Dataset, archive: Path, part: Path) -> None:
    """The files that are wanted, by name, and nothing else that the archive may hold."""
    if md5(archive) != dataset.archive_md5:
        raise DataError(f"{archive.name} arrived damaged (its MD5 is not {dataset.archive_md5}); try again")
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            content = tar.extractfile(member) if member.isfile() and name in dataset.files else None
            if content is not None:
                with content, (part / name).open("wb") as file:
                    shutil.copyfileobj(content, file, PIECE)
