"""Chaos on this machine: what `walktalk chaos` does. A door of its own beside `studies`, because it needs Zenoh."""

from walktalk.studies.chaos.blows import KINDS, USUAL, Blow, blows_of
from walktalk.studies.chaos.loss import Comparison
from walktalk.studies.chaos.records import ROUNDS, summary, write_rounds
from walktalk.studies.chaos.round import chaos_round
from walktalk.studies.chaos.series import FAILED, known_rounds, run_rounds
from walktalk.studies.chaos.storm import Storm
from walktalk.studies.chaos.verdict import Half, Verdict

__all__ = [
    "FAILED",
    "KINDS",
    "ROUNDS",
    "USUAL",
    "Blow",
    "Comparison",
    "Half",
    "Storm",
    "Verdict",
    "blows_of",
    "chaos_round",
    "known_rounds",
    "run_rounds",
    "summary",
    "write_rounds",
]
