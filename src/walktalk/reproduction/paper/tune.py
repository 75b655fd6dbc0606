"""Each algorithm at its best: its own learning rate, and with `best` also where its optimizer's state lives.

A comparison at one fixed rate favours whoever that rate suits. The search is a successive halving over a grid, on
shortened runs of the same study. All candidates of all algorithms run as one study, so they share their waves. The
schedule goes by progress, so a shortened run has all of it. The trial runs have the study's graph and data, and the
first repetitions' initial models; walks and batches are their own. Where the best is at the edge of what was tried, the
grid goes on there: a better one may lie beyond.

A rate at which a run loses again a fifth of what it had gained is refused, however well it stood before. Short runs may
be over before that shows, above all of algorithms whose news take long: BTPP's need twice the depth of its tree. So the
best rate of the search is run once at full length; where it goes astray there, or ends above where the short run did,
lower ones are run at full length, too.

With `best` rates are looked for with the state at each place where it can live, by the mean of the models, and the two
best rates of each place are then run at full length, measured as the study is: what is best in short runs need not be
(reproduction/DETAILS.md).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from walktalk.core.errors import StudyError
from walktalk.records import write_text
from walktalk.reproduction.paper.panels import Tuning
from walktalk.studies.execution import run_study
from walktalk.studies.planning import Progress
from walktalk.studies.spec import AlgorithmSpec, StudySpec, make_spec, spec_mapping

STEP = 2.0  # between neighbours of the grid
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the study's own rate: what is tried at first
FARTHEST = 64.0  # no candidate is further from the study's own rate than this factor
ROUNDS = (1 / 8, 1 / 4)  # shares of a run; after each, the better half of an algorithm's candidates stays
REPETITIONS = 2
LOSES = 0.2  # of what it had gained: a run that loses so much of it again goes astray
LOOKS = 4  # evaluations of a trial run: enough to see that
LOWER = 3  # rates below one that went astray which are run at full length at once
FINALISTS = 2  # rates of each place of the state that are run at full length

Rates = dict[str, list[float]]  # algorithm -> candidates, best first
Losses = dict[str, dict[float, float]]  # algorithm -> candidate -> its last training loss; infinity: it went astray
Choice = dict[str, Any]  # keys of an algorithm's entry, and what was found best
CHOSEN: dict[Tuning, tuple[str, ...]] = {"lr": ("lr",), "best": ("lr", "optimizer_state")}  # which keys those are
Report = Callable[[Progress], None]


def tuned(
    spec: StudySpec, record: Path, *, device: str = "auto", progress: Report | None = None, tuning: Tuning = "lr"
) -> StudySpec:
    """The study with each algorithm at its best; how it was found is kept in a file, and taken from there again.

    Args:
        spec: The study; its learning rate is the middle of the grid.
        record: The file.
        device: Where trial runs are trained.
        progress: Hears how far they are.
        tuning: `lr`, the rate alone; `best`, also where the optimizer's state lives.
    """
    best = recorded(spec, record, tuning)
    if best is None:
        best, rounds = found(spec, device, progress) if tuning == "lr" else found_with_states(spec, device, progress)
        record.parent.mkdir(parents=True, exist_ok=True)
        if record.exists():  # of other settings, for which it took as long to find them
            os.replace(record, next(name for name in _aside(record) if not name.exists()))
        said = {name: choice["lr"] if tuning == "lr" else choice for name, choice in best.items()}
        write_text(record, json.dumps({"best": said, "rounds": rounds, "spec": spec_mapping(spec)}, indent=1) + "\n")
    return with_choices(spec, best)


def _aside(record: Path) -> Iterator[Path]:
    """Names for a record that is to be kept beside: cycle.rates.1.json and so on."""
    return (record.with_suffix(f".{number}{record.suffix}") for number in count(1))


def recorded(spec: StudySpec, record: Path, tuning: Tuning = "lr") -> dict[str, Choice] | None:
    """The choices in a record, if they were made for this very study; those of another one would mean nothing here."""
    if not record.is_file():
        return None
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
        best, of = content["best"], content.get("spec")
        if of != json.loads(json.dumps(spec_mapping(spec))):
            return None
        return {a.title: _read(best[a.title], tuning) for a in spec.algorithms}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StudyError(f"{record} is damaged; delete it, and the rates are looked for again") from error


def _read(said: Any, tuning: Tuning) -> Choice:
    if tuning == "lr":
        return {"lr": float(said)}
    return {"lr": float(said["lr"]), "optimizer_state": str(said["optimizer_state"])}


def found(
    spec: StudySpec, device: str = "auto", progress: Report | None = None
) -> tuple[dict[str, Choice], list[dict[str, Any]]]:
    """Each algorithm's best rate, and the losses of every round."""
    rates, rounds = halved(spec, device, progress)
    best = {name: candidates[0] for name, candidates in rates.items()}
    short = {name: float(rounds[-1]["losses"][name][f"{lr:g}"]) for name, lr in best.items()}
    best, more = confirmed(spec, best, short, device, progress)
    return {name: {"lr": lr} for name, lr in best.items()}, [*rounds, *more]


def confirmed(
    spec: StudySpec,
    best: dict[str, float],
    short: dict[str, float],
    device: str = "auto",
    progress: Report | None = None,
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """The best rates, each after a run of full length; where that ends astray, or above the short one, lower rates are
    run at that length, too, and the best of all is taken.

    Args:
        spec: The study.
        best: Of every algorithm the best rate in short runs.
        short: The loss that it ended with in the last of those.
        device: Where trial runs are trained.
        progress: Hears how far they are.
    """
    once = make_spec({**spec_mapping(spec), "repetitions": 1})  # one is enough to see whether it stays where it was
    first = trial(once, {name: [lr] for name, lr in best.items()}, 1.0, device, progress)
    rounds = [_told(1.0, first)]
    least = spec.optimizer.lr / FARTHEST
    ends = {name: of for name, of in first.items() if not _rank(of[best[name]]) <= _rank(short[name]) < math.inf}
    while lower := {name: below(min(of), least) for name, of in ends.items() if _still_falls(of)}:
        more = {name: rates for name, rates in lower.items() if rates}
        if not more:
            break
        found = trial(spec, more, 1.0, device, progress)
        rounds.append(_told(1.0, found))
        ends = {name: of | found.get(name, {}) for name, of in ends.items()}
    return best | {name: better_half(of)[0] for name, of in ends.items()}, rounds


def _still_falls(losses: dict[float, float]) -> bool:
    """Whether the lowest rate that was tried is the best, so that a lower one may be better still."""
    return better_half(losses)[0] == min(losses)


def below(lr: float, least: float) -> list[float]:
    """The next lower rates, none below the least."""
    return [rate for k in range(1, LOWER + 1) if (rate := lr / STEP**k) >= least]


def found_with_states(
    spec: StudySpec, device: str = "auto", progress: Report | None = None
) -> tuple[dict[str, Choice], list[dict[str, Any]]]:
    """Each algorithm's best rate and place of the optimizer's state, and the losses of every round."""
    everywhere, places = with_states(spec)
    rates, rounds = halved(of_the_mean(everywhere), device, progress)
    last = trial(everywhere, {name: best[:FINALISTS] for name, best in rates.items()}, 1.0, device, progress)
    rounds.append(_told(1.0, last))
    best: dict[str, Choice] = {}
    for title in dict.fromkeys(title for title, _ in places.values()):
        ends = {(name, lr): loss for name, of in last.items() if places[name][0] == title for lr, loss in of.items()}
        name, lr = min(ends, key=lambda one: (_rank(ends[one]), one[1]))
        best[title] = {"lr": lr, "optimizer_state": places[name][1]}
    return best, rounds


def of_the_mean(spec: StudySpec) -> StudySpec:
    """The study, measured by the mean of all models: in a short run few walks have come by the aggregator, or none."""
    content = spec_mapping(spec)
    return make_spec({**content, "evaluate": {**content["evaluate"], "model": "mean"}})


def with_states(spec: StudySpec) -> tuple[StudySpec, dict[str, tuple[str, str]]]:
    """The study with every algorithm once for each place of its optimizer's state; whose and which each label is."""
    content, entries = spec_mapping(spec), []
    places: dict[str, tuple[str, str]] = {}
    for entry, algorithm in zip(content["algorithms"], spec.algorithms, strict=True):
        for state in states_of(spec, algorithm):
            label = f"{algorithm.title}, {state}"
            places[label] = algorithm.title, state
            entries.append({**entry, "optimizer_state": state, "label": label})
    return make_spec({**content, "algorithms": entries}), places


def states_of(spec: StudySpec, algorithm: AlgorithmSpec) -> list[str]:
    """Where its optimizer's state can live: one place where there is none, and with a walk only if that is private."""
    protocol = algorithm.protocol()
    if spec.optimizer.name == "sgd" and not spec.optimizer.momentum:
        return [spec.state_of(algorithm)]
    walks = protocol.family == "walks" and protocol.privacy is None
    return ["visit", "node", *(["walk"] if walks else [])]


def halved(spec: StudySpec, device: str = "auto", progress: Report | None = None) -> tuple[Rates, list[dict[str, Any]]]:
    """The rates of each algorithm that are left after all rounds, best first, and the losses of every round."""
    tried: Rates = {a.title: [spec.optimizer.lr * factor for factor in FACTORS] for a in spec.algorithms}
    rates, rounds = tried, []
    for share in ROUNDS:
        losses = trial(spec, rates, share, device, progress)
        while more := beyond(losses, tried, spec.optimizer.lr):
            for name, of in trial(spec, more, share, device, progress).items():
                losses[name] |= of
                tried = {**tried, name: [*tried[name], *of]}
        rounds.append(_told(share, losses))
        rates = {name: better_half(of) for name, of in losses.items()}
    return rates, rounds


def _told(share: float, losses: Losses) -> dict[str, Any]:
    """A round, as it is kept."""
    return {"share": share, "losses": {name: {f"{lr:g}": x for lr, x in of.items()} for name, of in losses.items()}}


def beyond(losses: Losses, tried: Rates, middle: float) -> Rates:
    """The next candidate of every algorithm whose best one is at the edge of what was tried."""
    more: Rates = {}
    for name, of in losses.items():
        best = better_half(of)[0]
        if best == max(tried[name]) and best * STEP <= middle * FARTHEST:
            more[name] = [best * STEP]
        elif best == min(tried[name]) and best / STEP >= middle / FARTHEST:
            more[name] = [best / STEP]
    return more


def in_words(spec: StudySpec) -> str:
    """Who got which rate and place of the state, and whose rate is still at the edge of what is tried."""
    rates, middle = {a.title: a.lr for a in spec.algorithms if a.lr is not None}, spec.optimizer.lr
    far = [name for name, lr in rates.items() if lr in (middle * FARTHEST, middle / FARTHEST)]
    edge = f"; {', '.join(far)}: at the edge of what is tried, so a better one may lie beyond" if far else ""
    places = {a.title: f" ({a.optimizer_state})" if a.optimizer_state else "" for a in spec.algorithms}
    return ", ".join(f"{name} {lr:g}{places[name]}" for name, lr in rates.items()) + edge


def trial(spec: StudySpec, rates: Rates, share: float, device: str, progress: Report | None) -> Losses:
    """The last training loss of every candidate, mean over repetitions; infinity where that had been lower by far."""
    content = _shortened(spec, share)
    names: dict[str, tuple[str, float]] = {}
    entries = []
    for entry, algorithm in zip(content["algorithms"], spec.algorithms, strict=True):
        for lr in rates.get(algorithm.title, ()):
            label = f"{algorithm.title} at {lr:g}"
            names[label] = algorithm.title, lr
            entries.append({**entry, "lr": lr, "label": label})
    history = run_study(make_spec({**content, "algorithms": entries}), device=device, progress=progress).history
    losses: Losses = {name: {} for name in rates}
    for label, (name, lr) in names.items():
        runs = history[history["algorithm"] == label].sort_values("iteration").groupby("repetition")["train_loss"]
        courses = [list(map(float, run)) for _, run in runs]
        last = sum(course[-1] for course in courses) / len(courses)  # NaN where any of them is
        losses[name][lr] = math.inf if any(map(goes_astray, courses)) else last
    return losses


def goes_astray(course: list[float]) -> bool:
    """Whether a run ends well above where it had been, by what it had gained.

    Args:
        course: Its losses, from before the first training on.
    """
    lowest = min((loss for loss in course if math.isfinite(loss)), default=math.inf)
    return course[-1] - lowest > LOSES * (course[0] - lowest)


def better_half(losses: dict[float, float]) -> list[float]:
    """Best first; of equal ones the lower rate."""
    order = sorted(losses, key=lambda lr: (_rank(losses[lr]), lr))
    return order[: -(-len(order) // 2)]


def _rank(loss: float) -> float:
    """One that has diverged is the worst there is."""
    return loss if math.isfinite(loss) else math.inf


def with_choices(spec: StudySpec, best: dict[str, Choice]) -> StudySpec:
    """The study with these rates and places; labels stay, so colours in figures do."""
    content = spec_mapping(spec)
    content["algorithms"] = [
        {**entry, **best[algorithm.title], "label": algorithm.title}
        for entry, algorithm in zip(content["algorithms"], spec.algorithms, strict=True)
    ]
    return make_spec(content)


def _shortened(spec: StudySpec, share: float) -> dict[str, Any]:
    content = spec_mapping(spec)
    stop = {name: value * share for name, value in content["stop"].items() if name in ("time", "bits")}
    if spec.stop.iterations is not None:
        stop["iterations"] = max(1, round(share * spec.stop.iterations))
    every = max(1, -(-stop["iterations"] // LOOKS)) if "iterations" in stop else 0
    end = {"every": every} if every else {"seconds": stop["time"] / LOOKS if "time" in stop else 1.0}
    kept = {name: content["evaluate"][name] for name in ("samples", "model") if name in content["evaluate"]}
    return {
        **content,
        "stop": stop,
        "evaluate": {**end, **kept},
        "faults": [],
        "repetitions": min(REPETITIONS, spec.repetitions),
    }
