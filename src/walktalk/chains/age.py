"""The age of a walk: how many of its steps ago it was last at a node, on average over time.

Looked at backwards a reversible chain is the same chain, so the time since the last visit has the distribution of the
time to the next one, from the stationary distribution. With m_i the mean time from i to the node, of a symmetric chain,
the age is m on average, and its square is 2 m² − m on average, both means over all nodes.

Theorem 1 of the paper has the return time in its place, which is shorter where returns are uneven: a moment chosen at
random falls into a long absence more often than into a short one.
"""

from __future__ import annotations

from dataclasses import dataclass

from walktalk.chains.chain import Chain
from walktalk.chains.return_time import hitting_times
from walktalk.errors import ChainError


@dataclass(frozen=True)
class Age:
    """Steps of a walk since its last visit to a node."""

    node: int  # the node
    mean: float  # over time
    mean_square: float  # over time


def age(chain: Chain, node: int = 0) -> Age:
    """The age of a walk, where its last visit to a node counts.

    Args:
        chain: A symmetric one, such as Metropolis–Hastings.
        node: The node.
    """
    if not chain.is_symmetric():
        raise ChainError(f"{chain.name}: not symmetric, so the time since a visit is not that to the next one")
    times = hitting_times(chain, node)
    mean = float(times.mean())
    return Age(node, mean, 2 * float((times**2).mean()) - mean)
