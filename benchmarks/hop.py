"""What a hop costs: a model to a neighbour and its acknowledgement back, against a raw TCP socket on loopback.

    python benchmarks/hop.py [--json] [--repeat N] [--size "1.08 MB"]

`walktalk bench hop` for more sizes, and with mutual TLS: raw and over the real link by turns, so that a busy machine
slows both; the ratio of the medians is what counts. 1.08 MB is ResNet-20, 500 MB is OPT-125M.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from walktalk.runtimes.peers import make_certificates
from walktalk.testing.bench.hop import link_hop, raw_hop

SIZES = {"1.08 MB": 269_722, "500 MB": 125_240_832}  # parameters: ResNet-20, OPT-125M
TARGETS = {"1.08 MB": 4.0, "500 MB": 2.0}  # times the raw socket, without TLS


def measure(name: str, repeat: int, tls: bool) -> dict[str, Any]:
    """Medians over hops taken by turns, after a first one that opens everything."""
    width = SIZES[name]
    with tempfile.TemporaryDirectory() as folder:
        if tls:
            make_certificates(Path(folder), {"a": (), "b": ()})
        with raw_hop(width) as raw, link_hop(width, folder if tls else "") as link:
            raw(), link()
            pairs = [(raw(), link()) for _ in range(repeat)]
    baseline, value = (statistics.median(times) for times in zip(*pairs, strict=True))
    return {
        "size": name,
        "tls": tls,
        "value": value,
        "baseline": baseline,
        "ratio": value / baseline,
        "target": None if tls else TARGETS[name],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one object and nothing else")
    parser.add_argument("--repeat", type=int, default=0, help="hops of each size; 0: 300 small ones, 7 large ones")
    parser.add_argument("--size", choices=SIZES, help="only this one")
    args = parser.parse_args()
    cases = [(name, tls) for name in SIZES if args.size in (None, name) for tls in (False, True)]
    rows = []
    for name, tls in cases:
        row = measure(name, args.repeat or (300 if SIZES[name] < 1e6 else 7), tls)
        rows.append(row)
        if not args.json:
            kind = "mutual TLS" if tls else f"plain (target {row['target']:g}x)"
            line = f"{row['value'] * 1e3:9.2f} ms, raw socket {row['baseline'] * 1e3:8.2f} ms, {row['ratio']:5.2f}x"
            print(f"{name:>8}  {line}  {kind}", flush=True)
    if args.json:
        worst = max((row for row in rows if row["target"]), key=lambda row: row["ratio"] / row["target"])
        print(json.dumps({"name": "hop", **{k: worst[k] for k in ("value", "baseline", "ratio")}, "cases": rows}))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
