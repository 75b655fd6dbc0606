"""The ends of the GPU runs, as tables for bars and for the threshold of R."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from walktalk.core.errors import StudyError

VARIANTS = {
    "visit": "state fresh\nat each visit",
    "node": "state at\nthe nodes",
    "walk": "state with\nthe walk",
    "own": "own rate,\nstate fresh",
}
NETWORKS = {"cycle": "cycle", "erdos_renyi": "Erdős–Rényi (0.3)", "complete": "complete graph"}


def bars_of(table: pd.DataFrame) -> pd.DataFrame:
    """The end of every run of `fairness.csv`; `repeated` where a bar shows another variant's runs once more.

    At its own rate an algorithm is what was tuned, or, where the paper's rate was best, as it is. Gossip's state `with
    the walk` is at the nodes.
    """
    keys = ["alpha", "topology", "variant", "algorithm", "repetition"]
    ends = table.sort_values("iteration").groupby(keys, sort=False).tail(1).assign(repeated=False)  # a NaN stays one
    tuned = ends[ends["variant"] == "tuned"].assign(variant="own")
    known = tuned[["alpha", "topology", "algorithm"]].drop_duplicates()
    visit = ends[ends["variant"] == "visit"].merge(known, how="left", indicator=True)
    paper = visit[visit["_merge"] == "left_only"].drop(columns="_merge").assign(variant="own", repeated=True)
    gossip = ends[(ends["variant"] == "node") & ends["algorithm"].str.contains("gossip")]
    every = pd.concat([ends[ends["variant"] != "tuned"], tuned, paper, gossip.assign(variant="walk", repeated=True)])
    return every.sort_values(["alpha", "topology"], ascending=[False, True], kind="stable")


def threshold_ends(histories: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The end of every run; an algorithm that is in several histories is taken from the first."""
    taken: list[pd.DataFrame] = []
    for history in histories:
        seen = {label for part in taken for label in part["algorithm"]}
        last = history.sort_values("iteration").groupby(["algorithm", "repetition"], sort=False).tail(1)
        taken.append(last[~last["algorithm"].isin(seen)])
    ends = pd.concat(taken, ignore_index=True)
    if ends["iteration"].nunique() > 1:
        found = ", ".join(f"{count:,}" for count in sorted(ends["iteration"].unique()))
        raise StudyError(f"runs of different lengths cannot be compared at their ends: {found} iterations")
    return ends
