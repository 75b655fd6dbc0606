"""Compare: several algorithms on one graph, one split and one set of seeds; a folder with a page comes out."""

import walktalk as wt

compared = wt.compare(
    {"name": "digits", "alpha": 0.5},  # or a task of your own, as wt.train takes it
    [wt.MultiWalk(walks=[1, 4]), wt.AsyncGossip()],
    {"topology": "small_world", "nodes": 12, "degree": 4, "rewire": 0.2},  # or a graph, ours or networkx's
    repetitions=2,
    stop=800,
    out="out/compared",
    device="cpu",
)
for axis, winner in compared.summary["winners"].items():
    print(f"{axis:10} {winner['algorithm']}")
print("the page:", compared.folder / "report.html")
