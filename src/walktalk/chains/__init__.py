"""Markov chains on a graph: how walks move and how gossip mixes, and how fast.

`metropolis_hastings(graph)` is the paper's P. `chain.sampler().next(node, random)` draws the next node in constant
time; `metropolis_step` is the same law for a node that knows only its neighbours' degrees. `spectrum` gives the gaps p
and p', `return_time` the moments of a node's return time, `age` those of the time since a visit to it, `hitting_times`
the way to it from everywhere, and `aggregators` the best and worst node to mix at. With weights a walk favours some
nodes: `stationary` says where it is in the long run, `mean_return_times` when it comes back, `metropolis_with_jumps`
how it gets away. Dense and exact for small chains, sparse for a million nodes.
"""

from walktalk.chains.age import Age, age
from walktalk.chains.chain import Chain
from walktalk.chains.jumps import hops_of_a_jump, metropolis_with_jumps
from walktalk.chains.metropolis_hastings import metropolis_hastings, metropolis_step
from walktalk.chains.return_time import Aggregators, ReturnTime, aggregators, hitting_times, return_time, second_moments
from walktalk.chains.sampler import Sampler
from walktalk.chains.simple_walk import simple_walk
from walktalk.chains.spectrum import Spectrum, spectrum
from walktalk.chains.stationary import mean_return_times, stationary
from walktalk.lazy import listing

__all__ = [
    "Age",
    "Aggregators",
    "Chain",
    "ReturnTime",
    "Sampler",
    "Spectrum",
    "age",
    "aggregators",
    "hitting_times",
    "hops_of_a_jump",
    "mean_return_times",
    "metropolis_hastings",
    "metropolis_step",
    "metropolis_with_jumps",
    "return_time",
    "second_moments",
    "simple_walk",
    "spectrum",
    "stationary",
]

__dir__ = listing(__all__)
