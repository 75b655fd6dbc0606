"""Asynchronous protocols: nobody waits for a round. One file each; `async_gossip` has a folder of its own."""

from walktalk.protocols.asynchronous.osgp import OSGP
from walktalk.protocols.asynchronous.swarm_sgd import SwarmSGD

__all__ = ["OSGP", "SwarmSGD"]
