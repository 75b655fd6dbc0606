"""Benchmarks say what they measure, and what they compare with does the same work."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from walktalk import graphs
from walktalk.bench import BENCHMARKS, BenchResult, theory
from walktalk.chains import metropolis_hastings, return_time, spectrum
from walktalk.cli.app import app
from walktalk.cli.bench import NAMES

DENSE = sys.modules["walktalk.bench.theory"]


def test_the_command_names_all_benchmarks():
    assert NAMES.split(", ") == list(BENCHMARKS)


def test_an_unknown_benchmark_is_refused():
    result = CliRunner().invoke(app, ["bench", "nothing"])
    assert result.exit_code == 2
    assert "allowed: simulator" in result.stderr


def test_json_is_one_object_and_nothing_else(monkeypatch):
    found = BenchResult("events", 10.0, 5.0, "events/s", "what", "against", details={"nodes": 3})
    monkeypatch.setitem(BENCHMARKS, "events", lambda say: (say("measuring"), found)[1])
    result = CliRunner().invoke(app, ["bench", "events", "--json"])
    said = json.loads(result.stdout)
    assert {"name": "events", "value": 10.0, "baseline": 5.0, "ratio": 2.0}.items() <= said.items()
    assert "measuring" in result.stderr
    table = CliRunner().invoke(app, ["bench", "events"]).stdout
    assert "ratio" in table
    assert "2.00" in table


def test_where_less_is_better_the_ratio_says_so():
    assert BenchResult("hop", 4.0, 1.0, "ms", "", "", higher_is_better=False).ratio == 0.25


def test_the_dense_way_gives_the_same_quantities():
    chain = metropolis_hastings(graphs.torus(7, 7))
    gap, moment = DENSE.dense_quantities(7)
    assert gap == pytest.approx(spectrum(chain).p)
    assert gap == pytest.approx(DENSE.closed_form_gap(7))
    assert moment == pytest.approx(return_time(chain, 0).second_moment)
    assert theory is BENCHMARKS["theory"]
