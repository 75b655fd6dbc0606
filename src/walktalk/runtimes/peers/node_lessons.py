"""What a node trains and measures: from what its machine asks for to what its machine is told."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import torch

from walktalk.errors import ProtocolError
from walktalk.protocols import Trained
from walktalk.runtimes.meaning import Work
from walktalk.runtimes.peers.node_end import ALL_LOST, OTHERS
from walktalk.runtimes.peers.node_state import SWALLOWS
from walktalk.runtimes.peers.node_training import Asked
from walktalk.runtimes.peers.training import Outcome

if TYPE_CHECKING:
    from walktalk.runtimes.peers.node import Node

log = logging.getLogger(__name__)


class Lessons:
    """One node's."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def ask(self, effect: Asked) -> None:
        """The machine wants something trained; a node that swallows walks keeps them."""
        node = self._node
        if effect.walk > 0 and self.swallows():
            node.trainings.swallow(effect)
            node.note("swallowed", walk=effect.walk)
            return
        node.trainings.ask(effect)
        self.train_next()

    def swallows(self) -> bool:
        """Whether this node is to keep walks, for a test."""
        return (self._node.setup.folder / SWALLOWS).exists()

    def train_next(self) -> None:
        """Begin the training whose turn it is, if there is one and none is under way."""
        node = self._node
        effect = None if node.state.leaving or node.end.seen else node.trainings.next()
        if effect is None:
            return
        lr = node.setup.lr * node.setup.schedule(node.end.progress(node.clock.run_time))
        key, what = node.keys.getrandbits(63), node.interpreter
        try:
            work = what.begin_training(node.me, effect, node.trainings.count, key, lr)
        except ProtocolError as error:
            node.link.drop("nonsense", f"a training of {effect.slot!r}: {error}")
            return
        if what.keeps_states and work.state is None:
            work = work._replace(state=torch.zeros(node.trainer.state_width))
        node.trainings.begin(work)

    def trained(self, outcome: Outcome) -> None:
        """The training thread reports."""
        node, work = self._node, outcome.work
        state, what = node.state, node.interpreter
        if not node.trainings.end(outcome):
            return
        if outcome.result is None:
            state.failure = outcome.error
            return
        if not node.judge.trained(outcome.result) and not work.gradient:
            self._diverged(work)
            return
        if outcome.loss is not None:
            state.loss = outcome.loss
            self._note_measured(outcome.loss, outcome.accuracy)
        state.tally.add(iterations=1)
        if what.keeps_states and outcome.state is not None:
            what.states[what.state_owner(node.me, work.slot)] = outcome.state
        what.end_training(work, outcome.result)
        state.busy_at = node.clock.elapsed
        self._after_training(work)

    def _diverged(self, work: Work) -> None:
        """A training that led to no finite model is as if it had not been."""
        node = self._node
        if not node.state.diverged:
            log.warning(
                "%s: a training led to numbers that are not finite, and is left out; is optimizer.lr too large?",
                node.setup.endpoint.name,
            )
        node.state.diverged += 1
        node.interpreter.hand_on(node.me, work.slot, work.walk)
        self._after_training(work._replace(steps=0))

    def _after_training(self, work: Work) -> None:
        node = self._node
        node.give(Trained(work.slot, work.walk, work.lr, work.steps))
        node.interpreter.forget_result(node.me)
        self.see_the_end()
        self.train_next()

    def see_the_end(self) -> None:
        """Where the run is over: measure for the last time, and tell the neighbours."""
        node = self._node
        spent = node.purse is not None and node.purse.empty
        why = "" if node.end.seen else node.end.look(node.clock.run_time, node.state.alive, spent)
        if not why:
            return
        if why in (ALL_LOST, OTHERS) and spent and node.purse is not None:
            why = f"every node has spent its privacy budget, this one ε = {node.purse.epsilon:.3g}"
            node.note("budget_spent")
        elif why == ALL_LOST:
            node.note("all_lost")
        node.note("over")
        node.news.say(f"the run is over: {why}")
        self._measure_last()
        node.state.tally.end(over=True)
        for peer in node.state.alive:
            node.tell_tally(peer)

    def _measure_last(self) -> None:
        """What this node has in the end, on its own data: the last that is known of the run's loss."""
        node = self._node
        copy = node.newest_copy() if node.setup.named is not None else None
        if copy is not None:
            node.trainings.measure(copy.model)

    def measured_last(self, loss: float, accuracy: float) -> None:
        """That measurement is done."""
        self._note_measured(loss, accuracy)
        self._node.trainings.measuring = False

    def _note_measured(self, loss: float, accuracy: float) -> None:
        """For whoever collects: nobody else sees this node's data."""
        setup = self._node.setup
        facts = {"loss": loss, "samples": setup.samples, "accuracy": accuracy, "tested": setup.tested}
        self._node.note("measured", detail={name: value for name, value in facts.items() if not math.isnan(value)})
