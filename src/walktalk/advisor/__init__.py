"""The advisor: what a task is like, and so which algorithm, with how many walks, where and how fast.

`estimate_constants` measures F, L, σ² and ζ² of a task. `advise_study` combines theory with short pilots in the
simulator and says which algorithm, with which settings, will cost how much, and why; `walktalk.advise` does so for
things in Python. `bound_check` holds the theorems against measurement.
"""

from walktalk.advisor.advice import Advice, advise_in, advise_on, advise_study
from walktalk.advisor.bound_check import Case, Outcome, check_bounds, standard_cases
from walktalk.advisor.candidates import Candidate
from walktalk.advisor.carry_out import command
from walktalk.advisor.constants import QUICK, Constants, Effort, Estimate, estimate_constants
from walktalk.advisor.explain import as_json, how_sure, reasons
from walktalk.advisor.goal import OBJECTIVES, Goal, Objective
from walktalk.advisor.ground import Ground, survey
from walktalk.advisor.measured import plain_sgd, quadratic_problem, squared_gradients
from walktalk.advisor.pilots import Pilots
from walktalk.advisor.prediction import Prediction
from walktalk.advisor.situation import InPython, Situation, of_foundation, of_study
from walktalk.advisor.staged_walk import StagedWalk
from walktalk.advisor.words import amount, begun, name_of
from walktalk.lazy import listing

__all__ = [
    "OBJECTIVES",
    "QUICK",
    "Advice",
    "Candidate",
    "Case",
    "Constants",
    "Effort",
    "Estimate",
    "Goal",
    "Ground",
    "InPython",
    "Objective",
    "Outcome",
    "Pilots",
    "Prediction",
    "Situation",
    "StagedWalk",
    "advise_in",
    "advise_on",
    "advise_study",
    "amount",
    "as_json",
    "begun",
    "check_bounds",
    "command",
    "estimate_constants",
    "how_sure",
    "name_of",
    "of_foundation",
    "of_study",
    "plain_sgd",
    "quadratic_problem",
    "reasons",
    "squared_gradients",
    "standard_cases",
    "survey",
]

__dir__ = listing(__all__)
