from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from walktalk.core.errors import SpecError
from walktalk.runtimes.simulator import NetworkTiming, PoissonTiming
from walktalk.studies.planning import (
    build_evaluate,
    build_graph,
    build_protocols,
    build_rate,
    build_stop,
    build_task,
    build_timing,
)
from walktalk.studies.spec.load import load_spec, make_spec

ROOT = Path(__file__).parents[2]


def test_graph_and_data_depend_on_the_study_s_seed_only() -> None:
    spec = load_spec("smoke", ["network.topology=erdos_renyi", "network.nodes=12"])
    other = load_spec("smoke", ["network.topology=erdos_renyi", "network.nodes=12", "seed=1"])
    more = load_spec("smoke", ["network.topology=erdos_renyi", "network.nodes=12", "repetitions=9"])
    assert build_graph(spec) == build_graph(more) != build_graph(other)
    for a, b in zip(build_task(spec).parts, build_task(more).parts, strict=True):
        assert np.array_equal(a, b)
    assert any(not np.array_equal(a, b) for a, b in zip(build_task(spec).parts, build_task(other).parts, strict=True))


def test_every_algorithm_has_its_label_and_rate() -> None:
    spec = make_spec({"algorithms": [{"walks": [1, 2]}, {"name": "async_gossip", "lr": 0.2, "label": "fast"}]})
    plans = [(plan.label, plan.protocol.name, plan.lr) for plan in build_protocols(spec)]
    assert plans == [
        ("multi_walk-1", "multi_walk", 0.05),
        ("multi_walk-2", "multi_walk", 0.05),
        ("fast", "async_gossip", 0.2),
    ]


def test_the_number_of_nodes_of_a_file_is_checked_when_it_is_known(tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text("0 1\n1 2\n")
    spec = make_spec(
        {"network": {"topology": "edge_list", "file": str(tmp_path / "g.txt")}, "algorithms": [{"walks": 4}]}
    )
    assert build_graph(spec).nodes == 3
    assert build_task(spec).nodes == 3
    with pytest.raises(SpecError, match=r"algorithms\.0\.walks: 4 is not possible on 3 nodes"):
        build_protocols(spec, 3)


def test_timing_is_built_from_its_section() -> None:
    assert build_timing(make_spec({"timing": {"d": 2.0}})) == PoissonTiming(2.0)
    section = {"model": "network", "compute": 0.5, "stragglers": {"share": 0.1, "slowdown": 3.0}, "bandwidth": 1e8}
    timing = build_timing(make_spec({"timing": section}))
    assert timing == NetworkTiming(compute=0.5, straggler_share=0.1, straggler_slowdown=3.0, bandwidth=1e8)


def test_latency_and_bandwidth_replace_those_between_sites_but_not_within() -> None:
    plain = build_graph(make_spec({"network": {"topology": "us_five_sites"}})).sites
    section = {"model": "network", "bandwidth": 1e8, "latency": 0.5}
    changed = build_graph(make_spec({"network": {"topology": "us_five_sites"}, "timing": section})).sites
    assert plain is not None
    assert changed is not None
    assert changed.bandwidth_between(0, 19) == 1e8
    assert changed.latency_between(0, 19) == 0.5
    assert changed.bandwidth_between(0, 1) == plain.bandwidth_between(0, 1)
    assert changed.latency_between(0, 1) == plain.latency_between(0, 1)


def test_stop_evaluate_and_schedule_are_built_and_can_be_sent_to_another_process() -> None:
    spec = make_spec(
        {"stop": {"time": 10, "bits": 1e9}, "evaluate": {"seconds": 2}, "schedule": {"warmup": 0.1, "decay_at": [0.5]}}
    )
    assert (build_stop(spec).iterations, build_stop(spec).time, build_stop(spec).bits) == (None, 10, 1e9)
    assert (build_evaluate(spec).every, build_evaluate(spec).seconds) == (None, 2)
    schedule = pickle.loads(pickle.dumps(build_rate(spec)))
    assert [schedule(p) for p in (0.05, 0.2, 0.6)] == pytest.approx([0.5, 1.0, 0.1])


def test_the_optimizer_is_built_with_what_it_takes() -> None:
    adam = load_spec("smoke", ["optimizer.name=adam", "optimizer.betas=[0.8,0.9]"]).optimizer.build()
    assert (adam.name, adam.lr, adam.betas, adam.momentum) == ("adam", 1e-3, (0.8, 0.9), 0.0)
    sgd = load_spec("smoke").optimizer.build()
    assert (sgd.momentum, sgd.nesterov) == (0.9, True)
