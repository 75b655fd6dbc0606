"""A run as a short film: a GIF or WebP of the network at work and the loss that falls, for a README or a talk.

It begins at a pace at which single hops can be followed, and then goes faster and faster to the end of the run. The
card has a background of its own, so that it can stand on a light page and on a dark one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from walktalk.core.errors import StudyError
from walktalk.records import replacing
from walktalk.report.figures import with_unit
from walktalk.report.replay.data import replay_data
from walktalk.report.replay.events import Events, decode
from walktalk.report.replay.timeline import Span, between, timeline_of
from walktalk.report.replay.words import incident, sentence, template

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

# -- one picture: the network on the left, the loss on the right, drawn large and made smaller ------------------------

SCALE = 2  # drawn so many times larger: edges come out smooth
BACK, CARD, LINE, DIM, TEXT = "#10151d", "#171d27", "#3a4453", "#93a0b2", "#eef2f7"
RED, GOLD = "#ff6b6b", "#ffb454"
HOP = 4  # pictures that a hop is seen to take, where it takes no time itself
STANDS = 14  # pictures that the words on an incident stand


class Picture:
    """Draws one picture of the film: the network and the loss of a run at a given time."""

    def __init__(self, data: dict[str, Any], run: dict[str, Any], width: int) -> None:
        events = decode(run["events"])
        self.data, self.run, self.timeline = data, run, timeline_of(events)
        self.width, self.height = width, round(width * 0.52)
        self.size = (self.width * SCALE, self.height * SCALE)
        self.colours: list[str] = data["walk_colours_dark"]
        self.colour: str = run["colour_dark"]
        self.unit = self.width * SCALE / 760
        self.places = self._places()
        self.radius = max(3.0, min(15.0, 60 / math.sqrt(len(self.places)))) * self.unit
        self.incidents = _incidents(events, data["network"]["names"])
        self.words, self.said = "", 0
        self.still = self._still()

    def draw(self, before: float, now: float) -> Image.Image:
        """What there is to see at `now`, and what happened since `before`."""
        from PIL import Image, ImageDraw

        picture = self.still.copy()
        pen = ImageDraw.Draw(picture, "RGBA")
        seen = max(now - before, 1e-12)
        self._hops(pen, before, now)
        busy: dict[int, Span] = {}
        for span in between(self.timeline.trainings, now, now):
            self._training(pen, span, now)
            busy.setdefault(span.node, span)
        for node in range(len(self.places)):
            self._node(pen, node, busy.get(node), now)
        self._walks(pen, now, seen)
        self._curve(pen, now)
        self._caption(pen, before, now)
        return picture.resize((self.width, self.height), Image.Resampling.LANCZOS)

    # -- what stands still ------------------------------------------------------------------------------------------

    def _places(self) -> Any:
        network = self.data["network"]
        xy = np.array(network["places"], dtype=float) * [1.0, -1.0]  # upside down, as screens count
        low, extent = xy.min(axis=0), np.maximum(xy.max(axis=0) - xy.min(axis=0), 1e-3)
        box = np.array([0.05, 0.10, 0.56, 0.80]) * [self.size[0], self.size[1], self.size[0], self.size[1]]
        scale = box[2:] / extent
        scale = np.minimum(scale, 1.35 * scale.min())
        return box[:2] + (box[2:] - extent * scale) / 2 + (xy - low) * scale

    def _still(self) -> Image.Image:
        from PIL import Image, ImageDraw

        picture = Image.new("RGB", self.size, BACK)
        pen = ImageDraw.Draw(picture)
        wide = max(1, round(1.1 * self.unit))
        for a, b in self.data["network"]["pairs"]:
            pen.line([*self.places[a], *self.places[b]], fill=LINE, width=wide)
        x0, y0, x1, y1 = self._panel()
        pad = 14 * self.unit
        pen.rounded_rectangle([x0 - pad, y0 - 3 * pad, x1 + pad, y1 + 2.2 * pad], radius=12 * self.unit, fill=CARD)
        pen.text((x0, y0 - 2.3 * pad), "Training loss", font=self._font(13), fill=DIM)
        title = f"{self.run['title']} on {len(self.places)} nodes"
        pen.text((0.05 * self.size[0], 0.035 * self.size[1]), title, font=self._font(15, bold=True), fill=TEXT)
        return picture

    def _panel(self) -> tuple[float, float, float, float]:
        """Where the loss curve is."""
        return 0.69 * self.size[0], 0.2 * self.size[1], 0.96 * self.size[0], 0.62 * self.size[1]

    # -- what moves -------------------------------------------------------------------------------------------------

    def _colour(self, span: Span) -> str:
        return self.colours[(span.walk - 1) % len(self.colours)] if span.walk > 0 else self.colour

    def _hops(self, pen: ImageDraw, before: float, now: float) -> None:
        for span in list(between(self.timeline.flights, before, now))[-80:]:
            colour = RED if span.lost else self._colour(span)
            pen.line([*self.places[span.node], *self.places[span.to]], fill=colour, width=round(2.6 * self.unit))

    def _training(self, pen: ImageDraw, span: Span, now: float) -> None:
        x, y = self.places[span.node]
        red, green, blue = rgb(self._colour(span))
        for ring in range(6, 0, -1):
            r = self.radius * (1.05 + 0.26 * ring)
            pen.ellipse([x - r, y - r, x + r, y + r], fill=(red, green, blue, 26))
        r = self.radius + 4 * self.unit
        share = (now - span.start) / max(span.end - span.start, 1e-12)
        box = [x - r, y - r, x + r, y + r]
        pen.arc(box, -90, -90 + 360 * min(share, 1.0), fill=self._colour(span), width=round(2.4 * self.unit))

    def _node(self, pen: ImageDraw, node: int, busy: Span | None, now: float) -> None:
        x, y = self.places[node]
        r, wide = self.radius, max(1, round(1.6 * self.unit))
        box = [x - r, y - r, x + r, y + r]
        if self.timeline.dead(node, now):
            pen.ellipse(box, fill=BACK, outline=RED, width=wide)
            d = r * 0.5
            pen.line([x - d, y - d, x + d, y + d], fill=RED, width=wide)
            pen.line([x - d, y + d, x + d, y - d], fill=RED, width=wide)
            return
        fill = self._colour(busy) if busy else CARD
        if node == self._aggregator(now):
            pen.rounded_rectangle(box, radius=r * 0.35, fill=fill, outline=GOLD, width=round(2.6 * self.unit))
        else:
            pen.ellipse(box, fill=fill, outline=DIM, width=wide)
        if r > 8 * self.unit:
            colour = BACK if busy else TEXT
            pen.text((x, y), str(node), font=self._font(11, bold=True), fill=colour, anchor="mm")

    def _aggregator(self, now: float) -> int:
        found = [node for time, node in self.run["aggregators"] if time <= now]
        return found[-1] if found else (self.run["aggregators"][0][1] if self.run["aggregators"] else -1)

    def _walks(self, pen: ImageDraw, now: float, seen: float) -> None:
        if len(self.timeline.walks) > 40:
            return
        for walk in self.timeline.walks:
            station = self.timeline.walk_at(walk, now)
            if station.node < 0:
                continue
            x, y = self._beside(walk, station.node)
            if station.hop is not None:
                took = max(station.hop.end - station.hop.start, HOP * seen)
                share = min(1.0, (now - station.time) / took)
                share = share * share * (3 - 2 * share)
                ax, ay = self._beside(walk, station.hop.node)
                x, y = ax + (x - ax) * share, ay + (y - ay) * share
            r = 8.5 * self.unit
            colour = self.colours[(walk - 1) % len(self.colours)]
            pen.ellipse([x - r, y - r, x + r, y + r], fill=colour, outline=BACK, width=round(1.6 * self.unit))
            pen.text((x, y), str(walk), font=self._font(10, bold=True), fill=BACK, anchor="mm")

    def _beside(self, walk: int, node: int) -> tuple[float, float]:
        around = max(4, min(len(self.timeline.walks), 12))
        angle = 2 * math.pi * ((walk - 1) % around) / around - math.pi / 3
        x, y = self.places[node]
        return x + 1.2 * self.radius * math.cos(angle), y + 1.2 * self.radius * math.sin(angle)

    def _curve(self, pen: ImageDraw, now: float) -> None:
        curve = self.run["curve"]
        points = [(t, v) for t, v in zip(curve["time"], curve["loss"], strict=True) if v is not None and v > 0]
        if len(points) < 2:
            return
        x0, y0, x1, y1 = self._panel()
        values = np.log([value for _, value in points])
        low, high = values.min(), max(values.max(), values.min() + 1e-9)
        end = max(self.run["end"], 1e-12)
        places = [
            (x0 + (x1 - x0) * t / end, y0 + (y1 - y0) * (high - v) / (high - low))
            for (t, _), v in zip(points, values, strict=True)
        ]
        pen.line(places, fill=LINE, width=round(1.4 * self.unit))
        past = [place for place, (t, _) in zip(places, points, strict=True) if t <= now]
        if len(past) > 1:
            pen.line(past, fill=self.colour, width=round(3 * self.unit), joint="curve")
        if past:
            (x, y), r = past[-1], 4.5 * self.unit
            pen.ellipse([x - r, y - r, x + r, y + r], fill=TEXT)
        shown = [value for t, value in points if t <= now] or [points[0][1]]
        pen.text((x1, y0 - 32 * self.unit), f"{shown[-1]:.3g}", font=self._font(15, bold=True), fill=TEXT, anchor="ra")

    def _caption(self, pen: ImageDraw, before: float, now: float) -> None:
        done = sum(span.end <= now for span in self.timeline.trainings)
        x, y = 0.69 * self.size[0], 0.77 * self.size[1]
        clock = "virtual time" if self.data["clock"] == "virtual" else "time"
        for row, (name, value) in enumerate(((clock, with_unit("time", now)), ("trainings", f"{done:,}"))):
            pen.text((x, y + 22 * row * self.unit), name, font=self._font(13), fill=DIM)
            right = (0.96 * self.size[0], y + 22 * row * self.unit)
            pen.text(right, value, font=self._font(13, bold=True), fill=TEXT, anchor="ra")
        news = [text for time, text in self.incidents if before < time <= now]
        if news:
            self.words, self.said = news[0], STANDS
        if self.said > 0:
            self.said -= 1
            place = (0.05 * self.size[0], 0.965 * self.size[1])
            pen.text(place, self.words, font=self._font(13, bold=True), fill=GOLD, anchor="ls")

    def _font(self, size: float, bold: bool = False) -> FreeTypeFont:
        return font(round(size * self.unit), bold)


def _incidents(events: Events, names: Sequence[str] | None) -> list[tuple[float, str]]:
    """What went wrong and what was done about it, in words, without what only repeats it."""
    found = []
    for i in range(len(events)):
        name = events.kinds[events.kind[i]]
        if incident(name) is None or name in ("lost", "suspected"):
            continue
        known = {"peer": int(events.peer[i]), "walk": int(events.walk[i]), "number": int(events.number[i])}
        facts: dict[str, object] = {key: value for key, value in known.items() if value >= 0}
        if "{detail}" in template(name) and events.text[i] >= 0:
            facts["detail"] = events.texts[events.text[i]]
        found.append((float(events.time[i]), sentence(name, int(events.node[i]), facts, names)))
    return found


@cache
def font(size: int, bold: bool) -> FreeTypeFont:
    """The font of the figures: it comes with matplotlib, so it is the same everywhere."""
    from matplotlib import font_manager
    from PIL import ImageFont

    wanted = font_manager.FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    return ImageFont.truetype(font_manager.findfont(wanted), size)


def rgb(colour: str) -> tuple[int, int, int]:
    """The parts of a colour that is written as #rrggbb."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


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
    lengths = [span.end - span.start for span in picture.timeline.trainings if np.isfinite(span.end)]
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
