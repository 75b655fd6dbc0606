"""What a person asks of a running cluster: connect to all nodes, ask each, gather the answers, fetch files.

From the answers follows whether the cluster is well, for `walktalk status` and its exit code.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from walktalk.core.errors import SpecError, UnavailableError
from walktalk.core.untrusted import Boundary
from walktalk.graphs import Graph
from walktalk.runtimes.peers.identity.certificates import OPERATOR
from walktalk.runtimes.peers.node.roster import MEMBERS_FILE, Entry, Roster, Standing, from_text, signed_entry
from walktalk.runtimes.peers.operations.answers import read_answer
from walktalk.runtimes.peers.operations.cluster import Cluster, with_known_ports
from walktalk.runtimes.peers.relay.tunnels import doors
from walktalk.runtimes.peers.wire.session import (
    LEAVE,
    PIECE,
    RECORDS,
    ROSTER,
    close_session,
    open_session,
    open_tunnels,
)

log = logging.getLogger(__name__)

AT_ONCE = 8  # pieces of a file under way: a round trip between two sites takes as long as a piece or more
TRY_AGAIN = 0.05  # seconds until who has not answered is asked again
FIRST = 0.5  # seconds for the answers of those that answer at once
CLOSING = 5.0  # seconds to say goodbye; what is slower goes on in a thread, the answers are there
SECONDS_A_PIECE = 10.0  # until a node that was there a moment ago is given up


class OperatorConnection:
    """An operator's connection to all nodes whose addresses are known. Use as a context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._endpoint = with_known_ports(cluster).operator()
        self.cluster, self._left_out = cluster, cluster.left_out
        self.addresses = self._endpoint.connect
        self._tunnels = open_tunnels(self._endpoint)
        self._session = open_session(self._endpoint, doors(self._tunnels))

    def __enter__(self) -> OperatorConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        close_session(self._session, CLOSING)
        if self._tunnels is not None:
            self._tunnels.close()

    def ask(
        self, names: Iterable[str], question: str, seconds: float, **asked: object
    ) -> dict[str, dict[str, Any] | None]:
        """Ask nodes; by name the answer, None where none came in time. `said` goes along with the question.

        Whom the operator leaves out is not asked, and stands in no answer.
        """
        answers: dict[str, dict[str, Any] | None] = {name: None for name in names if name not in self._left_out}
        end = time.monotonic() + seconds
        while (missing := [name for name, answer in answers.items() if answer is None]) and time.monotonic() < end:
            waiting = {name: self._get(name, question, max(0.5, seconds / 4), **asked) for name in missing}
            for name, replies in waiting.items():
                for reply in replies:
                    if reply.ok is not None:
                        answers[name] = read_answer(reply.ok.payload.to_bytes())
            time.sleep(TRY_AGAIN)
        return answers

    def first(self, names: Iterable[str], question: str, seconds: float, **asked: object) -> dict[str, dict[str, Any]]:
        """Ask nodes for what all of them know; the answers of those that answer at once, as soon as anybody does."""
        names, end = list(names), time.monotonic() + seconds
        while True:
            answers = self.ask(names, question, FIRST, **asked)
            found = {name: answer for name, answer in answers.items() if answer is not None}
            if found or time.monotonic() >= end:
                return found

    def fetch(self, name: str, file: str, size: int, to: Path, told: Callable[[int], None] = lambda size: None) -> bool:
        """Append to a file here what a node's file of that name has more; whether all of it came.

        `told` is called with the bytes of every piece.
        """
        have = to.stat().st_size if to.exists() else 0
        starts = range(have, size, PIECE)
        to.parent.mkdir(parents=True, exist_ok=True)
        with to.open("ab") as here:
            for first in range(0, len(starts), AT_ONCE):
                asked = [(start, self._ask_piece(name, file, start)) for start in starts[first : first + AT_ONCE]]
                for start, replies in asked:
                    piece = self._piece(replies) or self._piece(self._ask_piece(name, file, start))  # once more
                    if piece is None or len(piece) < min(PIECE, size - start):
                        return False
                    here.write(piece[: size - start])
                    told(min(PIECE, size - start))
        return True

    def _ask_piece(self, name: str, file: str, start: int) -> Any:
        return self._get(name, RECORDS, SECONDS_A_PIECE, file=file, **{"from": start})

    @staticmethod
    def _piece(replies: Any) -> bytes | None:
        for reply in replies:
            if reply.ok is not None:
                piece: bytes = reply.ok.payload.to_bytes()
                return piece
        return None

    def _get(self, name: str, question: str, seconds: float, **asked: object) -> Any:
        said = asked.pop("said", None)
        parameters = ";".join(f"{key}={value}" for key, value in asked.items())
        key = self._endpoint.key(name, OPERATOR, question)
        payload = None if said is None else str(said).encode()
        return self._session.get(f"{key}?{parameters}" if parameters else key, payload=payload, timeout=seconds)


def ask_everyone(cluster: Cluster, question: str, seconds: float = 3.0) -> dict[str, dict[str, Any] | None]:
    """Ask every node, those who joined among them; by name the answer, None where none came in time."""
    with OperatorConnection(cluster) as caller:
        roster = known_roster(cluster, caller, seconds)
        if roster is None:
            return {name: None for name in cluster.nodes if name not in cluster.left_out}
        staying = [name for name in cluster.nodes if roster.standing(name) is not Standing.LEFT]
        answers = caller.ask(staying, question, seconds)
    there = cluster.with_joined(roster.entries.values())
    if there.joined:
        newcomers = {name: there.nodes[name] for name in there.joined}
        with OperatorConnection(there.model_copy(update={"nodes": newcomers})) as caller:
            answers |= caller.ask(newcomers, question, seconds)
    return answers


def known_roster(cluster: Cluster, caller: OperatorConnection, seconds: float = 3.0) -> Roster | None:
    """Who has joined and left, as nodes of the file say; of names alone, without a graph. None: nobody answers.

    An entry that cannot be counts for nothing, and neither does what hides behind it: others say the rest.
    """
    roster, refused = cluster.roster(Graph.from_edges(len(cluster.file_names), [])), Boundary(_warn)
    answers = caller.first(cluster.file_names, ROSTER, seconds)
    for name, answer in answers.items():
        for said in answer.get("roster", ()):
            refused(name, "an entry of its roster", partial(_join, roster, said), None)
    return roster if answers else None


def _join(roster: Roster, said: Any) -> None:
    roster.join([Entry.heard(said)])


def _warn(name: str, what: str, why: str) -> None:
    log.warning("%s: %s is refused: %s", name, what, why)


def everybody(cluster: Cluster, graph: Graph, seconds: float = 3.0) -> tuple[Cluster, Roster]:
    """The cluster with all who ever joined it, and who belongs, as nodes say and folders of nodes on this machine.

    - `graph`: the study's, where it matters who is whose neighbour.
    """
    roster = roster_on_disk(cluster, graph)
    with OperatorConnection(cluster) as caller:
        found = known_roster(cluster, caller, seconds)
    if found is not None:
        roster.join(found.entries.values())
    return cluster.with_joined(roster.entries.values(), gone=True), roster


def roster_on_disk(cluster: Cluster, graph: Graph) -> Roster:
    """Who belongs, as folders of nodes on this machine say; nobody is asked.

    - `graph`: the study's.
    """
    roster = cluster.roster(graph)
    for path in cluster.folder.glob(f"*/{MEMBERS_FILE}"):
        with suppress(OSError, ValueError):
            roster.join(from_text(path.read_text()))
    return roster


def ask_to_leave(cluster: Cluster, names: Sequence[str], seconds: float, dead: bool) -> dict[str, str]:
    """Let nodes leave for good; by name why one does not, "" where it does.

    - `dead`: they do not answer any more: the operator says it for them, to the others.
    """
    with OperatorConnection(cluster) as caller:
        roster = known_roster(cluster, caller, seconds)
    if roster is None:
        raise UnavailableError("nobody answers, so nobody can leave for good")
    for name in names:
        if not roster.has(name):
            raise SpecError(f"{name!r} is not in the cluster; its nodes are {', '.join(roster.present())}")
    there = cluster.with_joined(roster.entries.values())
    gone = {name: "it has left already" for name in names if roster.standing(name) is Standing.LEFT}
    asked = [name for name in names if name not in gone]
    with OperatorConnection(there) as caller:
        if not dead:
            answers = caller.ask(asked, LEAVE, seconds)
            return gone | {name: _why_not(answer) for name, answer in answers.items()}
        files = there.own_credentials(OPERATOR)
        entries = [signed_entry(roster.next(name, Standing.LEFT, by=OPERATOR), roster, files).said() for name in asked]
        others = [name for name in there.nodes if name not in names and roster.standing(name) is Standing.MEMBER]
        told = caller.first(others, ROSTER, seconds, said=json.dumps(entries))
    why = "" if told else "nobody answers who could be told"
    refused = [str(answer["refused"]) for answer in told.values() if "refused" in answer]
    return gone | dict.fromkeys(asked, refused[0] if refused else why)


def _why_not(answer: dict[str, Any] | None) -> str:
    if answer is None:
        return "it does not answer; if it will not come back, add --dead"
    return str(answer.get("refused", ""))


# -- is it well? ------------------------------------------------------------------------------------------------------


def cluster_complaints(answers: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Why a cluster is not well, one line each, with the node's name; empty: it is.

    `answers`: by node, what `status` brought; None where no answer came.
    """
    said = [
        f"{name}: {complaint}"
        for name, answer in answers.items()
        for complaint in (["no answer"] if answer is None else complaints_in(answer))
    ]
    heads = aggregators(answers)
    if len(heads) > 1:
        said.append(f"{' and '.join(heads)} aggregate: the network is split, or an election is not known to all yet")
    return said


def complaints_in(answer: Mapping[str, Any]) -> list[str]:
    """What a node complains of; a node of an older version does not say."""
    found = answer.get("complaints")
    return [str(one) for one in found] if isinstance(found, list) else []


def aggregators(answers: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Who aggregates; more than one while the network is split, or an election is not known to all yet."""
    return [name for name, answer in answers.items() if answer is not None and answer.get("aggregates")]
