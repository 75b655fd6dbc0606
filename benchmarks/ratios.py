"""Small ratios that tell whether something has become slower: CPU times of fixed work over those of plain code.

    OMP_NUM_THREADS=1 python benchmarks/ratios.py            print them
    OMP_NUM_THREADS=1 python benchmarks/ratios.py --record   write them to benchmarks/recorded.json
    OMP_NUM_THREADS=1 python benchmarks/ratios.py --against HEAD~1   beside those of a commit (`make bench-check`)

Each ratio is measured in rounds, work and plain code by turns, and the best of each counts: what else runs on a machine
makes either slower, never faster. `tests/testing/bench/test_ratios.py` fails when one falls by more than 30 %.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.protocols import AsyncGossip, MultiWalk
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import NetworkTiming, RunSetup, Simulation
from walktalk.runtimes.stacked import Planner
from walktalk.studies import load_spec, run_study
from walktalk.testing.bench.large_networks import bare_heap_per_second, planned_events
from walktalk.testing.bench.training import GOSSIP, LOCAL_STEPS, StackedWave, digits, make_trainer, plain_step

RECORDED = Path(__file__).parent / "recorded.json"
ROUNDS = 5
HEAP, HEAP_ROUNDS = 1_000, 40_000
STUDY_ITERATIONS = 600

Rate = Callable[[], float]  # work per CPU second, measured once


def per_cpu_second(work: Callable[[], object], amount: int) -> float:
    began = time.process_time()
    work()
    return amount / (time.process_time() - began)


def heap() -> float:
    return bare_heap_per_second(HEAP, HEAP_ROUNDS)


def walk_events() -> float:
    return planned_events(MultiWalk(100), GRAPH, 5_000)[0]


def gossip_events() -> float:
    return planned_events(AsyncGossip(), GRAPH, 4_000)[0]


def shared_link_events() -> float:
    timing = NetworkTiming(bandwidth=1e6, node_bandwidth=1e6, spread=0.5)
    setup = RunSetup(
        AsyncGossip("neighbourhood"),
        GRAPH,
        Seed(0),
        Stop(iterations=150),
        timing,
        model_bytes=20_000,
        keep_trace=False,
        keep_schedule=False,
    )
    simulation = Simulation(setup)
    began = time.process_time()
    simulation.advance()
    return simulation.events / (time.process_time() - began)


def planned_operations() -> float:
    setup = RunSetup(AsyncGossip(), GRAPH, Seed(0), Stop(iterations=3_000), keep_trace=False)
    chunk, planner = Simulation(setup).advance(), Planner()
    planner.place(0, 0)
    return per_cpu_second(lambda: planner.plan({0: chunk}), len(chunk.ops))


GRAPH = graphs.random_regular(1_000, 4, seed=0)


def stacked(width: int) -> Rate:
    wave = StackedWave(width, make_trainer(digits(), "cpu"))
    waves = max(1, 64 // width)

    def rate() -> float:
        return per_cpu_second(lambda: [wave.train() for _ in range(waves)], waves * width * LOCAL_STEPS)

    return rate


def gossip_study() -> float:
    """A whole study with its records: what is neither training nor planning must not come back unseen."""
    spec = load_spec("quickstart", [*GOSSIP, f"stop.iterations={STUDY_ITERATIONS}"])
    with tempfile.TemporaryDirectory() as folder:
        work = lambda: run_study(spec, Path(folder) / "study", overwrite=True, device="cpu", workers=1)  # noqa: E731
        return per_cpu_second(work, STUDY_ITERATIONS * LOCAL_STEPS)


def plain() -> Rate:
    step = plain_step()
    return lambda: per_cpu_second(lambda: [step() for _ in range(150)], 150)


def ratios(rounds: int = ROUNDS) -> dict[str, float]:
    """All of them, work and plain code by turns, so many times."""
    torch.set_num_threads(1)
    loop = plain()
    pairs: dict[str, tuple[Rate, Rate]] = {
        "walk events / heap": (walk_events, heap),
        "gossip events / heap": (gossip_events, heap),
        "shared link events / heap": (shared_link_events, heap),
        "planned operations / heap": (planned_operations, heap),
        "gossip study / plain step": (gossip_study, loop),
        "4 stacked / plain step": (stacked(4), loop),
        "16 stacked / plain step": (stacked(16), loop),
        "64 stacked / plain step": (stacked(64), loop),
    }
    best = {name: [0.0, 0.0] for name in pairs}
    for _ in range(rounds):
        for name, (work, baseline) in pairs.items():
            best[name] = [max(best[name][0], work()), max(best[name][1], baseline())]
    return {name: value / baseline for name, (value, baseline) in best.items()}


# -- beside another commit --------------------------------------------------------------------------------------------

LOSS = 0.05  # that is noticed
TURNS = 4  # of both, one after the other; the best of each counts
AGAIN = 2  # more turns for what seems slower: this machine may have been


def of_code(root: Path) -> dict[str, float]:
    """The ratios of the code in a folder, measured in a process of its own by this script."""
    around = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--rounds", "1"]
    said = subprocess.run(command, env=around, cwd=root, capture_output=True, text=True, check=False)
    if said.returncode:
        sys.exit(f"error: the ratios of {root} cannot be measured: {said.stderr.strip().splitlines()[-1]}")
    return dict(json.loads(said.stdout))


def compared(commit: str) -> int:
    """Print the ratios of a commit and of the code as it is here; 1 where one has fallen."""
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        git = ["git", "-C", str(here), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(before), commit], check=True)
        try:
            best: list[dict[str, float]] = [{}, {}]
            for turn in range(TURNS + AGAIN):
                if turn >= TURNS and not fallen(*best):
                    break
                print(f"turn {turn + 1} of {TURNS if turn < TURNS else TURNS + AGAIN}", file=sys.stderr)
                for known, root in zip(best, (before, here), strict=True):
                    known.update({name: max(ratio, known.get(name, 0.0)) for name, ratio in of_code(root).items()})
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    slower = fallen(*best)
    for name, ratio in best[1].items():
        lost = "  slower" if name in slower else ""
        print(f"{name:28} {best[0].get(name, math.nan):10.4g} {ratio:10.4g}{lost}")
    return int(bool(slower))


def fallen(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """The ratios that are smaller than they were by more than `LOSS`."""
    return [name for name, ratio in now.items() if ratio < (1.0 - LOSS) * before.get(name, 0.0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write them down as what is expected")
    parser.add_argument("--against", metavar="COMMIT", help="measure a commit as well, by turns; 1 if one fell by 5 %%")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is measured; the best counts")
    asked = parser.parse_args()
    if asked.against:
        sys.exit(compared(asked.against))
    found = {name: float(f"{ratio:.4g}") for name, ratio in ratios(asked.rounds).items()}
    if asked.record:
        before = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
        RECORDED.write_text(json.dumps(found, indent=2) + "\n")
        found = {name: [before.get(name, math.nan), ratio] for name, ratio in found.items()}  # type: ignore[misc]
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
