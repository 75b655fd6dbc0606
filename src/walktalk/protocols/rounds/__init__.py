"""Protocols in rounds: every node trains, sends, waits for all that it hears, and mixes. One file each.

`meeting` is what those between neighbours share, `server` what those with a server do.
"""

from walktalk.protocols.rounds.ceca import CECA, Doubling
from walktalk.protocols.rounds.choco_sgd import ChocoSGD
from walktalk.protocols.rounds.d2 import D2
from walktalk.protocols.rounds.diloco import DiLoCo
from walktalk.protocols.rounds.epidemic import EpidemicLearning
from walktalk.protocols.rounds.extra import EXTRA
from walktalk.protocols.rounds.fedavg import FedAvg
from walktalk.protocols.rounds.fedopt import FedOpt
from walktalk.protocols.rounds.fedprox import FedProx
from walktalk.protocols.rounds.gradient_tracking import GradientTracking
from walktalk.protocols.rounds.k_gt import KGT
from walktalk.protocols.rounds.local_dsgd import LocalDSGD
from walktalk.protocols.rounds.meeting import HALF, MODEL, Meeting, Rule, arrivals
from walktalk.protocols.rounds.momentum_tracking import MomentumTracking
from walktalk.protocols.rounds.neighbour_rounds import NeighbourRounds
from walktalk.protocols.rounds.noloco import NoLoCo
from walktalk.protocols.rounds.push_pull import PushPull
from walktalk.protocols.rounds.qg_dsgdm import QGDSGDm
from walktalk.protocols.rounds.relay_sgd import RelaySGD
from walktalk.protocols.rounds.scaffold import Scaffold
from walktalk.protocols.rounds.sgp import SGP
from walktalk.protocols.rounds.slowmo import SlowMo
from walktalk.protocols.rounds.streaming_diloco import StreamingDiLoCo
from walktalk.protocols.rounds.teleportation import Teleportation

__all__ = [
    "CECA",
    "D2",
    "EXTRA",
    "HALF",
    "KGT",
    "MODEL",
    "SGP",
    "ChocoSGD",
    "DiLoCo",
    "Doubling",
    "EpidemicLearning",
    "FedAvg",
    "FedOpt",
    "FedProx",
    "GradientTracking",
    "LocalDSGD",
    "Meeting",
    "MomentumTracking",
    "NeighbourRounds",
    "NoLoCo",
    "PushPull",
    "QGDSGDm",
    "RelaySGD",
    "Rule",
    "Scaffold",
    "SlowMo",
    "StreamingDiLoCo",
    "Teleportation",
    "arrivals",
]
