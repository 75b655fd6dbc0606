"""What a node that left in order must know to go on: the walks that were with it, and who aggregated.

Where all nodes are stopped and started again, nothing is lost: walks that nobody took any more are in the checkpoints
of those that had them last, and the aggregator goes on with the tickets that it wrote. A node that died knows nothing
of this: its checkpoint is older than its death, and its walks are elsewhere by then. It knows the term: where all nodes
died at once, the next aggregator's is a later one.
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

from walktalk.protocols.multi_walk.aggregation import GivenUp, Reign
from walktalk.protocols.multi_walk.election import NOBODY, Claim, Score
from walktalk.protocols.multi_walk.met_copies import Met
from walktalk.protocols.multi_walk.visits import Carried
from walktalk.protocols.multi_walk.walk_guard import Guard
from walktalk.protocols.multi_walk.walk_pass import Pass

TRAINED = b"\1"  # what a keepsake begins with where there is a model of an earlier visit
BY_WALK = ("tickets", "generations")  # numbers that a reign has of each walk
_TERM = struct.Struct("<I")


class Farewell(NamedTuple):
    """All of it."""

    trained: bool = False  # whether there is a model of an earlier visit
    here: tuple[Pass, ...] = ()  # walks in training
    next: tuple[Pass, ...] = ()  # walks that waited for the training of an older copy to end
    leaving: tuple[Pass, ...] = ()  # walks that were sent, and that nobody has taken
    claim: Claim = NOBODY
    beat: int = 0
    reign: dict[str, Any] | None = None  # of the aggregator
    term: int = 0  # the highest that was known

    def encode(self) -> bytes:
        """As a keepsake."""
        walks = {name: [_said(what) for what in getattr(self, name)] for name in ("here", "next", "leaving")}
        claim = [self.claim.term, list(self.claim.score), self.claim.rank]
        content = {**walks, "claim": claim, "beat": self.beat, "reign": self.reign}
        return (TRAINED if self.trained else b"\0") + json.dumps(content).encode()

    def short(self) -> bytes:
        """As the keepsake of one that may die: whether there is a model, and the term."""
        return (TRAINED if self.trained else b"\0") + _TERM.pack(self.term)


def remembered(memory: bytes) -> Farewell:
    """Back again; of a keepsake of one that died only whether there is a model, and the term."""
    trained = memory[:1] == TRAINED
    if len(memory) <= 1 + _TERM.size:
        return Farewell(trained, term=_TERM.unpack(memory[1:])[0] if len(memory) > _TERM.size else 0)
    content = json.loads(memory[1:])
    here, coming, leaving = (tuple(_pass(said) for said in content[name]) for name in ("here", "next", "leaving"))
    term, score, rank = content["claim"]
    claim = Claim(term, Score(*score), rank)
    return Farewell(trained, here, coming, leaving, claim, content["beat"], content["reign"], term)


def reign_facts(reign: Reign) -> dict[str, Any]:
    """An aggregator's time, as JSON can say it."""
    counts = {"latest": reign.latest, "updates": reign.updates, "left": reign.left, "awaited": sorted(reign.awaited)}
    by_walk = {name: list(getattr(reign, name).items()) for name in BY_WALK}
    met = [[walk, *name, ticket, *came] for (walk, name, ticket), came in reign.met.items()]
    missing = [[walk, *given_up] for walk, given_up in reign.missing.items()]
    spares = [_said(what) for what in reign.spares.values()]
    return {**counts, **by_walk, "missing": missing, "met": met, "spares": spares}


def resumed(facts: dict[str, Any], walks: int, name: tuple[int, int], guard: Guard, now: float) -> Reign:
    """Back again: the same reign, which waits for all its walks from now on."""
    tickets, generations = (_numbers(facts.get(key, [])) for key in BY_WALK)
    reign = Reign(walks, name, guard, facts["latest"], tickets, generations, facts["updates"])
    reign.left = facts.get("left", 1.0)
    reign.awaited = {int(walk) for walk in facts.get("awaited", [])}
    reign.missing = {int(walk): GivenUp(*map(int, said)) for walk, *said in facts.get("missing", [])}
    met = facts.get("met", [])
    for walk, term, node, ticket, since, hops, share in met:
        reign.met[walk, (term, node), ticket] = Met(since, tuple(hops), share)
    reign.spares = {what.walk: what for what in map(_pass, facts.get("spares", []))}
    reign.visits.append((now, reign.updates))
    reign.await_walks(now)
    return reign


def _numbers(said: list[list[int]]) -> dict[int, int]:
    """By walk."""
    return {int(walk): int(number) for walk, number in said}


def _said(what: Pass) -> list[Any]:
    return [what.walk, list(what.reign), what.ticket, what.hop, what.generation, what.carried.more.hex()]


def _pass(said: list[Any]) -> Pass:
    walk, (term, leader), ticket, hop, generation, more = said
    return Pass(walk, (term, leader), ticket, hop, generation, Carried(more=bytes.fromhex(more)))
