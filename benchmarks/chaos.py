"""Chaos, by one command: 20 real nodes on this machine, killed, hung and cut off; 30 rounds with different seeds.

python benchmarks/chaos.py [--nodes 20] [--rounds 30] [--seed 0] [--json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median

from walktalk.studies.chaos import Storm, chaos_round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    verdicts = []
    for seed in range(args.seed, args.seed + args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            say = (lambda line: None) if args.json else (lambda line: print("  ", line, flush=True))
            verdict = chaos_round(Storm(nodes=args.nodes), seed, Path(folder), say)
        verdicts.append(verdict)
        if not args.json:
            print(f"round {seed}: {'passed' if verdict.passed else 'FAILED'} {asdict(verdict)}", flush=True)
    recovery = [beats for verdict in verdicts for beats in verdict.recovery]
    passed = sum(verdict.passed for verdict in verdicts)
    result = {
        "name": "chaos", "value": passed, "baseline": len(verdicts), "ratio": passed / len(verdicts),
        "recovery_in_heartbeats": round(median(recovery), 1) if recovery else None,
        "rounds": [asdict(verdict) for verdict in verdicts],
    }  # fmt: skip
    print(json.dumps(result) if args.json else f"{passed} of {len(verdicts)} rounds passed")


if __name__ == "__main__":
    main()
