"""Markov chains on a graph: how walks move and how gossip mixes.

`metropolis_hastings(graph)` is the paper's P. `chain.sampler().next(node, random)` draws the next node in constant
time; `metropolis_step` is the same law for a node that knows only its neighbours' degrees.
"""

from walktalk.chains.chain import Chain
from walktalk.chains.metropolis_hastings import metropolis_hastings, metropolis_step
from walktalk.chains.sampler import Sampler
from walktalk.chains.simple_walk import simple_walk

__all__ = ["Chain", "Sampler", "metropolis_hastings", "metropolis_step", "simple_walk"]
