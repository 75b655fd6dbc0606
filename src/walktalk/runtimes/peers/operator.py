"""What a person asks of a running cluster: connect to all nodes, ask each, gather the answers."""

from __future__ import annotations

import json
import time
from typing import Any

from walktalk.runtimes.peers.certificates import OPERATOR
from walktalk.runtimes.peers.cluster import Cluster
from walktalk.runtimes.peers.ports import with_known_ports
from walktalk.runtimes.peers.session import open_session


def ask_everyone(cluster: Cluster, question: str, seconds: float = 3.0) -> dict[str, dict[str, Any] | None]:
    """Each node's answer; None where none came in time."""
    endpoint = with_known_ports(cluster).operator()
    answers: dict[str, dict[str, Any] | None] = dict.fromkeys(cluster.nodes)
    session = open_session(endpoint)
    end = time.monotonic() + seconds
    try:
        while (missing := [name for name, answer in answers.items() if answer is None]) and time.monotonic() < end:
            waiting = {name: session.get(endpoint.key(name, OPERATOR, question), timeout=0.5) for name in missing}
            for name, replies in waiting.items():
                for reply in replies:
                    if reply.ok is not None:
                        answers[name] = json.loads(reply.ok.payload.to_bytes())
            time.sleep(0.05)
    finally:
        session.close()  # type: ignore[no-untyped-call]
    return answers
