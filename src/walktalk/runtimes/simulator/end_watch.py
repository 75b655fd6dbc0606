"""When a run in virtual time is over before its end, since nothing will ever be trained again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from walktalk.protocols import Machine
from walktalk.runtimes.simulator.node_faults import Deaths, FaultScheduler, Lasting, Pauses
from walktalk.runtimes.simulator.nodes import Nodes, Trainings
from walktalk.runtimes.simulator.recording import Recording

LOOK_AGAIN = 60.0  # seconds
STARVED = 20  # looks: nobody trained for so long, and one that swallows walks may say that it has them

End: TypeAlias = Callable[[str], None]  # takes which guard would have started lost walks again


class Living(NamedTuple):
    """The nodes of a run, and what keeps each of them from its work."""

    nodes: Nodes
    dead: Deaths
    eaters: Lasting[int, float]  # nodes that swallow walks
    pauses: Pauses

    def honest(self) -> list[Machine]:
        """The machines of those that live and swallow nothing."""
        return [m for v, m in enumerate(self.nodes.machines) if v not in self.dead and v not in self.eaters]


class EndWatch:
    """Looks now and then whether anything will ever be trained again, once something has died or swallows."""

    def __init__(
        self, scheduler: FaultScheduler, recording: Recording, trainings: Trainings, living: Living, end: End
    ) -> None:
        """
        - `scheduler`: the run's.
        - `recording`: knows how much was trained.
        - `trainings`: those under way.
        - `living`: who could still have work, and whether any walk was swallowed or any node hangs.
        - `end`: ends the run.
        """
        self._scheduler, self._recording, self._trainings = scheduler, recording, trainings
        self._living, self._end = living, end
        self._looking = False

    def begin(self) -> None:
        """Look from now on."""
        if not self._looking:
            self._looking = True
            self._scheduler.later(LOOK_AGAIN, partial(self._look, -1, 0, 0))

    def _look(self, iterations: int, starved: int, idle: int) -> None:
        """If nothing will ever be trained again, twice in a row, the run is over.

        Without a guard lost walks stay lost, and heartbeats alone would go on for ever; with one, too, where it is told
        that a walk lives which was swallowed. Arguments: trainings at the last look, and at how many looks in a row
        nothing was trained, or there was also nothing to do.
        """
        done, living = self._recording.interpreter.iteration, self._living
        stands = iterations == done and not self._trainings.under_way and not living.pauses
        works = any(machine.has_work() for machine in living.honest())
        starved, idle = (starved + 1 if stands else 0), (idle + 1 if stands and not works else 0)
        if idle > 1 or (living.eaters and starved > STARVED):
            self._scheduler.note(-1, "all_lost")
            self._end("create_if_late" if living.eaters else "aggregator")
        elif not self._scheduler.idle:  # else the run is over anyway
            self._scheduler.later(LOOK_AGAIN, partial(self._look, done, starved, idle))
