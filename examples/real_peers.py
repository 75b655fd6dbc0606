"""Real peers on one machine: one process for each node, no head; the same folder as a simulated study leaves."""

from walktalk.records import read_trace
from walktalk.studies import make_spec
from walktalk.studies.peers import run_on_peers

if __name__ == "__main__":  # processes import this file again
    spec = make_spec(
        {
            "name": "real",
            "repetitions": 1,
            "network": {"topology": "complete", "nodes": 3},
            "task": {"name": "digits", "alpha": 1.0},
            "algorithms": [{"name": "multi_walk", "walks": 2}],
            "stop": {"iterations": 60},
            "evaluate": {"every": 30},
        }
    )
    result = run_on_peers(spec, "out/real")
    last = result.history.iloc[-1]
    print("three processes completed the trainings that were asked for:", bool(last.iteration >= 60))
    print("the loss fell:", bool(last.train_loss < result.history.train_loss.iloc[0]))
    trace = read_trace("out/real/runs/multi_walk-2/0/trace.parquet")
    print("who trained:", sorted(set(trace[trace.event == "trained"].node)))
    models = trace[trace.slot != ""]  # the rest are heartbeats and receipts
    on_their_way = (models.event == "send").sum() - (models.event == "receive").sum()
    print("models sent and received alike, but for two walks on their way:", bool(on_their_way <= 2))
