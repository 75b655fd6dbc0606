"""What theory says of a graph, without training: how fast it mixes, how long walks stay away, when gossip wins."""

import walktalk as wt

print(f"{'graph':22} {'gap p':>8} {'H²':>8} {'walks win per iteration up to R =':>34}")
graphs = wt.graphs.complete(20), wt.graphs.erdos_renyi(20, p=0.3, seed=1), wt.graphs.torus(4, 5), wt.graphs.cycle(20)
for graph in graphs:
    network = wt.theory.network(graph)
    least = wt.theory.crossover_walks(network, wt.theory.Problem(zeta2=1.0))
    print(f"{graph.name:22} {network.p:8.3f} {network.returning.second_moment:8.0f} {min(least, 20):34.1f}")
