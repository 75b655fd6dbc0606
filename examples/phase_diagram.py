"""A phase diagram: who is first at the same loss, one walk, four or gossip, by graph and by the speed of the links."""

import walktalk as wt

GRAPHS = {"cycle": wt.graphs.cycle(10), "torus": wt.graphs.torus(2, 5), "complete": wt.graphs.complete(10)}
PROTOCOLS = {"1 walk": wt.MultiWalk(walks=1), "4 walks": wt.MultiWalk(walks=4), "gossip": wt.AsyncGossip()}
TASK = wt.tasks.digits(nodes=10, alpha=0.3)


def seconds(protocol: wt.MultiWalk | wt.AsyncGossip, graph: wt.graphs.Graph, bandwidth: float) -> float:
    """Virtual time to a loss of 0.6, where a training takes a second and a model has 154 kbit."""
    timing = wt.NetworkTiming(compute=1.0, bandwidth=bandwidth, node_bandwidth=bandwidth)
    stop, often = wt.Stop(iterations=1500, target_loss=0.6), wt.Evaluate(every=20)
    return float(wt.train(TASK, protocol, graph, timing=timing, stop=stop, evaluate=often).history.time.iloc[-1])


print(f"{'links':>12}  " + "  ".join(f"{name:>8}" for name in GRAPHS))
for bandwidth, words in ((1e7, "10 Mbit/s"), (1e5, "100 kbit/s"), (1e4, "10 kbit/s")):
    first = [min(PROTOCOLS, key=lambda name: seconds(PROTOCOLS[name], graph, bandwidth)) for graph in GRAPHS.values()]
    print(f"{words:>12}  " + "  ".join(f"{name:>8}" for name in first))
