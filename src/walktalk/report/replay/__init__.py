"""A run to watch: the trace as data for the page's replay, and as a film."""

from walktalk.report.replay.data import replay_data

__all__ = ["replay_data"]
