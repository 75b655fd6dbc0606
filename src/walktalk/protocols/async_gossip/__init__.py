"""Asynchronous gossip: `plain` for a world without failures, `resilient` for a world with them."""

from walktalk.protocols.async_gossip.plain import AsyncGossip

__all__ = ["AsyncGossip"]
