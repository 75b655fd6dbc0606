"""A script under `torchrun`: its first process talks to the node, and all of them train."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.peers.test_site import OneNode, work
from walktalk.core.errors import SpecError

SCRIPT = """
import sys
import torch
import torch.distributed as dist
import walktalk as wt

dist.init_process_group("gloo")
rank = dist.get_rank()
out = open(f"{sys.argv[1]}.{rank}", "w")
with wt.site(sys.argv[1], name="lyon", start=False) as site:
    for visit in site:
        x = visit.tensors["x"]
        gradient = torch.full((4,), float(rank + 1))
        dist.all_reduce(gradient)
        x += gradient + visit.weight - 2.0
        if visit.number == 2 and rank == 0:
            x[0] = float("nan")
        counts = visit.finish(samples=10)
        print(visit.number, visit.node, int(x[1]), counts, file=out)
print(site.over, file=out)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_train_one_visit(tmp_path: Path) -> None:
    node, script = OneNode(tmp_path), tmp_path / "script.py"
    script.write_text(SCRIPT)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def ask() -> None:
        for _ in range(3):
            node.answers.append(node.trainer.visit(work(node.trainer.initial_row(0))))
        node.trainer.tell_over("the run is over")

    threading.Thread(target=ask, daemon=True).start()
    done = subprocess.run(
        [*launcher, str(script), str(node.config)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    node.trainer.close("")
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        said = Path(f"{node.config}.{rank}").read_text().splitlines()
        assert said == ["1 lyon 3 True", "2 lyon 3 False", "3 lyon 3 True", "the run is over"]
    first, second, third = node.answers
    assert first.row is not None
    assert third.row is not None
    assert second.row is None
    assert second.diverged
    assert third.row[3:7].tolist() == [3.0] * 4


def test_all_processes_have_to_be_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = OneNode(tmp_path)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SpecError, match=r"call torch.distributed.init_process_group before it"):
        node.site()
    node.trainer.close("")
