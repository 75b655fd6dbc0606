"""Quasi-global momentum (Lin et al. 2021), Table 1: ResNet-20 on CIFAR-10, ring of 16; its numbers are not at hand.

300 epochs of 97 steps of 32 samples, learning rate 0.8 (0.1 for a batch of 64, times how many times that a round has)
after 5 epochs of warm-up, × 0.1 at half and three quarters, weight decay 1e-4, Nesterov momentum of 0.9, two groups in
a group norm: the examples of the authors' code (epfml/quasi-global-momentum), which are for α = 1. What differs: its
shortcuts have 1×1 convolutions, where ours have nothing to learn, and its warm-up begins at 0.1, ours next to 0. Walks,
rows of our own, have no momentum, and the learning rate that they have in RelaySGD's table; neither was tuned.
"""

from __future__ import annotations

from walktalk.reproduction.published.table import Cell, Changes, Row, Table

WORKERS, EPOCHS, STEPS = 16, 300, 97
RING = {"topology": "cycle", "nodes": WORKERS}
ALPHAS = (10.0, 1.0, 0.1)
CELLS = {f"alpha{alpha:g}": Cell(0.8) for alpha in ALPHAS}
OURS = {f"alpha{alpha:g}": Cell(0.1) for alpha in ALPHAS}  # a walk has one node's batch at a time
NORMS = {"batch": "batch norm", "group": "group norm", "evonorm": "EvoNorm"}  # all that the table has
NETWORKS: dict[str, Changes] = {"group": {"norm": "group", "groups": 2}}
MOMENTUM = {"optimizer": {"momentum": 0.9, "nesterov": True}}
QG = {"name": "qg_dsgdm", "beta": 0.9, "mu": 0.1, "nesterov": True}

QG_TABLE = Table(
    name="qg",
    title="CIFAR-10, ResNet-20, ring of 16: mean worker's test accuracy in %",
    source="QG-DSGDm (Lin et al. 2021), Table 1: settings alone",
    columns={f"alpha{alpha:g}": {"task": {"alpha": alpha}} for alpha in ALPHAS},
    rows=tuple(
        Row(
            f"{name}-{norm}",
            f"{title}, {NORMS[norm]}",
            RING,
            algorithm,
            cells,
            {**changes, "task": NETWORKS.get(norm, {"norm": norm})},
            is_ours=cells is OURS,
        )
        for norm in NORMS
        for name, title, algorithm, cells, changes in (
            ("dsgd-m", "D-SGD with momentum", {"name": "local_dsgd"}, CELLS, MOMENTUM),
            ("qg", "quasi-global momentum", QG, CELLS, {}),
            ("walks4", "Multi-Walk, R = 4", {"name": "multi_walk", "walks": 4}, OURS, {}),
        )
    ),
    measure="each_test_accuracy_mean",
    measured="test accuracy, mean over workers, at the end",
    last=0.995,
    paper={
        "task": {"name": "cifar10", "split": "balanced"},
        "training": {"batch_size": 32, "local_steps": 1, "optimizer_state": "node", "precision": "bf16"},
        "optimizer": {"name": "sgd", "lr": 0.8, "momentum": 0.0, "nesterov": False, "weight_decay": 1e-4},
        "schedule": {"warmup": 5 / EPOCHS, "decay_at": [0.5, 0.75], "factor": 0.1},
        "stop": {"iterations": WORKERS * EPOCHS * STEPS},
        "evaluate": {"every": 30 * STEPS * WORKERS, "samples": 1000, "members": True},
    },
    smoke={
        "task": {"name": "digits", "alpha": 1.0},
        "training": {"precision": "fp32"},
        "stop": {"iterations": 320},
        "evaluate": {"every": 32, "samples": 200},
    },
)
