"""The same in walktalk: one run of pairwise gossip (AD-PSGD) on 20 nodes, one process, evaluation included.

OMP_NUM_THREADS=1 python benchmarks/peers/walktalk_gossip.py [ITERATIONS]
"""

from __future__ import annotations

import sys
import time

import torch
import work

import walktalk as wt

ITERATIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 3000

if __name__ == "__main__":
    torch.set_num_threads(1)
    task = wt.tasks.digits(nodes=work.NODES, seed=0)
    graph = wt.graphs.complete(work.NODES)
    optimizer = wt.SGD(lr=0.05, momentum=0.9, nesterov=True)
    began = time.perf_counter()
    wt.train(task, wt.AsyncGossip(), graph, optimizer=optimizer, stop=wt.Stop(iterations=ITERATIONS), device="cpu")
    work.report("walktalk", ITERATIONS * work.LOCAL_STEPS, time.perf_counter() - began, version=wt.__version__)
