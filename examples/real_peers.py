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
    print("nodes in the trace:", sorted(set(trace[trace.node >= 0].node)))
    models = trace[trace.slot != ""]  # the rest are heartbeats and receipts
    sent, received = (models[models.event == event].number for event in ("send", "receive"))
    print("every model that came had been sent, and came once:", set(received) <= set(sent) and received.is_unique)
