"""Nodes with names: a networkx graph wherever a graph is wanted, and data that finds its node by name."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import walktalk as wt
from walktalk import chains, theory
from walktalk.core.errors import DataError
from walktalk.report import figures

NAMES = ["south", "east", "north", "west"]
DATA = {name: (torch.full((5, 2), float(k)), torch.zeros(5, 1)) for k, name in enumerate(NAMES)}
MODEL = nn.Linear(2, 1)
RING = nx.Graph([("south", "east"), ("east", "north"), ("north", "west"), ("west", "south")])


def task(partitions=DATA, **given) -> wt.Task:
    return wt.tasks.torch(MODEL, functional.mse_loss, partitions, **given)


def run(task: wt.Task, graph) -> wt.Run:
    return wt.train(task, wt.AsyncGossip(), graph, stop=wt.Stop(iterations=8), device="cpu")


def test_data_finds_its_node_by_name():
    found = run(task(), RING)
    assert found.trainer.task.names == ("east", "north", "south", "west")  # as the graph has them
    for node, name in enumerate(found.trainer.task.names):
        mine = found.trainer.task.inputs[found.trainer.task.parts[node]]
        assert torch.equal(mine, DATA[name][0])
    shuffled = {name: DATA[name] for name in reversed(NAMES)}
    assert torch.equal(run(task(shuffled), RING).row, found.row)


def test_a_list_goes_by_the_graphs_order_and_names_go_to_a_graph_without():
    assert run(task(list(DATA.values())), RING).trainer.task.names == ("east", "north", "south", "west")
    assert run(task(), wt.graphs.cycle(4)).trainer.task.names == tuple(NAMES)


def test_names_that_do_not_match():
    with pytest.raises(DataError, match="no data for centre and data for west, which the graph does not have"):
        run(task(), nx.relabel_nodes(RING, {"west": "centre"}))
    with pytest.raises(DataError, match="split over 4 nodes, but the graph has 5"):
        run(task(), wt.graphs.cycle(5))


def test_networkx_wherever_a_graph_is_wanted():
    ring = wt.graphs.from_networkx(RING)
    assert np.array_equal(
        chains.metropolis_hastings(RING).matrix.toarray(), chains.metropolis_hastings(ring).matrix.toarray()
    )
    assert theory.network(RING) == theory.network(ring)
    assert wt.forecast(wt.MultiWalk(walks=1), RING, model_bytes=8) == wt.forecast(
        wt.MultiWalk(walks=1), ring, model_bytes=8
    )


def test_figures_have_the_names():
    found = run(task(), RING)
    drawn = [text.get_text() for text in figures.network(RING).axes[0].texts]
    assert set(NAMES) <= set(drawn)
    names = found.trainer.task.names
    rows = figures.timeline(found.trace, names=names).axes[0].get_yticklabels()
    assert {label.get_text() for label in rows} <= set(names)
    bubbles = figures.partition(np.ones((4, 2)), nodes=names)
    assert [label.get_text() for label in bubbles.axes[0].get_xticklabels()] == list(names)
