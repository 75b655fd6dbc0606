"""Codecs: what arrives is what the executor computes, sizes are exact, the mean is kept, and nonsense is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from walktalk.core.errors import UserError
from walktalk.transforms.codecs import (
    CODECS,
    Codec,
    approximated,
    codec_named,
    decode_model,
    encode_model,
    model_size,
    seen_models,
)

NAMES = ["bf16", "int8", "int4", "top_k", "top_k(0.3)", "part", "part(2, 3)", "part(2, 3)+int4", "part(9, 10)+top_k"]


def rows_of(seed: int, count: int, width: int) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (seed % 5 - 2)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), width=st.integers(1, 3000), key=st.integers(0, 2**63 - 1))
def test_what_arrives_is_what_the_executor_computes_and_as_large_as_said(
    name: str, seed: int, width: int, key: int
) -> None:
    codec, rows = codec_named(name), rows_of(seed, 3, width)
    keys = torch.tensor([key, key // 2, 1])
    seen = approximated(codec, rows, keys)
    for row, one, expected in zip(rows, keys, seen, strict=True):
        data = codec.encode(row, int(one))
        assert data.dtype == np.uint8
        assert len(data) == codec.size(width)
        assert torch.equal(codec.decode(data, width), expected)


@pytest.mark.parametrize(("name", "levels"), [("int8", 127), ("int4", 7)])
def test_quantization_is_right_in_the_mean_and_never_off_by_more_than_a_level(name: str, levels: int) -> None:
    row = rows_of(3, 1, 50).expand(4000, -1)
    seen = approximated(codec_named(name), row, torch.arange(4000) * 7919)
    step = float(row.abs().max()) / levels
    assert float((seen - row).abs().max()) <= step * 1.001
    assert float((seen.mean(0) - row[0]).abs().max()) <= 5 * step / 2 / 4000**0.5


def test_zeros_stay_zeros() -> None:
    for name in NAMES:
        assert not approximated(codec_named(name), torch.zeros(2, 1500), torch.tensor([1, 2])).any()


def test_top_k_keeps_the_largest() -> None:
    row = torch.tensor([[0.1, -5.0, 3.0, 0.2, 4.0]])
    assert approximated(codec_named("top_k(0.4)"), row, torch.tensor([0])).tolist() == [[0.0, -5.0, 0.0, 0.0, 4.0]]


def test_all_parts_together_are_the_model() -> None:
    row = rows_of(1, 2, 11)
    parts = [approximated(codec_named(f"part({k}, 3)"), row, torch.tensor([0, 0])) for k in range(3)]
    assert torch.equal(sum(parts, torch.zeros_like(row)), row)
    assert sum(codec_named(f"part({k}, 3)").size(11) for k in range(3)) == 44


@pytest.mark.parametrize("codec", ["bf16", "int8", "int4", "top_k(0.5)"])
def test_a_part_may_be_one_number(codec: str) -> None:
    chosen, row = codec_named(f"part(0, 4)+{codec}"), torch.tensor([2.0, 3.0, 4.0])
    assert chosen.decode(chosen.encode(row, 7), 3).tolist() == [2.0, 0.0, 0.0]


@pytest.mark.parametrize("codec", ["int8", "part(1, 3)", "part(1, 3)+int8", "part(1, 3)+bf16"])
def test_statistics_behind_parameters_are_not_spoilt_and_those_of_all_parts_add_up(codec: str) -> None:
    """A variance of a thousand would be all that is left of a block of weights that it is quantized with."""
    parameters, parts = 50, 3 if codec.startswith("part") else 1
    rows = torch.cat((rows_of(0, 2, parameters) * 1e-3, rows_of(4, 2, 7).abs() * 1e3), 1)
    names = [codec.replace("(1", f"({k}") for k in range(parts)]
    total = sum((seen_models(name, rows, parameters, torch.tensor([5, 6])) for name in names), torch.zeros_like(rows))
    assert torch.equal(total[:, parameters:], rows[:, parameters:])
    assert torch.allclose(total[:, :parameters], rows[:, :parameters], atol=1e-3 * 4 / 127 * 10)
    for name in names:
        data = encode_model(name, rows[0], parameters, 5)
        assert len(data) == model_size(name, parameters, 57)
        seen = decode_model(name, data, parameters, 57)
        assert torch.equal(seen, seen_models(name, rows[:1], parameters, torch.tensor([5]))[0])
        if parts > 1:
            exact = approximated(codec_named(name.partition("+")[0]), rows[:1], torch.tensor([0]))[0]
            assert torch.equal(seen[parameters:], exact[parameters:])  # the same statistics as the part itself has


@pytest.mark.parametrize("name", ["int8", "int4", "top_k(0.5)", "part(1, 3)+int4"])
@settings(deadline=None)
@given(junk=st.binary(min_size=1, max_size=400))
def test_bytes_from_a_stranger_are_a_model_or_refused(name: str, junk: bytes) -> None:
    codec, width = codec_named(name), 40
    data = np.frombuffer((junk * 400)[: codec.size(width)], np.uint8)
    try:
        row = codec.decode(data, width)
    except ValueError:
        return
    assert row.shape == (width,)


@pytest.mark.parametrize(
    "text",
    ["int9", "top_k(2)", "top_k(x)", "int8(1)", "", "no_module:Codec", "int8+int4", "part(0, 2)+part(0, 2)", "part+"],
)
def test_a_codec_that_is_not_there_is_one_line(text: str) -> None:
    with pytest.raises(UserError) as caught:
        codec_named(text)
    assert "\n" not in str(caught.value)


def test_every_codec_has_its_name() -> None:
    assert all(isinstance(name, str) and issubclass(CODECS[name], Codec) for name in CODECS)  # type: ignore[arg-type]
