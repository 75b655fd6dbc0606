"""Callbacks, which see a run as it goes and may end it; some write what is measured to TensorBoard, MLflow or W&B."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from walktalk.core.errors import SpecError, UnavailableError
from walktalk.core.settings import misfit
from walktalk.records import HistoryRow, folder_name, yaml_text
from walktalk.studies import Progress, StudySpec
from walktalk.studies.spec import spec_mapping


class Callback:
    """Sees a run, or all runs of a comparison, as they go. A subclass overrides what it wants to see."""

    watches_only: ClassVar[bool] = False
    """True for one that never ends a run: then runs may also be done in other processes."""

    def on_start(self, settings: Mapping[str, Any]) -> None:
        """Before the first training.

        Args:
            settings: The whole study, with the keys of a specification.
        """

    def on_evaluation(self, row: Mapping[str, Any]) -> bool | None:
        """At every evaluation; True ends this run here, with the model that was measured.

        Args:
            row: What was measured: algorithm, repetition, iteration, time, bits, train_loss, test_accuracy and so on.
        """
        return None

    def on_sites(self, sites: Sequence[Mapping[str, Any]]) -> None:
        """At the end, where it was measured: how good each algorithm's model is at every site.

        Args:
            sites: A row for each algorithm and site: algorithm, node, samples, train_loss, and what else was measured;
                with `model` where it is the own model of a node or walk, not what the algorithm puts out.
        """

    def on_warning(self, words: str) -> None:
        """When something goes wrong, such as a loss that is not a number.

        Args:
            words: What, in one line.
        """

    def on_progress(self, progress: Progress) -> None:
        """Called now and then with how far things are.

        Args:
            progress: How far things are.
        """

    def on_end(self, result: Any) -> None:
        """After the last evaluation; also where somebody has stopped it before its time.

        Args:
            result: What `train` or `compare` gives back.
        """

    def close(self) -> None:
        """The very last, also after an error: let go what is open."""


class OnEvaluation(Callback):
    """A function of a row in place of a callback."""

    def __init__(self, function: Callable[[Mapping[str, Any]], bool | None]) -> None:
        self.function = function

    def on_evaluation(self, row: Mapping[str, Any]) -> bool | None:
        return self.function(row)


CallbackLike: TypeAlias = Callback | Callable[[Mapping[str, Any]], bool | None]


def row_mapping(row: HistoryRow) -> dict[str, Any]:
    """A row of a history by name, with all that was measured."""
    found = row._asdict()
    further = found.pop("further") or {}
    return {**found, **further}


class Audience:
    """All callbacks of a study: shows each event to every one, and knows whether one ends a run."""

    def __init__(self, given: CallbackLike | Sequence[CallbackLike]) -> None:
        listed = list(given) if isinstance(given, (list, tuple)) else [given]
        self.members = [_callback(one) for one in listed]

    @property
    def may_end(self) -> bool:
        """Whether any of them may end a run."""
        return any(not one.watches_only for one in self.members)

    def evaluated(self, row: HistoryRow) -> bool:
        """Show a row to all; whether one of them ends the run."""
        return self.show(row_mapping(row))

    def show(self, row: Mapping[str, Any]) -> bool:
        """Show what was measured, by name, to all; whether one of them ends the run."""
        answers = [one.on_evaluation(row) for one in self.members]  # all see it, whatever the first says
        return any(answer is True for answer in answers)

    def progressed(self, progress: Progress, rows: bool) -> None:
        """A report of a study; its rows are shown where nobody has shown them before."""
        for row in progress.rows if rows else ():
            if self.evaluated(row):
                raise UnavailableError(
                    "callbacks: one of them ends a run, which it can only in this process; leave out workers, and use "
                    "engine='sim'"
                )
        for one in self.members:
            for words in progress.words:
                one.on_warning(words)
            one.on_progress(progress)

    def ended(self, result: Any, measured: Any = None) -> None:
        """Call `on_end` of all callbacks with the result, after `on_sites` where something was measured at sites.

        Args:
            result: What `on_end` is given.
            measured: What has `sites` and `models`, tables of what was measured at sites; None: nothing was.
        """
        tables = [t for name in ("sites", "models") if (t := getattr(measured, name, None)) is not None]
        rows = [{str(k): v for k, v in row.items()} for table in tables for row in table.to_dict("records")]
        for one in self.members:
            if rows:
                one.on_sites(rows)
            one.on_end(result)

    @contextmanager
    def attending(self, spec: StudySpec) -> Iterator[None]:
        """Tell all callbacks of the start of a study, and close them at its end, however it ends."""
        try:
            for one in self.members:
                one.on_start(spec_mapping(spec))
            yield
        finally:
            for one in self.members:
                one.close()


def _callback(one: Any) -> Callback:
    if isinstance(one, type) and issubclass(one, Callback):
        raise SpecError(f"callbacks: {one.__name__} is a class; give an object, as in {one.__name__}()")
    if isinstance(one, Callback):
        return one
    if callable(one):
        return OnEvaluation(one)
    raise misfit("callbacks", one, "wt.Callback objects, or functions of a row", SpecError)


def warn(words: Sequence[str]) -> None:
    """Show these words as warnings, as soon as they are known."""
    for one in words:
        warnings.warn(one, stacklevel=2)


# Callbacks that write what is measured to TensorBoard, MLflow or Weights & Biases; each needs its own extra.

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


def by_run_and_site(sites: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, float]]]:
    """What was measured at each site, for the run that it is of: `site/lyon/train_loss` and the like.

    Of the own model of a node or walk: `site/lyon/walk 2/train_loss`.
    """
    for row in sites:
        measured = {key: value for key, value in row.items() if key not in ("algorithm", "node", "samples", "model")}
        of_model = f"{row['model']}/" if isinstance(row.get("model"), str) and row["model"] else ""
        numbers = {key: float(value) for key, value in measured.items() if not math.isnan(float(value))}
        run = run_name({"algorithm": row["algorithm"], "repetition": row.get("repetition", 0)})
        yield run, {f"site/{row['node']}/{of_model}{key}": value for key, value in numbers.items()}


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
        self.last: dict[str, int] = {}  # iteration, by run
        self.settings = ""

    def on_start(self, settings: Mapping[str, Any]) -> None:
        self.settings = yaml_text.dump(dict(settings))

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        name = run_name(row)
        if name not in self.writers:
            self.writers[name] = self.make(log_dir=str(self.folder / name))
            self.writers[name].add_text("settings", f"```yaml\n{self.settings}```", 0)
        self.last[name] = int(row["iteration"])
        for key, value in numbers_of(row).items():
            self.writers[name].add_scalar(key, value, self.last[name])

    def on_sites(self, sites: Sequence[Mapping[str, Any]]) -> None:
        for name, measured in by_run_and_site(sites):
            for key, value in measured.items() if name in self.writers else ():
                self.writers[name].add_scalar(key, value, self.last[name])

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
        self.last: dict[str, int] = {}  # iteration, by run
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
        self.last[name] = int(row["iteration"])
        for key, value in numbers_of(row).items():
            self.client.log_metric(self.runs[name], key, value, step=self.last[name])

    def on_sites(self, sites: Sequence[Mapping[str, Any]]) -> None:
        for name, measured in by_run_and_site(sites):
            for key, value in measured.items() if name in self.runs else ():
                self.client.log_metric(self.runs[name], key, value, step=self.last[name])

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

    def on_sites(self, sites: Sequence[Mapping[str, Any]]) -> None:
        for name, measured in by_run_and_site(sites):
            if name in self.runs:
                self.runs[name].log(measured)

    def close(self) -> None:
        for run in self.runs.values():
            run.finish()
        self.runs.clear()
