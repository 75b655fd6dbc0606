"""Replay of a real run: its trace is enough to do the arithmetic again, and to see who did what, second by second."""

from walktalk.records import read_trace
from walktalk.report import figures
from walktalk.studies import make_spec
from walktalk.studies.peers import run_on_peers

if __name__ == "__main__":  # processes import this file again
    spec = make_spec(
        {
            "name": "replayed",
            "repetitions": 1,
            "network": {"topology": "cycle", "nodes": 4},
            "task": {"name": "digits", "alpha": 1.0},
            "algorithms": [{"name": "async_gossip"}],
            "stop": {"iterations": 80},
            "evaluate": {"every": 40},
        }
    )
    result = run_on_peers(spec, "out/replayed")  # its history is computed from the merged trace, when all is over
    trace = read_trace("out/replayed/runs/async_gossip-pairwise/0/trace.parquet")
    print("nodes that trained:", sorted(set(trace[trace.event == "trained"].node)))
    trained = (trace.event == "trained").sum()
    print("trainings in the trace and in the history agree:", bool(trained == result.history.iteration.max()))
    print("the loss fell:", bool(result.history.train_loss.iloc[-1] < result.history.train_loss.iloc[0]))
    drawn = figures.save(figures.timeline(trace, title="A second of a real run"), "out/replayed/timeline")
    print("drawn:", *(path.name for path in drawn))
