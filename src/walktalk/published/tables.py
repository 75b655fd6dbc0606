"""All of them."""

from __future__ import annotations

from walktalk.published.lost_messages import TABLE2
from walktalk.published.quasi_global import QG_TABLE
from walktalk.published.relay_sgd import TABLE1
from walktalk.published.sorted_mnist import TABLE5
from walktalk.published.table import Table, named

TABLES: dict[str, Table] = {one.name: one for one in (TABLE1, TABLE2, TABLE5, QG_TABLE)}


def find_table(name: str) -> Table:
    """The table of that name."""
    found: Table = named(name, TABLES, "published table")
    return found
