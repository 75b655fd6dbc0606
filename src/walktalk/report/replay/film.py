"""A run as a short film: a GIF or WebP of the network at work and the loss that falls, for a README or a talk.

It begins at a pace at which single hops can be followed, and then goes faster and faster to the end of the run. The
card has a background of its own, so that it can stand on a light page and on a dark one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from walktalk.errors import StudyError
from walktalk.records import replacing
from walktalk.report.replay.data import replay_data
from walktalk.report.replay.picture import Picture

if TYPE_CHECKING:
    from PIL import Image

FRAMES_A_SECOND = 14
SECONDS_A_TRAINING = 1.0  # of the watcher's time, at the beginning
SLOW = 0.5  # of the film is at that pace
LAST_FRAME = 1.6  # seconds that the end stands still
BYTES = 1_500_000  # what a README should load at most
WIDTHS = (760, 640, 520, 420)  # tried in turn until it is small enough
COLOURS = 160  # of a GIF
KINDS = (".gif", ".webp")


def write_film(
    folder: str | PathLike[str], path: str | PathLike[str], *, algorithm: str | None = None, seconds: float = 10.0
) -> Path:
    """Write the film of a study's run to a `.gif` or `.webp` of at most a megabyte and a half; its path.

    `algorithm`: whose run, by its label; the first with a few walks if left out. `seconds`: how long it lasts.
    """
    file = Path(path)
    if file.suffix.lower() not in KINDS:
        raise StudyError(f"--gif {file}: is neither a .gif nor a .webp file")
    data = replay_data(folder)
    if data is None:
        raise StudyError(f"{folder}: no run here left a trace, so there is nothing to replay; run the study first")
    run = _chosen(data["runs"], algorithm)
    for width in WIDTHS:
        film = list(frames(data, run, width, seconds))
        with replacing(file) as part:
            _write(film, part, file.suffix.lower())
        if file.stat().st_size <= BYTES:
            break
    return file


def frames(data: dict[str, Any], run: dict[str, Any], width: int, seconds: float) -> Iterator[Image.Image]:
    """The pictures, one after the other."""
    picture = Picture(data, run, width)
    times = moments(run["end"], _pace(picture), round(seconds * FRAMES_A_SECOND))
    for before, now in pairwise(times):
        yield picture.draw(before, now)


def moments(end: float, pace: float, count: int) -> Any:
    """The times of the pictures: evenly at first, a training a second, then ever faster so that the last is the end."""
    step = pace / SECONDS_A_TRAINING / FRAMES_A_SECOND
    if end <= step * count:
        return np.linspace(0.0, end, count + 1)
    slow = round(SLOW * count)
    first = np.arange(slow + 1) * step
    rest = count - slow
    low, high = 1.0, 1e6  # the ratio by which each step is longer than the one before, found by halving
    for _ in range(200):
        ratio = np.sqrt(low * high)
        length = step * (np.power(ratio, np.arange(1, rest + 1))).sum()
        low, high = (ratio, high) if length < end - first[-1] else (low, ratio)
    return np.concatenate([first, np.minimum(first[-1] + step * np.cumsum(np.power(low, np.arange(1, rest + 1))), end)])


def _pace(picture: Picture) -> float:
    lengths = [span.end - span.start for span in picture.course.trainings if np.isfinite(span.end)]
    return float(np.median(lengths)) if lengths else picture.run["end"] / 10 or 1.0


def _chosen(runs: list[dict[str, Any]], algorithm: str | None) -> dict[str, Any]:
    labels = [run["label"] for run in runs]
    if algorithm is None:
        return next((run for run in runs if 2 <= run["walks"] <= 8), runs[0])
    if algorithm not in labels:
        raise StudyError(f"--algorithm {algorithm}: is not in this study; allowed: {', '.join(labels)}")
    return runs[labels.index(algorithm)]


def _write(film: list[Image.Image], path: Path, kind: str) -> None:
    from PIL import Image

    each = round(1000 / FRAMES_A_SECOND)
    durations = [each] * (len(film) - 1) + [round(LAST_FRAME * 1000)]
    options: dict[str, Any] = {"save_all": True, "duration": durations, "loop": 0}
    if kind == ".webp":
        film[0].save(path, "WEBP", append_images=film[1:], quality=72, method=4, **options)
        return
    # One palette for all pictures, from some of them side by side: then what stands still costs nothing.
    flat = [frame.convert("RGB") for frame in film]
    some = flat[:: max(1, len(flat) // 8)]
    sheet = Image.new("RGB", (flat[0].width, flat[0].height * len(some)))
    for row, frame in enumerate(some):
        sheet.paste(frame, (0, row * frame.height))
    palette = sheet.quantize(COLOURS, method=Image.Quantize.FASTOCTREE)
    reduced = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in flat]
    reduced[0].save(path, "GIF", append_images=reduced[1:], optimize=True, disposal=1, **options)
