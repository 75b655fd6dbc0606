"""What effects mean, whoever carries them out: slots, combinations, statistics, records, optimizer states, traces."""

from walktalk.runtimes.meaning.contents import Contents, Encoded, Work, is_mean
from walktalk.runtimes.meaning.interpreter import FLOAT_BYTES, NOTHING, Interpreter, Packed, Scale, made
from walktalk.runtimes.meaning.player import Player, Watcher, parsed, screening
from walktalk.runtimes.meaning.run_rules import Evaluate, EvaluatedModel, OptimizerState, Stop

__all__ = [
    "FLOAT_BYTES",
    "NOTHING",
    "Contents",
    "Encoded",
    "Evaluate",
    "EvaluatedModel",
    "Interpreter",
    "OptimizerState",
    "Packed",
    "Player",
    "Scale",
    "Stop",
    "Watcher",
    "Work",
    "is_mean",
    "made",
    "parsed",
    "screening",
]
