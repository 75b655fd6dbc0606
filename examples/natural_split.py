"""A natural split: every key of a column is a node. Here wine by its alcohol: each cellar has its own kind."""

import pandas as pd
import torch
from sklearn.datasets import load_wine
from torch import nn

import walktalk as wt

wine = load_wine(as_frame=True)
frame = (wine.data - wine.data.mean()) / wine.data.std()
frame["kind"] = wine.target
frame["cellar"] = pd.qcut(wine.data["alcohol"], 4, labels=["light", "soft", "full", "strong"]).astype(str)

cellars = wt.split(frame, by="cellar")
for name, part in cellars.items():
    print(f"{name:7} {len(part):3} wines, of the three kinds {part['kind'].value_counts().sort_index().to_dict()}")

torch.manual_seed(0)  # of the model's first weights
model = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 3))
task = wt.tasks.torch(model, nn.functional.cross_entropy, cellars, test=frame.drop(columns="cellar"), target="kind")
for protocol in (wt.MultiWalk(walks=1), wt.AsyncGossip()):
    run = wt.train(task, protocol, wt.graphs.cycle(4), local_steps=2, stop=wt.Stop(iterations=200))
    last = run.history.iloc[-1]
    print(f"{protocol.label:22} accuracy {last.test_accuracy:.2f}, {last.bits / 8e3:.0f} kB sent")
