"""What a node says of itself to a person who asks, and whether it is well; read from any thread while it works.

For `walktalk status`, for the node's health page and for its metrics.
"""

from __future__ import annotations

import datetime
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from walktalk import __version__
from walktalk.core.wall_clock import wall_seconds
from walktalk.runtimes.peers.identity.editions import SOON
from walktalk.runtimes.peers.identity.handshake import duplicate_name
from walktalk.runtimes.peers.node.checkpoints import Memory
from walktalk.runtimes.peers.node.members import Members
from walktalk.runtimes.peers.node.models import Models
from walktalk.runtimes.peers.node.neighbours import Neighbours
from walktalk.runtimes.peers.node.participation import Participation
from walktalk.runtimes.peers.node.progress import Progress
from walktalk.runtimes.peers.node.reports import Reports
from walktalk.runtimes.peers.node.state import NodeState
from walktalk.runtimes.peers.node.training import TrainingQueue
from walktalk.runtimes.peers.wire.link import Link
from walktalk.runtimes.peers.wire.versions import MESSAGES

STATES = ("starting", "training", "waiting", "done", "leaving", "aside")
UNWELL = 2  # the warning of a certificate's end from which on a node is not well (`Validity.warning`): seven days
WORKING = 2.0  # seconds after a training in which a node counts as one that trains
STUCK = 10.0  # seconds: the loop turns four times a second


@dataclass(frozen=True)
class Health:
    """A node as it is seen from outside, made of its parts."""

    state: NodeState
    link: Link
    models: Models
    queue: TrainingQueue
    progress: Progress
    neighbours: Neighbours
    members: Members
    memory: Memory
    reports: Reports
    participation: Participation

    @property
    def name(self) -> str:
        """The name that the node has now."""
        return self.link.endpoint.name

    def status(self) -> dict[str, Any]:
        """Everything that a person may want to know, as JSON can say it."""
        state, link, interpreter, tally = self.state, self.link, self.models.interpreter, self.progress.tally
        traffic, aggregates, age = link.traffic, self.models.aggregates, self.checkpoint_age
        since, budget, tunnels = self.reports.counts.aggregates_since, self.models.budget, link.connections.tunnels
        wall, named = state.clock.wall, self.reports.news.name_of
        return {
            "name": self.name,
            "version": __version__,
            "node": self.models.me,
            "site": self.members.site,
            "seconds": round(state.clock.run_time, 3),
            "alive": sorted(state.alive),
            "neighbours": {name: number in state.alive for name, number in link.endpoint.neighbours.items()},
            "takes_part": self.participation.there,
            "missing": self.participation.missing,
            "at_least": self.participation.needed,
            "state": self.doing,
            "aggregates": aggregates,
            "aggregates_since": round(max(0.0, wall - since), 3) if aggregates and since is not None else None,
            "term": interpreter.output.aggregate_term,
            "loss": state.loss if state.loss is not None and math.isfinite(state.loss) else None,
            "metrics": dict(state.metrics),
            "bandwidth": link.bandwidth,
            "training_seconds": self._training_seconds,
            "trains": self.queue.under_way,
            "hangs": bool(state.hangs),
            "walks": self.queue.walks,
            "iterations": tally.own.iterations,
            "total_iterations": tally.iterations,
            "bytes_sent": tally.own.sent,
            "wire_bytes": traffic.sent_bytes,
            "unacknowledged": link.waiting(),
            "resent": traffic.resent,
            "dropped": dict(traffic.dropped),
            "refused": dict(state.refused),
            "strangers": {named(peer): why for peer, why in dict(self.neighbours.strangers).items()},
            "about": dict(self.neighbours.own_about),
            "speaks": list(MESSAGES),
            "neighbours_about": self._neighbours_about(),
            "diverged": state.diverged,
            "checkpoint_age": None if age is None else round(age, 3),
            "disk": self.disk,
            "certificate_ends": _moment(self.certificate_end),
            "complaints": self.complaints(),
            "warnings": self.warnings(),
            "relay": tunnels.status() if tunnels is not None else None,
            "epsilon": round(budget.epsilon, 4) if budget is not None else None,
            "done": self.progress.end.seen,
        }

    @property
    def _training_seconds(self) -> float | None:
        seconds = self.queue.seconds
        return None if seconds is None else round(seconds, 3)

    @property
    def doing(self) -> str:
        """One of `STATES`. A node that has had nothing to train for a while waits for a walk."""
        state = self.state
        if not state.begun:
            return "leaving" if state.leaving else "aside" if state.aside else "starting"
        if self.progress.end.seen:
            return "done"
        busy = len(self.queue) or state.clock.elapsed < state.busy_at + WORKING
        return "training" if busy else "waiting"

    @property
    def is_stuck(self) -> bool:
        """Whether the node's loop stands still: only another start helps."""
        return self.state.begun and self.state.clock.stands_still > STUCK

    def complaints(self) -> list[str]:
        """Why this node is not well, one line each; empty: it is."""
        if self.state.leaving:
            return ["it leaves"]
        if self.state.aside:
            return [f"it stands aside and does nothing: {duplicate_name(self.name)}"]
        return [*self._about_loop(), *self._about_neighbours(), *self._about_files()]

    def _about_loop(self) -> Iterator[str]:
        if not self.state.begun:
            yield f"it has not begun: {self.participation.too_few or 'it waits for its neighbours'}"
        elif self.is_stuck:
            yield f"its loop has stood still for {self.state.clock.stands_still:.0f} s"
        elif self.state.hangs and not self.progress.end.seen:
            yield self.state.hangs

    def _about_neighbours(self) -> Iterator[str]:
        state, endpoint, named = self.state, self.link.endpoint, self.reports.news.name_of
        if state.begun and endpoint.neighbours and not state.alive and not self.progress.end.seen:
            yield f"none of its {len(endpoint.neighbours)} neighbours is there"
        if state.begun and (few := self.participation.too_few):
            yield few
        for peer, why in dict(self.neighbours.strangers).items():
            yield f"it refuses {named(peer)}: {why}"
        for peer in self.link.duplicate_names.doubled():
            yield duplicate_name(named(peer))
        if self.link.duplicate_names.is_behind:
            says = ", ".join(map(named, self.link.duplicate_names.sayers))
            yield f"it is not heard, says {says}: {duplicate_name(self.name)}"

    def _about_files(self) -> Iterator[str]:
        checkpoints, event_log, renewal = self.memory.checkpoints, self.reports.event_log, self.link.connections.renewal
        if checkpoints.failure:
            yield f"its checkpoint cannot be written: {checkpoints.failure}"
        if event_log.behind:
            yield f"its trace cannot be written: {event_log.behind} lines wait; is the disk full?"
        if renewal is not None and renewal.outlook.warning >= UNWELL:
            yield renewal.outlook.in_words()

    def warnings(self) -> list[str]:
        """What a person should see to, though this node is well."""
        refused = dict(self.state.refused)
        return [
            *(f"refused {refused[name]} messages of {name}, the last {why}" for name, why in self._refusals()),
            *self._about_certificates(),
            *self._about_versions(),
            *self._about_kits(),
            *(f"{name} says that nothing is trained there; its own status says why" for name in self._hanging()),
            *self._about_counts(),
        ]

    def _neighbours_about(self) -> dict[str, dict[str, Any]]:
        """What neighbours have said of themselves, and the version of messages that is spoken with each."""
        about, speaks = dict(self.neighbours.about), dict(self.state.speaks)
        named = self.reports.news.name_of
        return {named(peer): {**said, "speaks": speaks.get(peer)} for peer, said in about.items()}

    def _about_versions(self) -> list[str]:
        """Neighbours whose walktalk is older, so that both go by what that one knows."""
        spoken, named = dict(self.state.speaks), self.reports.news.name_of
        older = sorted(
            peer for peer, version in spoken.items() if version < MESSAGES.newest and peer in self.state.alive
        )
        return [
            f"{named(peer)} speaks version {spoken[peer]} of messages, and this node {MESSAGES.newest}: both go by "
            f"{spoken[peer]}; upgrade it"
            for peer in older
        ]

    def _about_kits(self) -> Iterator[str]:
        """Kits that are older than others, and this node's own where it is at its end."""
        yield from dict(self.neighbours.old_kits).values()
        own = self.neighbours.own_edition
        if own is not None and own.days_left < SOON:
            end = f"is good until {own.ends}" if own.days_left >= 0 else f"was good until {own.ends}"
            yield f"its {own.words} {end}; ask the operator for a new one"

    def _about_counts(self) -> Iterator[str]:
        tally = self.progress.tally
        for peer, claimed in tuple(tally.impossible.items()):
            believed = tally.counts[peer].iterations
            yield f"{self.reports.news.name_of(peer)} counts {claimed:,} trainings, of which {believed:,} are believed"

    def _hanging(self) -> list[str]:
        counts = self.progress.tally.counts
        return [name for name, peer in self.link.endpoint.neighbours.items() if peer in counts and counts[peer].hangs]

    def _refusals(self) -> list[tuple[str, str]]:
        return sorted(dict(self.state.refusals).items())

    def _about_certificates(self) -> list[str]:
        renewal = self.link.connections.renewal
        if renewal is None or not 0 < renewal.outlook.warning < UNWELL:
            return []
        return [renewal.outlook.in_words()]

    @property
    def checkpoint_age(self) -> float | None:
        """Seconds since the last checkpoint of this life; None where there is none."""
        saved = self.memory.checkpoints.saved_at
        return None if saved is None else max(0.0, wall_seconds() - saved)

    @property
    def disk(self) -> list[int] | None:
        """Bytes that are free where its folder is, and all that there are; None where the system does not say."""
        try:
            found = shutil.disk_usage(self.memory.checkpoints.path.parent)
        except OSError:
            return None
        return [found.free, found.total]

    @property
    def certificate_warning(self) -> int | None:
        """How urgent it is to renew its certificate, from 0 to 4 (`Validity.warning`); None where there is none."""
        renewal = self.link.connections.renewal
        return None if renewal is None else renewal.outlook.warning

    @property
    def certificate_end(self) -> float | None:
        """When its certificate ends, or the authority's, in seconds since 1970; None where there is none."""
        renewal = self.link.connections.renewal
        return None if renewal is None else renewal.outlook.until.timestamp()


def _moment(seconds: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601, in UTC."""
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat(timespec="seconds")
