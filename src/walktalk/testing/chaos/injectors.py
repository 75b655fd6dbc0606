"""The faults themselves: signals to processes, pulled cables, full disks, wrong clocks, forged messages."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from walktalk.core.errors import UnavailableError
from walktalk.runtimes.peers import (
    RECORDS,
    ROSTER,
    STATUS,
    JoinRequest,
    Place,
    ask_everyone,
    ask_to_leave,
    cluster_complaints,
    everybody,
    free_ports,
)
from walktalk.testing import BLOCKED, SWALLOWS
from walktalk.testing.chaos.byzantine import FORGES
from walktalk.testing.chaos.disturbance import CLOCK, LOG, Disturbance, Kill
from walktalk.testing.chaos.misbehaviour import DEAF, FALSE_COUNTS, MISLEADS, MUTE, STALLS
from walktalk.testing.chaos.plan import ChaosFault
from walktalk.testing.chaos.power import restore

LEAVING = JOINING = 20.0  # seconds that each may take
TOLD = 40.0  # seconds in which one that was let go is to notice
STALLED = 14.0  # seconds of a training that hangs: they take tenths, and hang after ten
UNHEARD = 12.0  # seconds of one that acknowledges nothing, which is noticed after five
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
    if disturbance.plan.spared:
        first = [v for v in first if v in disturbance.plan.spared] or first
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


def kill_script(disturbance: Disturbance, fault: ChaosFault) -> None:
    """A node's script is killed, in the middle of a visit or not, and started again at once or after a while."""
    assert disturbance.scripts is not None
    node = disturbance.rng.choice([node for node in disturbance.living() if node < disturbance.graph.nodes])
    late = disturbance.rng.random() < 0.5
    disturbance.log_line(f"kill -9 the script of {disturbance.names[node]}{', which comes back late' * late}")
    disturbance.record("kill_script", node)
    disturbance.scripts.signal(node, signal.SIGKILL)
    time.sleep(2 * disturbance.plan.away * late)
    disturbance.scripts.restart(node, disturbance.script(node))


def stall(disturbance: Disturbance, fault: ChaosFault) -> None:
    """A training hangs for longer than they ever take."""
    _switched(disturbance, STALLS, "trainings of {} hang", STALLED)


def be_deaf(disturbance: Disturbance, fault: ChaosFault) -> None:
    """A node acknowledges nothing, or its algorithm hears nothing."""
    if disturbance.rng.random() < 0.5:
        _switched(disturbance, DEAF, "{} acknowledges nothing", UNHEARD)
    else:
        _switched(disturbance, MUTE, "the algorithm of {} hears nothing", 2 * disturbance.plan.away)
    disturbance.wait_until_all_met()  # it is asked again after 20 s


def _switched(disturbance: Disturbance, what: str, words: str, seconds: float) -> None:
    node = disturbance.rng.choice([node for node in disturbance.living() if node not in disturbance.plan.spared])
    disturbance.log_line(words.format(disturbance.names[node]))
    disturbance.record(what, node, "1")
    _write(disturbance, node, what, "")
    time.sleep(seconds)
    _file(disturbance, node, what).unlink()
    disturbance.record(what, node, "0")


def cut_power(disturbance: Disturbance, fault: ChaosFault) -> None:
    """A machine loses its power: its disk has what was forced to it. The trace is kept, or nobody could judge."""
    able = [node for node in disturbance.writing() if (shadow := disturbance.shadow(node)) and shadow.exists()]
    if not able:
        return
    node = disturbance.rng.choice(able)
    _kill_now(disturbance, node)
    disturbance.log_line(f"the power of {disturbance.names[node]} fails")
    shadow = disturbance.shadow(node)
    assert shadow is not None
    restore(shadow, disturbance.cluster.folder / disturbance.names[node], keep=("trace-*", LOG))
    time.sleep(disturbance.plan.away)
    disturbance.record("revive", node)
    disturbance.start_again(node)


def _one_to_spare(disturbance: Disturbance) -> int | None:
    """A node of the first ones without which the others still hold together; None where there is none."""
    able = [v for v in disturbance.writing() if v < disturbance.graph.nodes and disturbance.hold_together_without(v)]
    return disturbance.rng.choice(able) if able else None


def _let_go(disturbance: Disturbance, name: str, dead: bool) -> str:
    """Ask that a node goes for good; why it cannot, a finding of this round and no reason to end the series."""
    try:
        return ask_to_leave(disturbance.cluster, [name], LEAVING, dead=dead)[name]
    except UnavailableError as error:
        return str(error)


def come_back(disturbance: Disturbance, fault: ChaosFault) -> None:
    """A node that was let go as dead is started again: it is told so, and joins."""
    node = _one_to_spare(disturbance)
    if node is None:
        return
    name = disturbance.names[node]
    _kill_now(disturbance, node)
    disturbance.log_line(f"kill -9 {name}, which is let go for good")
    why = _let_go(disturbance, name, dead=True)
    if why:
        disturbance.failures.append(f"{name} could not be let go: {why}")
    disturbance.record("revive", node)
    disturbance.start_again(node)
    disturbance.fleet.processes[node].join(TOLD)
    if disturbance.fleet.processes[node].is_alive():
        disturbance.failures.append(f"{name} was let go, and is not told so")
        _kill_now(disturbance, node)
    contact = disturbance.rng.choice([v for v in disturbance.living() if v < disturbance.graph.nodes])
    _file(disturbance, node, MISLEADS).unlink(missing_ok=True)  # or its own word that it has joined would be nonsense
    disturbance.log_line(f"{name} joins again")
    disturbance.record("revive", node)
    disturbance.fleet.restart(node, disturbance.job(node, rejoin=True, join=JoinRequest(disturbance.names[contact])))
    disturbance.returned.add(node)
    if not _has_come(disturbance, name):
        disturbance.failures.append(f"{name} could not join again")


def _has_come(disturbance: Disturbance, name: str) -> dict[str, Any] | None:
    """What a node says once it has joined; None where it does not in time."""
    end = time.monotonic() + JOINING
    while time.monotonic() < end:
        said = disturbance.ask(1.0).get(name)
        if said is not None and said.get("alive"):
            return said
    return None


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
    node = _one_to_spare(disturbance)
    if node is None:
        return
    name = disturbance.names[node]
    disturbance.log_line(f"{name} leaves for good")
    why = _let_go(disturbance, name, dead=False)
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
    said = _has_come(disturbance, guest)
    if said is None:
        disturbance.failures.append(f"{guest} could not join")
        return
    disturbance.real_numbers[node] = said["node"]
    disturbance.record("joined", node)


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
    "stall": stall,
    "script": kill_script,
    "deaf": be_deaf,
    "power": cut_power,
    "return": come_back,
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


def tell_false_counts(disturbance: Disturbance) -> Callable[[], None]:
    """A node lies about what it has done, and about the end of the run."""
    return _lasting(disturbance, FALSE_COUNTS, "{} lies about what it has done")


def mislead(disturbance: Disturbance) -> Callable[[], None]:
    """A node answers operators with nonsense; they ask all that they ever ask, and it must not stop them."""
    end = _lasting(disturbance, MISLEADS, "{} answers operators with nonsense")

    def ask_and_end() -> None:
        try:
            for question in (STATUS, RECORDS, ROSTER):
                cluster_complaints(ask_everyone(disturbance.cluster, question, 1.0))
            everybody(disturbance.cluster, disturbance.graph, 1.0)
        except Exception as error:  # whatever it is: a person would have seen a traceback
            disturbance.failures.append(f"operators were stopped by an answer: {type(error).__name__}: {error}")
        end()

    return ask_and_end


def _lasting(disturbance: Disturbance, what: str, words: str) -> Callable[[], None]:
    node = disturbance.rng.choice(disturbance.living())
    disturbance.log_line(words.format(disturbance.names[node]))
    disturbance.record(what, node, "1")
    _write(disturbance, node, what, "")

    def end() -> None:
        _file(disturbance, node, what).unlink(missing_ok=True)
        disturbance.record(what, node, "0")

    return end


BEGIN: Mapping[str, Callable[[Disturbance], Callable[[], None]]] = {
    "disk": fill_disk,
    "clock": shift_clock,
    "hostile": send_forged,
    "counts": tell_false_counts,
    "mislead": mislead,
}


def inject(disturbance: Disturbance) -> None:
    """Injects all faults of a round in a random order; what lasts begins with some other fault, and ends after it."""
    happens = disturbance.plan.happens
    faults = disturbance.rng.sample(happens, len(happens))
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
