"""Boosted trees that a walk grows: every hospital adds trees to those of the others. XGBoost trains; simulated."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss

import walktalk as wt

try:
    import xgboost
except ImportError:
    raise SystemExit("this example needs XGBoost: pip install xgboost") from None

SETTINGS = {"objective": "binary:logistic", "max_depth": 2, "eta": 0.3, "nthread": 1, "base_score": 0.5}
inputs, ill = load_breast_cancer(return_X_y=True)
order = np.random.default_rng(0).permutation(len(ill))
test = inputs[order[:120]], ill[order[:120]]
hospitals = [(inputs[order[120 + k :: 4]], ill[order[120 + k :: 4]]) for k in range(4)]


def booster(trees: bytes) -> xgboost.Booster | None:
    """The trees so far; None before the first."""
    return xgboost.Booster(SETTINGS, model_file=bytearray(trees)) if trees else None


def step(state: dict[str, bytes], data: tuple[np.ndarray, np.ndarray], steps: int, seed: int) -> dict[str, bytes]:
    """Adds as many trees as the study has local steps."""
    given = xgboost.DMatrix(*data)
    grown = xgboost.train({**SETTINGS, "seed": seed}, given, steps, xgb_model=booster(state["trees"]))
    return {"trees": bytes(grown.save_raw("ubj"))}


def evaluate(state: dict[str, bytes], data: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """What is measured of the trees on some patients."""
    inputs, ill = data
    model = booster(state["trees"])
    likely = np.full(len(ill), 0.5) if model is None else model.predict(xgboost.DMatrix(inputs))
    return {"loss": log_loss(ill, likely, labels=[0, 1]), "accuracy": float(((likely > 0.5) == ill).mean())}


task = wt.tasks.loop(step, {"trees": b""}, hospitals, evaluate=evaluate, test=test, room=100_000, name="trees")
graph = wt.graphs.complete(4)
run = wt.train(task, wt.MultiWalk(walks=1), graph, stop=20, evaluate=10, local_steps=2, objective="sites")
print(run.history[["iteration", "train_loss", "test_accuracy"]].round(2).to_string(index=False))
print("trees:", booster(run.model.state["trees"]).num_boosted_rounds())

try:  # trees of several models have no mean
    wt.train(task, wt.AsyncGossip(), graph, objective="sites")
except wt.UserError as error:
    print(error)
