"""Callbacks, and so TensorBoard, MLflow and W&B, for what runs elsewhere: a node of a cluster, a folder of results."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from walktalk.api.callbacks import Audience, row_mapping
from walktalk.core.plugins import plugins_may_be_absent
from walktalk.records import HistoryRow, StudyFolder, read_history
from walktalk.studies import StudySpec, load_spec, read_sites

if TYPE_CHECKING:
    from walktalk.runtimes.peers import Node

LOOK_EVERY = 2.0  # seconds, at a node


class SitesLeft(NamedTuple):
    """What a study has left of how good models are on every site's data."""

    sites: Any
    models: Any


def show_folder(audience: Audience, folder: Path, result: Any) -> None:
    """Show callbacks what a study left in its folder, as if it happened now: every evaluation, sites, and the end.

    Args:
        audience: The callbacks.
        folder: The study's.
        result: What `on_end` is given.
    """
    if not audience.members:
        return
    with plugins_may_be_absent():
        spec = load_spec(folder / "spec.yaml")
    place = StudyFolder(folder)
    with audience.attending(spec):
        for algorithm in spec.algorithms:
            for repetition in range(spec.repetitions):
                for row in read_history(place.run(algorithm.title, repetition).history).to_dict("records"):
                    audience.show({str(name): value for name, value in row.items()})
        audience.ended(result, SitesLeft(read_sites(place.sites), read_sites(place.models)))


@contextmanager
def watching(audience: Audience, spec: StudySpec, algorithm: str) -> Iterator[NodeWatcher]:
    """Shows callbacks what one node of a cluster measures, as long as it runs.

    Args:
        audience: The callbacks.
        spec: The cluster's study.
        algorithm: The label of what runs.
    """
    watcher = NodeWatcher(audience, algorithm)
    with audience.attending(spec):
        try:
            yield watcher
        finally:
            watcher.stop()


class NodeWatcher:
    """Looks at a node now and then, and shows callbacks what is new: one run of theirs, named after the node."""

    def __init__(self, audience: Audience, algorithm: str) -> None:
        self._audience, self._algorithm = audience, algorithm
        self._node: Node | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watcher", daemon=True)
        self._seen: tuple[int, float] | None = None  # iterations and loss of the last row

    def begin(self, node: Node) -> None:
        """Look at this node from now on."""
        if self._audience.members:
            self._node = node
            self._thread.start()

    def stop(self) -> None:
        """Look for the last time."""
        if self._node is None:
            return
        self._over.set()
        self._thread.join()
        self._show(self._node.status())
        self._audience.ended(self._node)

    def _look(self) -> None:
        assert self._node is not None
        while not self._over.wait(LOOK_EVERY):
            self._show(self._node.status())

    def _show(self, status: Mapping[str, Any]) -> None:
        """A row of its own loss, by the iterations of all nodes; nothing where it has measured nothing since."""
        if status["loss"] is None or (status["iterations"], status["loss"]) == self._seen:
            return
        self._seen = (status["iterations"], status["loss"])
        nan = float("nan")
        counts = (status["total_iterations"], status["seconds"], 8 * status["bytes_sent"])
        row = row_mapping(HistoryRow(self._algorithm, 0, *counts, status["loss"], nan, nan))
        own = {name: row[name] for name in ("algorithm", "iteration", "time", "bits", "train_loss")}
        named = {"repetition": status["name"], "own_iterations": status["iterations"]}
        self._audience.show({**own, **status["metrics"], **named})
