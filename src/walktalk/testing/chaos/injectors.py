"""The blows themselves: signals to processes, pulled cables, full disks, wrong clocks, lies."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from walktalk.core.errors import UnavailableError
from walktalk.runtimes.peers import Place, ask_to_leave, free_ports
from walktalk.testing import BLOCKED, SWALLOWS
from walktalk.testing.chaos.byzantine import LIES
from walktalk.testing.chaos.disturbance import CLOCK, Disturbance, Kill
from walktalk.testing.chaos.storm import Blow

LEAVING = JOINING = 20.0  # seconds that each may take
CATCHING_UP = 10.0  # and that a node may need to write what waited while its disk was full; it tries every second
HOUR, DAY = 3600.0, 86400.0
JUMPS = (-30 * DAY, -DAY, -HOUR, HOUR, DAY, 30 * DAY)


# -- one after the other -------------------------------------------------------------------------------------------


def kill_aggregator(storm: Disturbance, blow: Blow) -> None:
    """Gossip has none: it loses the node that would be elected."""
    leader, able = storm.leader() if storm.storm.walking else None, storm.writing()
    if leader is not None and leader in able:
        _kill(storm, leader, blow, True)
        return
    first = [v for v in able if v < storm.graph.nodes]
    _kill(storm, max(first, key=lambda v: (sum(u in able for u in storm.graph.neighbours(v)), -v)), blow, False)


def kill_random(storm: Disturbance, blow: Blow) -> None:
    """Kills a random node with SIGKILL."""
    _kill(storm, storm.dice.choice(storm.writing()), blow, False)


def _kill(storm: Disturbance, node: int, blow: Blow, aggregator: bool) -> None:
    for_good = blow.for_good and storm.hold_together_without(node)
    _kill_now(storm, node, aggregator)
    storm.tell(f"kill -9 {storm.names[node]}{' (the aggregator)' * aggregator}{' for good' * for_good}")
    if for_good:
        storm.gone.add(node)
        return
    time.sleep(storm.storm.away)
    storm.note("revive", node)
    storm.start_again(node)


def _kill_now(storm: Disturbance, node: int, aggregator: bool = False) -> None:
    storm.signal(node, signal.SIGKILL)
    storm.fleet.processes[node].join()
    storm.note("kill", node)
    storm.kills.append(Kill(time.time(), node, aggregator))


def hang(storm: Disturbance, blow: Blow) -> None:
    """SIGSTOP, and SIGCONT after a while."""
    node = storm.dice.choice(storm.living())
    storm.tell(f"SIGSTOP {storm.names[node]}")
    storm.signal(node, signal.SIGSTOP)
    storm.note("pause", node)
    time.sleep(2 * storm.storm.away)
    storm.signal(node, signal.SIGCONT)
    storm.note("resume", node)


def restart(storm: Disturbance, blow: Blow) -> None:
    """All nodes: as a person does it, each is asked to leave, or as a power failure does it."""
    for node in storm.disks:
        free_disk(storm, node)
    living, power = storm.living(), storm.dice.random() < 0.5
    storm.tell("kill -9 and start of all" if power else "stop and start of all")
    storm.note("restart_of_all", more="kill" if power else "stop")
    for node in living:
        storm.signal(node, signal.SIGKILL if power else signal.SIGTERM)
    if power:
        for node in living:
            storm.fleet.processes[node].join()
            storm.note("kill", node)
    for node in living:
        storm.start_again(node)
    storm.wait_until_all_met()


def cut(storm: Disturbance, blow: Blow) -> None:
    """Half of the nodes against the rest."""
    everyone = storm.living()
    side = set(storm.dice.sample(everyone, len(everyone) // 2))
    words = " ".join(str(number) for number in sorted(map(storm.number, side)))
    storm.tell(f"partition: {words} against the rest")
    storm.note("partition", more=words)
    if storm.cables is not None:
        storm.cables.cut(side)
        time.sleep(storm.storm.cut)
        storm.cables.heal()
    else:
        _mute(storm, side)
    storm.note("heal", more=words)
    storm.wait_until_all_met()


def _mute(storm: Disturbance, side: set[int]) -> None:
    everyone = storm.living()
    for node in everyone:
        cut_off = [storm.real_numbers.get(peer, peer) for peer in everyone if (peer in side) != (node in side)]
        _write(storm, node, BLOCKED, " ".join(map(str, cut_off)))
    time.sleep(storm.storm.cut)
    for node in everyone:
        _file(storm, node, BLOCKED).unlink(missing_ok=True)


def leave(storm: Disturbance, blow: Blow) -> None:
    """A node goes for good, in order."""
    able = [v for v in storm.writing() if v < storm.graph.nodes and storm.hold_together_without(v)]
    if not able:
        return
    node = storm.dice.choice(able)
    name = storm.names[node]
    storm.tell(f"{name} leaves for good")
    try:
        why = ask_to_leave(storm.cluster, [name], LEAVING, dead=False)[name]
    except UnavailableError as error:  # a finding of this round, no reason to end the series
        why = str(error)
    storm.fleet.processes[node].join(LEAVING)
    if why or storm.fleet.processes[node].is_alive():
        storm.failures.append(f"{name} could not leave for good{': ' * bool(why)}{why}")
        return
    storm.gone.add(node)
    storm.note("gone", node)


def join(storm: Disturbance, blow: Blow) -> None:
    """Somebody new, with the data of one that is gone."""
    if not storm.gone - set(storm.stands_for.values()):
        leave(storm, blow)
    free = sorted(storm.gone - set(storm.stands_for.values()) - set(storm.stands_for))
    if not free:
        return
    stands_for, guest = storm.dice.choice(free), f"guest-{len(storm.stands_for)}"
    number = len(storm.names)
    address = f"127.0.0.1:{free_ports(1)[0]}" if storm.cables is None else storm.cables.address(number)
    storm.tell(f"{guest} joins, with the data of {storm.names[stands_for]}")
    node = storm.start_guest(guest, Place.model_validate({"address": address, "part": stands_for}), stands_for)
    end = time.monotonic() + JOINING
    while time.monotonic() < end:
        said = storm.ask(1.0).get(guest)
        if said is not None and said["alive"]:
            storm.real_numbers[node] = said["node"]
            storm.note("joined", node)
            return
    storm.failures.append(f"{guest} could not join")


def swallow(storm: Disturbance, blow: Blow) -> None:
    """A node keeps the walks that come to it, for a while; one that aggregates does not, nobody would mix then."""
    node = storm.dice.choice([node for node in storm.living() if node != storm.leader()])
    storm.tell(f"{storm.names[node]} swallows walks")
    storm.note("swallow", node, "1")
    _write(storm, node, SWALLOWS, "")
    time.sleep(2 * storm.storm.away)
    _file(storm, node, SWALLOWS).unlink()
    storm.note("swallow", node, "0")


DO: Mapping[str, Callable[[Disturbance, Blow], None]] = {
    "aggregator": kill_aggregator,
    "random": kill_random,
    "hang": hang,
    "restart": restart,
    "cut": cut,
    "leave": leave,
    "join": join,
    "swallow": swallow,
}

# -- while others fall: each gives back what ends it ----------------------------------------------------------------


def fill_disk(storm: Disturbance) -> Callable[[], None]:
    """Fills the disk of a node that has one to be filled, if it lives."""
    able = [node for node in storm.living() if node in storm.disks]
    if not able:
        return lambda: None
    node = storm.dice.choice(able)
    storm.tell(f"the disk of {storm.names[node]} is full")
    storm.note("disk_full", node)
    storm.disks[node].fill(storm.fleet.processes[node].pid)

    def end() -> None:
        free_disk(storm, node)
        storm.note("disk_free", node)

    return end


def free_disk(storm: Disturbance, node: int) -> None:
    """There is room again, and what waited in the node's memory is written: killed before that, it would take with it
    what it did all that time, and the books could not be checked."""
    was_full = storm.disks[node].full
    storm.disks[node].free()
    end = time.monotonic() + CATCHING_UP
    while was_full and node in storm.living() and time.monotonic() < end:
        said = storm.ask(1.0).get(storm.names[node])
        if said is not None and not any("trace" in complaint for complaint in said["complaints"]):
            return
        time.sleep(0.2)


def shift_clock(storm: Disturbance) -> Callable[[], None]:
    """A node's clock jumps; every second time the node is stopped and started, and lives on with the wrong time."""
    node, jump, anew = storm.dice.choice(storm.writing()), storm.dice.choice(JUMPS), storm.dice.random() < 0.5
    storm.tell(f"the clock of {storm.names[node]} jumps by {jump:+g} s{', and it starts anew' * anew}")
    storm.note("clock", node, str(jump))
    _write(storm, node, CLOCK, str(jump))
    if anew:
        storm.signal(node, signal.SIGTERM)
        storm.start_again(node)

    def end() -> None:
        _file(storm, node, CLOCK).unlink(missing_ok=True)
        storm.note("clock", node, "0")

    return end


def tell_lies(storm: Disturbance) -> Callable[[], None]:
    """Makes a node send lies under its own name."""
    node = storm.dice.choice(storm.living())
    storm.tell(f"{storm.names[node]} lies")
    storm.note("lies", node, "1")
    _write(storm, node, LIES, "")

    def end() -> None:
        _file(storm, node, LIES).unlink(missing_ok=True)
        storm.note("lies", node, "0")

    return end


BEGIN: Mapping[str, Callable[[Disturbance], Callable[[], None]]] = {
    "disk": fill_disk,
    "clock": shift_clock,
    "hostile": tell_lies,
}


def inject(storm: Disturbance) -> None:
    """Injects all faults of a round in a random order; what lasts begins with some other fault, and ends after it."""
    blows = storm.dice.sample(storm.storm.blows, len(storm.storm.blows))
    lasting, others = [blow for blow in blows if blow.lasts], [blow for blow in blows if not blow.lasts]
    company = [storm.dice.randrange(len(others)) if others else 0 for _ in lasting]
    for number in range(max(len(others), 1 if lasting else 0)):
        ends = [BEGIN[blow.kind](storm) for blow, at in zip(lasting, company, strict=True) if at == number]
        time.sleep(storm.storm.between)
        if others:
            DO[others[number].kind](storm, others[number])
        else:
            time.sleep(2 * storm.storm.away)
        time.sleep(storm.storm.between)
        for end in ends:
            end()


def _file(storm: Disturbance, node: int, name: str) -> Path:
    return storm.cluster.folder / storm.names[node] / name


def _write(storm: Disturbance, node: int, name: str, text: str) -> None:
    """A file in a node's folder; where its disk is full, there is room for this one."""
    disk = storm.disks.get(node)
    full = disk is not None and disk.full
    if disk is not None and full:
        disk.free()
    _file(storm, node, name).write_text(text)
    if disk is not None and full:
        disk.fill(storm.fleet.processes[node].pid)
