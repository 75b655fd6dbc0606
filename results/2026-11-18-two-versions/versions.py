"""Do two versions of walktalk train gossip alike? Prints what runs start from and where they end, for the version on the path.

PYTHONPATH=OLD/src python results/2026-11-18-two-versions/versions.py CIFAR_FOLDER
"""

import hashlib
import sys

import numpy as np
import torch
from sklearn.datasets import load_digits

import walktalk as wt
from walktalk import learning
from walktalk.studies import make_spec, prepare

torch.set_num_threads(1)
ready = prepare(
    make_spec(
        {
            "network": {"topology": "cycle", "nodes": 20, "sites": "us-five-sites"},
            "task": {"name": "cifar10", "alpha": 1.0, "folder": sys.argv[1]},
            "training": {"batch_size": 32, "local_steps": 5, "optimizer_state": "visit", "precision": "fp32"},
            "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4},
            "algorithms": [{"name": "async_gossip", "mixing": "pairwise"}],
        }
    ),
    "cpu",
)
row, parts = ready.runs[0].initial, ready.task.parts
print("initial ResNet-20", hashlib.md5(row.numpy().tobytes()).hexdigest())
print("split of CIFAR-10", hashlib.md5(b"".join(part.tobytes() for part in parts)).hexdigest())
given = torch.stack([row] * 2), torch.tensor([0, 3]), torch.tensor([12345, 67890]), torch.tensor([0.05, 0.05])
record = getattr(learning, "TrainingRows", None)  # older versions take its fields one by one
trained, _ = ready.trainer.train(*given, None) if record is None else ready.trainer.train(record(*given))
print("five steps at nodes 0 and 3", hashlib.md5(trained.numpy().tobytes()).hexdigest(), trained.norm(dim=1).tolist())

digits = load_digits()
images, classes = torch.tensor(digits.images / 16.0, dtype=torch.float32)[:, None], torch.tensor(digits.target)
order = np.argsort(digits.target + np.random.default_rng(0).uniform(-2.5, 2.5, len(classes)))
data = [(images[part], classes[part]) for part in np.array_split(order, 20)]
nn = torch.nn
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
    nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10),
)  # fmt: skip
task = wt.tasks.torch(model, nn.functional.cross_entropy, data)
for protocol in (wt.AsyncGossip(), wt.MultiWalk(walks=15), wt.MultiWalk(walks=1)):
    run = wt.train(
        task, protocol, wt.graphs.cycle(20), optimizer=wt.SGD(lr=0.05, momentum=0.9, nesterov=True), local_steps=5,
        stop=wt.Stop(iterations=600), seed=0,
    )  # fmt: skip
    last = run.history.iloc[-1]
    print(protocol.label, f"time {last.time:.6f} loss {last.train_loss:.7f} consensus {last.consensus:.7f}")
