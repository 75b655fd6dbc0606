"""The suite `tiny-sites`: who learns best where sites are many and have few samples each.

A *setting* is a task, a number of sites, of samples a site, and whether sites are alike or unlike. In each all
*contenders* run at their best constant learning rates: the best by validation data over two seeds that are not counted.
Then ten others are. Every seed has sites, test and validation samples of its own.

All make the same number of trainings, `LAPS` a site. A run is measured as it goes, so it also says how good it was when
it had sent as many bytes, or had taken as many hours, as all others are given:

    bytes   one model for each of these trainings: what a tour has sent in the end, and those with a server half-way
    hours   what it takes the largest number of walks, side by side; who is through earlier stays as it is

Plain SGD (token SAGA and SCAFFOLD need it), four steps of up to eight samples a training, on a complete graph; a
training takes 1 s, a message 0.2 s, whoever else sends. What is measured is the mean of all models that there are.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import nn

from walktalk import graphs
from walktalk.api import Training, compare
from walktalk.core.errors import SpecError, suggestion
from walktalk.core.seeds import Seed
from walktalk.learning import Task, tasks
from walktalk.protocols import HEADER_BYTES
from walktalk.records import write_text
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import NetworkTiming
from walktalk.studies import SGD

LAPS = 20  # trainings a site
STEPS, BATCH = 4, 8
COMPUTE, HOP = 1.0, 0.2  # seconds of a training, and of a message
ALPHA = 0.1  # of Dirichlet's law for the classes of unlike sites
EVALUATIONS = 40
RATES = {"travels": (0.01, 0.03, 0.1, 0.3), "averages": (0.1, 0.3, 1.0, 3.0)}  # by what an algorithm does
TRIED, COUNTED = (100, 101), tuple(range(10))
TEST, VALID, TRAIN = 260, 250, 1287  # samples; digits has no more
MOST_WALKS = 16
NOTES = 128  # bytes that a walk may bring beside its model
WORST = 1e3  # an error is counted as no more than that

Samples = tuple[npt.NDArray[np.float32], npt.NDArray[Any]]

# -- the tasks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """One kind of data: how samples are drawn or made, and the model that is fitted.

    Args:
        draw: samples of one seed, shuffled, test and validation samples first.
        model: a new one.
        classes: how many; 0: a number is to be told.
        test: test samples.
        valid: validation samples.
    """

    draw: Callable[[np.random.Generator], Samples]
    model: Callable[[], nn.Module]
    classes: int
    test: int = TEST
    valid: int = VALID

    @property
    def measure(self) -> str:
        """The column of a history that says how good a model is."""
        return "test_accuracy" if self.classes else "error"

    @property
    def loss(self) -> Callable[..., Any]:
        return nn.functional.cross_entropy if self.classes else nn.functional.mse_loss


def digits(rng: np.random.Generator) -> Samples:
    """scikit-learn's pictures of digits, 8 × 8."""
    from sklearn.datasets import load_digits

    inputs, targets = load_digits(return_X_y=True)
    order = rng.permutation(len(targets))
    return (inputs[order] / 16).astype(np.float32), targets[order].astype(np.int64)


def table(rng: np.random.Generator) -> Samples:
    """A generated table: 20 columns, of which ten say which of four classes a row is of (`make_classification`)."""
    from sklearn.datasets import make_classification

    inputs, targets = make_classification(
        TEST + VALID + TRAIN, 20, n_informative=10, n_redundant=5, n_classes=4, n_clusters_per_class=2, class_sep=1.5,
        random_state=int(rng.integers(2**31)),
    )  # fmt: skip
    inputs = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    return inputs.astype(np.float32), targets.astype(np.int64)


def text(rng: np.random.Generator) -> Samples:
    """Generated texts of 40 words out of 400, by Zipf's law; 60 words are thrice as likely in each of eight topics."""
    count, words, topics = TEST + VALID + TRAIN, 400, 8
    usual = 1.0 / np.arange(1, words + 1)
    liked = [rng.choice(words, 60, replace=False) for _ in range(topics)]
    chances = np.stack([np.where(np.isin(np.arange(words), some), 3 * usual, usual) for some in liked])
    chances /= chances.sum(axis=1, keepdims=True)
    targets = rng.integers(topics, size=count)
    counts = np.stack([rng.multinomial(40, chances[topic]) for topic in targets])
    rare = np.log(count / (1 + (counts > 0).sum(axis=0)))
    inputs = counts * rare
    inputs *= 4.0 / np.linalg.norm(inputs, axis=1, keepdims=True)  # as long as the rows of the other tasks
    return inputs.astype(np.float32), targets.astype(np.int64)


def network(inputs: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def diabetes(rng: np.random.Generator) -> Samples:
    """scikit-learn's 442 patients: how far their disease is after a year, in its deviations from the mean."""
    from sklearn.datasets import load_diabetes

    inputs, targets = load_diabetes(return_X_y=True)
    order = rng.permutation(len(targets))
    inputs, targets = inputs[order] / inputs.std(axis=0), (targets[order] - targets.mean()) / targets.std()
    return inputs.astype(np.float32), targets[:, None].astype(np.float32)


def friedman(rng: np.random.Generator) -> Samples:
    """A generated number, not linear in five of ten columns (`make_friedman1`), in deviations from its mean."""
    from sklearn.datasets import make_friedman1

    inputs, targets = make_friedman1(TEST + VALID + TRAIN, 10, noise=1.0, random_state=int(rng.integers(2**31)))
    inputs, targets = (inputs - 0.5) * math.sqrt(12.0), (targets - targets.mean()) / targets.std()
    return inputs.astype(np.float32), targets[:, None].astype(np.float32)


DATA = {
    "digits": Data(digits, partial(network, 64, 32, 10), 10),
    "table": Data(table, partial(network, 20, 32, 4), 4),
    "text": Data(text, partial(nn.Linear, 400, 8), 8),
    "diabetes": Data(diabetes, partial(network, 10, 16, 1), 0, 100, 86),
    "friedman": Data(friedman, partial(network, 10, 32, 1), 0),
}

# -- settings and contenders ------------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """Where all contenders meet."""

    task: str
    sites: int
    samples: int
    unlike: bool

    @property
    def name(self) -> str:
        return f"{self.task}-{self.samples}x{self.sites}-{'unlike' if self.unlike else 'alike'}"

    @property
    def trainings(self) -> int:
        return LAPS * self.sites


SIZES = ((1, 64), (1, 128), (5, 16), (5, 64), (5, 128), (20, 16), (20, 64))  # samples, sites
FEWER = ((1, 64), (2, 32), (5, 13))  # the same samples, or nearly, at ever fewer sites
SETTINGS = {
    one.name: one
    for one in (
        *(
            Setting(task, sites, samples, unlike)
            for task in ("digits", "table", "text")
            for samples, sites in SIZES
            for unlike in (False, True)
            if not (unlike and samples == 1)  # one sample is as unlike as can be
        ),
        *(Setting(task, sites, samples, False) for task in ("diabetes", "friedman") for samples, sites in FEWER),
    )
}


class Contender(NamedTuple):
    """An algorithm with its settings, of a family."""

    name: str
    family: str
    entry: dict[str, Any]

    def rates(self, setting: Setting) -> list[float]:
        """Those that are tried: models that are averaged bear larger ones, squared errors smaller ones."""
        ladder = RATES["averages" if self.family in ("server", "gossip") else "travels"]
        return [rate if DATA[setting.task].classes else round(rate / 10, 6) for rate in ladder]


CONTENDERS = (
    *(Contender(f"walk-{walks}", "walks", {"name": "multi_walk", "walks": walks}) for walks in (1, 4, MOST_WALKS)),
    *(Contender(f"tour-{walks}", "tours", {"name": "tour", "walks": walks}) for walks in (1, 4, MOST_WALKS)),
    Contender("tram-fl", "tours", {"name": "tram_fl"}),
    Contender("token-saga", "walks", {"name": "token_saga", "local": True}),
    Contender("gossip", "gossip", {"name": "async_gossip"}),
    Contender("fedavg", "server", {"name": "fedavg"}),
    Contender("fedprox", "server", {"name": "fedprox"}),
    Contender("scaffold", "server", {"name": "scaffold"}),
    Contender("pooled", "reference", {"name": "centralized"}),
)


def dealt(setting: Setting, seed: int, validate: bool) -> tuple[list[Samples], Samples]:
    """What each site has, dealt out anew; and samples to measure on, validation or test."""
    data, rng = DATA[setting.task], Seed(seed).child("tiny-sites", setting.name).numpy()
    inputs, targets = data.draw(rng)
    first = data.test + data.valid
    held, left = (slice(data.test, first) if validate else slice(data.test)), np.arange(first, len(targets))
    sites = []
    for _ in range(setting.sites):
        chances = None
        if setting.unlike:
            liked = rng.dirichlet(np.full(data.classes, ALPHA))[targets[left]] + 1e-9
            chances = liked / liked.sum()
        taken = rng.choice(left, setting.samples, replace=False, p=chances)
        left = np.setdiff1d(left, taken)
        sites.append((inputs[taken], targets[taken]))
    return sites, (inputs[held], targets[held])


def task_of(setting: Setting, sites: list[Samples], held: Samples, seed: int) -> Task:
    """The task of what was dealt out."""
    data = DATA[setting.task]
    torch.manual_seed(seed)
    return tasks.torch(data.model(), data.loss, sites, test=held, metrics={} if data.classes else {"error": data.loss})


def entry_of(contender: Contender, setting: Setting, sites: list[Samples]) -> dict[str, Any]:
    """An algorithm of a study."""
    entry, classes = dict(contender.entry), DATA[setting.task].classes
    if "walks" in entry:
        entry["walks"] = min(entry["walks"], setting.sites)
    if entry["name"] == "tram_fl" and classes:
        entry["labels"] = [np.bincount(labels, minlength=classes).tolist() for _, labels in sites]
    return entry


def training_of(setting: Setting, seed: int) -> Training:
    """How all contenders are trained."""
    return Training(
        optimizer=SGD(lr=0.1, momentum=0.0),
        timing=NetworkTiming(compute=COMPUTE, latency=HOP),
        stop=Stop(iterations=setting.trainings),
        evaluate=Evaluate(every=max(1, setting.trainings // EVALUATIONS), model="mean"),
        batch_size=min(BATCH, setting.samples),
        local_steps=STEPS,
        objective="sites",
        seed=seed,
    )


def budgets_of(setting: Setting) -> tuple[float, float]:
    """The bits and the seconds that all contenders are given."""
    parameters = sum(one.numel() for one in DATA[setting.task].model().parameters())
    bits = 8.0 * setting.trainings * (4 * parameters + HEADER_BYTES + NOTES)
    return bits, setting.trainings / min(MOST_WALKS, setting.sites) * (COMPUTE + HOP)


class Outcome(NamedTuple):
    """One run, as the CSV has it."""

    task: str
    sites: int
    samples: int
    unlike: bool
    contender: str
    rate: float
    seed: int
    trainings: float  # how good it was after all trainings: accuracy, or minus the error
    bytes: float  # when it had sent what all are given
    hours: float  # when it had taken as long as all are given
    gigabytes: float  # sent in the end
    seconds: float  # of virtual time in the end


def run(setting: Setting, seed: int, chosen: Sequence[tuple[Contender, float]], validate: bool) -> list[Outcome]:
    """Contenders side by side, each at its rate."""
    data = DATA[setting.task]
    sites, held = dealt(setting, seed, validate)
    entries = [{**entry_of(one, setting, sites), "lr": rate, "label": str(k)} for k, (one, rate) in enumerate(chosen)]
    compared = compare(
        task_of(setting, sites, held, seed),
        entries,
        graphs.complete(setting.sites),
        training_of(setting, seed),
        progress=False,
        workers=1,
    )
    bits, seconds = budgets_of(setting)
    found = []
    for place, (one, rate) in enumerate(chosen):
        history = compared.history[compared.history["algorithm"].astype(str) == str(place)]
        good = history[data.measure] if data.classes else -history[data.measure]
        good = good.where(np.isfinite(good), 0.0 if data.classes else -WORST).clip(lower=-WORST)
        within = [good[history[axis] <= most].iloc[-1] for axis, most in (("bits", bits), ("time", seconds))]
        ends = history["bits"].iloc[-1] / 8e9, history["time"].iloc[-1]
        found.append(Outcome(*setting, one.name, rate, seed, *map(float, (good.iloc[-1], *within, *ends))))
    return found


# -- the suite: rates first, then what counts, in several processes; what is there is kept -------------------------


def run_suite(
    out: Path,
    settings: Iterable[str] = (),
    seeds: int = len(COUNTED),
    processes: int = 1,
    say: Callable[[str], None] = print,
) -> Path:
    """Run what is not in the folder yet, and write `tried.csv` and `runs.csv` there.

    Args:
        out: the folder.
        settings: names of those to run; all if none is given.
        seeds: how many are counted.
        processes: how many at once.
        say: hears how far it is.
    """
    wanted = [found_setting(name) for name in settings] or [*SETTINGS.values()]
    in_turn = [[one] for one in wanted] if processes == 1 else [sorted(wanted, key=lambda one: -one.trainings)]
    tables: dict[str, list[pd.DataFrame]] = {"tried": [], "runs": []}
    for some in in_turn:  # side by side the longest first
        both = {one: tuple((each, rate) for each in CONTENDERS for rate in each.rates(one)) for one in some}
        tried = _all([_Job(one, seed, both[one], True) for one in some for seed in TRIED], out, processes, say)
        best = best_rates(tried)
        chosen = {one: tuple((each, best[one.name, each.name]) for each in CONTENDERS) for one in some}
        jobs = [_Job(one, seed, chosen[one], False) for one in some for seed in COUNTED[:seeds]]
        tables["tried"].append(tried)
        tables["runs"].append(_all(jobs, out, processes, say))
        for name, parts in tables.items():  # what is done is there whenever it is stopped
            write_text(out / f"{name}.csv", pd.concat(parts).round(6).to_csv(index=False, lineterminator="\n"))
    return out


def found_setting(name: str) -> Setting:
    """The setting of that name."""
    if name not in SETTINGS:
        raise SpecError(f"there is no setting {name!r}; allowed: {', '.join(SETTINGS)}{suggestion(name, SETTINGS)}")
    return SETTINGS[name]


def setting_of(row: Any) -> Setting:
    """The setting that a row of a table is of."""
    return Setting(str(row.task), int(row.sites), int(row.samples), bool(row.unlike))


def best_rates(tried: pd.DataFrame) -> dict[tuple[str, str], float]:
    """The rate that was best on validation data after all trainings, by setting and contender."""
    means = tried.groupby(["task", "sites", "samples", "unlike", "contender", "rate"], as_index=False)[
        "trainings"
    ].mean()
    best: dict[tuple[str, str], tuple[float, float]] = {}
    for row in means.itertuples():
        key = setting_of(row).name, str(row.contender)
        best[key] = max(
            best.get(key, (-math.inf, 0.0)), (float(row.trainings), -float(row.rate))
        )  # of equals the least
    return {key: -rate for key, (_, rate) in best.items()}


class _Job(NamedTuple):
    setting: Setting
    seed: int
    chosen: tuple[tuple[Contender, float], ...]
    validate: bool

    def path(self, out: Path) -> Path:
        return out / "parts" / f"{'tried' if self.validate else 'run'}-{self.setting.name}-{self.seed}.csv"


def _do(job: _Job, out: Path) -> str:
    torch.set_num_threads(1)
    began = time.perf_counter()
    with redirect_stderr(io.StringIO()):  # notes that a rate is too large, as some are meant to be
        table = pd.DataFrame(run(job.setting, job.seed, job.chosen, job.validate))
    write_text(job.path(out), table.to_csv(index=False))
    return f"{job.path(out).stem}: {time.perf_counter() - began:.0f} s"


def _all(jobs: Sequence[_Job], out: Path, processes: int, say: Callable[[str], None]) -> pd.DataFrame:
    """What all jobs come to, those included that are in the folder."""
    left = [job for job in jobs if not job.path(out).is_file()]
    (out / "parts").mkdir(parents=True, exist_ok=True)
    if processes == 1:
        for job in left:
            say(_do(job, out))
    elif left:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            for count, done in enumerate(as_completed([pool.submit(_do, job, out) for job in left]), 1):
                say(f"{count} of {len(left)}: {done.result()}")
    return pd.concat([pd.read_csv(job.path(out)) for job in jobs], ignore_index=True)
