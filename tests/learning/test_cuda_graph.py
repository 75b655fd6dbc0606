"""What can be tested of CUDA graphs without a GPU: padding, pieces, and the way back when a capture fails."""

from __future__ import annotations

import pytest
import torch

from walktalk.learning import Trainer, TrainingRows, tasks
from walktalk.learning.training import TrainedRows
from walktalk.learning.training import forms as cuda_graph
from walktalk.learning.training.forms import SIZES, GraphedTraining


def doubling(given):
    return TrainedRows(given.rows * 2 + given.keys.view(-1, 1), None if given.state is None else given.state + 1)


class FakeGraph:
    """Does again, on replay, what was done while it was captured."""

    def __init__(self, again):
        self.again = again

    def replay(self):
        self.again()


def faked(monkeypatch) -> GraphedTraining:
    graphed = GraphedTraining(doubling, (1, 4, 8))

    def capture(width, given):
        reads = given.mapped(lambda tensor: tensor.new_empty((width, *tensor.shape[1:])))
        cuda_graph.fill_all(reads, given)
        writes = doubling(reads)

        def again():
            new = doubling(reads)
            writes.rows.copy_(new.rows)
            if writes.state is not None:
                writes.state.copy_(new.state)

        return cuda_graph.Captured(FakeGraph(again), reads, writes)

    monkeypatch.setattr(graphed, "capture", capture)
    return graphed


@pytest.mark.parametrize("with_state", [False, True])
def test_waves_of_every_width_give_what_they_give_alone(monkeypatch, with_state):
    graphed = faked(monkeypatch)
    kept = []
    for width in (1, 3, 4, 7, 8, 2, 20):
        rows, keys = torch.randn(width, 5), torch.arange(width)
        state = torch.randn(width, 2) if with_state else None
        given = TrainingRows(rows, torch.zeros(width, dtype=torch.int64), keys, torch.ones(width), state)
        found, expected = graphed(given), doubling(given)
        kept.append((found, expected))
    for found, expected in kept:  # a later replay does not change what an earlier one returned
        assert torch.equal(found[0], expected[0])
        assert (found[1] is None) == (expected[1] is None)
        assert expected[1] is None or torch.equal(found[1], expected[1])
    assert {width for width, *_ in graphed.captured} == {1, 4, 8}


def test_a_capture_that_fails_warns_once_and_goes_the_plain_way(monkeypatch):
    graphed = GraphedTraining(doubling)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def fail(width, given):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(graphed, "capture", fail)
    given = TrainingRows(torch.randn(3, 5), torch.zeros(3), torch.arange(3), torch.ones(3))
    with pytest.warns(UserWarning, match="no CUDA graphs for this model"):
        found = graphed(given)
    assert torch.equal(found[0], doubling(given)[0])
    assert torch.equal(graphed(given)[0], found[0])  # and says nothing more


def test_padding_is_never_much():
    assert list(SIZES) == sorted(set(SIZES))
    for width in range(4, SIZES[-1] + 1):
        size = next(size for size in SIZES if size >= width)
        assert (size - width) / size <= 0.25


def in_place(monkeypatch) -> tuple[cuda_graph.GraphedInPlace, list[int]]:
    """Graphs that do again, on replay, what was recorded; and of which widths there are any."""
    widths: list[int] = []

    class Recorded:
        def __init__(self, work):
            self.work = work

        def replay(self):
            self.work()

        def pool(self):
            return (0, 0)

    def recorded(work, pool=None):
        work()
        widths.append(len(widths))
        return Recorded(work), None

    monkeypatch.setattr(cuda_graph, "recorded", recorded)
    return cuda_graph.GraphedInPlace((1, 4, 8)), widths


def test_rows_are_changed_where_they_lie(monkeypatch):
    graphed, made = in_place(monkeypatch)
    matrix = torch.arange(8.0).view(8, 1).repeat(1, 3)

    def work(sources, outs):
        matrix[outs] = matrix[sources] + 100

    for sources, outs in (([0, 1, 2], [4, 5, 6]), ([3, 0], [7, 4])):  # both are padded to four
        graphed("kind", [matrix], [torch.tensor(sources), torch.tensor(outs)], work)
    assert matrix[:, 0].tolist() == [0, 1, 2, 3, 100, 101, 102, 103]
    assert len(made) == 1  # one graph for both
    graphed("kind", [matrix.clone()], [torch.tensor([0]), torch.tensor([4])], work)
    assert len(made) == 2  # a matrix elsewhere in memory
    assert len(graphed.captured) == 1  # and the graphs of the other are gone


class Failing:
    def __init__(self, error):
        self.error = error

    def __call__(self, *given):
        raise self.error


@pytest.mark.parametrize("words", ["CUDA can't allocate memory", "no graph of this"])
def test_a_failure_in_place_leaves_it_to_copies(words):
    trainer = Trainer(tasks.digits(nodes=2, alpha=None, seed=0), device="cpu")
    trainer.forms.graphed, trainer.forms.in_place = GraphedTraining(doubling, (1, 4, 8)), Failing(RuntimeError(words))
    column = torch.zeros(4, dtype=torch.int64)
    if "memory" in words:
        assert not trainer.train_in_place(torch.zeros(2, 3), [column] * 5)
        assert trainer.rows_at_once == 2  # half of them next time
        assert trainer.forms.in_place is not None
    else:
        with pytest.warns(UserWarning, match="no graph of this"):
            assert not trainer.train_in_place(torch.zeros(2, 3), [column] * 5)
        assert trainer.forms.in_place is None


def test_a_capture_that_fails_leaves_the_stream_as_it_was_and_says_why(monkeypatch):
    """torch's own way out of a capture stops where the capture cannot be ended, and with it the way back."""
    now = ["main"]

    class Stream(str):
        def wait_stream(self, other: str) -> None: ...

    class On:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            now.append(self.name)

        def __exit__(self, *error: object) -> None:
            now.pop()

    class Capture(On):
        def __init__(self, graph: object, pool: object = None) -> None:
            super().__init__("capture")

        def __exit__(self, *error: object) -> None:
            raise RuntimeError("the capture was invalidated")

    monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream("beside"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream(now[-1]))
    monkeypatch.setattr(torch.cuda, "set_stream", now.append)
    monkeypatch.setattr(torch.cuda, "stream", On)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", Capture)

    def look(given):
        if now[-1] == "capture":
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nSearch for …")
        return doubling(given)

    graphed, keys = GraphedTraining(look), torch.zeros(1, dtype=torch.int64)
    with pytest.warns(UserWarning, match=r"when stream is capturing; does its forward.*look at numbers"):
        trained, _ = graphed(TrainingRows(torch.ones(1, 3), keys, keys, torch.ones(1)))
    assert now[-1] == "main"
    assert torch.equal(trained, torch.full((1, 3), 2.0))
