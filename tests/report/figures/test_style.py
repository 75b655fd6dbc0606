"""One colour and one place in the legend for each algorithm; files that can be printed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

from walktalk.protocols import PROTOCOLS
from walktalk.protocols.registry import FREE_COLOURS
from walktalk.report import figures
from walktalk.report.figures import style


def test_the_usual_numbers_of_walks_differ_visibly() -> None:
    labels = [f"multi_walk-{walks}" for walks in (1, 2, 4, 6, 8, 10, 15)]
    chosen = figures.colours([*labels, "async_gossip-pairwise", "async_gossip-matrix"])
    colours = [np.array(to_rgb(colour)) for colour in chosen.values()]
    distances = [np.abs(a - b).max() for k, a in enumerate(colours) for b in colours[:k]]
    assert min(distances) > 0.15


def test_a_name_keeps_its_colour_whoever_is_beside_it() -> None:
    ours = [one for protocol in PROTOCOLS.values() for one in protocol.usual() if one.colour]
    assert not set(FREE_COLOURS) & {one.colour for one in ours}
    assert figures.colours(["mine"])["mine"] == figures.colours([*(one.label for one in ours), "mine"])["mine"]


def test_legends_have_one_order() -> None:
    labels = ["centralized", "async_gossip-pairwise", "multi_walk-15", "mine", "multi_walk-4", "multi_walk-4"]
    assert figures.in_order(labels) == ["multi_walk-4", "multi_walk-15", "mine", "async_gossip-pairwise", "centralized"]


@pytest.fixture
def figure() -> Figure:
    return drawn()


def drawn() -> Figure:
    lines = figures.new_figure(2.0, 1.5)
    lines.subplots().plot(range(100), np.random.default_rng(0).random(100))
    return lines


def test_pictures_have_300_dots_an_inch(figure: Figure, tmp_path: Path) -> None:
    (picture,) = figures.save(figure, tmp_path / "a", ("png",))
    assert imread(picture).shape[:2] == (450, 600)


def test_equal_figures_are_equal_bytes_as_pdf_too(tmp_path: Path) -> None:
    files = [figures.save(drawn(), tmp_path / name, ("pdf",))[0].read_bytes() for name in "ab"]
    assert files[0] == files[1]
    assert b"/Type3" not in files[0]


def test_a_large_pdf_is_not_kept(figure: Figure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [file.suffix for file in figures.save_for_print(figure, tmp_path / "a")] == [".png", ".pdf"]
    monkeypatch.setattr(style, "LARGEST_PDF", 1000)
    assert [file.suffix for file in figures.save_for_print(figure, tmp_path / "a")] == [".png"]
    assert not (tmp_path / "a.pdf").exists()


def test_a_notebook_shows_a_figure_as_a_picture_by_itself() -> None:
    assert figures.new_figure(2, 1)._repr_png_().startswith(b"\x89PNG")
