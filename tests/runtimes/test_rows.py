"""The matrix that holds all models: rows in and out, and combinations of them."""

from __future__ import annotations

import pytest
import torch

from walktalk.runtimes.stacked.executor import Tables
from walktalk.runtimes.stacked.rows import Matrix


def filled(width: int = 37, rows: int = 12) -> Matrix:
    matrix = Matrix(width, torch.device("cpu"))
    matrix.reserve(rows)
    matrix.data[:] = torch.randn(matrix.data.shape, generator=torch.Generator().manual_seed(1))
    return matrix


def test_rows_that_are_written_are_read_again():
    matrix, content = filled(), torch.randn(3, 37)
    before = matrix.data.clone()
    matrix.write(torch.tensor([7, 0, 3]), content)
    assert torch.equal(matrix.read(torch.tensor([7, 0, 3])), content)
    others = torch.tensor([1, 2, 4, 5, 6, 8])
    assert torch.equal(matrix.read(others), before[others])


def test_combinations_of_any_length():
    matrix = filled()
    sources, weights = torch.tensor([4, 1, 2, 9, 9, 0]), torch.tensor([0.5, 0.5, 1.0, 1.0, -1.0, 0.1])
    made = matrix.combined(sources, weights, torch.tensor([0, 2, 5, 5]))  # two terms, three, none, one
    data = matrix.data
    expected = [0.5 * data[4] + 0.5 * data[1], data[2], torch.zeros(37), 0.1 * data[0]]
    assert torch.allclose(made, torch.stack(expected), atol=1e-6)
    for k, (start, end) in enumerate(((0, 2), (2, 5), (5, 6))):  # and none depends on its neighbours
        alone = matrix.combined(sources[start:end], weights[start:end], torch.tensor([0]))
        assert torch.equal(alone[0], made[(0, 1, 3)[k]])


@pytest.mark.parametrize("outs", [[12, 13, 14, 15, 16, 17], [0, 13, 3, 15, 5, 17]], ids=["other rows", "over sources"])
def test_wide_rows_are_combined_as_narrow_ones_are(outs):
    matrix, generator = filled(5_000, 18), torch.Generator().manual_seed(2)
    sources = torch.randint(0, 12, (60,), generator=generator)
    weights, starts = torch.randn(60, generator=generator), torch.tensor([0, 2, 4, 4, 10, 30])  # and one of nothing
    expected, before = matrix.combined(sources, weights, starts), matrix.data.clone()
    matrix.combine_one_by_one(outs, sources.tolist(), weights.tolist(), starts.tolist())
    assert torch.equal(matrix.data[outs], expected)
    others = [row for row in range(18) if row not in outs]
    assert torch.equal(matrix.data[others], before[others])


def test_a_plan_without_steps_has_empty_tables():
    tables = Tables([], torch.device("cpu"))
    assert list(tables.waves) == list(tables.combinations) == []


def test_a_single_row_that_is_only_looked_at_is_not_copied():
    matrix = filled()
    one, two = matrix.look_at(torch.tensor([5]), [5]), matrix.look_at(torch.tensor([5, 1]), [5, 1])
    assert one.data_ptr() == matrix.data[5].data_ptr()
    assert torch.equal(one, matrix.read(torch.tensor([5])))
    assert torch.equal(two, matrix.read(torch.tensor([5, 1])))
