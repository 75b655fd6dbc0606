"""Multi-Walk: `plain` is Algorithm 1 for a world without failures, `resilient` the same for a world with them."""

from walktalk.protocols.multi_walk.plain import MultiWalk

__all__ = ["MultiWalk"]
