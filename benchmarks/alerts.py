"""Do the alerts of examples/deploy fire for what goes wrong, and for nothing else? With real nodes and real Prometheus.

    python benchmarks/alerts.py [--rounds 20] [--seed 0] [--out out/alerts]

Three nodes with certificates, each a process that trains; Prometheus scrapes them and judges by alerts.yaml. In every
round something is done to them, in an order that the seed decides: soon after what has to fire fires, all is mended,
and the round is over when nothing fires any more and all have met. What fired besides fails the round. Durations in
alerts.yaml are divided by 6, and Prometheus looks every two seconds: a round takes two minutes. Needs `prometheus` on
the path; as root a full disk is a file system of its own, else a limit on files. A table is printed, and alerts.json
written, with the nodes' logs of rounds that failed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from walktalk.runtimes.peers import Fleet, free_ports, load_cluster
from walktalk.studies.peers import NodeJob
from walktalk.testing.chaos.cables import Disk
from walktalk.testing.chaos.disturbance import CLOCK, LOG, DisturbedJob, run_disturbed
from walktalk.testing.chaos.misbehaviour import DEAF, STALLS

DEPLOY = Path(__file__).parents[1] / "examples" / "deploy"
NAMES = ("ca-1", "ca-2", "il-1")
FASTER = 6  # times: how much shorter durations are than in alerts.yaml
DAYS = 45  # of certificates
PATIENCE = 300.0  # seconds until something fires, or nothing any more
CALM = 120.0  # seconds of a round in which nothing happens: longer than any alert takes, but for that of a day
DAY = 86_400
DURATION = re.compile(r"(?<=\[)(\d+)([smhd])(?=\])|(?<=^)(\d+)([smhd])(?=$)")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": DAY}


# -- Prometheus -------------------------------------------------------------------------------------------------------


def faster(text: str, times: int = FASTER) -> str:
    """The rules with all durations divided: those of windows, of `for`, and the seconds of a training."""
    content = yaml.safe_load(text)

    def shorter(found: re.Match[str]) -> str:
        number, unit = (group for group in found.groups() if group is not None)
        return f"{max(1, int(number) * UNITS[unit] // times)}s"

    for rule in (rule for group in content["groups"] for rule in group["rules"]):
        rule["expr"] = re.sub(
            r"(?<=_seconds < )\d+", lambda found: str(int(found[0]) // times), DURATION.sub(shorter, rule["expr"])
        )
        if "for" in rule:
            rule["for"] = DURATION.sub(shorter, rule["for"])
    return yaml.safe_dump(content, sort_keys=False)


class Prometheus:
    """A real one, that scrapes these targets and judges by these rules."""

    def __init__(self, folder: Path, targets: Mapping[str, int], rules: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rules.yaml").write_text(rules)
        jobs = {
            "job_name": "walktalk",
            "static_configs": [
                {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}} for name, port in targets.items()
            ],
        }
        told = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
        config = {"global": told, "rule_files": ["rules.yaml"], "scrape_configs": [jobs]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        (port,) = free_ports(1)
        self.address = f"http://127.0.0.1:{port}"
        command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=log)

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *of: object) -> None:
        self._process.terminate()
        self._process.wait(30)

    def firing(self) -> set[tuple[str, str]]:
        """What fires: the alert's name, and of whom it speaks."""
        alerts = self._get("alerts")["alerts"]
        return {
            (alert["labels"]["alertname"], alert["labels"].get("instance") or alert["labels"].get("peer", ""))
            for alert in alerts
            if alert["state"] == "firing"
        }

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What an expression gives now."""
        found: list[dict[str, Any]] = self._get(f"query?query={urllib.request.quote(expression)}")["result"]  # type: ignore[attr-defined]
        return found

    def _get(self, what: str) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(f"{self.address}/api/v1/{what}", timeout=30) as answer:
                    found: dict[str, Any] = json.load(answer)["data"]
                    return found
            except OSError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise
                time.sleep(0.2)


# -- the nodes, and what is done to them ------------------------------------------------------------------------------


class Nodes:
    """Three nodes on this machine, each a process that shows its metrics."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        ports = free_ports(2 * len(NAMES))
        self.targets = dict(zip(NAMES, ports, strict=False))
        content = {
            "name": "watched",
            "study": {
                "network": {"topology": "complete", "nodes": len(NAMES)},
                "task": {"name": "digits", "alpha": 1.0},
                "algorithms": [{"name": "multi_walk", "walks": 2}],
                "stop": {"time": 1e6},
            },
            "certificates": "certs",
            "folder": "records",
            "pace": 0.1,
            "at_least": 2,
            "keep_traces": 1,
            "nodes": {
                name: {"address": f"127.0.0.1:{port}", "metrics": self.targets[name]}
                for name, port in zip(NAMES, ports[len(NAMES) :], strict=True)
            },
        }
        path = folder / "cluster.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        certs = [sys.executable, "-m", "walktalk", "certs", "--config", str(path), "--days", str(DAYS), "--together"]
        subprocess.run(certs, check=True, capture_output=True)
        self.cluster = load_cluster(path)
        self.disks = {name: stack.enter_context(Disk(self.cluster.folder / name)) for name in NAMES}
        self.fleet = Fleet(run_disturbed, [self._job(name) for name in NAMES], NAMES)
        stack.callback(self.fleet.stop)

    def _job(self, name: str, rejoin: bool = False) -> DisturbedJob:
        return DisturbedJob(NodeJob(self.cluster, name, rejoin=rejoin))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a node's process."""
        self.fleet.signal(NAMES.index(name), number)

    def start_again(self, name: str) -> None:
        """A process in place of one that was killed."""
        self.fleet.restart(NAMES.index(name), self._job(name, rejoin=True))

    def process(self, name: str) -> int | None:
        """The number of a node's process."""
        return self.fleet.processes[NAMES.index(name)].pid

    def file(self, name: str, file: str) -> Path:
        """A file in a node's folder."""
        return self.cluster.folder / name / file


@contextmanager
def nothing(nodes: Nodes, name: str) -> Iterator[None]:
    """All is well."""
    yield


@contextmanager
def dead(nodes: Nodes, name: str) -> Iterator[None]:
    """A node is killed, and started again."""
    nodes.signal(name, signal.SIGKILL)
    yield
    nodes.start_again(name)


@contextmanager
def two_dead(nodes: Nodes, name: str) -> Iterator[None]:
    """All others are killed, and started again."""
    others = [other for other in NAMES if other != name]
    for other in others:
        nodes.signal(other, signal.SIGKILL)
    yield
    for other in others:
        nodes.start_again(other)


@contextmanager
def frozen(nodes: Nodes, name: str) -> Iterator[None]:
    """A node's process is stopped, and goes on."""
    nodes.signal(name, signal.SIGSTOP)
    try:
        yield
    finally:
        nodes.signal(name, signal.SIGCONT)


@contextmanager
def switched(nodes: Nodes, names: Iterable[str], file: str, text: str = "") -> Iterator[None]:
    """A file that switches a fault on is there."""
    files = [nodes.file(name, file) for name in names]
    for path in files:
        path.write_text(text)
    try:
        yield
    finally:
        for path in files:
            path.unlink()


@contextmanager
def full_disk(nodes: Nodes, name: str) -> Iterator[None]:
    """A node can write nothing more."""
    nodes.disks[name].fill(nodes.process(name))
    try:
        yield
    finally:
        nodes.disks[name].free()


# A node that was deaf and one that it left out in turn ask each other again later each time, after ten minutes at most.
APART = frozenset((alert, name) for alert in ("WalktalkLinkDown", "WalktalkNodeUnwell") for name in NAMES)
TOGETHER = 720.0  # seconds for that
HANGS, IDLE = "WalktalkTrainingHangs", "WalktalkNothingIsTrained"


class Fault(NamedTuple):
    """What is done to a node, and which alerts have to fire for it."""

    do: Callable[[Nodes, str], Any]
    fires: Callable[[str], set[tuple[str, str]]]
    may: frozenset[tuple[str, str]] = frozenset()  # and which may besides, as they are true as well


FAULTS: Mapping[str, Fault] = {
    "nothing": Fault(nothing, lambda name: set()),
    "dead": Fault(dead, lambda name: {("WalktalkNodeDown", name)}),
    "too few": Fault(
        two_dead,
        lambda name: {("WalktalkTooFewNodes", ""), *(("WalktalkNodeDown", other) for other in NAMES if other != name)},
        frozenset({(IDLE, "")}),  # both walks may have died with them
    ),
    "frozen": Fault(frozen, lambda name: {("WalktalkNodeDown", name)}),
    "training hangs": Fault(lambda nodes, name: switched(nodes, [name], STALLS), lambda name: {(HANGS, name)}),
    "deaf": Fault(
        lambda nodes, name: switched(nodes, [name], DEAF), lambda name: {("WalktalkNodeLeftOut", name)}, APART
    ),
    "disk full": Fault(full_disk, lambda name: {("WalktalkDiskFull", name)}),
    "certificate ends": Fault(
        lambda nodes, name: switched(nodes, [name], CLOCK, str((DAYS - 20) * DAY)),
        lambda name: {("WalktalkCertificateEnds", name)},
    ),
    "nobody trains": Fault(
        lambda nodes, name: switched(nodes, NAMES, STALLS),
        lambda name: {(IDLE, ""), *((HANGS, each) for each in NAMES)},
    ),
}


# -- rounds -----------------------------------------------------------------------------------------------------------


class Round(NamedTuple):
    """One round: what was done to whom, what fired, and how long all took."""

    fault: str
    node: str
    expected: tuple[str, ...]
    fired: tuple[str, ...]
    seconds: float | None  # from the fault until all that had to fire did; None: it did not
    mended: float | None  # from the mending until nothing fired any more and all had met

    @property
    def held(self) -> bool:
        """Whether what had to fire fired, nothing else did, and all is over."""
        return self.fired == self.expected and self.seconds is not None and self.mended is not None


def one_round(nodes: Nodes, prometheus: Prometheus, kind: str, name: str) -> Round:
    """Do it, wait for its alerts, mend it, wait until they are gone."""
    fault = FAULTS[kind]
    expected, fired = fault.fires(name), set[tuple[str, str]]()

    def until(done: Callable[[set[tuple[str, str]]], bool], seconds: float = PATIENCE) -> float | None:
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            now = prometheus.firing()
            fired.update(now - fault.may)
            if done(now):
                return round(time.monotonic() - began, 1)
            time.sleep(0.5)
        return None

    with fault.do(nodes, name):
        if expected:
            seconds = until(lambda now: expected <= now)
            until(lambda now: False, CALM / 4)  # what else comes a little later
        else:
            seconds = until(lambda now: False, CALM) or CALM
    # A node that was deaf is asked again later each time, in seconds that nobody has divided: all must have met again.
    mended = until(
        lambda now: not now and not prometheus.query("min_over_time(walktalk_neighbour_up[15s]) == 0"), TOGETHER
    )
    return Round(kind, name, _words(expected), _words(fired), seconds, mended)


def _words(alerts: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(sorted(f"{alert.removeprefix('Walktalk')}({who})" for alert, who in alerts))


def wait_until_all_train(prometheus: Prometheus) -> None:
    """All are scraped, and trainings end at each of them."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(OSError):
            if len(prometheus.query("rate(walktalk_iterations_total[10s]) > 0")) == len(NAMES):
                return
        time.sleep(0.5)
    raise SystemExit("the nodes do not train")


def shown_panels(prometheus: Prometheus) -> list[str]:
    """The titles of the dashboard's panels for which there is something to show now."""
    panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    asked = {panel["title"]: [one["expr"].replace("$job", "walktalk") for one in panel["targets"]] for panel in panels}
    return [title for title, queries in asked.items() if any(prometheus.query(query) for query in queries)]


def main() -> None:
    """Run the rounds, print a line each, and write them down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", nargs="*", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument("--out", type=Path, default=Path("out/alerts"))
    asked = parser.parse_args()
    if shutil.which("prometheus") is None:
        raise SystemExit("there is no `prometheus` on the path: apt-get install prometheus")
    asked.out.mkdir(parents=True, exist_ok=True)
    rng, rounds = random.Random(asked.seed), list[Round]()
    order = [
        kind
        for _ in range(-(-asked.rounds // len(asked.faults)))
        for kind in rng.sample(asked.faults, len(asked.faults))
    ]
    print("| round | what | where | fired | s until it did | s until it was over | |\n|" + " --- |" * 7)
    whom = {
        kind: rng.sample(NAMES, len(NAMES)) for kind in asked.faults
    }  # who was deaf lately is asked later each time
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        nodes = Nodes(Path(folder), stack)
        rules = faster((DEPLOY / "alerts.yaml").read_text())
        prometheus = stack.enter_context(Prometheus(Path(folder) / "prometheus", nodes.targets, rules))
        wait_until_all_train(prometheus)
        for number, kind in enumerate(order[: asked.rounds], start=1):
            done = one_round(nodes, prometheus, kind, whom[kind][order[:number].count(kind) % len(NAMES)])
            rounds.append(done)
            told = [number, done.fault, done.node, ", ".join(done.fired) or "nothing", done.seconds, done.mended]
            verdict = "held" if done.held else f"EXPECTED {', '.join(done.expected) or 'nothing'}"
            print(f"| {' | '.join(map(str, told))} | {verdict} |", flush=True)
            for name in () if done.held else NAMES:
                shutil.copy(nodes.file(name, LOG), asked.out / f"round-{number}-{name}.log")
            written = {
                "faster": FASTER,
                "rounds": [{**one._asdict(), "held": one.held} for one in rounds],
                "shown": shown_panels(prometheus),
            }
            (asked.out / "alerts.json").write_text(json.dumps(written, indent=1) + "\n")
    held = sum(done.held for done in rounds)
    print(f"\n{held} of {len(rounds)} rounds held: what had to fire did, and nothing else")
    raise SystemExit(held < len(rounds))


if __name__ == "__main__":
    main()
