"""Federated averaging of 20 clients in Flower's simulation engine (Ray): all clients train every round.

    python3 -m venv /tmp/flower && /tmp/flower/bin/pip install torch scikit-learn 'flwr[simulation]'
    OMP_NUM_THREADS=1 /tmp/flower/bin/python benchmarks/peers/flower.py [ROUNDS]

Flower has no gossip and no walks; its rounds are star-shaped, but the local training is the same work. The clock starts
when the first client trains, so starting Ray is not counted.
"""

from __future__ import annotations

import sys
import time

import flwr
import numpy as np
import torch
import work
from flwr.client import Client, ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
ENDS: list[float] = []


class DigitsClient(NumPyClient):
    def __init__(self, node: int) -> None:
        torch.set_num_threads(1)
        inputs, targets, parts = work.data()
        self.inputs, self.targets = inputs[parts[node]], targets[parts[node]]
        self.net = work.model()

    def fit(self, parameters: list[np.ndarray], config: dict) -> tuple[list[np.ndarray], int, dict]:
        with torch.no_grad():
            for own, given in zip(self.net.parameters(), parameters, strict=True):
                own.copy_(torch.from_numpy(given))
        work.local_training(self.net, self.inputs, self.targets)
        return [p.detach().numpy() for p in self.net.parameters()], len(self.inputs), {}


def client(context: Context) -> Client:
    return DigitsClient(int(context.node_config["partition-id"])).to_client()


class Timed(FedAvg):
    def aggregate_fit(self, server_round, results, failures):  # type: ignore[no-untyped-def]
        assert len(results) == work.NODES, failures
        out = super().aggregate_fit(server_round, results, failures)
        ENDS.append(time.perf_counter())
        return out


def server(context: Context) -> ServerAppComponents:
    initial = ndarrays_to_parameters([p.detach().numpy() for p in work.model().parameters()])
    strategy = Timed(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=work.NODES,
        min_available_clients=work.NODES,
        initial_parameters=initial,
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=ROUNDS + 1))


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(ServerApp(server_fn=server), ClientApp(client_fn=client), work.NODES, backend_config=resources)
    # The first round loads torch and the data into Ray's workers; it does not count.
    steps = ROUNDS * work.NODES * work.LOCAL_STEPS
    work.report("flower", steps, ENDS[-1] - ENDS[0], version=flwr.__version__, rounds=ROUNDS)
