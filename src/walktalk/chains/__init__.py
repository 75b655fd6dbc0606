"""Markov chains on a graph: how walks move and how gossip mixes, and how fast.

`metropolis_hastings(graph)` is the paper's P. `chain.sampler().next(node, random)` draws the next node in constant
time; `metropolis_step` is the same law for a node that knows only its neighbours' degrees. `spectrum` gives the gaps p
and p', `return_time` the moments of a node's return time, `age` those of the time since a visit to it, `hitting_times`
the way to it from everywhere, and `aggregators` the best and worst node to mix at. With weights a walk favours some
nodes: `stationary` says where it is in the long run, `mean_return_times` when it comes back, `metropolis_with_jumps`
how it gets away. Dense and exact for small chains, sparse for a million nodes.
"""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__, public=True)
