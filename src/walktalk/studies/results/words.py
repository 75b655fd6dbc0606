"""What a person should know about a run's model, in words."""

from __future__ import annotations

from walktalk.studies.building import RunRecord

OLD_SHARE = 0.1  # of a run's iterations since the aggregator's copy was last brought up to date …
OLD_ROUNDS = 3  # … and as many visits of every node by one walk: then something is odd


def word_on_aggregate(record: RunRecord) -> str | None:
    """A word when the model that is handed out, the aggregator's copy, is old or was never trained."""
    updated = record.aggregated_at
    if updated is None or record.met_target or not record.history:
        return None
    last = record.history[-1]
    beside = f"the mean of the walks has a loss of {last.mean_train_loss:.4g}, this copy {last.train_loss:.4g}"
    advice = "run longer, with more walks, or measure the mean (evaluate.model: mean)"
    if updated == 0 and last.iteration:
        return f"{record.label}: no walk has come to the aggregator, so its copy was never trained; {beside}; {advice}"
    missed = last.iteration - updated
    if missed > OLD_SHARE * last.iteration and missed > OLD_ROUNDS * record.nodes:
        return (
            f"{record.label}: the aggregator's copy is old: no walk has come there in the last {missed} of "
            f"{last.iteration} iterations; {beside}; {advice}"
        )
    return None
