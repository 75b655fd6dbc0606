"""What a person who watches a node wants to read in its log: a line for what happens seldom and matters."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping

from walktalk.runtimes.peers.absence import why_absent
from walktalk.runtimes.peers.session import Endpoint
from walktalk.runtimes.peers.tunnels import Guest, why_not_met

log = logging.getLogger(__name__)

_WORDS = {
    "rejoined": "comes back from its checkpoint",
    "lost": "{peer} is gone",
    "found": "{peer} is there",
    "silent": "{peer} is silent for too long",
    "suspected": "nothing is heard of the aggregator, {peer}",
    "elected": "aggregates from now on, in term {number}",
    "stepped_down": "aggregates no more: another does, in a higher term",
    "restarted": "walk {walk} was lost and is started again",
    "joined": "{peer} joins",
    "leaves_for_good": "{peer} leaves for good",
    "left_for_good": "{peer} has left for good",
    "handed_on": "hands walk {walk} on",
}


class News:
    """One node's log."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._names = {number: name for name, number in endpoint.neighbours.items()}

    def change(self, endpoint: Endpoint, names: Mapping[int, str]) -> None:
        """The node has other neighbours, and there are other names."""
        self._endpoint, self._names = endpoint, dict(names)

    def say(self, line: str) -> None:
        """A line of its own."""
        log.info("%s: %s", self._endpoint.name, line)

    def event(self, event: str, peer: int, walk: int, number: int) -> None:
        """Something that is in the trace too; most of it is of no interest here."""
        if event in _WORDS and not (event == "joined" and peer == self._endpoint.number):
            self.say(_WORDS[event].format(peer=self.name_of(peer), walk=walk, number=number))

    def name_of(self, peer: int) -> str:
        """A node's name, where it is a neighbour's."""
        return self._names.get(peer, f"node {peer}" if peer >= 0 else "whoever it is")

    def stranger(self, peer: int, why: str) -> None:
        """A neighbour is not listened to."""
        log.warning("%s: refuses %s, whose study is another: %s", self._endpoint.name, self.name_of(peer), why)

    def absent(self, peers: Iterable[int], level: int) -> None:
        """These did not come: find out why, and say so. Asking takes seconds, so a thread does."""
        missing = {self._names[peer]: self._endpoint.places.get(self._names[peer], "") for peer in sorted(peers)}
        if missing:
            threading.Thread(target=self._explain, args=(missing, level), name="absent", daemon=True).start()

    def _explain(self, missing: Mapping[str, str], level: int) -> None:
        for name, address in missing.items():
            why = self._why(name, address)
            log.log(level, "%s: without %s: %s", self._endpoint.name, name, why)

    def _why(self, name: str, address: str) -> str:
        here = self._endpoint
        if here.relay is not None and not address:
            return why_not_met(here.relay, Guest(here.cluster, here.name, here.credentials), name)
        return why_absent(name, address, here.credentials)
