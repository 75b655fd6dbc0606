"""The commands of docs/operations.md that back up and restore a node and an authority, as they stand there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import torch

from walktalk.runtimes.peers.identity.authority import (
    make_certificates,
    open_authority,
    request_certificate,
    revoke_certificates,
    sign_request,
)
from walktalk.runtimes.peers.identity.certificates import certificates_in, credentials, read_revoked
from walktalk.runtimes.peers.identity.handshake import next_life
from walktalk.runtimes.peers.node.checkpoints import Checkpoints, Kept

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


def documented() -> list[str]:
    """The blocks of commands of the section on backups."""
    section = PAGE.read_text(encoding="utf-8").partition("## Backups")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


def run(commands: str, at: Path) -> None:
    subprocess.run(["bash", "-euc", commands], cwd=at, check=True, timeout=60)


def test_a_node_and_an_authority_come_back_from_a_backup(tmp_path: Path) -> None:
    certs, node = tmp_path / "certs", tmp_path / "records" / "il-1"
    make_certificates(certs, {"il-1": (), "il-2": ()})
    revoke_certificates(open_authority(certs), "il-2")
    life = next_life(node)
    Checkpoints(node).save(Kept({"own": torch.arange(5.0)}, {}, 9, 90, 3))
    backup, restore = documented()
    run(backup, tmp_path)
    taken = sorted(path.name for path in tmp_path.glob("*.tar"))
    assert taken == ["authority.tar", "il-1-certs.tar", "il-1.tar"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.glob("*.tar"))
    before = credentials(certs, "il-1").certificate.read_bytes()
    shutil.rmtree(certs)
    shutil.rmtree(tmp_path / "records")
    run(restore, tmp_path)
    kept = Checkpoints(node).load()
    assert kept is not None
    assert kept.slots["own"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert next_life(node) > life
    assert credentials(certs, "il-1").certificate.read_bytes() == before
    assert (certs / "ca.key").stat().st_mode & 0o077 == 0
    home = open_authority(certs)
    revoke_certificates(home, "il-1")  # it goes on where it was: what was revoked before still is
    revoked = read_revoked(certs, certificates_in(certs / "ca.pem"))
    assert (revoked.number, set(revoked.names)) == (2, {"il-1", "il-2"})
    path, _ = request_certificate(certs, "il-2", new_key=True)
    sign_request(home, path, {"il-1": (), "il-2": ()}, 100)
    assert credentials(certs, "il-2")
