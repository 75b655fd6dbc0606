"""scikit-learn's own training as a task: five hospitals train one SGDClassifier, and keep their data to themselves."""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

import walktalk as wt

inputs, ill = load_breast_cancer(return_X_y=True)
inputs = StandardScaler().fit_transform(inputs)
order = np.random.default_rng(0).permutation(len(ill))
test = inputs[order[:120]], ill[order[:120]]
names = ["lyon", "nice", "oslo", "paris", "rome"]
by_size = np.split(order[120:], [40, 90, 160, 260])  # from 40 patients to 189
hospitals = {name: (inputs[some], ill[some]) for name, some in zip(names, by_size, strict=True)}


def classifier(state: dict[str, np.ndarray], seed: int = 0) -> SGDClassifier:
    """A classifier with the weights that came."""
    model = SGDClassifier("log_loss", alpha=1e-3, random_state=seed)
    model.classes_, model.coef_, model.intercept_, model.t_ = np.array([0, 1]), state["w"], state["b"], state["t"]
    return model


def step(state: dict[str, np.ndarray], data: tuple[np.ndarray, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """One pass over a hospital's patients, as scikit-learn makes it."""
    model = classifier(state, seed).partial_fit(*data)
    return {"w": model.coef_, "b": model.intercept_, "t": model.t_}


def evaluate(state: dict[str, np.ndarray], data: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """What is measured of a state on some patients."""
    model, (inputs, ill) = classifier(state), data
    return {"loss": log_loss(ill, model.predict_proba(inputs), labels=[0, 1]), "accuracy": model.score(inputs, ill)}


start = {"w": np.zeros((1, inputs.shape[1])), "b": np.zeros(1), "t": 1.0}
task = wt.tasks.loop(step, start, hospitals, evaluate=evaluate, test=test, name="breast cancer")
compared = wt.compare(task, [wt.MultiWalk(walks=[1, 3]), wt.AsyncGossip(), "fedavg"], wt.graphs.complete(5), stop=60)
last = compared.history.groupby("algorithm", sort=False)[["train_loss", "test_accuracy"]].last()
print(last.round(2).to_string())

model = classifier(compared.runs[0].model.state)  # scikit-learn's, with what was learned
print("predicts", model.predict(test[0][:5]), "where", test[1][:5], "is true")
