"""The algorithms that a specification can name: a new one is a file of its own and a line here.

What else the field calls it, the class says itself (`also_known_as`, `known_forms`).
"""

from walktalk.core.plugins import Registry
from walktalk.protocols.centralized import Centralized
from walktalk.protocols.descriptions import absent_protocol
from walktalk.protocols.gossip.a2cid2 import A2CiD2
from walktalk.protocols.gossip.agraf import AGRAF
from walktalk.protocols.gossip.async_gossip import AsyncGossip
from walktalk.protocols.gossip.ceca import CECA
from walktalk.protocols.gossip.choco_sgd import ChocoSGD
from walktalk.protocols.gossip.d2 import D2
from walktalk.protocols.gossip.divshare import DivShare
from walktalk.protocols.gossip.epidemic import EpidemicLearning
from walktalk.protocols.gossip.extra import EXTRA
from walktalk.protocols.gossip.gradient_tracking import GradientTracking
from walktalk.protocols.gossip.k_gt import KGT
from walktalk.protocols.gossip.local_dsgd import LocalDSGD
from walktalk.protocols.gossip.momentum_tracking import MomentumTracking
from walktalk.protocols.gossip.osgp import OSGP
from walktalk.protocols.gossip.push_pull import PushPull
from walktalk.protocols.gossip.qg_dsgdm import QGDSGDm
from walktalk.protocols.gossip.relay_sgd import RelaySGD
from walktalk.protocols.gossip.sgp import SGP
from walktalk.protocols.gossip.swarm_sgd import SwarmSGD
from walktalk.protocols.gossip.swift import SWIFT
from walktalk.protocols.gossip.sync_gossip import SyncGossip
from walktalk.protocols.gossip.teleportation import Teleportation
from walktalk.protocols.machine import Protocol
from walktalk.protocols.outer.diloco import DiLoCo
from walktalk.protocols.outer.noloco import NoLoCo
from walktalk.protocols.outer.slowmo import SlowMo
from walktalk.protocols.outer.streaming_diloco import StreamingDiLoCo
from walktalk.protocols.server.async_sgd import AsyncSGD
from walktalk.protocols.server.fedasync import FedAsync
from walktalk.protocols.server.fedavg import FedAvg
from walktalk.protocols.server.fedbuff import FedBuff
from walktalk.protocols.server.fedopt import FedOpt
from walktalk.protocols.server.fedprox import FedProx
from walktalk.protocols.server.scaffold import Scaffold
from walktalk.protocols.walks import Digest, MultiWalk, TokenSaga, Walkman, WeightedWalk

HINTS = {  # what may mean several of ours, or one with settings of the study: an error names the nearest
    "walk": "multi_walk",
    "gossip": "async_gossip",
    "dsgdm": "local_dsgd",
    "dfedavgm": "local_dsgd",
    "qg_dsgd": "qg_dsgdm",
    "bmuf": "slowmo",
    "mhlj": "weighted_walk",
}

PROTOCOLS: Registry[type[Protocol]] = Registry(
    "algorithm",
    "an algorithm is a class that inherits walktalk.Protocol",
    lambda thing: isinstance(thing, type) and issubclass(thing, Protocol) and thing is not Protocol,
    absent=absent_protocol,
    elsewhere=HINTS,
)
"""The protocols that a specification can name."""

for _protocol in (
    MultiWalk,
    AsyncGossip,
    SwarmSGD,
    SWIFT,
    AGRAF,
    A2CiD2,
    DivShare,
    SyncGossip,
    Centralized,
    LocalDSGD,
    QGDSGDm,
    SlowMo,
    GradientTracking,
    MomentumTracking,
    KGT,
    D2,
    EXTRA,
    SGP,
    OSGP,
    RelaySGD,
    PushPull,
    CECA,
    ChocoSGD,
    EpidemicLearning,
    Teleportation,
    NoLoCo,
    FedAvg,
    FedOpt,
    FedProx,
    Scaffold,
    FedBuff,
    FedAsync,
    AsyncSGD,
    DiLoCo,
    StreamingDiLoCo,
    TokenSaga,
    Digest,
    Walkman,
    WeightedWalk,
):
    PROTOCOLS.add(_protocol.name, _protocol)
