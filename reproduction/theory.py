"""The theorems against measurement, on the quadratic task with exact constants.

    OMP_NUM_THREADS=1 python reproduction/theory.py --out results/DATE-theory [--only bounds|slopes|speedup|phase|age]

With `--draw-only` nothing is measured: the figures are drawn from the tables that are there (theory_figures.py).

bounds   the measured average of ‖∇f‖² and the bound of every theorem, for every combination (bounds.csv), and against T
         for three of them (curves.csv, bound.png)
slopes   the same against T, R, V and p: measured exponents beside those of the bound (slopes.csv, scaling.csv, .png)
speedup  time to a target loss under Poisson timing against R, and against V for gossip (speedup.csv, .png)
age      the average late in a run against how old copies are, with iid data, where Theorem 1 has graphs alike (age.csv)
phase    who is cheaper to a target loss, by ζ² and graph, best learning rate for each (phase.csv, .png)
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from math import inf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from theory_figures import FIGURES, draw
from walktalk import graphs
from walktalk.advisor import Case, Outcome, check_bounds, plain_sgd, quadratic_problem, standard_cases
from walktalk.chains import metropolis_hastings, return_time
from walktalk.core.seeds import Seed
from walktalk.learning import Task, tasks
from walktalk.protocols import AsyncGossip, MultiWalk, Protocol
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import RunSetup
from walktalk.runtimes.stacked import Engine
from walktalk.theory import network

EVALUATIONS = 400  # in a run to its end
CYCLE_TO_COMPLETE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("cycle", {}),
    ("random_regular", {"degree": 4}),
    ("random_regular", {"degree": 8}),
    ("complete", {}),
)


# -- bounds -------------------------------------------------------------------------------------------------------


def bounds(out: Path) -> dict[str, Any]:
    outcomes = check_bounds(standard_cases(iterations=(500, 4000)), repetitions=4)
    table = pd.DataFrame([outcome_row(outcome) for outcome in outcomes])
    table.to_csv(out / "bounds.csv", index=False, float_format="%.6g")
    pd.concat(example_curves()).to_csv(out / "curves.csv", index=False, float_format="%.6g")
    by = table.groupby("theorem")["bound_over_measured"]
    return {
        "combinations": len(table),
        "below_the_bound": int(table["holds"].sum()),
        "bound_over_measured": {str(k): [float(g.min()), float(g.median()), float(g.max())] for k, g in by},
    }


def outcome_row(outcome: Outcome) -> dict[str, Any]:
    case = outcome.case
    return {
        "theorem": "by age" if case.by_age else case.theorem,
        "graph": case.topology,
        "V": case.nodes,
        "R": case.walks,
        "E": case.failures,
        "sigma2": case.noise,
        "zeta2": case.heterogeneity,
        "T": case.iterations,
        "p": outcome.p,
        "H": outcome.H,
        "eta": outcome.step_size,
        "measured": outcome.measured,
        "standard_error": outcome.error,
        "bound": outcome.bound,
        "bound_over_measured": outcome.bound / outcome.measured,
        "holds": outcome.holds,
    }


def example_curves() -> list[pd.DataFrame]:
    """The running average against T at one step size, and the inequality of the proof at the same one."""
    cases = [Case(1, "cycle", 16, 8000, walks=1), Case(1, "cycle", 16, 8000, walks=8), Case(2, "cycle", 16, 8000)]
    names = ["MW R=1", "MW R=8", "gossip"]
    problem = quadratic_problem(tasks.quadratic(nodes=16, seed=0, noise=1.0, heterogeneity=1.0, distance=5.0))
    found = []
    for name, outcome in zip(names, check_bounds(cases, repetitions=3), strict=True):
        at = np.unique(np.geomspace(10, 8000, 60).astype(int))
        running = np.cumsum(outcome.curve) / np.arange(1, len(outcome.curve) + 1)
        limit = []
        for t in at:
            case = Case(outcome.case.theorem, "cycle", 16, int(t), walks=outcome.case.walks)
            limit.append(case.inequality(case.graph(), problem).at(outcome.step_size, int(t)).total)  # type: ignore[union-attr]
        found.append(pd.DataFrame({"series": name, "iteration": at, "measured": running[at - 1], "bound": limit}))
    return found


# -- slopes -------------------------------------------------------------------------------------------------------


def slope_cases() -> list[tuple[str, str, float, Case]]:
    """(variable, series, x, case)."""
    found: list[tuple[str, str, float, Case]] = []
    for topology in ("cycle", "complete"):
        for t in (500, 1000, 2000, 4000, 8000, 16000):
            found += [("T", f"MW R=1, {topology}", t, Case(1, topology, 16, t, walks=1))]
            found += [("T", f"MW R=8, {topology}", t, Case(1, topology, 16, t, walks=8))]
            found += [("T", f"gossip, {topology}", t, Case(2, topology, 16, t))]
        for walks in (1, 2, 4, 8, 16, 32):
            found.append(("R", f"MW, {topology}", walks, Case(1, topology, 32, 4000, walks=walks)))
        for nodes in (8, 16, 32, 64):
            found.append(("V", f"MW R=4, {topology}", nodes, Case(1, topology, nodes, 4000, walks=4)))
            found.append(("V", f"gossip, {topology}", nodes, Case(2, topology, nodes, 4000)))
    for topology, given in CYCLE_TO_COMPLETE:
        parameters = tuple(given.items())
        for name, case in (
            ("MW R=4", Case(1, topology, 32, 4000, walks=4, parameters=parameters)),
            ("gossip", Case(2, topology, 32, 4000, parameters=parameters)),
        ):
            found.append(("p", name, network(case.graph()).p, case))
    return found


def slopes(out: Path) -> dict[str, Any]:
    wanted = slope_cases()
    outcomes = {
        outcome.case: outcome for outcome in check_bounds(dict.fromkeys(case for *_, case in wanted), repetitions=2)
    }
    table = pd.DataFrame(
        [
            {
                "variable": v,
                "series": s,
                "x": x,
                "measured": outcomes[c].measured,
                "bound": outcomes[c].bound,
                "eta": outcomes[c].step_size,
            }
            for v, s, x, c in wanted
        ]
    )
    rows = []
    for (variable, series), part in table.groupby(["variable", "series"], sort=False):
        end = part.tail(3) if variable == "T" else part  # exponents are about large T
        measured, error = fit(end["x"], end["measured"])
        rows.append(
            {
                "variable": variable,
                "series": series,
                "measured": measured,
                "standard_error": error,
                "bound": fit(end["x"], end["bound"])[0],
                **predicted(str(variable), str(series)),
            }
        )
    found = pd.DataFrame(rows)
    table.to_csv(out / "scaling.csv", index=False, float_format="%.6g")
    found.to_csv(out / "slopes.csv", index=False, float_format="%.4g")
    return {"slopes": rows}


def predicted(variable: str, series: str) -> dict[str, str]:
    """The exponents of the terms of the theorems, in the order start, noise, deviation."""
    walks = series.startswith("MW")
    cycle = "cycle" in series
    terms = {
        "T": "-1, -1/2, -2/3",
        "R": "1, 0, 2/3",
        "V": ("3/2, 0, 1" if cycle else "1, 0, 2/3") if walks else ("3, 0, 2" if cycle else "1, 0, 2/3"),
        "p": "via H² only" if walks else "-1, 0, -2/3",
    }
    return {"terms": terms[variable]}


def fit(x: Any, y: Any) -> tuple[float, float]:
    """The exponent of a power law, and its standard error."""
    a, b = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    slope, offset = np.polyfit(a, b, 1)
    rest = b - (slope * a + offset)
    error = sqrt(float(rest @ rest) / max(len(a) - 2, 1) / float(((a - a.mean()) ** 2).sum()))
    return float(slope), error


# -- the age of copies ---------------------------------------------------------------------------------------------


def age(out: Path) -> dict[str, Any]:
    """‖∇f‖² late in runs of 8 walks, and how far apart these are, beside the age of copies.

    V = 16, σ² = 1, ζ² = 0, η = 0.01, iterations 6,000 to 12,000, ten seeds; all curvatures 1: ‖∇f‖² = 2 (f − f*).
    """
    task = tasks.quadratic(nodes=16, seed=0, noise=1.0, heterogeneity=0.0, distance=5.0, convexity=1.0)
    named = {t: graphs.build(t, 16, seed=1, **given) for t, given in CYCLE_TO_COMPLETE if given.get("degree") != 8}
    trainer, seeds = plain_sgd(task), 10
    setups = [
        RunSetup(
            MultiWalk(8), graph, Seed(k).child(name), Stop(iterations=12_000), evaluate=Evaluate(every=20), lr=0.01
        )
        for name, graph in named.items()
        for k in range(seeds)
    ]
    engine = Engine(trainer, setups, [trainer.initial_row(0)] * len(setups))
    late: dict[int, list[tuple[float, float, float]]] = {run: [] for run in range(len(setups))}
    for one in engine.advance(1.0).measurements:
        if one.op.iteration > 6_000:
            above = (2 * (loss - task.facts["f_star"]) for loss in (one.train_loss, one.mean_train_loss))
            late[one.run].append((*above, one.consensus))
    found = np.array([np.mean(late[run], axis=0) for run in late]).reshape(len(named), seeds, 3)
    rows = []
    for (name, graph), runs in zip(named.items(), found, strict=True):
        row: dict[str, Any] = {"graph": name, "mean_age": return_time(metropolis_hastings(graph)).mean_age}
        for what, each in zip(("aggregated", "mean_of_walks", "spread"), runs.T, strict=True):
            row |= {what: each.mean(), f"{what}_error": each.std(ddof=1) / sqrt(seeds)}
        rows.append(row)
    pd.DataFrame(rows).to_csv(out / "age.csv", index=False, float_format="%.4g")
    return {"age": rows}


# -- time to a loss -----------------------------------------------------------------------------------------------


def mean_curves(
    task: Task, runs: list[tuple[Protocol, graphs.Graph, float]], seconds: float, target: float, repetitions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean excess loss over repetitions of every run, at even moments of virtual time: (moments, [run, moment]).

    It ends when the first run is at the target: only the best learning rate is asked for.
    """
    trainer = plain_sgd(task)
    every = seconds / EVALUATIONS
    setups = [
        RunSetup(
            protocol,
            graph,
            Seed(k).child(protocol.label, graph.name, lr),
            Stop(time=seconds),
            evaluate=Evaluate(every=None, seconds=every),
            lr=lr,
            keep_trace=False,
        )
        for protocol, graph, lr in runs
        for k in range(repetitions)
    ]
    engine = Engine(trainer, setups, [trainer.initial_row(0)] * len(setups))
    curves: dict[int, list[float]] = {run: [] for run in range(len(setups))}
    for share in np.geomspace(0.02, 1.0, 25):
        for measurement in engine.advance(float(share)).measurements:
            curves[measurement.run].append(measurement.train_loss - task.facts["f_star"])
        moments = min(len(curve) for curve in curves.values())
        table = np.array([curves[run][:moments] for run in range(len(setups))])
        means = table.reshape(len(runs), repetitions, moments).mean(1)
        if (means <= target).any():
            break
    return np.arange(moments) * every, means


def first_time(moments: np.ndarray, curve: np.ndarray, target: float) -> float:
    below = np.flatnonzero(curve <= target)
    if not len(below) or below[0] == 0:
        return inf if not len(below) else 0.0
    at = below[0]
    share = (curve[at - 1] - target) / (curve[at - 1] - curve[at])
    return float(moments[at - 1] + share * (moments[at] - moments[at - 1]))


def speedup(out: Path) -> dict[str, Any]:
    """Noise decides (σ² = 30, ζ² = 0) and one walk takes many times V; the best of five learning rates for each."""
    rows = []
    for topology in ("complete", "cycle"):
        base = None
        counts = [("MW", r, 16) for r in (1, 2, 4, 8, 16)] + [("gossip", v, v) for v in (4, 8, 16)]
        for kind, active, nodes in counts:
            graph = graphs.build(topology, nodes)
            task = tasks.quadratic(nodes=nodes, seed=0, noise=30.0, heterogeneity=0.0, convexity=0.3, distance=5.0)
            target = 0.01 * task.facts["F"]
            protocol: Protocol = MultiWalk(active) if kind == "MW" else AsyncGossip()
            # The best rate grows with the number of models that are averaged: look around there.
            rates = [rate for rate in (0.4 / 2**k for k in range(9)) if 0.006 <= rate / active**0.7 <= 0.13][-5:]
            seconds = 3000.0 / active + 150.0
            moments, curves = mean_curves(task, [(protocol, graph, lr) for lr in rates], seconds, target, 4)
            times = [first_time(moments, curve, target) for curve in curves]
            best = min(times)
            base = best if base is None else base
            rows.append(
                {
                    "series": f"{kind}, {topology}",
                    "active": active,
                    "nodes": nodes,
                    "lr": rates[int(np.argmin(times))],
                    "time": best,
                    "speed_up": base / best,
                }
            )
            print("speedup", rows[-1], file=sys.stderr, flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(out / "speedup.csv", index=False, float_format="%.6g")
    return {"speed_up": rows}


def phase(out: Path) -> dict[str, Any]:
    """Gossip's cost over the best Multi-Walk's, per iteration and in time; V = 16, the best of five learning rates."""
    rows = []
    rates = [0.4 / 2**k for k in range(5)]
    for topology, given in CYCLE_TO_COMPLETE:
        graph = graphs.build(topology, 16, seed=1, **given)
        name = f"{topology.replace('random_regular', 'regular')}{given.get('degree', '')} p={network(graph).p:.2f}"
        for zeta2 in (0.0, 1.0, 4.0, 16.0):
            task = tasks.quadratic(nodes=16, seed=0, noise=1.0, heterogeneity=zeta2, convexity=0.3, distance=5.0)
            target = 0.02 * task.facts["F"]
            costs: dict[str, dict[str, float]] = {"iterations": {}, "time": {}}
            for active, protocol in [(r, MultiWalk(r)) for r in (1, 4, 16)] + [(16, AsyncGossip())]:
                seconds = 1500.0 / active + 60
                moments, curves = mean_curves(task, [(protocol, graph, lr) for lr in rates], seconds, target, 3)
                best = min(first_time(moments, curve, target) for curve in curves)
                costs["time"][protocol.label], costs["iterations"][protocol.label] = best, best * active
            for axis, found in costs.items():
                gossip = found.pop("async_gossip-pairwise")
                walks = min(found, key=lambda label: found[label])
                rows.append(
                    {
                        "axis": axis,
                        "x": name,
                        "y": zeta2,
                        "ratio": gossip / found[walks] if found[walks] < inf else 0.1,
                        "winner": walks.replace("multi_walk-", "R=") if found[walks] <= gossip else "gossip",
                        "gossip": gossip,
                        **found,
                    }
                )
            print("phase", rows[-2:], file=sys.stderr, flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(out / "phase.csv", index=False, float_format="%.6g")
    return {"cells": len(table)}


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "bounds": bounds,
    "slopes": slopes,
    "speedup": speedup,
    "phase": phase,
    "age": age,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for tables and figures")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--draw-only", action="store_true", help="figures from the tables that are there")
    args = parser.parse_args()
    parts = [args.only] if args.only else list(PARTS)
    if args.draw_only:
        for name in FIGURES.keys() & set(parts):
            print(*draw(args.out, name), sep="\n")
        return
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "summary.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for name in parts:
        began = time.perf_counter()
        found[name] = {**PARTS[name](args.out), "seconds": round(time.perf_counter() - began, 1)}
        if name in FIGURES:
            draw(args.out, name)
    file.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(found, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
