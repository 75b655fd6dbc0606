"""Walks that do more than train: one file each. The machinery under them is Multi-Walk's, with and without failures."""

from walktalk.protocols.walks.digest import Digest
from walktalk.protocols.walks.token_saga import TokenSaga
from walktalk.protocols.walks.walkman import Walkman
from walktalk.protocols.walks.weighted_walk import WeightedWalk

__all__ = ["Digest", "TokenSaga", "Walkman", "WeightedWalk"]
