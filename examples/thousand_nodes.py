"""A thousand nodes on a laptop: first what it will cost, which needs no training, then the training itself.

Four thousand trainings are four for each node of gossip; a single walk does them one after the other.
"""

import walktalk as wt

graph = wt.graphs.random_regular(1000, degree=6, seed=0)
task = wt.tasks.digits(nodes=1000)  # one or two images a node
stop, measure = wt.Stop(iterations=4000), wt.Evaluate(every=1000, model="mean")
step = wt.SGD(lr=0.05, momentum=0.0)

for protocol in (wt.MultiWalk(walks=1), wt.AsyncGossip()):
    planned = wt.forecast(protocol, graph, model_bytes=4 * 4810, stop=stop)  # 4,810 parameters of 4 bytes
    print(f"{protocol.label:22} {planned.time:5.0f} s of virtual time, {planned.bits / 8e6:4.0f} MB", end="")
    run = wt.train(task, protocol, graph, optimizer=step, local_steps=1, stop=stop, evaluate=measure)
    print(f", accuracy {run.history.test_accuracy.iloc[-1]:.2f}")
