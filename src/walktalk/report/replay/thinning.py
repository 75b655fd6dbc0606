"""What of a long run a page shows, and says that it does: first everything, then less and less until it fits.

1. everything;
2. without the bookkeeping: what is recorded for the observer, copies and updates of slots;
3. without messages that carry no model;
4. of many walks or nodes only some, followed from the beginning to the end;
5. of a long time only scenes, spread evenly.

What goes wrong, and what is done about it, always stays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from walktalk.report.replay.events import STARTS, Events, Floats, Ints
from walktalk.report.replay.words import incident

FOLLOWED = 24  # walks or nodes that a person can follow at once
SCENES = 12  # of a run that is too long
INCIDENTS_AT_MOST = 2000  # of one run: more are no incidents but how things go

Mask = npt.NDArray[np.bool_]


class Thinned(NamedTuple):
    """The events that are shown, and what is not."""

    events: Events
    left_out: tuple[str, ...]  # sentences; none where everything is there
    scenes: tuple[tuple[float, float], ...]  # the times that are shown; one from 0 to the end unless it was too long


def thinned(events: Events, most: int) -> Thinned:
    """At most about this many of the events, chosen so that a person sees what goes on."""
    end = float(events.time[-1]) if len(events) else 0.0
    chosen, left_out = np.ones(len(events), dtype=bool), []
    scenes: tuple[tuple[float, float], ...] = ((0.0, end),)
    always = _incidents(events)
    for leave_out in (_bookkeeping, _without_model, _not_followed):
        if chosen.sum() <= most:
            break
        less, sentence = leave_out(events, chosen, most)
        if (less | always).sum() < chosen.sum():
            chosen = chosen & (less | always)
            left_out.append(sentence)
    if chosen.sum() > most:
        seen = _scenes(events.time[chosen & ~always], most, end)
        within = _within(events.time, seen) | _ended_within(events, seen)
        if (chosen & (within | always)).sum() < chosen.sum():
            chosen, scenes = chosen & (within | always), tuple(seen)
            left_out.append(f"Of {end:,.3g} seconds {len(seen)} scenes are shown, spread evenly.")
    return Thinned(events.kept(chosen), tuple(left_out), scenes)


def _incidents(events: Events) -> Mask:
    names = {name for name in events.kinds if incident(name) is not None}
    found = events.of(*(name for name in names if "." not in name))
    if found.sum() > INCIDENTS_AT_MOST:  # lost messages are many where many are lost
        found = found & ~events.of("lost")
    return found if found.sum() <= INCIDENTS_AT_MOST else np.zeros(len(events), dtype=bool)


def _bookkeeping(events: Events, chosen: Mask, most: int) -> tuple[Mask, str]:
    plain = np.isin(events.kind, [i for i, name in enumerate(events.kinds) if name in BOOKKEEPING])
    return ~plain, "What a node notes down for itself is left out: records, copies, updates."


BOOKKEEPING = ("record.member", "record.aggregate", "combine.copy", "combine.update", "encode", "decode", "saved")


def _without_model(events: Events, chosen: Mask, most: int) -> tuple[Mask, str]:
    control = np.isin(events.kind, [i for i, name in enumerate(events.kinds) if name.endswith(".control")])
    return ~control, "Messages without a model are left out: heartbeats, acknowledgements and the like."


def _not_followed(events: Events, chosen: Mask, most: int) -> tuple[Mask, str]:
    owner = owners(events)
    everyone = np.unique(owner[events.of(*STARTS)])
    share = most / max(int(chosen.sum()), 1)
    count = max(FOLLOWED, int(share * len(everyone)))
    if count >= len(everyone):
        return np.ones(len(events), dtype=bool), ""
    followed = everyone[np.unique(np.linspace(0, len(everyone) - 1, count).round().astype(int))]
    what = "walks" if (followed > 0).any() else "nodes"
    sentence = f"Of {len(everyone):,} {what} {len(followed):,} are followed; the others train and send unseen."
    return np.isin(owner, followed), sentence


def owners(events: Events) -> Ints:
    """Whose event it is: the walk's, else the node's (as −1 − node); the end of a message is the sender's."""
    owner = np.where(events.walk > 0, events.walk, -1 - events.node)
    return np.where(events.link >= 0, owner[events.link], owner)


def _scenes(time: Floats, most: int, end: float) -> list[tuple[float, float]]:
    """Stretches of time that begin evenly spread and have as many events as may be shown."""
    each = max(1, most // SCENES)
    starts = np.linspace(0.0, end, SCENES, endpoint=False)
    scenes: list[tuple[float, float]] = []
    for start in starts.tolist():
        first = int(np.searchsorted(time, start))
        last = min(first + each, len(time) - 1)
        if not scenes or start > scenes[-1][1]:
            scenes.append((start, float(time[last])))
    return scenes


def _within(time: Floats, scenes: list[tuple[float, float]]) -> Mask:
    found = np.zeros(len(time), dtype=bool)
    for start, end in scenes:
        found |= (time >= start) & (time <= end)
    return found


def _ended_within(events: Events, scenes: list[tuple[float, float]]) -> Mask:
    """What began in a scene is seen to its end, and what ends in one from its beginning."""
    within = _within(events.time, scenes)
    linked = events.link >= 0
    ends = linked & within[events.link]
    begins = np.zeros(len(events), dtype=bool)
    begins[events.link[linked & within]] = True
    return ends | begins
