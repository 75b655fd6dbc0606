"""How far the run is, as one node tells and hears it, and when it is over.

Nobody is in charge, so each node decides from what it hears, and tells its neighbours.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection

from walktalk.protocols import Message
from walktalk.runtimes.peers.identity.certificates import bearer, common_name
from walktalk.runtimes.peers.identity.signed_statements import CERTIFICATE_KIND, SignedStatements
from walktalk.runtimes.peers.node.state import NodeState
from walktalk.runtimes.peers.node.tally import COUNTS_KIND, TALLY_KIND, Tally
from walktalk.runtimes.peers.wire.link import Link
from walktalk.runtimes.peers.wire.messages import Parcel
from walktalk.runtimes.peers.wire.versions import COUNTS_WITH_LENGTHS, MESSAGES
from walktalk.runtimes.semantics import Stop

STALLED = 5.0  # seconds in which nobody has anything to train until the run is given up
TOLD_EVERY = 0.25  # seconds between two rounds of gossip about how far everybody is
TOLD_AT_LAST = 0.05  # the same, where the end is nearer than that
SPENT = 0.5  # the same, where it is because of privacy budgets
LINGER = 5.0  # seconds that a node which is done waits for others to be done
NEARLY = 0.9  # of the way: from there on one neighbour that has seen the end is believed
NEAR = 1.5  # times the target loss: likewise

ALL_LOST = "all walks are lost"
OTHERS = "others have seen the end"


class End:
    """Decides whether a node has seen the end of the run."""

    def __init__(self, stop: Stop, tally: Tally) -> None:
        """
        - `stop`: by what the run ends.
        - `tally`: how far all nodes are, as far as it is known here.
        """
        self._stop, self._tally = stop, tally
        self._stalled_at: float | None = None  # since when nobody has had anything to train
        self._seen_at: float | None = None

    @property
    def seen(self) -> bool:
        """Whether the node has seen the end: it trains no more."""
        return self._seen_at is not None

    @property
    def since(self) -> float:
        """Seconds since the node has seen the end; 0 where it has not."""
        return time.monotonic() - self._seen_at if self._seen_at is not None else 0.0

    @property
    def long_seen(self) -> bool:
        """Whether the others have had the time to see it too."""
        return self.since > LINGER

    def progress(self, run_time: float) -> float:
        """How far the run is, from 0 to 1."""
        return self._stop.progress(self._tally.iterations, run_time, 8.0 * self._tally.sent)

    def next_round(self, run_time: float) -> float:
        """Seconds until neighbours are to be told again: less where, by the pace so far, the run ends before that.

        A node trains on until it hears that enough was trained. Where many do so in a second, those are many; where few
        do, there is no more to tell.
        """
        done = self._stop.progress(self._tally.iterations, 0.0, 8.0 * self._tally.sent)
        if self.seen or not done:
            return TOLD_EVERY
        left, each = run_time * (1.0 - done) / done, run_time / max(self._tally.iterations, 1)
        return min(max(left / 2, each, TOLD_AT_LAST), TOLD_EVERY)

    def look(self, run_time: float, alive: Collection[int], spent: bool = False) -> str:
        """Why the run is over, if it is: a word for the log; "" where it is not.

        `alive`: the neighbours that are there. One of them that says so is believed where the end is near by this
        node's own reckoning, and most of them anywhere: what they counted, this node may not have heard of.
        `spent`: this node has spent its privacy budget; that stays so.
        """
        tally, target = self._tally, self._stop.target_loss
        why = ""
        if self.progress(run_time) >= 1.0:
            why = "enough was trained"
        elif target is not None and tally.loss <= target:
            why = "the loss is low enough"
        elif self._is_believed(tally.over(alive), len(alive), run_time):
            why = OTHERS
        elif self._stalled(SPENT if spent else STALLED):
            why = ALL_LOST
        if why:
            self._seen_at = time.monotonic()
        return why

    def _is_believed(self, saying: int, alive: int, run_time: float) -> bool:
        """Whether so many of the neighbours say that it is over that it is."""
        if not saying:
            return False
        target = self._stop.target_loss
        near = self.progress(run_time) >= NEARLY or (target is not None and self._tally.loss <= NEAR * target)
        return near or self._tally.own.idle or (saying > 1 and 2 * saying > alive)  # idle: nothing will ever come

    def _stalled(self, patience: float) -> bool:
        """Whether nobody has had anything to train for a while, and nobody will: walks that no guard starts again."""
        if not self._tally.stalled:
            self._stalled_at = None
            return False
        self._stalled_at = self._stalled_at or time.monotonic()
        return time.monotonic() > self._stalled_at + patience


class Progress:
    """Tells neighbours how far everybody is, and hears it from them, with the certificates by which it is believed."""

    def __init__(
        self,
        tally: Tally,
        statements: SignedStatements | None,
        stop: Stop,
        link: Link,
        state: NodeState,
        dice: random.Random,
    ) -> None:
        """
        - `tally`: what this node counts and has heard.
        - `statements`: signatures under what nodes say of themselves; None without certificates.
        - `stop`: by what the run ends.
        - `link`, `state`: the node's.
        - `dice`: chooses what to tell, where there is too much for one message.
        """
        self.tally, self.statements, self.end = tally, statements, End(stop, tally)
        self._link, self._state, self._dice = link, state, dice

    def announce(self, peer: int) -> None:
        """Tell a neighbour how far everybody is; before this node has begun, its run has lasted no time."""
        lasted = self._state.clock.run_time if self._state.begun else 0.0
        lengths = self._state.speaks.get(peer, MESSAGES.oldest) >= COUNTS_WITH_LENGTHS
        self._say(peer, COUNTS_KIND if lengths else TALLY_KIND, self.tally.encode(lasted, self._dice, lengths))
        if self.statements is not None:
            self._say(peer, CERTIFICATE_KIND, self.statements.next())  # words may get lost

    def announce_to_all(self) -> None:
        """Tell all neighbours how far everybody is."""
        for peer in self._state.alive:
            self.announce(peer)

    def greet(self, peer: int) -> None:
        """A neighbour is there: send it the certificates that it needs to tell whose words it hears."""
        for chain in self.statements.all() if self.statements is not None else ():
            self._say(peer, CERTIFICATE_KIND, chain)

    def hear(self, parcel: Parcel) -> None:
        """A neighbour tells how far everybody is; `ValueError` where that is nonsense."""
        lasted = self.tally.hear(parcel.sender, parcel.message.note, parcel.message.kind == COUNTS_KIND)
        if self._state.begun:
            self._state.clock.hear(lasted)

    def hear_certificate(self, parcel: Parcel) -> None:
        """A neighbour sends a certificate by which to tell whose words are heard; a new one is passed on."""
        note = parcel.message.note
        if self.statements is not None and (new := self.statements.learn(note)) is not None:
            renewal = self._link.connections.renewal
            if renewal is not None:
                renewal.learn_end(bearer(common_name(new)), new.not_valid_after_utc)
            for peer in self._state.alive - {parcel.sender}:
                self._say(peer, CERTIFICATE_KIND, note)

    def _say(self, peer: int, kind: str, note: bytes) -> None:
        self._link.send(Parcel(self.tally.node, peer, Message(kind, note=note)), None)
