"""Multiples and parts that are read where they lie: the same values, and fewer of them made."""

import pytest
import torch

from tests.support.runs import setup
from walktalk.graphs import cycle, one_peer_exponential, two_binary_trees
from walktalk.protocols import D2, SGP, RelaySGD
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import CombineOp, EncodeOp, EvaluateOp, Simulation, TrainOp
from walktalk.runtimes.stacked.rows import ALL, seen_through
from walktalk.transforms.codecs import codec_named

WIDTH = 6


def carried_out(ops, of=1):
    """The values of a schedule; a training adds what depends on its key alone."""
    values = {0: torch.arange(1.0, WIDTH + 1.0, dtype=torch.float64)}
    for op in ops:
        if isinstance(op, TrainOp):
            noise = torch.rand(WIDTH, generator=torch.Generator().manual_seed(op.key), dtype=torch.float64)
            values[op.out] = values[op.source] + op.lr * noise
        elif isinstance(op, CombineOp):
            parts = op.parts or [ALL] * len(op.terms)
            values[op.out] = sum(
                weight * values[number] * ((torch.arange(WIDTH) % of == part) | (part == ALL))
                for (number, weight), part in zip(op.terms, parts, strict=True)
            )
        elif isinstance(op, EncodeOp):
            values[op.out] = codec_named(op.codec).approximate(values[op.source][None], torch.zeros(1))[0]
    return values


@pytest.mark.parametrize(
    ("protocol", "graph"),
    [
        (RelaySGD("two_binary"), two_binary_trees(8)),
        (SGP(exchanges=2), one_peer_exponential(8)),
        (D2(lazy=False), cycle(8)),
    ],
)
def test_what_lives_on_is_the_same_and_less_is_made(protocol, graph):
    chunk = Simulation(setup(protocol, graph, stop=Stop(iterations=160))).advance(0.5)
    seen = seen_through(chunk.ops, chunk.live)
    plainly, through = carried_out(chunk.ops), carried_out(seen.ops, seen.of)
    assert all(torch.allclose(plainly[value], through[value]) for value in chunk.live)
    for op in seen.ops:
        if isinstance(op, EvaluateOp):
            read = {value for terms in (op.aggregate, *op.members) for value, _ in terms}
            assert all(torch.allclose(plainly[value], through[value]) for value in read)
    made = [sum(isinstance(op, CombineOp | EncodeOp) for op in ops) for ops in (chunk.ops, seen.ops)]
    assert made[1] < 0.75 * made[0]


def test_a_part_of_a_multiple_of_a_value_is_seen_in_the_value_itself():
    ops = [EncodeOp(1, 0, "part(1, 2)", 0), CombineOp(2, ((1, 0.5),)), CombineOp(3, ((2, 4.0), (0, 1.0)))]
    seen = seen_through(ops, [3])
    assert seen.ops == [CombineOp(3, ((0, 2.0), (0, 1.0)), parts=(1, ALL))]
    assert seen.of == 2


def test_what_others_than_sums_read_is_made():
    scaled, coded = CombineOp(1, ((0, 0.5),)), EncodeOp(2, 1, "part(0, 2)", 0)
    ops = [scaled, coded, CombineOp(3, ((2, 1.0), (0, 1.0)))]
    assert seen_through(ops, [3]).ops == [scaled, CombineOp(3, ((1, 1.0), (0, 1.0)), parts=(0, ALL))]
    assert seen_through(ops, [2, 3]).ops == ops
    assert seen_through(ops[:2], [2], of=3).ops == ops[:2]


def test_a_sum_that_one_other_reads_is_made_by_its_reader_and_what_cancels_is_not_read():
    learned, drift = CombineOp(3, ((1, 1.0), (0, -1.0))), CombineOp(4, ((2, 1.0), (0, -1.0), (3, -1.0)))
    assert seen_through([learned, drift], [4]).ops == [CombineOp(4, ((2, 1.0), (1, -1.0)))]
    twice = CombineOp(5, ((3, 1.0), (4, 1.0)))
    assert seen_through([learned, drift, twice], [5]).ops == [learned, CombineOp(5, ((2, 1.0), (0, -1.0)))]
