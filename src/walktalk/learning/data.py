"""Finds, checks, fetches and reads the files of data sets, and changes images as is usual in training.

Nothing is trained on a file that is not the published one.
"""

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

import numpy as np
import torch
from torch import Tensor

from walktalk.core.errors import DataError
from walktalk.transforms.codecs import hashed

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
    """Checks that every file is there and is the published one, to the byte.

    `remedy` is what to do where one is not.
    """
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
    """Says what helps where a folder is the person's own, which nothing here writes to."""
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
    """Checks fetched files before they are moved: a person never sees where they lie meanwhile."""
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
    """Extracts the files that are wanted, by name, and nothing else that the archive may hold."""
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


# Readers of image files, and the usual changes to images in training.

GZIPPED = b"\x1f\x8b"  # how a gzipped file begins
RECORD = 1 + 3 * 32 * 32  # a CIFAR-10 record: the label, then red, green and blue, row after row
DRAWN_FOR_IMAGES = 2**40  # the first counter of a key that is used here: far from those that draw batches


def cifar_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 3, 32, 32] and labels of one file in CIFAR-10's binary version."""
    raw = np.fromfile(path, dtype=np.uint8)
    if len(raw) == 0 or len(raw) % RECORD:
        raise DataError(f"{path}: {len(raw)} bytes are not whole records of {RECORD}")
    records = raw.reshape(-1, RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def idx(path: Path) -> np.ndarray:
    """An array in the IDX format of MNIST, gzipped or not."""
    raw = path.read_bytes()
    if raw[:2] == GZIPPED:
        raw = gzip.decompress(raw)
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise DataError(f"{path}: is not an IDX file of bytes")
    dims = raw[3]
    shape = np.frombuffer(raw, ">i4", dims, 4)
    data = np.frombuffer(raw, np.uint8, offset=4 + 4 * dims)
    if len(data) != int(np.prod(shape)):
        raise DataError(f"{path}: has {len(data)} numbers, not the {int(np.prod(shape))} that it announces")
    return data.reshape(shape)


def normalized(images: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Bytes as float32, less the mean and over the standard deviation of each channel."""
    centre, spread = (torch.tensor(values).view(1, -1, 1, 1) for values in (mean, std))
    return (torch.tensor(images).float().div_(255.0) - centre).div_(spread)


class CropAndFlip:
    """Moves each image by up to `reach` pixels each way, zeros coming in, and mirrors every second one.

    What happens to a sample is a hash of the row's key, the step and its place in the batch: the same alone, in a wide
    wave, and on another device.
    """

    def __init__(self, reach: int = 4) -> None:
        self.reach = reach

    def __call__(self, images: Tensor, keys: Tensor, step: int) -> Tensor:
        """Changes images [W, B, C, H, W'] by the rows' keys."""
        rows, batch, channels, height, width = images.shape
        places = torch.arange(batch, device=images.device) + (DRAWN_FOR_IMAGES + step * batch)
        bits = hashed(keys.view(-1, 1), places.view(1, -1)).flatten()
        choices = 2 * self.reach + 1
        down, right = bits % choices - self.reach, (bits >> 8) % choices - self.reach
        mirrored = ((bits >> 16) & 1).bool().view(-1, 1)
        y = torch.arange(height, device=images.device) + down.view(-1, 1)
        x = torch.arange(width, device=images.device).expand(len(bits), -1)
        x = torch.where(mirrored, width - 1 - x, x) + right.view(-1, 1)
        inside = ((y >= 0) & (y < height)).unsqueeze(2) & ((x >= 0) & (x < width)).unsqueeze(1)
        at = (y.clamp(0, height - 1) * width).unsqueeze(2) + x.clamp(0, width - 1).unsqueeze(1)
        flat = images.reshape(rows * batch, channels, height * width)
        moved = flat.gather(2, at.view(-1, 1, height * width).expand(-1, channels, -1))
        return moved.masked_fill(~inside.view(-1, 1, height * width), 0.0).view_as(images)
