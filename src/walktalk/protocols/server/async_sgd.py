"""Asynchronous SGD with a parameter server (Recht et al. 2011; Dean et al. 2012; Mishchenko et al. 2022).

    node:    g_i at x_τ, the server's model when it asked last
    server:  x ← x − η g_i at once, whatever has happened to x since

One gradient a training, or K local steps, whose change is added as it is. With `damped`, one that is τ versions late
is divided by 1 + τ (a step that adapts to the delay). Who is fast counts more often: on unlike data it comes near the
optimum, and no nearer. It is FedBuff with a buffer of 1 and no damping. From memory of the papers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from walktalk.protocols.effects import Train
from walktalk.protocols.mechanisms.asynchronous_server import START, AsynchronousServer, Damping, Intake
from walktalk.protocols.server.fedbuff import Buffered


@dataclass(frozen=True)
class AsyncSGD(AsynchronousServer):
    """A server adds every change that comes to its model at once.

    Args:
        damped: whether a change that is τ versions late is divided by 1 + τ.
    """

    damped: bool = False
    name: ClassVar[str] = "async_sgd"
    paper: ClassVar[str] = "Recht et al. 2011; Dean et al. 2012; Mishchenko et al., NeurIPS 2022"
    keeps: ClassVar[str] = "a model at the server"
    sends: ClassVar[str] = "one model to a node and one change back for every training"
    guarantees: ClassVar[str] = (
        "every gradient counts once, however late; who is fast counts more often, so a rest stays on unlike nodes"
    )
    title: ClassVar[str] = "asynchronous SGD"
    description: ClassVar[str] = "A server adds every gradient to its model as it comes; nobody waits for others."
    colour: ClassVar[str] = "#E59866"

    def training(self) -> Train:
        return Train(START, steps=self.steps)

    def intake(self) -> Intake:
        return Buffered(1, 1.0, Damping("polynomial" if self.damped else "constant", 1.0, 0))
