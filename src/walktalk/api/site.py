"""`wt.site`: your own training loop as the trainer of a node of a cluster.

    with wt.site("cluster.yaml", name="lyon") as site:
        for visit in site:
            visit.load(model)
            train(model)
            visit.finish(model, samples=len(data), metrics={"auc": auc})

The node is a process of its own: it is found on this machine or started, and outlives the script.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

from walktalk.api.talk import Talk, ranks_here
from walktalk.api.visit import Visit, checked_metrics
from walktalk.core.errors import SpecError, UnavailableError, UserError, suggestion
from walktalk.runtimes.peers import SCRIPT, Closed, LocalConnection, connect, load_cluster
from walktalk.studies import load_spec, make_spec
from walktalk.studies.peers import check_outside_samples, study_keys

log = logging.getLogger(__name__)

LOG = "node.log"  # in a node's folder: what it says, where a script has started it
PATIENCE = 300.0  # seconds that a node may take to start: it reads libraries on a busy machine
LOOK_EVERY = 0.05  # seconds, for a node that starts

Evaluate = Callable[[Visit], Mapping[str, float]]


class Site:
    """One node of a cluster, whose models this script trains; made by `wt.site`.

    Args:
        config: The cluster's YAML file.
        name: Which of its nodes this is.
        evaluate: Measures a model as it comes; None: nobody does.
        start: Whether the node is started where it does not run.
        several: Whether all processes of the script iterate together.
    """

    def __init__(self, config: Path, name: str, evaluate: Evaluate | None, start: bool, several: bool) -> None:
        cluster = load_cluster(config)
        if name not in cluster.nodes:
            near = suggestion(name, cluster.nodes)
            raise SpecError(f"name: {name!r} is not in {config}; its nodes are {', '.join(cluster.nodes)}{near}")
        spec = make_spec(cluster.study) if isinstance(cluster.study, dict) else load_spec(cluster.study)
        if spec.task.name != "outside":
            raise SpecError(
                f"task.name: {spec.task.name} is trained by walktalk itself; for a loop of your own say "
                "task: {name: outside, state: FILE.safetensors}"
            )
        check_outside_samples(spec, cluster)
        self.name = name
        self.folder = cluster.folder / name
        self._config, self._evaluate, self._start = config, evaluate, start
        self._facts = study_keys(spec, cluster)
        self._node: subprocess.Popen[bytes] | None = None
        self._talk = Talk(name, ranks_here() if several else None)

    @property
    def over(self) -> str:
        """Why there are no more visits; "": there may be."""
        return self._talk.over

    # -- the loop -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Site:
        talk = self._talk
        if talk.is_prepared:
            return self
        if talk.ranks is None:
            self._connect()
        elif talk.is_first:
            self._connect_for_all()
        else:
            talk.prepare(talk.ranks.hear(), None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        planned = kind is None or issubclass(kind, (KeyboardInterrupt, SystemExit, GeneratorExit))
        why = "was stopped" if planned else f"has ended with {kind.__name__ if kind else ''}: {error}"
        talk = self._talk
        if not talk.over:
            talk.say({"say": "bye", "why": why, "planned": planned})
        talk.hang_up()
        if talk.ranks is not None and talk.over:
            talk.ranks.close()

    def __iter__(self) -> Iterator[Visit]:
        self.__enter__()
        while (visit := self._next()) is not None:
            yield visit
            if not visit.is_over and self._talk.is_first:
                log.warning("%s: visit %d was neither finished nor skipped; it is skipped", self.name, visit.number)
                visit.skip()

    def _next(self) -> Visit | None:
        """The next model to train; None where the run is over."""
        talk = self._talk
        if not talk.is_first:
            return self._heard()
        said = self._next_said()
        if talk.ranks is not None:
            talk.ranks.say({"over": talk.over, "failed": talk.failed} if said is None else said)
            if said is not None:
                talk.share()
        self._check_node()
        return None if said is None else self._visited(said)

    def _visited(self, said: Mapping[str, Any]) -> Visit:
        """A visit of which the node has said this."""
        visit = self._talk.visit = Visit(self._talk, said)
        return visit

    def _heard(self) -> Visit | None:
        """What the first process of this script says of the next visit; verdicts that nobody waited for are passed."""
        talk = self._talk
        assert talk.ranks is not None
        while not talk.over:
            said = talk.ranks.hear()
            if "over" in said:
                talk.end(said)
            elif "visit" in said:
                talk.share()
                return self._visited(said)
        self._check_node()
        return None

    def _check_node(self) -> None:
        """Raise an error where there are no more visits because the node has failed: the run is not over."""
        if self._talk.failed:
            raise UnavailableError(
                f"node {self.name}: {self.over}; its log says more: {self.folder / LOG}; start this script again, and "
                "the node goes on from its checkpoint"
            )

    def _next_said(self) -> dict[str, Any] | None:
        """What the node says of the next model to train. One that is to be measured is measured on the way."""
        while not self.over:
            said = self._talk.ask({"say": "next"})
            if said is None:
                self._find_again()
            elif "over" in said:
                self._talk.end(said)
            elif said.get("measure"):
                self._measure(int(said["visit"]))
            else:
                return said
        return None

    def _measure(self, number: int) -> None:
        found: Mapping[str, float] = {}
        if self._evaluate is not None:
            found = checked_metrics(self._evaluate(Visit(self._talk, {"visit": number, "measure": True})))
        self._talk.ask({"say": "measured", "visit": number, "metrics": dict(found)})

    # -- the node -----------------------------------------------------------------------------------------------------

    def _connect_for_all(self) -> None:
        """Talk to the node, and let the other processes of this script know what comes of it."""
        talk = self._talk
        assert talk.ranks is not None
        try:
            self._connect()
        except UserError as error:
            talk.ranks.say({"refused": str(error)})
            raise
        talk.ranks.say({**talk.described, "over": talk.over})

    def _connect(self) -> None:
        """Talk to the node, which is started where it does not run."""
        connection = connect(self.folder)
        if connection is None:
            connection = self._started()
        if connection is None:
            return
        hello = {**SCRIPT.told(), "facts": self._facts, "evaluates": self._evaluate is not None}
        try:
            connection.send(hello)
            said, memory = connection.receive(descriptors=2)
        except Closed as error:
            if isinstance(error.__cause__, TimeoutError):
                raise UnavailableError(
                    f"node {self.name}, process {connection.process}, does not answer; is it stopped? End it, and the "
                    "script starts it again"
                ) from error
            raise UnavailableError(f"node {self.name} hung up; its log says why: {self.folder / LOG}") from error
        connection.wait_at_most(None)
        if "refused" in said:
            connection.close()
            raise UserError(f"node {self.name} refuses this script: {said['refused']}")
        self._talk.begin(connection, said, memory)

    def _started(self) -> LocalConnection | None:
        """A connection to a node that is started now; None where its run is over."""
        if not self._start:
            raise UnavailableError(
                f"node {self.name} does not run here; start it: walktalk node --config {self._config} --name "
                f"{self.name}"
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            out = (self.folder / LOG).open("ab")
        except OSError as error:
            raise UserError(
                f"folder: {self.folder} cannot be written ({error.strerror}); give the cluster file another folder"
            ) from error
        command = [sys.executable, "-m", "walktalk", "node", "--config", str(self._config), "--name", self.name]
        with out:
            before = out.tell()
            # A session of its own: Ctrl-C here stops this script, and the node goes on.
            self._node = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        log.info("%s: its node is started, process %d", self.name, self._node.pid)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            connection = connect(self.folder)
            if connection is not None:
                return connection
            if self._node.poll() is not None:
                said = (self.folder / LOG).read_bytes()[before:].decode(errors="replace").strip().splitlines()
                why = said[-1] if said else "it said nothing"
                if self._node.returncode == 0:
                    self._talk.over = why
                    return None
                raise UserError(f"node {self.name} did not start: {why}")
            time.sleep(LOOK_EVERY)
        raise UnavailableError(f"node {self.name} did not start within {PATIENCE:g} s; see {self.folder / LOG}")

    def _find_again(self) -> None:
        """The node has gone, without saying that the run is over: it is started again, if nobody else has."""
        if self._node is not None:
            with suppress(subprocess.TimeoutExpired):
                self._node.wait(5.0)
        log.warning("%s: its node has gone; it is looked for, and started again", self.name)
        self._connect()


def site(
    config: str | PathLike[str],
    name: str,
    *,
    evaluate: Evaluate | None = None,
    start: bool = True,
    several: bool = True,
) -> Site:
    """One node of a cluster, whose models your own loop trains: iterate over its visits.

    Args:
        config: The cluster's YAML file, whose study says `task: {name: outside, state: FILE.safetensors}`.
        name: Which of its nodes this is.
        evaluate: Measures a model as it comes: gets a visit, and gives metrics by name, `train_loss` among them.
        start: Whether the node is started where it does not run. It outlives this script: `walktalk stop` ends it.
        several: Whether all processes that `torchrun` has started iterate together; if not, the first does alone.
    """
    return Site(Path(os.fspath(config)).resolve(), name, evaluate, start, several)
