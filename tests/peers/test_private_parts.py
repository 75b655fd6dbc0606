"""Private parts of models on real processes: they stay at their node, in its checkpoint, and are written by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import walktalk as wt
from walktalk.records import read_history, read_trace
from walktalk.studies import make_spec
from walktalk.studies.peers import run_on_peers

OFFSETS = {"lyon": -3.0, "nice": 0.0, "paris": 3.0}
SHARED, OWN = 4 * 3 + 3, 3 + 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def personal(part: str | None = None) -> wt.Task:
    """A line with another offset at every site."""

    def read(name: str) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(30, 4, generator=torch.Generator().manual_seed(list(OFFSETS).index(name)))
        return x, x[:, :1] + OFFSETS[name]

    torch.manual_seed(0)
    return wt.tasks.torch(Net(), nn.MSELoss(), read, names=list(OFFSETS), part=part, private="head")


def test_they_never_leave_their_node(tmp_path: Path) -> None:
    study = {
        "name": "personal",
        "task": {"name": "tests.peers.test_private_parts:personal"},
        "network": {"topology": "complete", "nodes": 3},
        "algorithms": [{"name": "async_gossip"}],
        "optimizer": {"lr": 0.02, "momentum": 0.0, "nesterov": False},
        "stop": {"iterations": 300},
        "evaluate": {"every": 100},
    }
    result = run_on_peers(make_spec(study), tmp_path / "out")
    run = tmp_path / "out" / "runs" / result.runs[0].label / "0"
    assert read_history(tmp_path / "out" / "history.csv").train_loss.iloc[-1] < 1.0  # 6 without heads of their own
    trace = read_trace(run / "trace.parquet")
    models = trace[(trace.event == "send") & (trace.bytes > 4 * SHARED)]
    assert len(models) > 0
    assert models.bytes.max() < 4 * (SHARED + OWN) + 64  # a model without its head, and at most 64 bytes around it
    assert models.bytes.min() < 64 + 4 * SHARED + 8
    again = load_file(run / "private.safetensors")
    biases = []
    for number, name in enumerate(OFFSETS):
        folder = run / "nodes" / f"node-{number}"
        kept = load_file(folder / "private.safetensors")
        assert set(kept) == {"head.weight", "head.bias"}
        for key, value in kept.items():
            assert torch.allclose(value, again[f"{name}/{key}"], atol=1e-4)
        biases.append(float(kept["head.bias"]))
        sizes = {tensor.numel() for tensor in load_file(folder / "checkpoint.safetensors").values()}
        assert {SHARED, 1 + OWN} <= sizes  # the shared part in slots, its own in the node's state
    assert biases == sorted(biases)


def test_nodes_of_a_run_that_goes_on_have_them_again(tmp_path: Path) -> None:
    from walktalk.records import save_checkpoint
    from walktalk.studies.peers.node_job import read_beginning

    states = torch.rand(3, 1 + OWN)
    facts = {"seconds": 1.0, "iterations": [1, 1, 1], "bytes": [0, 0, 0]}
    save_checkpoint(tmp_path / "beginning", {"model": torch.zeros(SHARED), "states": states}, facts)
    begun = read_beginning(tmp_path / "beginning").states
    assert begun is not None
    assert torch.equal(begun, states)


@pytest.mark.parametrize("private", ["head", None])
def test_nodes_compare_what_is_private(private: str | None) -> None:
    from walktalk.studies.peers.node_job import task_facts

    x = torch.zeros(4, 4)
    facts = task_facts(wt.tasks.torch(Net(), nn.MSELoss(), [(x, x[:, :1])], private=private))
    assert facts.get("private") == private
