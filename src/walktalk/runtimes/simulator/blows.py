"""What hits a run in virtual time, how long that lasts, and where its end is planned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from walktalk.runtimes.simulator.agenda import FAULT
from walktalk.runtimes.simulator.fault_plan import Fault

if TYPE_CHECKING:
    from walktalk.runtimes.simulator.simulation import Simulation

Deed: TypeAlias = Callable[[], None]  # content of an agenda's entry: something goes wrong, is undone, or is told
Thing = TypeVar("Thing", bound=Hashable)
How = TypeVar("How")


class Blow(NamedTuple):
    """Something goes wrong, now."""

    fault: Fault
    node: int  # whom it hits; -1: nobody in particular
    number: int  # counts everything that went wrong: each undoes what it did itself, and nothing else


class Lasting(Generic[Thing, How]):
    """Things that are hit, each while any of the blows that hit it lasts."""

    def __init__(self) -> None:
        self._blows: dict[Thing, dict[int, How]] = {}

    def begin(self, thing: Thing, number: int, how: How) -> None:
        """The blow of this number hits a thing."""
        self._blows.setdefault(thing, {})[number] = how

    def end(self, thing: Thing, number: int) -> bool:
        """That blow is over; whether the thing was hit by it and is by nothing any more."""
        blows = self._blows.get(thing, {})
        was_hit = blows.pop(number, None) is not None
        if was_hit and not blows:
            del self._blows[thing]
        return was_hit and not blows

    def clear(self, thing: Thing) -> None:
        """All blows on this thing are over."""
        self._blows.pop(thing, None)

    def on(self, thing: Thing) -> Collection[How]:
        """How a thing is hit, the first blow first."""
        return self._blows.get(thing, {}).values()

    def __contains__(self, thing: object) -> bool:
        return thing in self._blows

    def __iter__(self) -> Iterator[Thing]:
        return iter(self._blows)

    def __len__(self) -> int:
        return len(self._blows)


class Stage:
    """What all that goes wrong needs of a run: its agenda and its trace."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    def later(self, seconds: float, deed: Deed) -> None:
        """Do this after so many seconds."""
        self.simulation.agenda.put(seconds, FAULT, deed)

    def undo_later(self, fault: Fault, deed: Deed) -> None:
        """Do this when the fault is over; one that is for good never is."""
        if fault.seconds is not None:
            self.later(fault.seconds, deed)

    def note(self, node: int, event: str, **more: Any) -> None:
        """A line of the trace."""
        self.simulation.interpreter.note_down(node, event, **more)
