"""Your own model on your own data: one pair (inputs, targets) for each node, any module, any loss."""

import torch
from torch import nn

import walktalk as wt

torch.manual_seed(0)  # of the model's first weights
random = torch.Generator().manual_seed(0)
truth = torch.randn(12, generator=random)


def measurements(shift: float, samples: int = 80) -> tuple[torch.Tensor, torch.Tensor]:
    """What one site has: its inputs lie elsewhere than those of the others."""
    inputs = torch.randn(samples, 12, generator=random) + shift
    return inputs, (inputs @ truth > 0).long()


sites = [measurements(shift=0.3 * k) for k in range(6)]
model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 2))
task = wt.tasks.torch(model, nn.functional.cross_entropy, sites, test=measurements(0.8, samples=400))

graph, stop = wt.graphs.cycle(6), wt.Stop(iterations=200)
run = wt.train(task, wt.MultiWalk(walks=2), graph, optimizer=wt.Adam(lr=0.01), stop=stop)
print(run.history[["iteration", "train_loss", "test_accuracy"]].round(2).to_string(index=False))

with torch.no_grad():  # run.model is a module like yours, with the weights that were learned
    answer = run.model(torch.zeros(1, 12)).softmax(dim=1)
print("the model's answer to a zero input sums to", round(float(answer.sum()), 3))
