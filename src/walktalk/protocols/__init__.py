"""Protocols: pure state machines that say what each node does. One file each, headed by its paper and equations."""

from walktalk.protocols.async_gossip import AsyncGossip
from walktalk.protocols.centralized import Centralized
from walktalk.protocols.effects import (
    AGGREGATE,
    INITIAL,
    MEMBER,
    UPDATE,
    Combine,
    Effect,
    Forget,
    MixEveryone,
    Note,
    Record,
    Send,
    SetTimer,
    Train,
)
from walktalk.protocols.events import Event, PeerFound, PeerLost, Received, Rejoined, Started, TimerFired, Trained
from walktalk.protocols.machine import Machine, Outside, Protocol, Surroundings
from walktalk.protocols.message import HEADER_BYTES, Message, control_bytes
from walktalk.protocols.multi_walk import MultiWalk
from walktalk.protocols.statistics import TRAINED, for_statistics, with_update
from walktalk.protocols.sync_gossip import SyncGossip

PROTOCOLS: dict[str, type[Protocol]] = {p.name: p for p in (MultiWalk, AsyncGossip, SyncGossip, Centralized)}

__all__ = [
    "AGGREGATE",
    "HEADER_BYTES",
    "INITIAL",
    "MEMBER",
    "PROTOCOLS",
    "TRAINED",
    "UPDATE",
    "AsyncGossip",
    "Centralized",
    "Combine",
    "Effect",
    "Event",
    "Forget",
    "Machine",
    "Message",
    "MixEveryone",
    "MultiWalk",
    "Note",
    "Outside",
    "PeerFound",
    "PeerLost",
    "Protocol",
    "Received",
    "Record",
    "Rejoined",
    "Send",
    "SetTimer",
    "Started",
    "Surroundings",
    "SyncGossip",
    "TimerFired",
    "Train",
    "Trained",
    "control_bytes",
    "for_statistics",
    "with_update",
]
