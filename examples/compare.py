"""Compare: several algorithms on one graph, one split and one set of seeds; a folder with a page comes out."""

from walktalk.report import write_report
from walktalk.studies import make_spec, run_study

spec = make_spec(
    {
        "name": "compared",
        "repetitions": 2,
        "network": {"topology": "small_world", "nodes": 12, "degree": 4, "rewire": 0.2},
        "task": {"name": "digits", "alpha": 0.5},
        "algorithms": [{"name": "multi_walk", "walks": [1, 4]}, {"name": "async_gossip"}],
        "stop": {"iterations": 800},
    }
)
result = run_study(spec, "out/compared", device="cpu")
for axis, winner in result.summary["winners"].items():
    print(f"{axis:10} {winner['algorithm']}")
print("the page:", write_report("out/compared"))
