"""Asynchronous protocols: nobody waits for a round. One file each; `async_gossip` has a folder of its own.

`server` is what those with a server share, `free_loops` what those that train and talk side by side do.
"""

from walktalk.protocols.asynchronous.a2cid2 import A2CiD2
from walktalk.protocols.asynchronous.agraf import AGRAF
from walktalk.protocols.asynchronous.async_sgd import AsyncSGD
from walktalk.protocols.asynchronous.divshare import DivShare
from walktalk.protocols.asynchronous.fedasync import FedAsync
from walktalk.protocols.asynchronous.fedbuff import FedBuff
from walktalk.protocols.asynchronous.osgp import OSGP
from walktalk.protocols.asynchronous.swarm_sgd import SwarmSGD
from walktalk.protocols.asynchronous.swift import SWIFT

__all__ = ["AGRAF", "OSGP", "SWIFT", "A2CiD2", "AsyncSGD", "DivShare", "FedAsync", "FedBuff", "SwarmSGD"]
