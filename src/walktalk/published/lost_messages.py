"""RelaySGD (Vogels et al. 2021), the table on unreliable links: Table 1's task at α = 0.01, a share of messages lost.

What is lost is noticed by its receiver in the same round, which goes on without it (`protocols.rounds.resilient`). The
published numbers (one seed; outputs of table_5_unreliable_networks.ipynb in epfml/relaysgd) were not looked at before
ours were there; walks and pairwise gossip, which say a thing again when nothing comes back, are rows of our own.
Patience is so long that nobody is left out for being late.
"""

from __future__ import annotations

import math
from dataclasses import replace

from walktalk.published.relay_sgd import EXCHANGES, MOMENTUM, PEERS, RING, TABLE1, TREES
from walktalk.published.table import Cell, Row, merged

SHARES = {"lost0": 0.0, "lost1": 0.01, "lost10": 0.1}  # of the messages, by column
PATIENT = {"patience": 1e4}  # seconds; a training takes one


def three(*cells: Cell) -> dict[str, Cell]:
    return dict(zip(SHARES, cells, strict=True))


def diverging(lr: float, value: float) -> dict[str, Cell]:
    """Published as diverging wherever something is lost."""
    return three(Cell(lr, value), Cell(lr, math.nan), Cell(lr, math.nan))


QG = {"name": "qg_dsgdm", "beta": 0.9, "mu": 0.1, "nesterov": True, **PATIENT}
OURS = three(*[Cell(0.1)] * 3)
ROWS = (
    Row(
        "relay-m-trees",
        "RelaySGD with momentum, two binary trees",
        TREES,
        {"name": "relay_sgd", "trees": "two_binary", **PATIENT},
        three(Cell(0.3, 89.2), Cell(0.3, 89.3), Cell(0.3, 89.3)),
        MOMENTUM,
    ),
    Row("qg-ring", "quasi-global momentum, ring", RING, QG, diverging(0.05, 69.3)),
    Row(
        "qg-divide-ring",
        "quasi-global momentum, ring, weights divided by their sum",
        RING,
        {**QG, "missing": "divide"},
        {"lost1": Cell(0.05), "lost10": Cell(0.05)},
        is_ours=True,
    ),
    Row(
        "qg-first-code-ring",
        "quasi-global momentum, ring, weights of the authors' first code",
        RING,
        {**QG, "name": "walktalk.published.lost_weights:FirstCode", "missing": "divide"},
        {"lost1": Cell(0.05, math.nan), "lost10": Cell(0.05, math.nan)},
    ),
    Row(
        "d2-m-ring",
        "D² with momentum, ring",
        RING,
        {"name": "d2", "lazy": False, **PATIENT},
        diverging(0.025, 87.4),
        MOMENTUM,
    ),
    Row(
        "sgp-m-exponential",
        "SGP with momentum, one-peer exponential",
        PEERS,
        {"name": "sgp", "exchanges": EXCHANGES, **PATIENT},
        three(Cell(0.1, 88.5), Cell(0.1, 88.6), Cell(0.05, 88.1)),
        MOMENTUM,
    ),
    Row("gossip-ring", "pairwise gossip, ring", RING, {"name": "async_gossip"}, OURS, is_ours=True),
    Row("walks4-ring", "Multi-Walk, R = 4, ring", RING, {"name": "multi_walk", "walks": 4}, OURS, is_ours=True),
)

TABLE2 = replace(
    TABLE1,
    name="table2",
    title="Table 1's task at α = 0.01, messages lost: worst worker's test accuracy in %",
    source="RelaySGD (Vogels et al. 2021), unreliable links, from the outputs in epfml/relaysgd, one seed",
    columns={
        name: {"faults": [{"kind": "lose", "at": 0.0, "share": share}]} if share else {}
        for name, share in SHARES.items()
    },
    rows=ROWS,
    paper=merged(TABLE1.paper, {"task": {"alpha": 0.01}}),
)
