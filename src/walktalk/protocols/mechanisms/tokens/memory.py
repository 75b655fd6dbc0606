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

from walktalk.protocols.mechanisms.tokens.copies import Arrived
from walktalk.protocols.mechanisms.tokens.guards import Guard
from walktalk.protocols.mechanisms.tokens.heartbeats import NOBODY, Claim, Score
from walktalk.protocols.mechanisms.tokens.hops import Token
from walktalk.protocols.mechanisms.tokens.mixing import GivenUp, TermMixer
from walktalk.protocols.mechanisms.tokens.rule import Carried, WalkRule

TRAINED = b"\1"  # what a keepsake begins with where there is a model of an earlier visit
BY_WALK = ("tickets", "generations")  # numbers that an aggregator has of each walk
_TERM = struct.Struct("<I")


class Farewell(NamedTuple):
    """What a node knew when it was stopped in order, or when it died."""

    trained: bool = False  # whether there is a model of an earlier visit
    here: tuple[Token, ...] = ()  # walks in training
    next: tuple[Token, ...] = ()  # walks that waited for the training of an older copy to end
    leaving: tuple[Token, ...] = ()  # walks that were sent, and that nobody has taken
    claim: Claim = NOBODY
    beat: int = 0
    mixer: dict[str, Any] | None = None  # of the aggregator, `mixer_facts`
    term: int = 0  # the highest that was known

    def encode(self) -> bytes:
        """Bytes for a checkpoint, of a node that stops in order."""
        walks = {name: [_said(token) for token in getattr(self, name)] for name in ("here", "next", "leaving")}
        claim = [self.claim.term, list(self.claim.score), self.claim.rank]
        content = {**walks, "claim": claim, "beat": self.beat, "reign": self.mixer}
        return (TRAINED if self.trained else b"\0") + json.dumps(content).encode()

    def short(self) -> bytes:
        """Bytes for a checkpoint of a node that may die: whether there is a model, and the term."""
        return (TRAINED if self.trained else b"\0") + _TERM.pack(self.term)


def remembered(memory: bytes) -> Farewell:
    """Reads either kind of bytes; those of a node that died say only whether there is a model, and the term."""
    trained = memory[:1] == TRAINED
    if len(memory) <= 1 + _TERM.size:
        return Farewell(trained, term=_TERM.unpack(memory[1:])[0] if len(memory) > _TERM.size else 0)
    content = json.loads(memory[1:])
    here, coming, leaving = (tuple(_token(said) for said in content[name]) for name in ("here", "next", "leaving"))
    term, score, rank = content["claim"]
    claim = Claim(term, Score(*score), rank)
    return Farewell(trained, here, coming, leaving, claim, content["beat"], content["reign"], term)


def mixer_facts(mixer: TermMixer) -> dict[str, Any]:
    """What an aggregator knows, as JSON can say it."""
    counts = {"latest": mixer.latest, "updates": mixer.updates, "left": mixer.left, "awaited": sorted(mixer.awaited)}
    by_walk = {name: list(getattr(mixer, name).items()) for name in BY_WALK}
    met = [[walk, *name, ticket, *came] for (walk, name, ticket), came in mixer.met.items()]
    missing = [[walk, *given_up] for walk, given_up in mixer.missing.items()]
    spares = [_said(token) for token in mixer.spares.values()]
    return {**counts, **by_walk, "missing": missing, "met": met, "spares": spares}


def resumed(
    facts: dict[str, Any], walks: int, name: tuple[int, int], guard: Guard, rule: WalkRule, now: float
) -> TermMixer:
    """Reads what `mixer_facts` wrote: the term goes on, and waits for all its walks from now on."""
    tickets, generations = (_numbers(facts.get(key, [])) for key in BY_WALK)
    mixer = TermMixer(walks, name, guard, rule, facts["latest"], tickets, generations, facts["updates"])
    mixer.left = facts.get("left", 1.0)
    mixer.awaited = {int(walk) for walk in facts.get("awaited", [])}
    mixer.missing = {int(walk): GivenUp(*map(int, said)) for walk, *said in facts.get("missing", [])}
    met = facts.get("met", [])
    for walk, term, node, ticket, since, hops, share in met:
        mixer.met[walk, (term, node), ticket] = Arrived(since, tuple(hops), share)
    mixer.spares = {token.walk: token for token in map(_token, facts.get("spares", []))}
    mixer.visits.append((now, mixer.updates))
    mixer.await_walks(now)
    return mixer


def _numbers(said: list[list[int]]) -> dict[int, int]:
    """A mapping of walks to numbers, from JSON."""
    return {int(walk): int(number) for walk, number in said}


def _said(token: Token) -> list[Any]:
    return [token.walk, list(token.term_id), token.ticket, token.hop, token.generation, token.carried.state.hex()]


def _token(said: list[Any]) -> Token:
    walk, (term, leader), ticket, hop, generation, more = said
    return Token(walk, (term, leader), ticket, hop, generation, Carried(state=bytes.fromhex(more)))
