"""What a person should know about a run's model, in words."""

from __future__ import annotations

from typing import NamedTuple

from walktalk.studies.building import RunRecord

OLD_SHARE = 0.1  # of a run's iterations since the aggregator's copy was last brought up to date …
OLD_ROUNDS = 3  # … and as many visits of every node by one walk: then something is odd


def word_on_aggregate(record: RunRecord) -> str | None:
    """A word when the model that is handed out, the aggregator's or server's, is old or was never trained."""
    updated = record.aggregated_at
    if updated is None or record.met_target or not record.history:
        return None
    last = record.history[-1]
    what = SERVER if record.family == "server" else AGGREGATOR
    losses = f"a loss of {last.mean_train_loss:.4g}, this one {last.train_loss:.4g}"
    better = "" if last.mean_train_loss >= last.train_loss else ", or measure the mean (evaluate.model: mean)"
    beside = f"the mean of {what.members} has {losses}; {what.advice}{better}"
    if updated == 0 and last.iteration:
        return f"{record.label}: {what.never}; {beside}"
    missed = last.iteration - updated
    if missed > OLD_SHARE * last.iteration and missed > OLD_ROUNDS * record.nodes:
        return f"{record.label}: {what.old} in the last {missed} of {last.iteration} iterations; {beside}"
    return None


class Words(NamedTuple):
    """How one speaks of the model that is handed out."""

    never: str  # it was not trained at all
    old: str  # it was not for long
    members: str  # what others there are
    advice: str


AGGREGATOR = Words(
    "no walk has come to the aggregator, so its copy was never trained",
    "the aggregator's copy is old: no walk has come there",
    "the walks",
    "run longer, with more walks",
)
SERVER = Words(
    "the server has taken in nothing yet, so its model was never trained",
    "the server's model is old: it has taken in nothing",
    "the nodes' models",
    "run longer",
)
