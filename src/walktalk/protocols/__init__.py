"""Protocols: pure state machines that say what each node does. One file each, headed by its paper and equations."""

from walktalk.plugins import Registry
from walktalk.protocols.async_gossip import AsyncGossip
from walktalk.protocols.asynchronous import OSGP, SwarmSGD
from walktalk.protocols.centralized import Centralized
from walktalk.protocols.descriptions import Described, absent_protocol, described, known, together
from walktalk.protocols.effects import (
    AGGREGATE,
    GRADIENT,
    INITIAL,
    MEMBER,
    UPDATE,
    Combine,
    Decode,
    Differentiate,
    Effect,
    Encode,
    Forget,
    MixEveryone,
    Note,
    Record,
    Send,
    SetTimer,
    Train,
    absorb,
    apply_update,
)
from walktalk.protocols.events import Event, PeerFound, PeerLost, Received, Rejoined, Started, TimerFired, Trained
from walktalk.protocols.machine import Machine, Outside, Protocol, Surroundings
from walktalk.protocols.message import HEADER_BYTES, Arrival, Message, control_bytes
from walktalk.protocols.multi_walk import MultiWalk
from walktalk.protocols.rounds import (
    D2,
    SGP,
    ChocoSGD,
    DiLoCo,
    EpidemicLearning,
    FedAvg,
    FedProx,
    GradientTracking,
    LocalDSGD,
    NoLoCo,
    QGDSGDm,
    RelaySGD,
    Scaffold,
)
from walktalk.protocols.self_description import InLabel, Law, Runtime
from walktalk.protocols.sync_gossip import SyncGossip
from walktalk.protocols.walks import TokenSaga

PROTOCOLS: Registry[type[Protocol]] = Registry(
    "algorithm",
    "an algorithm is a class that inherits walktalk.Protocol",
    lambda thing: isinstance(thing, type) and issubclass(thing, Protocol) and thing is not Protocol,
    absent=absent_protocol,
)
"""The protocols that a specification can name."""

for _protocol in (
    MultiWalk,
    AsyncGossip,
    SwarmSGD,
    SyncGossip,
    Centralized,
    LocalDSGD,
    QGDSGDm,
    GradientTracking,
    D2,
    SGP,
    OSGP,
    RelaySGD,
    ChocoSGD,
    EpidemicLearning,
    NoLoCo,
    FedAvg,
    FedProx,
    Scaffold,
    DiLoCo,
    TokenSaga,
):
    PROTOCOLS.add(_protocol.name, _protocol)

__all__ = [
    "AGGREGATE",
    "D2",
    "GRADIENT",
    "HEADER_BYTES",
    "INITIAL",
    "MEMBER",
    "OSGP",
    "PROTOCOLS",
    "SGP",
    "UPDATE",
    "Arrival",
    "AsyncGossip",
    "Centralized",
    "ChocoSGD",
    "Combine",
    "Decode",
    "Described",
    "DiLoCo",
    "Differentiate",
    "Effect",
    "Encode",
    "EpidemicLearning",
    "Event",
    "FedAvg",
    "FedProx",
    "Forget",
    "GradientTracking",
    "InLabel",
    "Law",
    "LocalDSGD",
    "Machine",
    "Message",
    "MixEveryone",
    "MultiWalk",
    "NoLoCo",
    "Note",
    "Outside",
    "PeerFound",
    "PeerLost",
    "Protocol",
    "QGDSGDm",
    "Received",
    "Record",
    "Rejoined",
    "RelaySGD",
    "Runtime",
    "Scaffold",
    "Send",
    "SetTimer",
    "Started",
    "Surroundings",
    "SwarmSGD",
    "SyncGossip",
    "TimerFired",
    "TokenSaga",
    "Train",
    "Trained",
    "absorb",
    "apply_update",
    "control_bytes",
    "described",
    "known",
    "together",
]
