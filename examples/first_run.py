"""Five lines to a first run: four walks on a random graph of twenty nodes learn handwritten digits."""

import walktalk as wt

graph = wt.graphs.erdos_renyi(20, p=0.3, seed=1)
task = wt.tasks.digits(nodes=20, alpha=1.0)
run = wt.train(task, wt.MultiWalk(walks=4), graph, stop=wt.Stop(iterations=600))
print(run.history[["iteration", "time", "bits", "train_loss", "test_accuracy"]].round(3).to_string(index=False))
