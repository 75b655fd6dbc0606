"""Optuna looks for a learning rate and a number of walks; a callback prunes runs that fall behind. Simulated."""

import warnings

import walktalk as wt

try:
    import optuna
except ImportError:
    raise SystemExit("this example needs Optuna: pip install optuna") from None

optuna.logging.set_verbosity(optuna.logging.WARNING)
warnings.filterwarnings("ignore", category=UserWarning)  # of rates that are too large, which a search has to try
task, graph = wt.tasks.digits(nodes=8, alpha=0.3, seed=0), wt.graphs.cycle(8)


class Pruning(wt.Callback):
    """Tells a trial what is measured, and ends the run when the trial is not worth going on with."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial, self.pruned = trial, False

    def on_evaluation(self, row) -> bool:
        self.trial.report(row["valid_loss"], int(row["iteration"]))
        self.pruned = self.trial.should_prune()
        return self.pruned


def objective(trial: optuna.Trial) -> float:
    """The lowest loss on what every node has held out: the test set is for the end."""
    rate = trial.suggest_float("lr", 1e-3, 1.0, log=True)
    walks = trial.suggest_int("walks", 1, 4)
    pruning = Pruning(trial)
    run = wt.train(
        task,
        wt.MultiWalk(walks=walks),
        graph,
        optimizer=wt.SGD(lr=rate),
        stop=300,
        evaluate=wt.Evaluate(every=50, validation=0.1),
        callbacks=pruning,
        progress=False,
        device="cpu",
    )
    if pruning.pruned:
        raise optuna.TrialPruned
    trial.set_user_attr("accuracy", float(run.history["test_accuracy"].iloc[-1]))
    return run.best.value


study = optuna.create_study(
    sampler=optuna.samplers.TPESampler(seed=0), pruner=optuna.pruners.MedianPruner(n_startup_trials=4)
)
study.optimize(objective, n_trials=12)
pruned = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.PRUNED]
print("trials:", len(study.trials), "of which some were pruned:", 0 < len(pruned) < len(study.trials))
print("its learning rate is above 0.01:", study.best_params["lr"] > 0.01)
print("and its accuracy above 80 %:", study.best_trial.user_attrs["accuracy"] > 0.8)
