"""Site by site: how good the model of each algorithm is on the data of every site.

A mean over all data hides the site for which a model is no good. In a simulation the models are those that the first
repetition puts out, and with `evaluate.members` the own model of every node or walk, too; of a cluster every node
measures, on its own data, the models that come to it. Rows of a model that is not the algorithm's say which it is.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from walktalk.core.errors import UserError
from walktalk.core.lazy import later
from walktalk.records import write_text

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from walktalk.learning import Trainer
    from walktalk.studies.planning import RunRecord
else:
    pd, torch = later("pandas"), later("torch")  # who only reads the table does without the second

MOST = 200  # nodes; nobody reads a table of more, and measuring each by itself takes as long as a study of many
MOST_MODELS = 30  # nodes, above which own models are not measured at every site: as many times as there are sites
FIRST = (
    "algorithm",
    "model",
    "node",
    "samples",
    "train_loss",
)  # columns, as in a history; what else was measured comes behind

Site = Mapping[str, Any]  # one row: an algorithm's model at one site


def measured_by_site(trainer: Trainer | None, records: Iterable[RunRecord]) -> list[Site]:
    """A row for each algorithm and site, of the first repetition that ended with a model; nothing of very many sites.

    Args:
        trainer: What measures; None: nobody has the data here.
        records: What the runs left.
    """
    if trainer is None or not 1 < trainer.task.nodes <= MOST:
        return []
    rows: list[Site] = []
    for record in records:
        if record.output is None or any(row["algorithm"] == record.label for row in rows):
            continue
        try:
            found = trainer.by_node(record.output)
        except UserError:  # a metric of one's own that a single site's samples are too few for
            return []
        rows += [{"algorithm": record.label, **row} for row in found]
        rows += [{"algorithm": record.label, **row} for row in of_members(trainer, record)]
    return rows


def of_members(trainer: Trainer, record: RunRecord) -> Iterator[Site]:
    """The own model of every node or walk on every site's data; none of a study that does not ask for it.

    Models with private parts are of no use elsewhere.
    """
    if not record.members or trainer.private is not None:
        return
    keys, names = sorted(record.members), dict(enumerate(trainer.task.names or ()))
    walks = record.family == "walks"
    models = [f"walk {key}" if walks else names.get(key, f"node {key}") for key in keys]
    measured = trainer.every_model_by_node(torch.stack([record.members[key] for key in keys]))
    for row in measured:
        for place, model in enumerate(models):
            yield {key: value[place] if isinstance(value, list) else value for key, value in row.items()} | {
                "model": model
            }


class SiteRows(NamedTuple):
    """How good models are on every site's data."""

    sites: list[Site]  # what algorithms put out
    models: list[Site]  # own models of nodes or walks: which, says `model`

    @classmethod
    def of(cls, rows: Iterable[Site]) -> SiteRows:
        """Both kinds from rows of either."""
        found = cls([], [])
        for row in rows:
            (found.models if "model" in row else found.sites).append(row)
        return found


def write_sites(path: Path, rows: Sequence[Site]) -> None:
    """Write the table; without rows there is none."""
    if not rows:
        path.unlink(missing_ok=True)
        return
    first = [name for name in FIRST if name in rows[0]]
    columns = [*first, *dict.fromkeys(name for row in rows for name in row if name not in first)]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _number(value) for name, value in row.items()} for row in rows)
    write_text(path, text.getvalue())


def _number(value: Any) -> Any:
    """As short as the numbers of a history; nothing where there is none."""
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else f"{value:.6g}"


def sites_frame(rows: Sequence[Site]) -> pd.DataFrame:
    """The rows as a table, with the columns that they have."""
    return pd.DataFrame(list(rows))


def read_sites(path: Path) -> pd.DataFrame | None:
    """The table of sites, or of models, that a study left; None where it left none."""
    return pd.read_csv(path, dtype={"node": str, "model": str}) if path.is_file() else None
