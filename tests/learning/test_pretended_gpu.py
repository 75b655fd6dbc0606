"""The GPU that is none refuses what a real one refuses (`make test-kernels`)."""

from __future__ import annotations

import pytest
import torch

from tests.support import pretended_gpu

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not pretended_gpu.is_on(), reason="needs a GPU that is none")]


def test_devices_do_not_mix():
    here, there = torch.ones(3), torch.ones(3, device="cuda")
    assert there.is_cuda
    assert there.device.type == "cuda"
    with pytest.raises(RuntimeError, match="same device"):
        here + there
    with pytest.raises(RuntimeError, match="on cpu"):
        here[torch.tensor([0, 1], device="cuda")]
    assert (there + here.sum()).tolist() == [4.0] * 3  # one number may come from anywhere
    assert torch.equal(there[torch.tensor([0])].cpu(), torch.ones(1))
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()


def test_a_graph_does_it_again_on_the_same_memory():
    x, graph = torch.zeros(2, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = torch.zeros(2, device="cuda")
        total += x
        y = total.view(2, 1) * 3
    x.fill_(2.0)
    for _ in range(2):
        graph.replay()
        assert y.flatten().tolist() == [6.0, 6.0]


@pytest.mark.parametrize("wait", [lambda x: x.item(), lambda x: x.cpu(), lambda x: torch.ones(1).to("cuda") + x])
def test_a_graph_cannot_wait(wait):
    x = torch.ones(1, device="cuda")
    with pytest.raises(RuntimeError, match="capturing"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        wait(x)
    wait(x)


def test_gradients_come_back_to_where_they_began():
    weight, layer = torch.ones(2, requires_grad=True), torch.nn.Linear(2, 1).to("cuda")
    layer(weight.to("cuda")).sum().backward()
    assert not weight.grad.is_cuda
    assert layer.weight.grad.is_cuda
    assert torch.equal(weight.grad, layer.weight.detach().cpu()[0])
