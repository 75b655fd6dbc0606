"""All that is looked at, in an order that a reader expects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from walktalk.doctor.finding import Finding


def checkup(folder: Path, cluster: Path | None = None) -> Iterator[Finding]:
    """Every finding, as soon as it is known.

    Args:
        folder: Where results would be written.
        cluster: A cluster file, to look at its ports, nodes and certificates from this machine.
    """
    from walktalk.doctor.machine import python, room, torch_and_device
    from walktalk.doctor.packages import packages

    yield from python()
    yield from packages()
    found = list(torch_and_device())
    yield from found
    yield from room(folder)
    if found[0].state == "good":  # data and peers need torch
        from walktalk.doctor.data_sets import data_sets
        from walktalk.doctor.network import cluster_file, loopback

        yield from data_sets()
        yield from loopback()
        if cluster is not None:
            yield from cluster_file(cluster)
