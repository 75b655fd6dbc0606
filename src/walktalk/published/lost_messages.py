"""RelaySGD (Vogels et al. 2021), the table on unreliable links: Table 1's task at α = 0.01, a share of messages lost.

What is lost is noticed by its receiver in the same round, which goes on without it (`protocols.rounds.resilient`). The
published numbers were not looked at before ours were there; walks and pairwise gossip, which say a thing again when
nothing comes back, are rows of our own. Patience is so long that nobody is left out for being late.
"""

from __future__ import annotations

from dataclasses import replace

from walktalk.published.relay_sgd import EXCHANGES, MOMENTUM, PEERS, RING, TABLE1, TREES
from walktalk.published.table import Cell, Row, merged

SHARES = {"lost0": 0.0, "lost1": 0.01, "lost10": 0.1}  # of the messages, by column
PATIENT = {"patience": 1e4}  # seconds; a training takes one


def rates(*lr: float) -> dict[str, Cell]:
    return dict(zip(SHARES, (Cell(one) for one in (lr * 3)[:3]), strict=True))


ROWS = (
    Row(
        "relay-m-trees",
        "RelaySGD with momentum, two binary trees",
        TREES,
        {"name": "relay_sgd", "trees": "two_binary", **PATIENT},
        rates(0.3),
        MOMENTUM,
    ),
    Row(
        "qg-ring",
        "quasi-global momentum, ring",
        RING,
        {"name": "qg_dsgdm", "beta": 0.9, "mu": 0.1, "nesterov": True, **PATIENT},
        rates(0.05),
    ),
    Row("d2-m-ring", "D² with momentum, ring", RING, {"name": "d2", "lazy": False, **PATIENT}, rates(0.025), MOMENTUM),
    Row(
        "sgp-m-exponential",
        "SGP with momentum, one-peer exponential",
        PEERS,
        {"name": "sgp", "exchanges": EXCHANGES, **PATIENT},
        rates(0.1, 0.1, 0.05),
        MOMENTUM,
    ),
    Row("gossip-ring", "pairwise gossip, ring", RING, {"name": "async_gossip"}, rates(0.1), is_ours=True),
    Row("walks4-ring", "Multi-Walk, R = 4, ring", RING, {"name": "multi_walk", "walks": 4}, rates(0.1), is_ours=True),
)

TABLE2 = replace(
    TABLE1,
    name="table2",
    title="Table 1's task at α = 0.01, messages lost: worst worker's test accuracy in %",
    source="RelaySGD (Vogels et al. 2021), unreliable links: settings alone, its numbers are not at hand",
    columns={
        name: {"faults": [{"kind": "lose", "at": 0.0, "share": share}]} if share else {}
        for name, share in SHARES.items()
    },
    rows=ROWS,
    paper=merged(TABLE1.paper, {"task": {"alpha": 0.01}}),
)
