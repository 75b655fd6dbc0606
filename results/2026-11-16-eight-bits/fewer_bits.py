"""Eight bits in place of 32 on the quickstart: what they do to the loss, and to what is sent.

    python results/2026-11-16-eight-bits/fewer_bits.py --engine peers --repetitions 5 --out results/2026-11-16-eight-bits

Four walks and gossip in pairs, plain and with `compression: int8`, in the simulator (`--engine sim`) or with every node
a process of its own on this machine. Writes `ends.csv` (every run's end: its loss, all bits that were sent, and the
messages that brought a model with their bytes) and `table.md` (means, and what 8 bits change).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pandas as pd
import yaml

from walktalk.records import StudyFolder, read_trace
from walktalk.studies import StudySpec, make_spec, preset_text, run_study
from walktalk.studies.peers import run_on_peers

ALGORITHMS = {"multi_walk-4": "4 walks", "async_gossip-pairwise": "gossip in pairs"}
CODED = "-int8"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for ends.csv and table.md")
    parser.add_argument("--engine", choices=["sim", "peers"], default="sim")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=3000, help="the quickstart has 3,000")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = ends(study(options.repetitions, options.iterations), Path(folder) / "study", options.engine)
    options.out.mkdir(parents=True, exist_ok=True)
    found.to_csv(options.out / "ends.csv", index=False)
    (options.out / "table.md").write_text(table(found), encoding="utf-8")
    print(table(found), end="")


def study(repetitions: int, iterations: int) -> StudySpec:
    """The quickstart, with and without 8 bits."""
    codecs = {"compression": ["none", "int8"]}
    changed = {
        "name": "eight-bits",
        "repetitions": repetitions,
        "algorithms": [{"name": "multi_walk", "walks": 4, **codecs}, {"name": "async_gossip", **codecs}],
        "stop": {"iterations": iterations},
    }
    return make_spec({**yaml.safe_load(preset_text("quickstart")), **changed})


def ends(spec: StudySpec, out: Path, engine: str) -> pd.DataFrame:
    """The last evaluation of every run, and the messages with a model in its trace."""
    history = (run_study(spec, out) if engine == "sim" else run_on_peers(spec, out)).history
    last = history.sort_values("iteration").groupby(["algorithm", "repetition"]).tail(1)
    last = last.sort_values(["algorithm", "repetition"])
    sent = [models_sent(out, *run) for run in zip(last.algorithm, last.repetition, strict=True)]
    columns = ["algorithm", "repetition", "iteration", "train_loss", "test_accuracy", "bits"]
    return last[columns].assign(models=[count for count, _ in sent], bytes_a_model=[size for _, size in sent])


def models_sent(out: Path, algorithm: str, repetition: int) -> tuple[int, float]:
    """How many messages brought a model in a run, and how large one was on the wire."""
    trace = read_trace(StudyFolder(out).run(algorithm, repetition).trace)
    models = trace[(trace.event == "send") & (trace.slot != "")]
    return len(models), float(models.bytes.mean())


def table(found: pd.DataFrame) -> str:
    """What 8 bits change; ± is a standard error."""
    head = ["", "loss, 32 bits", "loss, 8 bits", "change", "bits fall by", "a message by", "runs of each"]
    lines = [head, ["---"] * len(head)]
    for label, name in ALGORITHMS.items():
        plain, coded = (found[found.algorithm == one] for one in (label, label + CODED))
        losses = [f"{each.train_loss.mean():.4f}" for each in (plain, coded)]
        factors = [f"{plain[column].mean() / coded[column].mean():.2f}" for column in ("bits", "bytes_a_model")]
        lines.append([name, *losses, change(plain.train_loss, coded.train_loss), *factors, str(len(plain))])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def change(before: pd.Series, after: pd.Series) -> str:
    """Of the mean, relative to what it was, with its standard error."""
    error = float((before.sem() ** 2 + after.sem() ** 2) ** 0.5) / before.mean()
    return f"{after.mean() / before.mean() - 1:+.1%} ± {error:.1%}"


if __name__ == "__main__":
    main()
