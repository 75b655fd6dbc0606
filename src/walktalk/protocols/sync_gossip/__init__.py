"""Synchronous gossip (D-PSGD): `plain` for a world without failures, `resilient` for a world with them."""

from walktalk.protocols.sync_gossip.plain import SyncGossip

__all__ = ["SyncGossip"]
