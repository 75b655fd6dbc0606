"""`walktalk data`: told apart what is there, what is missing and what is damaged."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from walktalk.cli.app import app


@pytest.mark.parametrize(
    ("words", "said"),
    [(("check", "cifar10"), "no file of cifar10"), (("check", "mnist"), "allowed: cifar10, fashion_mnist"),
     (("get", "fashion-mnist", "--from", "nowhere"), "no file of fashion_mnist in nowhere")],
)  # fmt: skip
def test_mistakes(words, said, tmp_path, monkeypatch):
    monkeypatch.setenv("WALKTALK_DATA", str(tmp_path))
    result = CliRunner().invoke(app, ["data", *words])
    assert result.exit_code == 2
    assert said in result.output


def test_damaged(tmp_path, monkeypatch):
    monkeypatch.setenv("WALKTALK_DATA", str(tmp_path))
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "data_batch_1.bin").write_bytes(b"not it")
    result = CliRunner().invoke(app, ["data", "check", "cifar10"])
    assert result.exit_code == 2
    assert "damaged or not the published file" in result.output
