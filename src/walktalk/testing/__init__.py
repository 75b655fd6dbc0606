"""For those who write protocols: the conformance suite, and what it is made of.

`check_protocol(PushSum())` asks a protocol everything that our own are asked, in virtual time and on real nodes.
"""

from walktalk.lazy import listing
from walktalk.runtimes.peers import Ledger
from walktalk.testing.check_protocol import ProtocolFlaws, check_protocol
from walktalk.testing.checks import CHECKS
from walktalk.testing.engines import ENGINES, Blow, Outcome, real, simulated
from walktalk.testing.quadratic import MeasuringTrainer, QuadraticTrainer
from walktalk.testing.replay import Replay

__all__ = [
    "CHECKS",
    "ENGINES",
    "Blow",
    "Ledger",
    "MeasuringTrainer",
    "Outcome",
    "ProtocolFlaws",
    "QuadraticTrainer",
    "Replay",
    "check_protocol",
    "real",
    "simulated",
]

__dir__ = listing(__all__)
