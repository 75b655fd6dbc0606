"""What the advisor learns of somebody else's loop from the way its trainings go, and that it can advise on one."""

from __future__ import annotations

import numpy as np
import pytest

import walktalk as wt
from walktalk.advisor import constants_of
from walktalk.core.errors import ModelError
from walktalk.learning import LoopTrainer

CENTRES = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 4.0]])  # mean (1, 2), each √5 away from it
NOISE = 0.5


def pull(state, data, lr, rng):
    """One step towards a node's own centre, with noise whose variance is known."""
    return state - lr * (2.0 * (state - data[0]) + NOISE * rng.normal(size=2))


def away(state, data) -> float:
    return float(((state - data[0]) ** 2).sum())


def task_of(step=pull, evaluate=away) -> wt.Task:
    return wt.tasks.loop(step, np.array([5.0, 5.0]), [(centre, [0]) for centre in CENTRES], evaluate=evaluate)


def trainer_of(task: wt.Task) -> LoopTrainer:
    assert isinstance(task, wt.tasks.LoopTask)
    return LoopTrainer(task, optimizer=wt.SGD(lr=0.1, momentum=0.0, nesterov=False))


def test_the_constants_of_a_quadratic_loop_are_known():
    found = constants_of(trainer_of(task_of()), seed=0)
    assert found.L.value == pytest.approx(2.0, rel=1e-3)
    assert found.sigma2.value == pytest.approx(2 * NOISE**2, rel=1.0)  # of three trainings each
    assert found.zeta2_mean.value == pytest.approx(4 * 5.0, rel=0.2)
    assert found.f0 == pytest.approx(np.mean([((5.0 - centre) ** 2).sum() for centre in CENTRES]), rel=1e-5)
    assert found.f_best == pytest.approx(5.0, rel=0.3)  # the mean of the squared distances to their mean
    exact = constants_of(trainer_of(task_of(lambda state, data, lr: state - lr * 2.0 * (state - data[0]))))
    assert exact.sigma2.value == 0.0
    assert exact.zeta2.value == pytest.approx(20.0, rel=1e-3)


def test_a_loss_that_is_none_is_told():
    with pytest.raises(ModelError, match="the loss of the initial state is nan"):
        constants_of(trainer_of(task_of(evaluate=lambda state, data: float("nan"))))


@pytest.mark.slow  # a race of pilots
def test_a_loop_is_advised_on():
    advice = wt.advise(task_of(), wt.graphs.complete(4), optimizer=wt.SGD(lr=0.05, momentum=0.0, nesterov=False))
    assert advice.reached
    assert advice.best.protocol in [one.candidate.protocol for one in advice.rivals]
