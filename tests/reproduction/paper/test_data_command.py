"""`walktalk data`: told apart what is there, what is missing and what is damaged."""

from __future__ import annotations

import errno

import pytest
from typer.testing import CliRunner

from walktalk.cli.app import app, circumstances


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check", "cifar10"), "no file of cifar10"),
        (("check", "emnist"), "allowed: cifar10, fashion_mnist, mnist"),
        (("get", "fashion-mnist", "--from", "nowhere"), "--from: there is no folder nowhere"),
    ],
)
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
    assert "get it again with `walktalk data get cifar10`" in result.output
    result = CliRunner().invoke(app, ["data", "get", "cifar10", "--from", str(folder)])
    assert result.exit_code == 2
    assert "--from: " in result.output
    assert (
        "put the published file there (from https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz)" in result.output
    )


def test_a_file_that_may_not_be_read_is_no_matter_of_room(tmp_path, monkeypatch):
    path = tmp_path / "mine"
    path.touch()
    denied = PermissionError(errno.EACCES, "Permission denied", str(path))
    assert "make room" in str(circumstances(denied))
    monkeypatch.setattr("os.access", lambda *asked: False)  # as for anybody but root
    assert str(circumstances(denied)).endswith("see that you may read it")
