"""The long run of a weighted walk, against closed forms."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from walktalk import graphs
from walktalk.cli.app import app
from walktalk.core.errors import SpecError
from walktalk.theory import weighted_walk

HEAVY = (1.0, 1.0, 1.0, 10.0, 1.0, 1.0)


def test_visits_go_as_the_weights_and_all_count_alike() -> None:
    law = weighted_walk(graphs.cycle(6), HEAVY)
    assert np.allclose(law.stationary, np.array(HEAVY) / 15.0)
    assert law.bias == pytest.approx(0.0, abs=1e-12)
    assert law.longest_return == pytest.approx(15.0)
    assert (law.stays_at, law.longest_stay) == (3, pytest.approx(15.0))  # 3w/2 steps on a cycle


def test_without_the_scale_heavy_nodes_count_for_more() -> None:
    law = weighted_walk(graphs.cycle(6), HEAVY, scaled=False)
    assert law.counts == pytest.approx([6 * weight / 15.0 for weight in HEAVY])
    assert law.bias == pytest.approx(3.0)


def test_jumps_get_away_and_put_visits_off_the_weights_by_their_order() -> None:
    laws = [weighted_walk(graphs.cycle(6), HEAVY, jump=jump) for jump in (0.0, 0.001, 0.01, 0.3)]
    assert [law.bias for law in laws] == sorted(law.bias for law in laws)
    assert laws[2].bias == pytest.approx(10 * laws[1].bias, rel=0.2)
    assert laws[3].longest_stay < 0.5 * laws[0].longest_stay
    assert laws[3].gap > laws[0].gap  # type: ignore[operator]


def test_alike_it_is_the_chain_of_the_paper() -> None:
    law = weighted_walk(graphs.complete(5), (2.0,) * 5)
    assert law.gap == pytest.approx(1.0)
    assert law.stationary == pytest.approx([0.2] * 5)


def test_the_command_line_says_it() -> None:
    asked = ["theory", "--topology", "cycle", "--nodes", "6", "--weights", "1,1,1,10,1,1", "--jump", "0.1"]
    found = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)["weighted_walk"]
    assert found["bias"] == pytest.approx(weighted_walk(graphs.cycle(6), HEAVY, 0.1).bias)
    assert "holds it longest" in CliRunner().invoke(app, asked).stdout
    for wrong, said in ((["--weights", "1,a"], "numbers with commas"), (["--weights", "1,2"], "6")):
        result = CliRunner().invoke(app, ["theory", "--topology", "cycle", "--nodes", "6", *wrong])
        assert isinstance(result.exception, SpecError) or result.exit_code == 2
        assert said in str(result.exception) + result.output
