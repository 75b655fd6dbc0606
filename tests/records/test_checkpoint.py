from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from walktalk.core.errors import StudyError
from walktalk.records import load_checkpoint, save_checkpoint

TENSORS = {"rows": torch.arange(12, dtype=torch.float32).reshape(3, 4), "half": torch.ones(3, dtype=torch.bfloat16)}
FACTS = {"wave": 17, "random": [1, 2, 3], "label": "multi_walk-4", "loss": None}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c.safetensors", TENSORS, FACTS)
    tensors, facts = load_checkpoint(tmp_path / "c.safetensors")
    assert facts == FACTS
    assert set(tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_views_and_shared_storage_are_saved_by_value(tmp_path: Path) -> None:
    whole = torch.randn(4, 6)
    given = {"whole": whole, "row": whole[1], "transposed": whole.T, "alias": whole, "empty": whole[:0]}
    given["scalar"] = torch.tensor(3)
    save_checkpoint(tmp_path / "c.safetensors", given, {})
    tensors, facts = load_checkpoint(tmp_path / "c.safetensors")
    assert facts == {}
    assert all(torch.equal(tensors[name], tensor) for name, tensor in given.items())


def test_the_same_content_is_the_same_bytes(tmp_path: Path) -> None:
    facts = {**FACTS, "label": 'größer "quoted" \\ \n', "nested": {"b": [1.5, None], "a": {}}}
    for name in range(8):  # safetensors alone would write its metadata in any of six orders
        save_checkpoint(tmp_path / str(name), TENSORS, facts)
        assert load_checkpoint(tmp_path / str(name))[1] == facts
    assert len({(tmp_path / str(name)).read_bytes() for name in range(8)}) == 1


def test_nothing_to_save_is_fine(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c.safetensors", {}, FACTS)
    assert load_checkpoint(tmp_path / "c.safetensors") == ({}, FACTS)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_file_is_one_clear_line(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, TENSORS, FACTS)
    path.write_bytes(path.read_bytes()[:keep])
    expect_refusal(path, "truncated")


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, TENSORS, FACTS)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    expect_refusal(path, "checksum")


def test_changed_facts_are_found(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, TENSORS, FACTS)
    path.write_bytes(path.read_bytes().replace(b"multi_walk-4", b"multi_walk-5"))
    expect_refusal(path, "checksum")


def test_a_foreign_safetensors_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    save_file({"weight": torch.ones(2)}, path)
    expect_refusal(path, "not a checkpoint")


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    expect_refusal(tmp_path / "c.safetensors", "no such checkpoint")


def test_a_failure_while_writing_keeps_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, TENSORS, FACTS)

    def disk_full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(StudyError, match="No space"):
        save_checkpoint(path, {}, {})
    assert load_checkpoint(path)[1] == FACTS
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]


def expect_refusal(path: Path, says: str) -> None:
    with pytest.raises(StudyError, match=says) as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
