"""Finds, checks and fetches the files of a data set. Nothing is trained on a file that is not the published one."""

from __future__ import annotations

import gzip
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
MOST_BYTES = 2**28  # of a file in an archive: the largest wanted has 31 MB, and a small archive may unpack to any size


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
MNIST_PLACE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST = Dataset(
    "mnist",
    "mnist",
    {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    (
        f"{MNIST_PLACE}train-images-idx3-ubyte.gz",
        f"{MNIST_PLACE}train-labels-idx1-ubyte.gz",
        f"{MNIST_PLACE}t10k-images-idx3-ubyte.gz",
        f"{MNIST_PLACE}t10k-labels-idx1-ubyte.gz",
    ),
)
DATASETS = {dataset.name: dataset for dataset in (CIFAR10, FASHION_MNIST, MNIST)}


def home() -> Path:
    """The folder with all data sets: the variable WALKTALK_DATA, or walktalk in the person's cache."""
    given = os.environ.get("WALKTALK_DATA")
    return Path(given) if given else Path.home() / ".cache" / "walktalk"


def locate(dataset: Dataset, folder: str | None = None, key: str = "folder") -> Path:
    """The folder with the data set's files, whole and unchanged; a `DataError` says what is wrong and what to do."""
    here = found_in(dataset, folder, key)
    if here is None:
        raise DataError(
            f"{key}: no file of {dataset.name} in {folder or home() / dataset.folder}; get it with "
            f"`walktalk data get {dataset.name}` (or `--from FOLDER`), or name its folder"
        )
    check(dataset, here, None if folder is None else put_there(dataset), key)
    return here


def found_in(dataset: Dataset, folder: str | None, key: str) -> Path | None:
    """Where any of the data set's files are: in this folder, in its own one there, or at home."""
    places = [Path(folder), Path(folder) / dataset.folder] if folder else [home() / dataset.folder]
    try:
        return next((place for place in places if any((place / name).exists() for name in dataset.files)), None)
    except OSError as error:  # a folder that may not be looked into
        raise DataError(f"{key}: {places[0]} cannot be read ({error.strerror}); see that you may read it") from error


def check(dataset: Dataset, folder: Path, remedy: str | None = None, key: str = "folder") -> None:
    """That every file is there and is the published one, to the byte; `remedy` is what to do where one is not."""
    remedy = remedy or f"get it again with `walktalk data get {dataset.name}`"
    for name, expected in dataset.files.items():
        path = folder / name
        if not path.is_file():
            raise DataError(f"{key}: {path} is missing; {remedy}")
        if _known_good(path, expected):
            continue
        found = md5(path, key)
        if found != expected:
            raise DataError(
                f"{key}: {path} is damaged or not the published file (MD5 {found}, not {expected}); {remedy}"
            )
        _remember(path, expected)


def put_there(dataset: Dataset) -> str:
    """What helps where a folder is the person's own, which nothing here writes to."""
    published = dataset.urls[0] if dataset.archive_md5 else dataset.urls[0].rsplit("/", 1)[0]
    return f"put the published file there (from {published}), or name another folder"


_checked: dict[tuple[str, int, int], str] = {}  # (path, size, time of change) -> MD5: a study looks more than once


def _key(path: Path) -> tuple[str, int, int]:
    stat = path.stat()
    return str(path.resolve()), stat.st_size, stat.st_mtime_ns


def _known_good(path: Path, expected: str) -> bool:
    return _checked.get(_key(path)) == expected


def _remember(path: Path, expected: str) -> None:
    _checked[_key(path)] = expected


def md5(path: Path, key: str = "folder") -> str:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
    except OSError as error:
        raise DataError(f"{key}: {path} cannot be read ({error.strerror}); see that you may read it") from error
    return digest.hexdigest()


def fetch(dataset: Dataset, source: str | None = None, say: Say = lambda text: None) -> Path:
    """Put the data set's files where tasks look for them, from a folder, an archive, or where they are published."""
    target = home() / dataset.folder
    if source is None and all((target / name).is_file() for name in dataset.files):
        try:
            check(dataset, target)
        except DataError as error:
            say(f"{str(error).removeprefix('folder: ').split(';')[0]}; fetching it all again")
        else:
            say(f"{dataset.name} is in {target} already, complete and unchanged")
            return target
    archive = None if source is None else archive_in(dataset, Path(source))
    here = None if source is None or archive is not None else locate(dataset, source, "--from")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:  # beside its place, so that moving is renaming
        part = Path(work) / "files"
        part.mkdir()
        if archive is not None:
            say(f"unpacking {archive}")
            _unpack(dataset, archive, part)
        elif here is not None:
            _copy(dataset, here, part)
        else:
            _download(dataset, part, Path(work), say)
        _check_arrived(dataset, part, str(source or dataset.urls[0]))
        target.mkdir(exist_ok=True)
        for name in dataset.files:
            os.replace(part / name, target / name)
    say(f"{dataset.name} is in {target}, complete and unchanged")
    return target


def archive_in(dataset: Dataset, source: Path) -> Path | None:
    """The archive that a person has fetched elsewhere: this file, or in this folder under the name it is published by.

    None where the folder has the files themselves, which come first.
    """
    name = dataset.urls[0].rsplit("/", 1)[1]
    if source.is_file():
        if dataset.archive_md5 is None:
            raise DataError(f"--from: {source} is a file; name the folder with {', '.join(dataset.files)}")
        return source
    if not source.is_dir():
        raise DataError(f"--from: there is no folder {source}")
    if found_in(dataset, str(source), "--from") is not None:
        return None
    if dataset.archive_md5 is not None and (source / name).is_file():
        return source / name
    wanted = f"{name}, or {', '.join(dataset.files)}" if dataset.archive_md5 is not None else ", ".join(dataset.files)
    raise DataError(f"--from: no file of {dataset.name} in {source}; it should hold {wanted}")


def _check_arrived(dataset: Dataset, part: Path, source: str) -> None:
    """The same for files on their way: a person never sees where they lie meanwhile."""
    for name, expected in dataset.files.items():
        if not (part / name).is_file():
            raise DataError(f"{source} has no {name}; it is not the published {dataset.name}")
        if md5(part / name) != expected:
            raise DataError(f"{name} from {source} is damaged (its MD5 is not {expected}); fetch it once more")


def _copy(dataset: Dataset, source: Path, part: Path) -> None:
    for name in dataset.files:
        shutil.copyfile(source / name, part / name)  # readable, or its sum would not be known


def _download(dataset: Dataset, part: Path, work: Path, say: Say) -> None:
    for url in dataset.urls:
        name = url.rsplit("/", 1)[1]
        say(f"fetching {url}")
        arrived = (work if dataset.archive_md5 else part) / name
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, arrived.open("wb") as file:
                shutil.copyfileobj(answer, file, PIECE)
        except (urllib.error.URLError, OSError) as error:
            kept = name if dataset.archive_md5 else "it and its like"
            raise DataError(
                f"{url} cannot be fetched ({error}); fetch {kept} elsewhere, put it in a folder, and use "
                f"`walktalk data get {dataset.name} --from FOLDER`"
            ) from error
        if dataset.archive_md5 is not None:
            _unpack(dataset, arrived, part)
        elif name not in dataset.files and name.removesuffix(".gz") in dataset.files:
            with gzip.open(arrived, "rb") as packed, (part / name.removesuffix(".gz")).open("wb") as file:
                shutil.copyfileobj(packed, file, PIECE)


def _unpack(dataset: Dataset, archive: Path, part: Path) -> None:
    """The files that are wanted, by name, and nothing else that the archive may hold."""
    found = md5(archive, "--from")
    if found != dataset.archive_md5:
        raise DataError(
            f"{archive.name} is damaged or another archive (MD5 {found}, not {dataset.archive_md5}); fetch it "
            f"once more from {dataset.urls[0]}"
        )
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            if member.size > MOST_BYTES:
                raise DataError(
                    f"{archive.name} holds {member.name} of {member.size} bytes, which no data set here has"
                )
            content = tar.extractfile(member) if member.isfile() and name in dataset.files else None
            if content is not None:
                with content, (part / name).open("wb") as file:
                    shutil.copyfileobj(content, file, PIECE)
