"""Gossip learning of 20 nodes in gossipy (gossipy-dfl): push, merge, then train on the node's own batches.

    python3 -m venv /tmp/gossipy && /tmp/gossipy/bin/pip install torch gossipy-dfl
    OMP_NUM_THREADS=1 /tmp/gossipy/bin/python benchmarks/peers/gossipy_dfl.py [ROUNDS]

Each node has 160 samples, so that one local epoch of batch 32 is five steps. Models are averaged in pairs, as in
AD-PSGD; gossipy trains after merging, and keeps the optimizer's momentum with the node.
"""

from __future__ import annotations

import sys
import time
import types
from importlib.metadata import version

import numpy as np
import torch
import work

# gossipy imports torchvision for its own downloads only; a stand-in spares a second large package.
sys.modules["torchvision"] = types.ModuleType("torchvision")
from gossipy import set_seed  # noqa: E402
from gossipy.core import AntiEntropyProtocol, CreateModelMode, StaticP2PNetwork  # noqa: E402
from gossipy.data import DataDispatcher  # noqa: E402
from gossipy.data.handler import ClassificationDataHandler  # noqa: E402
from gossipy.model import TorchModel  # noqa: E402
from gossipy.model.handler import TorchModelHandler  # noqa: E402
from gossipy.node import GossipNode  # noqa: E402
from gossipy.simul import GossipSimulator  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 50
STEPS = [0]


class Digits(TorchModel):
    def __init__(self) -> None:
        super().__init__()
        self.net = work.model()

    def init_weights(self, *args: object, **kwargs: object) -> None:
        pass

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Counted(TorchModelHandler):
    def _local_step(self, x, y):  # type: ignore[no-untyped-def]
        STEPS[0] += 1
        super()._local_step(x, y)


def main() -> None:
    set_seed(0)
    torch.set_num_threads(1)
    inputs, targets, _ = work.data()
    chosen = torch.from_numpy(np.random.default_rng(0).integers(0, len(inputs), work.NODES * 160))
    handler = ClassificationDataHandler(inputs[chosen], targets[chosen], test_size=0.0)
    dispatcher = DataDispatcher(handler, n=work.NODES, eval_on_user=False, auto_assign=True)
    proto = Counted(
        Digits(),
        torch.optim.SGD,
        dict(work.OPTIMIZER),
        torch.nn.CrossEntropyLoss(),
        local_epochs=1,
        batch_size=work.BATCH,
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    nodes = GossipNode.generate(dispatcher, StaticP2PNetwork(work.NODES, None), proto, round_len=100, sync=False)
    simulator = GossipSimulator(nodes, dispatcher, delta=100, protocol=AntiEntropyProtocol.PUSH, sampling_eval=0.0)
    simulator.init_nodes(seed=0)
    STEPS[0], began = 0, time.perf_counter()
    simulator.start(n_rounds=ROUNDS)
    work.report("gossipy", STEPS[0], time.perf_counter() - began, version=version("gossipy-dfl"), rounds=ROUNDS)


if __name__ == "__main__":
    main()
