"""Which data sets lie where tasks look for them."""

from __future__ import annotations

from collections.abc import Iterator

from walktalk.doctor.finding import Finding
from walktalk.errors import DataError
from walktalk.learning import data


def data_sets() -> Iterator[Finding]:
    """Each data set that is files: there and whole, not there, or damaged."""
    for name, dataset in data.DATASETS.items():
        folder = data.home() / dataset.folder
        if not any((folder / file).exists() for file in dataset.files):
            yield Finding(f"data {name}", "absent", f"not in {folder}", f"walktalk data get {name}")
            continue
        try:
            yield Finding(f"data {name}", "good", f"in {data.locate(dataset)}, complete and unchanged")
        except DataError as error:
            yield Finding(f"data {name}", "bad", str(error), f"walktalk data get {name}")
