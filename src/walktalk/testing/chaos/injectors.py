"""The faults themselves: signals to processes, pulled cables, full disks, wrong clocks, forged messages."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from walktalk.core.errors import UnavailableError
from walktalk.runtimes.peers import Place, ask_to_leave, free_ports
from walktalk.testing import BLOCKED, SWALLOWS
from walktalk.testing.chaos.byzantine import FORGES
from walktalk.testing.chaos.disturbance import CLOCK, Disturbance, Kill
from walktalk.testing.chaos.plan import ChaosFault

LEAVING = JOINING = 20.0  # seconds that each may take
CATCHING_UP = 10.0  # and that a node may need to write what waited while its disk was full; it tries every second
HOUR, DAY = 3600.0, 86400.0
JUMPS = (-30 * DAY, -DAY, -HOUR, HOUR, DAY, 30 * DAY)


# -- one after the other -------------------------------------------------------------------------------------------


def kill_aggregator(disturbance: Disturbance, fault: ChaosFault) -> None:
    """Gossip has none: it loses the node that would be elected."""
    leader, able = disturbance.leader() if disturbance.plan.walking else None, disturbance.writing()
    if leader is not None and leader in able:
        _kill(disturbance, leader, fault, True)
        return
    first = [v for v in able if v < disturbance.graph.nodes]
    best = max(first, key=lambda v: (sum(u in able for u in disturbance.graph.neighbours(v)), -v))
    _kill(disturbance, best, fault, False)


def kill_random(disturbance: Disturbance, fault: ChaosFault) -> None:
    """Kills a random node with SIGKILL."""
    _kill(disturbance, disturbance.rng.choice(disturbance.writing()), fault, False)


def _kill(disturbance: Disturbance, node: int, fault: ChaosFault, aggregator: bool) -> None:
    for_good = fault.for_good and disturbance.hold_together_without(node)
    _kill_now(disturbance, node, aggregator)
    disturbance.log_line(f"kill -9 {disturbance.names[node]}{' (the aggregator)' * aggregator}{' for good' * for_good}")
    if for_good:
        disturbance.gone.add(node)
        return
    time.sleep(disturbance.plan.away)
    disturbance.record("revive", node)
    disturbance.start_again(node)


def _kill_now(disturbance: Disturbance, node: int, aggregator: bool = False) -> None:
    disturbance.signal(node, signal.SIGKILL)
    disturbance.fleet.processes[node].join()
    disturbance.record("kill", node)
    disturbance.kills.append(Kill(time.time(), node, aggregator))


def hang(disturbance: Disturbance, fault: ChaosFault) -> None:
    """SIGSTOP, and SIGCONT after a while."""
    node = disturbance.rng.choice(disturbance.living())
    disturbance.log_line(f"SIGSTOP {disturbance.names[node]}")
    disturbance.signal(node, signal.SIGSTOP)
    disturbance.record("pause", node)
    time.sleep(2 * disturbance.plan.away)
    disturbance.signal(node, signal.SIGCONT)
    disturbance.record("resume", node)


def restart(disturbance: Disturbance, fault: ChaosFault) -> None:
    """All nodes: as a person does it, each is asked to leave, or as a power failure does it."""
    for node in disturbance.disks:
        free_disk(disturbance, node)
    living, power = disturbance.living(), disturbance.rng.random() < 0.5
    disturbance.log_line("kill -9 and start of all" if power else "stop and start of all")
    disturbance.record("restart_of_all", more="kill" if power else "stop")
    for node in living:
        disturbance.signal(node, signal.SIGKILL if power else signal.SIGTERM)
    if power:
        for node in living:
            disturbance.fleet.processes[node].join()
            disturbance.record("kill", node)
    for node in living:
        disturbance.start_again(node)
    disturbance.wait_until_all_met()


def cut(disturbance: Disturbance, fault: ChaosFault) -> None:
    """Half of the nodes against the rest."""
    everyone = disturbance.living()
    side = set(disturbance.rng.sample(everyone, len(everyone) // 2))
    words = " ".join(str(number) for number in sorted(map(disturbance.number, side)))
    disturbance.log_line(f"partition: {words} against the rest")
    disturbance.record("partition", more=words)
    if disturbance.cables is not None:
        disturbance.cables.cut(side)
        time.sleep(disturbance.plan.cut)
        disturbance.cables.heal()
    else:
        _mute(disturbance, side)
    disturbance.record("heal", more=words)
    disturbance.wait_until_all_met()


def _mute(disturbance: Disturbance, side: set[int]) -> None:
    everyone = disturbance.living()
    for node in everyone:
        cut_off = [disturbance.real_numbers.get(peer, peer) for peer in everyone if (peer in side) != (node in side)]
        _write(disturbance, node, BLOCKED, " ".join(map(str, cut_off)))
    time.sleep(disturbance.plan.cut)
    for node in everyone:
        _file(disturbance, node, BLOCKED).unlink(missing_ok=True)


def leave(disturbance: Disturbance, fault: ChaosFault) -> None:
    """A node goes for good, in order."""
    able = [v for v in disturbance.writing() if v < disturbance.graph.nodes and disturbance.hold_together_without(v)]
    if not able:
        return
    node = disturbance.rng.choice(able)
    name = disturbance.names[node]
    disturbance.log_line(f"{name} leaves for good")
    try:
        why = ask_to_leave(disturbance.cluster, [name], LEAVING, dead=False)[name]
    except UnavailableError as error:  # a finding of this round, no reason to end the series
        why = str(error)
    disturbance.fleet.processes[node].join(LEAVING)
    if why or disturbance.fleet.processes[node].is_alive():
        disturbance.failures.append(f"{name} could not leave for good{': ' * bool(why)}{why}")
        return
    disturbance.gone.add(node)
    disturbance.record("gone", node)


def join(disturbance: Disturbance, fault: ChaosFault) -> None:
    """Somebody new, with the data of one that is gone."""
    if not disturbance.gone - set(disturbance.stands_for.values()):
        leave(disturbance, fault)
    free = sorted(disturbance.gone - set(disturbance.stands_for.values()) - set(disturbance.stands_for))
    if not free:
        return
    stands_for, guest = disturbance.rng.choice(free), f"guest-{len(disturbance.stands_for)}"
    number = len(disturbance.names)
    address = f"127.0.0.1:{free_ports(1)[0]}" if disturbance.cables is None else disturbance.cables.address(number)
    disturbance.log_line(f"{guest} joins, with the data of {disturbance.names[stands_for]}")
    node = disturbance.start_guest(guest, Place.model_validate({"address": address, "part": stands_for}), stands_for)
    end = time.monotonic() + JOINING
    while time.monotonic() < end:
        said = disturbance.ask(1.0).get(guest)
        if said is not None and said["alive"]:
            disturbance.real_numbers[node] = said["node"]
            disturbance.record("joined", node)
            return
    disturbance.failures.append(f"{guest} could not join")


def swallow(disturbance: Disturbance, fault: ChaosFault) -> None:
    """A node keeps the walks that come to it, for a while; one that aggregates does not, nobody would mix then."""
    node = disturbance.rng.choice([node for node in disturbance.living() if node != disturbance.leader()])
    disturbance.log_line(f"{disturbance.names[node]} swallows walks")
    disturbance.record("swallow", node, "1")
    _write(disturbance, node, SWALLOWS, "")
    time.sleep(2 * disturbance.plan.away)
    _file(disturbance, node, SWALLOWS).unlink()
    disturbance.record("swallow", node, "0")


DO: Mapping[str, Callable[[Disturbance, ChaosFault], None]] = {
    "aggregator": kill_aggregator,
    "random": kill_random,
    "hang": hang,
    "restart": restart,
    "cut": cut,
    "leave": leave,
    "join": join,
    "swallow": swallow,
}

# -- while others come: each gives back what ends it ----------------------------------------------------------------


def fill_disk(disturbance: Disturbance) -> Callable[[], None]:
    """Fills the disk of a node that has one to be filled, if it lives."""
    able = [node for node in disturbance.living() if node in disturbance.disks]
    if not able:
        return lambda: None
    node = disturbance.rng.choice(able)
    disturbance.log_line(f"the disk of {disturbance.names[node]} is full")
    disturbance.record("disk_full", node)
    disturbance.disks[node].fill(disturbance.fleet.processes[node].pid)

    def end() -> None:
        free_disk(disturbance, node)
        disturbance.record("disk_free", node)

    return end


def free_disk(disturbance: Disturbance, node: int) -> None:
    """There is room again, and what waited in the node's memory is written: killed before that, it would take with it
    what it did all that time, and the ledger could not be checked."""
    was_full = disturbance.disks[node].full
    disturbance.disks[node].free()
    end = time.monotonic() + CATCHING_UP
    while was_full and node in disturbance.living() and time.monotonic() < end:
        said = disturbance.ask(1.0).get(disturbance.names[node])
        if said is not None and not any("trace" in complaint for complaint in said["complaints"]):
            return
        time.sleep(0.2)


def shift_clock(disturbance: Disturbance) -> Callable[[], None]:
    """A node's clock jumps; every second time the node is stopped and started, and lives on with the wrong time."""
    node, jump, anew = (
        disturbance.rng.choice(disturbance.writing()),
        disturbance.rng.choice(JUMPS),
        disturbance.rng.random() < 0.5,
    )
    disturbance.log_line(f"the clock of {disturbance.names[node]} jumps by {jump:+g} s{', and it starts anew' * anew}")
    disturbance.record("clock", node, str(jump))
    _write(disturbance, node, CLOCK, str(jump))
    if anew:
        disturbance.signal(node, signal.SIGTERM)
        disturbance.start_again(node)

    def end() -> None:
        _file(disturbance, node, CLOCK).unlink(missing_ok=True)
        disturbance.record("clock", node, "0")

    return end


def send_forged(disturbance: Disturbance) -> Callable[[], None]:
    """Makes a node send forged messages under its own name."""
    node = disturbance.rng.choice(disturbance.living())
    disturbance.log_line(f"{disturbance.names[node]} sends forged messages")
    disturbance.record("forges", node, "1")
    _write(disturbance, node, FORGES, "")

    def end() -> None:
        _file(disturbance, node, FORGES).unlink(missing_ok=True)
        disturbance.record("forges", node, "0")

    return end


BEGIN: Mapping[str, Callable[[Disturbance], Callable[[], None]]] = {
    "disk": fill_disk,
    "clock": shift_clock,
    "hostile": send_forged,
}


def inject(disturbance: Disturbance) -> None:
    """Injects all faults of a round in a random order; what lasts begins with some other fault, and ends after it."""
    faults = disturbance.rng.sample(disturbance.plan.faults, len(disturbance.plan.faults))
    lasting, others = [fault for fault in faults if fault.lasts], [fault for fault in faults if not fault.lasts]
    company = [disturbance.rng.randrange(len(others)) if others else 0 for _ in lasting]
    for number in range(max(len(others), 1 if lasting else 0)):
        ends = [BEGIN[fault.kind](disturbance) for fault, at in zip(lasting, company, strict=True) if at == number]
        time.sleep(disturbance.plan.between)
        if others:
            DO[others[number].kind](disturbance, others[number])
        else:
            time.sleep(2 * disturbance.plan.away)
        time.sleep(disturbance.plan.between)
        for end in ends:
            end()


def _file(disturbance: Disturbance, node: int, name: str) -> Path:
    return disturbance.cluster.folder / disturbance.names[node] / name


def _write(disturbance: Disturbance, node: int, name: str, text: str) -> None:
    """A file in a node's folder; where its disk is full, there is room for this one."""
    disk = disturbance.disks.get(node)
    full = disk is not None and disk.full
    if disk is not None and full:
        disk.free()
    _file(disturbance, node, name).write_text(text)
    if disk is not None and full:
        disk.fill(disturbance.fleet.processes[node].pid)
