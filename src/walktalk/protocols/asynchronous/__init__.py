"""Asynchronous protocols: nobody waits for a round. One file each; `async_gossip` has a folder of its own."""

from walktalk.protocols.asynchronous.osgp import OSGP

__all__ = ["OSGP"]
