"""SwarmSGD: `blocking`, where pairs wait for each other, `quantized`, and the protocol that chooses."""

from walktalk.protocols.asynchronous.swarm_sgd.protocol import SwarmSGD

__all__ = ["SwarmSGD"]
