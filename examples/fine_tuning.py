"""Fine-tuning: a model that was trained in one place goes on learning where the new data is, with its weights."""

import torch
from sklearn.datasets import load_digits
from torch import nn

import walktalk as wt

pixels, digits = load_digits(return_X_y=True)
inputs, targets = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(digits)
old, new = targets < 5, targets >= 5  # what was known before, and what only the nodes have

torch.manual_seed(0)  # of the model's first weights
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
head_office = wt.tasks.torch(model, nn.functional.cross_entropy, [(inputs[old], targets[old])])
before = wt.train(head_office, wt.Centralized(), wt.graphs.complete(1), stop=wt.Stop(iterations=150))

parts = wt.split((inputs, targets), nodes=8, how="labels", labels_per_node=3)
task = wt.tasks.torch(model, nn.functional.cross_entropy, parts, test=(inputs, targets), init=before.model)
graph, gently = wt.graphs.torus(2, 4), wt.SGD(lr=0.02)
after = wt.train(task, wt.MultiWalk(walks=2), graph, optimizer=gently, stop=wt.Stop(iterations=600))

first, last = after.history.iloc[0], after.history.iloc[-1]
with torch.no_grad():
    given = float(nn.functional.cross_entropy(before.model(inputs), targets))
print(f"the first loss is that of the given weights: {abs(first.train_loss - given) < 1e-4}")
print(f"all ten digits, before fine-tuning: {first.test_accuracy:.2f}")
print(f"all ten digits, afterwards:         {last.test_accuracy:.2f}")
