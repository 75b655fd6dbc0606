"""Chaos on this machine: what `walktalk chaos` does. A door of its own beside `studies`, because it needs Zenoh."""

from walktalk.studies.chaos.blows import Blow
from walktalk.studies.chaos.loss import Comparison
from walktalk.studies.chaos.records import ROUNDS, summary, write_rounds
from walktalk.studies.chaos.round import Storm, Verdict, chaos_round

__all__ = ["ROUNDS", "Blow", "Comparison", "Storm", "Verdict", "chaos_round", "summary", "write_rounds"]
