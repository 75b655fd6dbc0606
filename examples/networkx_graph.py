"""A graph from networkx: Zachary's karate club, and which of its members should mix the walks."""

import networkx as nx

import walktalk as wt

graph = wt.graphs.from_networkx(nx.karate_club_graph())
ends = wt.chains.aggregators(wt.chains.metropolis_hastings(graph))
print(f"{graph.nodes} members, {graph.edges} friendships")
print(f"best to mix at: member {ends.best.node}, worst: member {ends.worst.node}")
print(f"second moment of a walk's return time: {ends.best.second_moment:.0f}, {ends.worst.second_moment:.0f}")

task = wt.tasks.digits(nodes=graph.nodes, alpha=0.3)
for node in (ends.best.node, ends.worst.node):
    protocol = wt.MultiWalk(walks=4, aggregator=node)
    run = wt.train(task, protocol, graph, stop=wt.Stop(iterations=1500), evaluate=wt.Evaluate(every=50))
    reached = run.history[run.history.train_loss < 0.8].iteration
    print(f"mixed at member {node}: loss 0.8 after {reached.iloc[0] if len(reached) else 'more than 1500'} iterations")
