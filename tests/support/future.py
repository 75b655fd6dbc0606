"""The version after this one, as far as others notice: higher numbers, and more of everything that may grow.

Imported before the rest of walktalk, in the process of a node: `python -c "import tests.support.future; …"`.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import walktalk.runtimes.peers.wire.versions as versions

versions.MESSAGES = versions.Span(versions.MESSAGES.newest, versions.MESSAGES.newest + 1)
versions.CHECKPOINTS = versions.Span(versions.CHECKPOINTS.newest, versions.CHECKPOINTS.newest + 1)

from walktalk.runtimes.peers.identity import handshake  # noqa: E402
from walktalk.runtimes.peers.node import checkpoints, health, neighbours, reports, roster, tally  # noqa: E402

FURTHER = b"what a later version says"


def mutate() -> None:
    """Let hellos, counts, the roster, answers, checkpoints and event logs say more."""
    encode, pack, entry = handshake.encode_hello, tally.packed_count, roster.Roster.next
    facts, status, write = checkpoints.Kept.facts, health.Health.status, reports.EventLog.write
    dumps = json.dumps

    def encode_hello(hello: handshake.Hello) -> bytes:
        said = json.loads(zlib.decompress(encode(hello)))
        return zlib.compress(dumps({**said, "mood": {"good": [1, 2]}}).encode())

    def packed_count(node: int, count: tally.Count, further: bool = False) -> bytes:
        return pack(node, count, further) + (b"" if count.further else FURTHER)

    def following(self: roster.Roster, *given: Any, **changes: Any) -> roster.Entry:
        return entry(self, *given, **changes, further=({"until": 2030},))

    def written(self: reports.EventLog, row: Any) -> None:
        write(self, (*row, "more"))  # type: ignore[arg-type]

    handshake.encode_hello = neighbours.encode_hello = encode_hello  # type: ignore[assignment]
    tally.packed_count = packed_count
    roster.Roster.next = following  # type: ignore[method-assign]
    checkpoints.Kept.facts = lambda self: {**facts(self), "mood": "good"}  # type: ignore[method-assign]
    health.Health.status = lambda self: {**status(self), "mood": [1]}  # type: ignore[method-assign]
    reports.EventLog.write = written  # type: ignore[method-assign]
    checkpoints.MIGRATIONS = {versions.CHECKPOINTS.oldest: dict}


mutate()
