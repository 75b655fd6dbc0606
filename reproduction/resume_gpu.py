"""An interrupted and resumed study on a GPU ends with the same history, byte for byte.

    python reproduction/resume_gpu.py --data FOLDER --out FOLDER

A small CIFAR-10 study runs three times, each in a process of its own: to its end; until a third of its iterations are
done, when it gets the signal of a Ctrl-C; and from there to its end with `resume`. Writes `resume.json` and the
three histories; exits with 1 if they differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk.reproduction.paper.figures import settings
from walktalk.studies import Interrupted, Progress, make_spec, run_study

INTERRUPTED = 130


def main() -> None:
    options = arguments()
    if options.child:
        sys.exit(child(options))
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    work = Path(options.work)
    shutil.rmtree(work, ignore_errors=True)
    seconds, codes = {}, {}
    for name, folder, more in (
        ("whole", "whole", []),
        ("interrupted", "parts", ["--interrupt"]),
        ("resumed", "parts", ["--resume"]),
    ):
        began = time.perf_counter()
        words = [sys.executable, __file__, *sys.argv[1:], "--child", str(work / folder), *more]
        codes[name] = subprocess.run(words, check=False).returncode
        seconds[name] = round(time.perf_counter() - began, 1)
    sums = {}
    for folder in ("whole", "parts"):
        history = work / folder / "history.csv"
        sums[folder] = hashlib.sha256(history.read_bytes()).hexdigest() if history.is_file() else None
        if history.is_file():
            shutil.copyfile(history, out / f"resume-{folder}.csv")
    same = sums["whole"] is not None and sums["whole"] == sums["parts"]
    stopped = codes == {"whole": 0, "interrupted": INTERRUPTED, "resumed": 0}
    facts = {"same": same, "was_interrupted": stopped, "sha256": sums, "exit_codes": codes, "seconds": seconds}
    (out / "resume.json").write_text(json.dumps({"iterations": options.iterations, **facts}, indent=1) + "\n")
    print(json.dumps(facts), flush=True)
    sys.exit(0 if same and stopped else 1)


def child(options: argparse.Namespace) -> int:
    """One of the three."""
    asked = False

    def on_the_way(progress: Progress) -> None:
        nonlocal asked
        if options.interrupt and not asked and progress.done >= progress.total / 3:
            asked = True
            print(f"Ctrl-C at {progress.done:,} of {progress.total:,} iterations", flush=True)
            os.kill(os.getpid(), signal.SIGINT)

    try:
        spec = make_spec(study(options))
        run_study(spec, options.child, resume=options.resume, device=options.device, workers=1, progress=on_the_way)
    except Interrupted:
        return INTERRUPTED
    return 0


def study(options: argparse.Namespace) -> dict[str, Any]:
    base = settings("image", "smoke" if options.digits else "paper")
    return {
        **base,
        "name": "resume",
        "repetitions": 2,
        "task": {**base["task"], **({"folder": options.data} if options.data else {})},
        "training": {**base["training"], "optimizer_state": "node"},
        "algorithms": [{"name": "multi_walk", "walks": 4}, {"name": "async_gossip", "mixing": "pairwise"}],
        "stop": {"iterations": options.iterations},
        "evaluate": {"every": options.iterations // 5, "samples": 1000},
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the official CIFAR-10 binary files, if not in the usual place")
    parser.add_argument("--digits", action="store_true", help="digits in place of CIFAR-10: a try on a CPU")
    parser.add_argument("--out", required=True)
    parser.add_argument("--work", default="/tmp/walktalk-resume", help="folder for the studies; emptied first")
    parser.add_argument("--iterations", type=int, default=3000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--interrupt", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
