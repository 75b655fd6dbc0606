"""Protocols: pure state machines that say what each node does. One file each, headed by its paper and equations."""

from walktalk.plugins import Registry
from walktalk.protocols.async_gossip import AsyncGossip
from walktalk.protocols.centralized import Centralized
from walktalk.protocols.descriptions import Described, described, distinct, together
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
from walktalk.protocols.self_description import InLabel, Law, Runtime
from walktalk.protocols.statistics import TRAINED, for_statistics, with_update
from walktalk.protocols.sync_gossip import SyncGossip

PROTOCOLS: Registry[type[Protocol]] = Registry(
    "algorithm",
    "an algorithm is a class that inherits walktalk.Protocol",
    lambda thing: isinstance(thing, type) and issubclass(thing, Protocol) and thing is not Protocol,
)
"""The protocols that a specification can name."""

for _protocol in (MultiWalk, AsyncGossip, SyncGossip, Centralized):
    PROTOCOLS.add(_protocol.name, _protocol)

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
    "Described",
    "Effect",
    "Event",
    "Forget",
    "InLabel",
    "Law",
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
    "Runtime",
    "Send",
    "SetTimer",
    "Started",
    "Surroundings",
    "SyncGossip",
    "TimerFired",
    "Train",
    "Trained",
    "control_bytes",
    "described",
    "distinct",
    "for_statistics",
    "together",
    "with_update",
]
