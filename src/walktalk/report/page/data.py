"""The data of a page: its network and partition, curves, colours, and names of algorithms."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from walktalk.core.errors import UserError
from walktalk.graphs import Graph
from walktalk.protocols import Described
from walktalk.records import HistoryRow
from walktalk.report import figures
from walktalk.report.figures import AXES, is_share, mean_curve
from walktalk.report.study import Study

if TYPE_CHECKING:
    from walktalk.learning import Task

MOST_NODES = 3000  # beyond, a drawing is a grey blot
MOST_EDGES = 6000
MOST_COLUMNS = 120  # nodes in the table of who holds what


def network_data(
    study: Study, samples: list[int] | None, names: Sequence[str] | None = None, graph: Graph | None = None
) -> dict[str, Any] | None:
    """The drawing: places from 0 to 1, edges as pairs, sites; none where the graph is too large to see.

    Args:
        study: whose network it is.
        samples: how many each node has, where that is known.
        names: of the nodes, where the data has some; those of the graph come first.
        graph: as it is now; the study's, if left out.
    """
    try:
        graph = study.graph if graph is None else graph
    except UserError:  # a file of edges that has gone
        return None
    title = {"name": graph.name, "nodes": graph.nodes, "edges": graph.edges, "notes": list(graph.notes)}
    if graph.nodes > MOST_NODES:
        return title
    places = figures.positions(graph)
    low, span = places.min(axis=0), float(np.ptp(places, axis=0).max()) or 1.0
    edges = graph.edge_list()
    kept = np.linspace(0, len(edges) - 1, MOST_EDGES).astype(int) if len(edges) > MOST_EDGES else np.arange(len(edges))
    sites = graph.sites
    return {
        **title,
        "places": [[round(float(x), 4), round(float(y), 4)] for x, y in (places - low) / span],
        "pairs": edges[kept].tolist(),
        "shown": len(kept),
        "degrees": graph.degrees.tolist(),
        "names": None if (called := graph.names or names) is None else list(called),
        "aggregator": study.aggregator,
        "samples": samples,
        "sites": None if sites is None else {"names": list(sites.names), "of": sites.site_of.tolist()},
    }


def partition_data(task: Task, alpha: float | None) -> dict[str, Any] | None:
    """Samples of each class at each node; none where the task has no classes."""
    if task.labels is None:
        return None
    classes, counts = figures.class_counts(task)
    return {
        "classes": [str(name) for name in classes],
        "counts": counts[:MOST_COLUMNS].tolist(),
        "names": None if task.names is None else list(task.names),
        "nodes": len(counts),
        "alpha": alpha,
    }


# -- curves: means with their spread, single runs, and what was left out of them --------------------------------------

POINTS = 400  # of one run; more cannot be seen
BUDGET = 60_000  # points of all runs together: about a megabyte and a half of page
RUNS = 20  # of one algorithm that are drawn singly; more are a blot
METRICS = {  # column: name, whether less is better
    "train_loss": ("Training loss", True),
    "test_accuracy": ("Test accuracy", False),
    "test_loss": ("Test loss", True),
    "consensus": ("Disagreement between models", True),
    "mean_train_loss": ("Training loss of the mean model", True),
    "mean_test_accuracy": ("Test accuracy of the mean model", False),
    "mean_test_loss": ("Test loss of the mean model", True),
}
MORE_IS_BETTER = ("accuracy", "f1", "auc", "precision", "recall", "score")  # in the name of a metric of one's own
NOT_METRICS = {*HistoryRow._fields} - set(METRICS)


def metrics_of(history: pd.DataFrame) -> list[dict[str, Any]]:
    """What can be shown: every column of the history with a number in it that is no axis, ours first."""
    columns = [*METRICS, *(str(name) for name in history.columns if name not in METRICS)]
    found = []
    for key in columns:
        if key in NOT_METRICS or key not in history or not np.isfinite(history[key].to_numpy(float)).any():
            continue
        usual = (key.replace("_", " ").capitalize(), not any(word in key.lower() for word in MORE_IS_BETTER))
        name, less = METRICS.get(key, usual)
        found.append({"key": key, "name": name, "unit": "%" if is_share(key) else "", "less": less})
    return found


def means(history: pd.DataFrame, labels: Iterable[str], metrics: Iterable[str]) -> dict[str, Any]:
    """Mean and σ over repetitions, for each algorithm, axis and metric."""
    keys = list(metrics)
    return {
        label: {axis: _along(history[history["algorithm"] == label], axis, keys) for axis in AXES} for label in labels
    }


def _along(runs: pd.DataFrame, axis: Any, metrics: Sequence[str]) -> dict[str, Any]:
    drawn = {key: mean_curve(runs, axis, key) for key in metrics}
    grid = next(iter(drawn.values())).x if drawn else np.zeros(0)
    kept = spread_out(len(grid), POINTS)
    return {
        "x": numbers(grid[kept]),
        **{key: {"mean": numbers(c.mean[kept]), "std": numbers(c.std[kept])} for key, c in drawn.items()},
    }


def single_runs(history: pd.DataFrame, metrics: Iterable[str]) -> tuple[dict[str, Any], str]:
    """Every run's evaluations, by algorithm, and a sentence on what was left out so that the page stays small."""
    keys = [*AXES, *metrics]
    groups = history.groupby(["algorithm", "repetition"], sort=False)
    most = max(20, min(POINTS, BUDGET // max(len(groups), 1)))
    found: dict[str, list[dict[str, Any]]] = {}
    thinned = 0
    for (label, repetition), run in groups:
        ordered = run.sort_values("iteration", kind="stable")
        kept = spread_out(len(ordered), most)
        thinned += len(kept) < len(ordered)
        columns = {key: numbers(_scaled(key, ordered[key].to_numpy(float)[kept])) for key in keys}
        found.setdefault(str(label), []).append({"repetition": int(str(repetition)), **columns})
    said = f"{thinned:,} of {len(groups):,} runs are shown with {most:,} of their evaluations each." if thinned else ""
    return found, said


def spread_out(count: int, most: int) -> Any:
    """Places of at most that many of so many points: all, or evenly spread with the first and the last."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(int))


def numbers(values: Iterable[float]) -> list[float | int | None]:
    """Numbers as JSON has them, with as many digits as a screen can show; nothing where there is no number."""
    return [_number(float(value)) for value in values]


def _number(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.6g}")


def _scaled(key: str, values: Any) -> Any:
    return values * 100.0 if is_share(key) else values


# -- colours, light or dark enough to be seen on a dark or a light page -----------------------------------------------

LIGHT, DARK = "#ffffff", "#16191f"  # the surfaces that curves are drawn on, as in page.css
CONTRAST = 3.0  # of graphics that have to be understood: WCAG 2.1, 1.4.11


APART = 0.08  # of two curves, by OKLab; below, they are taken for each other
DIM = 0.2  # lightness of HLS below which a colour, such as black, is mirrored on a dark page
SHIFTS = (0.0, 0.05, 0.1, 0.15, 0.2, -0.05, -0.1)  # of lightness, that set two apart; towards the other end last


def page_colours(algorithms: Mapping[str, Described]) -> dict[str, tuple[str, str]]:
    """Colours of curves, by label, on a light page and on a dark one: seen on it, and apart from all others."""
    colours = {label: one.colour for label, one in algorithms.items()}
    light, dark = _apart(colours, LIGHT, -1.0), _apart(colours, DARK, 1.0)
    return {label: (light[label], dark[label]) for label in colours}


def _apart(colours: Mapping[str, str], on: str, sign: float) -> dict[str, str]:
    """Each colour as it is seen on a page, lighter or darker where another one is too near."""
    found: dict[str, str] = {}
    for label, colour in colours.items():
        seen = on_light(colour) if on == LIGHT else on_dark(colour)
        tried = [_shifted(seen, sign * shift) for shift in SHIFTS]
        there = [one for one in tried if contrast(one, on) >= CONTRAST] or [seen]
        room = [min((distance(one, other) for other in found.values()), default=1.0) for one in there]
        found[label] = next((one for one, free in zip(there, room, strict=True) if free >= APART), seen)
        if all(free < APART for free in room):
            found[label] = there[room.index(max(room))]
    return found


def on_light(colour: str) -> str:
    """Darkens a colour as far as contrast on a white page needs."""
    return _until_seen(colour, LIGHT, -0.03)


def on_dark(colour: str) -> str:
    """Lightens a colour as far as contrast on a dark page needs; what is nearly black becomes nearly white."""
    lightness = colorsys.rgb_to_hls(*_channels(colour))[1]
    return _until_seen(_shifted(colour, 0.84 - 2 * lightness) if lightness < DIM else colour, DARK, 0.03)


def distance(a: str, b: str) -> float:
    """How different two colours look: from 0, the same, to 1, black and white (OKLab, Ottosson 2020)."""
    return float(np.linalg.norm(_oklab(a) - _oklab(b)))


def _oklab(colour: str) -> np.ndarray:
    linear = np.array([_linear(channel) for channel in _channels(colour)])
    cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]) @ linear
    rows = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    found: np.ndarray = np.array(rows) @ np.cbrt(cones)
    return found


def _shifted(colour: str, by: float) -> str:
    """The colour, lighter by so much."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*_channels(colour))
    red, green, blue = colorsys.hls_to_rgb(hue, min(max(lightness + by, 0.0), 0.93), saturation)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def contrast(a: str, b: str) -> float:
    """The ratio of WCAG: from 1, the same, to 21, black on white."""
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


def _until_seen(colour: str, on: str, step: float) -> str:
    while contrast(colour, on) < CONTRAST:
        after = _shifted(colour, step)
        if after == colour:
            break
        colour = after
    return colour


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(channel) for channel in _channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def _channels(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


# -- names: what an algorithm is called, and what it is in a line -----------------------------------------------------


class Name(NamedTuple):
    """An algorithm's name, label and description, as the page shows them."""

    name: str  # "4 walks"
    label: str  # in files and folders
    description: str  # what it does, in a sentence


def names_of(algorithms: Mapping[str, Described]) -> dict[str, Name]:
    """A name for each algorithm of a study, by its label; no two the same."""
    return {label: Name(one.heading, label, one.description) for label, one in algorithms.items()}


def within(name: str) -> str:
    """The name as it stands within a sentence: "one walk", but "ADMM" and "FedAdam"."""
    first = name.partition(" ")[0]
    return name[0].lower() + name[1:] if first[1:].islower() else name
