"""RelaySGD (Vogels et al. 2021), the table on unreliable links: Table 1's task at α = 0.01, a share of messages lost.

What is lost is noticed by its receiver in the same round, which goes on without it (`protocols.mechanisms.rounds`). The
published numbers (one seed; outputs of table_5_unreliable_networks.ipynb in epfml/relaysgd) were not looked at before
ours were there; walks and pairwise gossip, which say a thing again when nothing comes back, are rows of our own.
Patience is so long that nobody is left out for being late.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from walktalk.protocols import QGDSGDm
from walktalk.reproduction.published.relay_sgd import TABLE1
from walktalk.reproduction.published.table import Cell, Row, merged

SHARES = {"lost0": 0.0, "lost1": 0.01, "lost10": 0.1}  # of the messages, by column
PATIENT = {"patience": 1e4}  # seconds; a training takes one


def lossy(name: str, /, *cells: Cell, **more: Any) -> Row:
    """A line of Table 1 with messages lost; with fewer cells than columns, those where any are."""
    row = TABLE1.row(name)
    by_column = dict(zip(list(SHARES)[-len(cells) :], cells, strict=True))
    return replace(row, algorithm={**row.algorithm, **more}, cells=by_column)


def diverging(lr: float, value: float) -> tuple[Cell, Cell, Cell]:
    """Published as diverging wherever something is lost."""
    return Cell(lr, value), Cell(lr, math.nan), Cell(lr, math.nan)


QG = "quasi-global momentum, ring"
DIVIDED = lossy("qg-ring", Cell(0.05), Cell(0.05), **PATIENT, missing="divide")
FIRST = lossy("qg-ring", *diverging(0.05, 69.3)[1:], **PATIENT, missing="divide", name=f"{__name__}:FirstCode")
ROWS = (
    lossy("relay-m-trees", Cell(0.3, 89.2), Cell(0.3, 89.3), Cell(0.3, 89.3), **PATIENT),
    lossy("qg-ring", *diverging(0.05, 69.3), **PATIENT),
    replace(DIVIDED, name="qg-divide-ring", title=f"{QG}, weights divided by their sum", is_ours=True),
    replace(FIRST, name="qg-first-code-ring", title=f"{QG}, weights of the authors' first code"),
    lossy("d2-m-ring", *diverging(0.025, 87.4), **PATIENT),
    lossy("sgp-m-exponential", Cell(0.1, 88.5), Cell(0.1, 88.6), Cell(0.05, 88.1), **PATIENT),
    *(lossy(name, *[Cell(0.1)] * len(SHARES)) for name in ("gossip-ring", "walks4-ring")),
)

TABLE2 = replace(
    TABLE1,
    name="table2",
    title="Table 1's task at α = 0.01, messages lost: worst worker's test accuracy in %",
    source="RelaySGD (Vogels et al. 2021), unreliable links, from the outputs in epfml/relaysgd, one seed",
    columns={
        k: {"faults": [{"kind": "lose", "at": 0.0, "share": share}]} if share else {} for k, share in SHARES.items()
    },
    rows=ROWS,
    paper=merged(TABLE1.paper, {"task": {"alpha": 0.01}}),
)


# What the code of RelaySGD's authors does with lost messages on a ring in the commit that has the table on them.
#
# `GossipMechanism.gossip_update` of epfml/relaysgd in its first commit (e0d9bb2): where something is lost, weights are
# to be divided by the sum of those that came, but that sum begins with 1 − w_ii, where w_ii is meant, and is divided by
# only if it is less than one. On a ring it is 4/3, 1 and 2/3 with none, one and both messages lost: a node that misses
# one is left with two thirds of a model, and one that misses both with half of its own. A later commit (0e7551a) begins
# with w_ii: that is `missing: divide`. D-PSGD, D² and quasi-global momentum go through that function, RelaySGD and SGP
# do not.


@dataclass(frozen=True)
class FirstCode(QGDSGDm):
    """Quasi-global momentum with the weights of that code; `missing` has to be `divide`."""

    def divisor(self, own: float, came: float) -> float:
        return min(1.0, 1.0 - own + came)
