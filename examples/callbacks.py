"""Callbacks: watch a run as it goes, end it when a budget is spent, keep its model and go on from there."""

import walktalk as wt


class EventLog(wt.Callback):
    """Keeps what it is shown; wt.TensorBoard("runs"), wt.MLflow() and wt.WandB() write it to other tools."""

    def __init__(self) -> None:
        self.rows: list[dict] = []

    def on_evaluation(self, row) -> None:
        self.rows.append(dict(row))

    def on_end(self, run) -> None:
        print("evaluations seen:", len(self.rows))


def budget(row) -> bool:
    """True ends the run, with the model that was just measured: here after twenty million bits."""
    return row["bits"] > 20e6


task, graph = wt.tasks.digits(nodes=8, alpha=1.0, seed=0), wt.graphs.cycle(8)
event_log = EventLog()
options = {"optimizer": "adam", "clip_norm": 1.0, "schedule": "cosine", "device": "cpu"}
run = wt.train(task, wt.MultiWalk(walks=2), graph, stop=2000, evaluate=50, callbacks=[event_log, budget], **options)
print("ended at iteration", run.history["iteration"].iloc[-1], "of 2000")

folder = run.save("out/first")  # model.safetensors, for any load_state_dict; history, trace, figures, page
on = wt.train(task, wt.AsyncGossip(), graph, init=folder, stop=100, evaluate=50, device="cpu")
print("goes on from the loss of", round(float(on.history["train_loss"].iloc[0]), 2))
