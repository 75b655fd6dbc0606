"""Readers of image files, and the usual changes to images in training."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from walktalk.codecs import hashed
from walktalk.errors import DataError

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
        """[W, B, C, H, W'] in, the same out."""
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
