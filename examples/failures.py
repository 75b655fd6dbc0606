"""Failures: the aggregator dies twice, and the training goes on. The trace says who noticed and who took over."""

from walktalk.records import read_trace
from walktalk.studies import make_spec, run_study

spec = make_spec(
    {
        "name": "two-deaths",
        "repetitions": 1,
        "network": {"topology": "erdos_renyi", "nodes": 12, "p": 0.4},
        "task": {"name": "digits", "alpha": 1.0},
        "algorithms": [{"name": "multi_walk", "walks": 3}],
        "faults": [
            {"kind": "kill", "node": "aggregator", "at": 60.0},
            {"kind": "kill", "node": "aggregator", "at": 120.0},
        ],
        "stop": {"time": 200},
        "evaluate": {"seconds": 40},
    }
)
result = run_study(spec, "out/two-deaths", device="cpu")
print(result.history[["time", "iteration", "train_loss", "test_accuracy"]].round(2).to_string(index=False))

trace = read_trace("out/two-deaths/runs/multi_walk-3/0/trace.parquet")
for row in trace[trace.event.isin(["kill", "elected"])].itertuples():
    print(f"{row.time:6.1f} s  node {row.node} {'died' if row.event == 'kill' else 'was elected'}")
