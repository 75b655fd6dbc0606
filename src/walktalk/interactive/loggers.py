"""Callbacks that write what is measured to TensorBoard, MLflow or Weights & Biases; each needs its own extra."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from walktalk.errors import UnavailableError
from walktalk.interactive.callbacks import Callback
from walktalk.records import folder_name, yaml_text

NOT_MEASURED = ("algorithm", "repetition", "iteration")


def needed(module: str, extra: str) -> Any:
    """A package that comes with an extra; one line that says how to get it, where it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0] if "tensorboard" not in module else "tensorboard"
        words = f"{package} is not installed here; get it with: pip install 'walktalk[{extra}]'"
        raise UnavailableError(words) from error


def numbers_of(row: Mapping[str, Any]) -> dict[str, float]:
    """What was measured, without what is not there."""
    found = {name: float(value) for name, value in row.items() if name not in NOT_MEASURED}
    return {name: value for name, value in found.items() if not math.isnan(value) or name == "train_loss"}


def flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Settings by dotted key."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found


def run_name(row: Mapping[str, Any]) -> str:
    """What a run is called: the same words as in a study's folder."""
    return f"{folder_name(str(row['algorithm']))}/{row['repetition']}"


class TensorBoard(Callback):
    """Writes every evaluation as scalars, by iteration, one run of TensorBoard for each run.

    Args:
        folder: Where; `tensorboard --logdir FOLDER` shows it.
    """

    watches_only: ClassVar[bool] = True

    def __init__(self, folder: str | PathLike[str] = "runs") -> None:
        self.folder = Path(folder)
        self.make = needed("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self.writers: dict[str, Any] = {}
        self.settings = ""

    def on_start(self, settings: Mapping[str, Any]) -> None:
        self.settings = yaml_text.dump(dict(settings))

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        name = run_name(row)
        if name not in self.writers:
            self.writers[name] = self.make(log_dir=str(self.folder / name))
            self.writers[name].add_text("settings", f"```yaml\n{self.settings}```", 0)
        for key, value in numbers_of(row).items():
            self.writers[name].add_scalar(key, value, int(row["iteration"]))

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
        self.writers.clear()


class MLflow(Callback):
    """Writes settings as parameters and every evaluation as metrics, by iteration, one run of MLflow for each run.

    Args:
        experiment: The experiment's name; the study's if left out.
        uri: Where MLflow keeps its records, such as `sqlite:///mlflow.db`; where it does by itself, if left out.
    """

    watches_only: ClassVar[bool] = True

    def __init__(self, experiment: str | None = None, uri: str | None = None) -> None:
        self.experiment = experiment
        mlflow = needed("mlflow", "mlflow")
        try:
            self.client = mlflow.MlflowClient(tracking_uri=uri)
        except mlflow.exceptions.MlflowException as error:
            raise UnavailableError(f"mlflow cannot write there: {' '.join(str(error).split())}") from error
        self.runs: dict[str, str] = {}
        self.settings: Mapping[str, Any] = {}

    def on_start(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        name = self.experiment or str(settings["name"])
        there = self.client.get_experiment_by_name(name)
        self.place = there.experiment_id if there is not None else self.client.create_experiment(name)

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        name = run_name(row)
        if name not in self.runs:
            tags = {"algorithm": str(row["algorithm"]), "repetition": str(row["repetition"])}
            self.runs[name] = self.client.create_run(self.place, run_name=name, tags=tags).info.run_id
            for key, value in flat(self.settings).items():
                self.client.log_param(self.runs[name], key, str(value)[:500])
        for key, value in numbers_of(row).items():
            self.client.log_metric(self.runs[name], key, value, step=int(row["iteration"]))

    def on_end(self, result: Any) -> None:
        for run in self.runs.values():
            self.client.set_terminated(run, "FINISHED")
        self.runs.clear()

    def close(self) -> None:
        for run in self.runs.values():  # it did not come to its end
            self.client.set_terminated(run, "FAILED")
        self.runs.clear()


class WandB(Callback):
    """Writes every evaluation to Weights & Biases, by iteration, one run there for each run, in one group.

    Args:
        project: The project's name.
        folder: Where its files go; `wandb` below the current folder if left out.
        mode: `online`, or `offline` to send it later; as the environment says if left out.
    """

    watches_only: ClassVar[bool] = True

    def __init__(
        self, project: str = "walktalk", folder: str | PathLike[str] | None = None, mode: str | None = None
    ) -> None:
        self.project, self.folder, self.mode = project, folder, mode
        self.wandb = needed("wandb", "wandb")
        self.runs: dict[str, Any] = {}
        self.settings: Mapping[str, Any] = {}

    def on_start(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        name = run_name(row)
        if name not in self.runs:
            self.runs[name] = self.wandb.init(
                project=self.project,
                name=name,
                group=str(self.settings["name"]),
                config=dict(self.settings),
                dir=None if self.folder is None else str(self.folder),
                mode=self.mode,
                reinit="create_new",
            )
        self.runs[name].log(numbers_of(row), step=int(row["iteration"]))

    def close(self) -> None:
        for run in self.runs.values():
            run.finish()
        self.runs.clear()
