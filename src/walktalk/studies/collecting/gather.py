"""What there is of every node: from itself, where it answers, else from its folder, where that is on this machine."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median_high
from typing import Any, NamedTuple

from torch import Tensor

from walktalk.core.errors import StudyError
from walktalk.protocols import AGGREGATE
from walktalk.records import TraceRow, load_checkpoint
from walktalk.runtimes.peers import (
    BEST,
    CHECKPOINT,
    COPY,
    FILES,
    METRIC,
    METRICS,
    RECORDS,
    STATEMENT,
    Cluster,
    OperatorConnection,
    read_lives,
    read_statement,
)
from walktalk.runtimes.stacked import is_better

SECONDS_TO_LOOK_AGAIN = 5.0  # that a node which was there a moment ago may take to answer
SECONDS_FOR_A_COPY = 60.0  # that a node may take to write its copy, which may be large
WORTH_A_WORD = 1e6  # bytes
LARGEST = 2**36  # bytes of a copy of a model: beyond, a node says nonsense
LARGEST_LOG = 2**32  # bytes of all parts of a node's event log, compressed but for the last: years
LARGEST_STATEMENT = 2**23  # bytes of what a node says that it has done
MOST = 10**15  # trainings of a node, or bytes that it sent: beyond, whoever says so says nonsense
SPARE = 2  # of the room that is left on the disk at most one part in so many is filled by one node


class Best(NamedTuple):
    """What a node's copy was judged by, which is the best that it has had."""

    measure: str
    value: float  # of that measure: the mean over nodes, as far as the node knew
    iteration: int  # when it was measured


class Counts(NamedTuple):
    """How much a node has done."""

    iterations: int
    bytes: int  # that it sent


class CopyFound(NamedTuple):
    """A node's copy of the model: its weights, and how far the run was when it was written."""

    node: str
    weights: dict[str, Tensor]
    role: str
    key: int
    moment: float  # when it was written, by the node's clock
    best: Best | None = None  # where it is the best that the node has had: by what


@dataclass
class Gathered:
    """What has come so far, in a folder of ours, in the form that nodes have it in theirs."""

    cluster: Cluster
    folder: Path
    say: Callable[[str], None] = lambda line: None
    answered: dict[str, dict[str, Any]] = field(default_factory=dict)  # what those say that answer now
    from_folder: set[str] = field(default_factory=set)  # nodes that do not, and whose folder is on this machine
    left: frozenset[str] = frozenset()  # nodes that have left for good, and are not asked
    heard: dict[str, dict[str, Counts]] = field(default_factory=dict)  # by who says so: what others have done

    def ask(self, caller: OperatorConnection, seconds: float, **asked: object) -> None:
        """Ask which nodes are there, and how much they have by now."""
        names = [name for name in self.cluster.nodes if name not in self.left]
        answers = caller.ask(names, RECORDS, seconds, **asked)
        self.answered = {name: answer for name, answer in answers.items() if answer is not None}
        self.heard |= {name: _counts_in(answer.get("others")) for name, answer in self.answered.items()}

    def fetch_event_logs(self, caller: OperatorConnection) -> None:
        """Fetch what those that answer wrote down since the last time."""
        for name, answer in self.answered.items():
            if not self._fetch_event_log(caller, name, answer):  # a part has got another name: it is compressed now
                again = caller.ask([name], RECORDS, SECONDS_TO_LOOK_AGAIN)[name]
                self._fetch_event_log(caller, name, again or {})

    def _fetch_event_log(self, caller: OperatorConnection, name: str, answer: Mapping[str, Any]) -> bool:
        """Fetch what a node has more of its event log than is here; whether all of it came."""
        files = {file: size for file, size in _files(answer).items() if file not in (COPY, BEST, STATEMENT)}
        if not files:
            return True
        if why := self._too_much(sum(files.values()), LARGEST_LOG):
            self.say(f"{name}: its event log is left out: {why}")
            return True
        for old in self.folder.glob(f"{name}/*"):
            if old.name not in (*files, STATEMENT):  # it has begun anew meanwhile, or that part is compressed
                old.unlink()
        missing = sum(files.values()) - sum(_size(self.folder / name / file) for file in files)
        if missing > WORTH_A_WORD:
            self.say(f"{name}: {missing / 1e6:,.1f} MB of its event log")
        came = [caller.fetch(name, file, size, self.folder / name / file) for file, size in files.items()]
        return all(came)

    def fetch_copies(self, caller: OperatorConnection, wanted: str) -> list[CopyFound]:
        """Fetch the copies that count, of those that answer: of who aggregates, else of everybody.

        `wanted`: the study's `evaluate.model`.
        """
        holders = {name: answer["copy"] for name, answer in self.answered.items() if answer.get("copy")}
        terms = {name: int(copy["key"]) for name, copy in holders.items() if copy["role"] == AGGREGATE}
        chosen = [name for name, term in terms.items() if term == max(terms.values())] if wanted == "aggregated" else []
        found = [copy for name in chosen if (copy := self._fetch_copy(caller, name)) is not None]
        if found:
            return found
        rest = (name for name in holders if name not in chosen)
        return [copy for name in rest if (copy := self._fetch_copy(caller, name)) is not None]

    def fetch_best(self, caller: OperatorConnection) -> list[CopyFound]:
        """Fetch the best copies that those have had that answer: of aggregators the best alone, else of everybody."""
        holders = {name: answer["best"] for name, answer in self.answered.items() if answer.get("best")}
        chosen = best_aggregate(
            [(name, best["role"], best["measure"], best["value"]) for name, best in holders.items()]
        )
        names = list(holders) if chosen is None else [chosen]
        found = (self._fetch_copy(caller, name, BEST) for name in names)
        return [copy for copy in found if copy is not None]

    def fetch_statements(self, caller: OperatorConnection) -> dict[str, dict[str, Any] | None]:
        """Every node's signed statement of what it has done; None of those that make none, or cannot be asked."""
        for name, answer in caller.ask(self.answered, RECORDS, SECONDS_TO_LOOK_AGAIN, statement=1).items():
            size, path = _files(answer or {}).get(STATEMENT), self.folder / name / STATEMENT
            path.unlink(missing_ok=True)
            if size is not None and not self._too_much(size, LARGEST_STATEMENT):
                caller.fetch(name, STATEMENT, size, path)
        return {name: read_statement(self.folder / name / STATEMENT) for name in self.cluster.nodes}

    def _fetch_copy(self, caller: OperatorConnection, name: str, file: str = COPY) -> CopyFound | None:
        answer = caller.ask([name], RECORDS, SECONDS_FOR_A_COPY, copy=1)[name]
        size = _files(answer or {}).get(file)
        path = self.folder / name / file
        path.unlink(missing_ok=True)
        if size is None:
            return None
        if why := self._too_much(size, LARGEST):
            self.say(f"{name}: its copy of the model is left out: {why}")
            return None
        if size > WORTH_A_WORD:
            self.say(f"{name}: {size / 1e6:,.1f} MB of its copy of the model")
        return read_copy(name, path) if caller.fetch(name, file, size, path) else None

    def _too_much(self, size: int, most: int) -> str:
        """Why so many bytes of one node are not fetched; "" where they are."""
        if size > most:
            return f"{size / 1e9:,.1f} GB; at most {most / 1e9:,.1f} GB of a node are taken"
        room = shutil.disk_usage(self.folder if self.folder.exists() else Path.cwd()).free // SPARE
        return f"{size / 1e9:,.1f} GB, and the disk has room for {room / 1e9:,.1f} GB of it" if size > room else ""

    def copy_from_folders(self) -> None:
        """Copy what nodes that do not answer have on this machine: all that they would have said."""
        for name in self.cluster.nodes:
            there = self.cluster.folder / name
            files = [path for path in there.glob("*") if FILES.fullmatch(path.name)] if there.is_dir() else []
            if name in self.answered or not files:
                continue
            self.from_folder.add(name)
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            for path in files:
                shutil.copyfile(path, self.folder / name / path.name)

    def hear_from_folders(self) -> None:
        """Read in the checkpoints of nodes that do not answer what they knew of others, and had done themselves."""
        numbers = {str(self.cluster.number(name)): name for name in self.cluster.nodes}
        for name in self.cluster.nodes:
            path = self.cluster.folder / name / CHECKPOINT
            if name in self.answered or not path.is_file():
                continue
            with suppress(StudyError, AttributeError):  # a damaged one says nothing, nor one of another version
                facts = load_checkpoint(path)[1]
                said = {numbers.get(number, ""): counts for number, counts in facts["others"].items()}
                self.heard[name] = _counts_in({**said, name: [facts["iterations"], facts["bytes"]]})

    def told(self, name: str) -> Counts:
        """What a node has done, as others know and its checkpoint says; of several the one in the middle."""
        said = [counts[name] for counts in self.heard.values() if name in counts]
        if not said:
            return Counts(0, 0)
        return Counts(median_high(one.iterations for one in said), median_high(one.bytes for one in said))

    def ended_before(self) -> bool:
        """Whether a node's folder on this machine says that the run is over: nobody will answer any more."""
        lives = [read_lives(self.cluster.folder / name)[-1:] for name in self.cluster.nodes]
        return any(row.event == "over" for life in lives for rows in life for row in rows)

    def copies_from_folders(self, file: str = COPY) -> list[CopyFound]:
        """Read the copies of nodes that do not answer."""
        found = (read_copy(name, self.folder / name / file) for name in sorted(self.from_folder))
        return [copy for copy in found if copy is not None]

    def lives(self) -> dict[str, list[list[TraceRow]]]:
        """What each node wrote down, life by life; nothing of those of which nothing came.

        Nodes have the numbers of their places in the cluster: those who joined have chosen theirs at random.
        """
        found, places = {}, self._places()
        for name in self.cluster.nodes:
            lives = [list(_sound(rows, self.cluster.number(name))) for rows in read_lives(self.folder / name)]
            if any(lives):
                found[name] = [[_placed(row, places) for row in life] for life in lives if life]
        return found

    def placed_copy(self, copy: CopyFound) -> CopyFound:
        """The copy with the node's place in place of its number."""
        own = copy.key == self.cluster.number(copy.node)
        return copy._replace(key=self._places()[copy.key]) if own else copy

    def _places(self) -> dict[int, int]:
        return {self.cluster.number(name): place for place, name in enumerate(self.cluster.nodes)}


def _placed(row: TraceRow, places: Mapping[int, int]) -> TraceRow:
    """A line with the places of nodes, not their numbers."""
    node, peer = places.get(row.node, row.node), places.get(row.peer, row.peer)
    if (node, peer) == (row.node, row.peer):
        return row
    walk = node if row.event == "record" and row.walk == row.node else row.walk
    return row._replace(node=node, peer=peer, walk=walk)


def best_aggregate(holders: Iterable[tuple[str, str, str, float]]) -> str | None:
    """The node whose best aggregate is the best of all; None where nobody aggregates.

    Args:
        holders: of each node its name, the role of its copy, and by which measure it is how good.
    """
    found: tuple[str, float] | None = None
    for name, role, measure, value in holders:
        if role == AGGREGATE and (found is None or is_better(measure, value, found[1])):
            found = name, value
    return None if found is None else found[0]


def read_copy(name: str, path: Path) -> CopyFound | None:
    """Read a node's copy; None where there is none, or it is damaged."""
    try:
        weights, facts = load_checkpoint(path)
        best = Best(facts["measure"], float(facts["value"]), int(facts["iteration"])) if "measure" in facts else None
        return CopyFound(name, weights, str(facts["role"]), int(facts["key"]), float(facts["moment"]), best)
    except (StudyError, KeyError, TypeError, ValueError):
        return None


def _files(answer: Mapping[str, Any]) -> dict[str, int]:
    """Names and sizes, as far as they are what a node has: its answer comes from elsewhere."""
    files = answer.get("files")
    if not isinstance(files, dict):
        return {}
    sound = {name: size for name, size in files.items() if FILES.fullmatch(name) and isinstance(size, int)}
    return {name: size for name, size in sound.items() if 0 <= size < 2**53}


def _counts_in(said: Any) -> dict[str, Counts]:
    """Nodes' counts by name, as far as they are some: the answer comes from elsewhere."""
    found: dict[str, Counts] = {}
    for name, counts in said.items() if isinstance(said, dict) else ():
        if (
            isinstance(counts, list)
            and len(counts) == 2
            and all(type(one) is int and 0 <= one < MOST for one in counts)
        ):
            found[str(name)] = Counts(*counts)
    return found


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _sound(rows: Iterable[TraceRow], number: int) -> Iterable[TraceRow]:
    """The lines up to the first that this node cannot have written."""
    for row in rows:
        whole = (row.node, row.peer, row.walk, row.iteration, row.number, row.bytes, row.key)
        text = isinstance(row.event, str) and isinstance(row.slot, str) and isinstance(row.detail, str | dict)
        times = isinstance(row.time, int | float) and math.isfinite(row.time) and isinstance(row.lr, int | float)
        if not (text and times and row.node == number and all(isinstance(value, int) for value in whole)):
            return
        yield row


@dataclass(frozen=True)
class Participant:
    """What one node did in a run, and for how long."""

    name: str
    site: str
    state: str  # finished: it saw the end; training; left: it was asked to; gone; "" where nothing is known of it
    seconds: float  # that it was there, over all its lives
    lives: int  # how often it was started
    samples: int  # of its data, as far as it has measured on them
    loss: float | None  # of the model that it measured last, on its own data; None: it has measured none
    accuracy: float | None  # likewise, on its own test samples
    metrics: dict[str, float]  # likewise, what else it has measured, or its own loop
    iterations: int
    bytes: int  # that it sent
    by_walk: dict[str, dict[str, float]]  # what it measured last of each walk that came to it
    source: str  # whence this is known: the node's answer, its folder, or what others say


def participants(
    cluster: Cluster, gathered: Gathered, written: Mapping[str, list[list[TraceRow]]]
) -> list[Participant]:
    """List what every node did, in order; `written`: what they wrote down, life by life."""
    found = []
    for name, place in cluster.nodes.items():
        lives, answers = written.get(name, []), name in gathered.answered
        rows = [row for life in lives for row in life]
        measured = _last(rows)
        known = "its answer" if answers else "its folder" if name in gathered.from_folder else "an earlier answer"
        told = gathered.told(name)
        iterations, sent = sum(row.event == "trained" for row in rows), sum(_sent(row) for row in rows)
        more = told.iterations > iterations and not answers
        state = "left" if name in gathered.left else _state(lives, answers) or ("gone" if any(told) else "")
        found.append(
            Participant(
                name,
                place.site,
                state,
                round(sum(life[-1].time - life[0].time for life in lives), 3),
                len(lives),
                max((int(row.detail["samples"]) for row in rows if row.event == "measured"), default=0),
                measured.get("train_loss"),
                measured.get("test_accuracy"),
                _metrics(measured),
                max(iterations, told.iterations) if more else iterations,
                max(sent, told.bytes) if more else sent,
                {f"walk {row.walk}": numbers_of(row) for row in rows if row.event == "measured" and row.walk > 0},
                "what others say" if more else known if rows or any(told) else "",
            )
        )
    return found


def _last(rows: Sequence[TraceRow]) -> dict[str, float]:
    """What a node measured last, number by number."""
    found: dict[str, float] = {}
    for row in rows:
        if row.event == "measured":
            found |= numbers_of(row)
    return found


def numbers_of(row: TraceRow) -> dict[str, float]:
    """What a node measured, as far as it is numbers: its answer comes from elsewhere. By the names of a history."""
    said = row.detail if isinstance(row.detail, dict) else {}
    sound = {name: float(value) for name, value in said.items() if type(value) in (int, float) and math.isfinite(value)}
    names = {"loss": "train_loss", "accuracy": "test_accuracy"}
    known = {usual: sound[name] for name, usual in names.items() if name in sound}
    others = sorted(name for name in sound if name.startswith(METRIC))[:METRICS]  # of a few
    return known | {name.removeprefix(METRIC): sound[name] for name in others}


def _metrics(measured: Mapping[str, float]) -> dict[str, float]:
    return {key: value for key, value in measured.items() if key not in ("train_loss", "test_accuracy")}


def not_written(members: Sequence[Participant], trace: Sequence[TraceRow]) -> Counts:
    """What nodes have done of which no event log is here: who has left, or died with its disk."""
    iterations = sum(one.iterations for one in members) - sum(row.event == "trained" for row in trace)
    return Counts(max(0, iterations), max(0, sum(one.bytes for one in members) - sum(_sent(row) for row in trace)))


def state_of(members: Sequence[Participant]) -> str:
    """How the run is: running, finished, or stopped before its end."""
    states = {one.state for one in members}
    return "running" if "training" in states else "finished" if "finished" in states else "stopped"


def absent_in(members: Sequence[Participant]) -> list[str]:
    """Names of those that were never there, as far as it is known."""
    return [one.name for one in members if not (one.lives or one.iterations or one.bytes)]


def too_few(at_least: int | str | None, members: Sequence[Participant]) -> str:
    """That fewer took part than `at_least` of the cluster's file asks for, in words; "" where they are enough."""
    needed = len(members) if at_least == "all" else int(at_least or 0)
    there = len(members) - len(absent_in(members))
    return "" if there >= needed else f"{there} of {len(members)} nodes took part; the run asks for at least {needed}"


IN_SITES = ("by_walk",)  # what stands in `sites.csv` alone


def as_facts(members: Sequence[Participant]) -> list[dict[str, Any]]:
    """The nodes' parts as they stand in `summary.json`."""
    return [{key: value for key, value in asdict(one).items() if key not in IN_SITES} for one in members]


def _state(lives: Sequence[Sequence[TraceRow]], answers: bool) -> str:
    """The state of a node, as its last life says."""
    events = {row.event for row in lives[-1]} if lives else set()
    if events & {"over", "left"}:
        return "finished" if "over" in events else "left"
    return "training" if answers else "gone" if lives else ""


def _sent(row: TraceRow) -> int:
    return row.bytes if row.event == "send" else -row.bytes if row.event == "superseded" else 0
