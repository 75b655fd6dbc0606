"""Messages of one run in virtual time: how they leave, which links they share, and when they arrive."""

from __future__ import annotations

from walktalk.protocols import Send, control_bytes
from walktalk.runtimes.semantics import Packed, made
from walktalk.runtimes.simulator.links import Links, Transfer
from walktalk.runtimes.simulator.recording import Recording
from walktalk.runtimes.simulator.schedule import ARRIVED, ROUND_TRIP, TRANSFERRED, Agenda, Envelope
from walktalk.runtimes.simulator.timing import NetworkTiming, RunSetup

MOST_ENVELOPES = 2**16


class Transport:
    """Takes messages to their receivers: at once, or over links that have latencies and bandwidths."""

    def __init__(self, setup: RunSetup, agenda: Agenda, recording: Recording) -> None:
        """
        - `setup`: the run's.
        - `agenda`: where arrivals are put.
        - `recording`: writes down what goes along.
        """
        self.links = Links(setup.timing, setup.graph, setup.seed) if isinstance(setup.timing, NetworkTiming) else None
        self.messages = 0  # how many were sent
        self._agenda, self._recording, self._interpreter = agenda, recording, recording.interpreter
        self._written, self._traffic = recording.written, recording.interpreter.traffic
        self._envelopes: dict[tuple[str, int, int, int] | None, Packed] = {}  # see `_planned`

    def send(self, node: int, effect: Send) -> None:
        """Carry out a `Send`."""
        number = self.messages
        self.messages += 1
        if self._written:
            packed, size = self._recording.send(node, effect, number)
        else:
            packed, traffic = self._planned(node, effect), self._traffic
            size = control_bytes(effect.message) + packed.payload
            traffic.bytes += size  # `Traffic.add`, without a call for each of millions
            traffic.payload_bytes += packed.payload
        envelope = made(Envelope, (node, effect.to, effect.message, packed, number))
        if self.links is None:
            self._agenda.put(0.0, ARRIVED, envelope)
        else:
            transfer = self.links.add(node, effect.to, size * 8.0, self._agenda.now, envelope)
            if transfer.window:
                self._agenda.put(2.0 * transfer.latency, ROUND_TRIP, transfer)

    def _planned(self, node: int, effect: Send) -> Packed:
        """A machine looks at the slot of what has arrived, so it is named where nothing is in it; few come often."""
        slot, (kind, walk, round_, _, _) = effect.slot, effect.message
        name = (kind, node, walk, round_) if slot else None
        packed = self._envelopes.get(name)
        if packed is None:
            if len(self._envelopes) >= MOST_ENVELOPES:
                self._envelopes.clear()
            into = self._interpreter.arrives_in(node, effect.message) if slot else ""
            packed = self._envelopes[name] = Packed(into, None, None, self._interpreter.size(effect))
        return packed

    def settle(self) -> None:
        """Share the links anew, once for all that was sent at a time."""
        if self.links is not None and self.links.changed:
            self._plan_ends(self.links.settle(self._agenda.now))

    def _plan_ends(self, transfers: list[Transfer]) -> None:
        for transfer in transfers:
            self._agenda.put_at(transfer.end(), TRANSFERRED, (transfer, transfer.version))

    def transfer_ends(self, planned: tuple[Transfer, int]) -> None:
        """The last byte has left, unless the transfer's rate has changed since; then a later entry tells the end."""
        transfer, version = planned
        if self.links is None or version != transfer.version:
            return
        self._agenda.put(transfer.latency + transfer.delay, ARRIVED, transfer.content)
        self._plan_ends(self.links.finish(transfer, self._agenda.now))

    def round_trip_ends(self, transfer: Transfer) -> None:
        """Widens a transfer that starts slowly, unless it is done."""
        if self.links is not None and transfer.window:
            self._plan_ends(self.links.widen(transfer, self._agenda.now))
            if transfer.window:
                self._agenda.put(2.0 * transfer.latency, ROUND_TRIP, transfer)

    def slow_down(self, one: int, other: int, factor: float) -> None:
        """A link is slower by a factor from now on."""
        if self.links is not None:
            self._plan_ends(self.links.slow_down(one, other, factor, self._agenda.now))

    def latency(self, sender: int, receiver: int) -> float:
        """Seconds from node to node for next to nothing."""
        return self.links.latency(sender, receiver) if self.links is not None else 0.0
