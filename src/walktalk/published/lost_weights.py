"""What the code of RelaySGD's authors does with lost messages on a ring in the commit that has the table on them.

`GossipMechanism.gossip_update` of epfml/relaysgd in its first commit (e0d9bb2): where something is lost, weights are to
be divided by the sum of those that came, but that sum begins with 1 − w_ii, where w_ii is meant, and is divided by only
if it is less than one. On a ring it is 4/3, 1 and 2/3 with none, one and both messages lost: a node that misses one is
left with two thirds of a model, and one that misses both with half of its own. A later commit (0e7551a) begins with
w_ii: that is `missing: divide`. D-PSGD, D² and quasi-global momentum go through that function, RelaySGD and SGP do not.
"""

from __future__ import annotations

from dataclasses import dataclass

from walktalk.protocols import QGDSGDm


@dataclass(frozen=True)
class FirstCode(QGDSGDm):
    """Quasi-global momentum with the weights of that code; `missing` has to be `divide`."""

    def divisor(self, own: float, came: float) -> float:
        return min(1.0, 1.0 - own + came)
