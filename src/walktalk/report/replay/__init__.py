"""A run to watch: the trace as data for the page's replay, and as a film."""

from walktalk.report.replay.data import replay_data, runs_data
from walktalk.report.replay.film import write_film

__all__ = ["replay_data", "runs_data", "write_film"]
