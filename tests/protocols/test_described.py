"""What every registered algorithm says of itself, for `walktalk algorithms` and the page of all algorithms."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from walktalk import graphs, protocols
from walktalk.cli.app import app
from walktalk.protocols import D2, PROTOCOLS, missing_facts
from walktalk.protocols.registry import OURS
from walktalk.studies import algorithm_entries

PAGE = Path(__file__).parents[2] / "docs" / "algorithms.md"
SCREEN = 92  # lines that are not blank: 90, and two for what they all have to say of themselves one day
LARGER = dict.fromkeys(("async_gossip", "digest", "multi_walk"), 100)  # the paper's own, and DIGEST
LARGER |= {"push_pull": 100}  # running sums up and models down, and a step by the number of those that are left


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_algorithm_says_what_it_keeps_sends_and_guarantees(name: str) -> None:
    """Also its paper and its rule; the message says where to write what is missing."""
    usual = PROTOCOLS[name].usual()
    assert usual, f"{name}: `usual` gives nothing, so nobody can be told what it is"
    assert not missing_facts(usual[0]), "\n".join(missing_facts(usual[0]))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_form_that_lacks_an_ability_says_why(name: str) -> None:
    """Failures, joining and leaving: also its forms without failures, and those that people rarely take."""
    kind = PROTOCOLS[name]
    forms = [*kind.usual(), *kind.other_forms()]
    plain = [replace(one, resilient=False) for one in forms if "resilient" in one.settings]  # type: ignore[type-var]
    assert not [one.label for one in plain if one.nodes_come_and_go], "what knows no failures cannot let nodes join"
    for form in (*forms, *plain):
        assert form.survives_failures or form.why_failures_end_it, f"{form.label}: add why_failures_end_it"
        assert form.nodes_come_and_go or form.why_nodes_stay, f"{form.label}: add why_nodes_stay"
        assert not (form.survives_failures and form.why_failures_end_it), form.label
        assert not (form.nodes_come_and_go and form.why_nodes_stay), form.label


def test_forms_that_lack_an_ability_are_shown_with_their_reasons() -> None:
    """In the list of commands, on the page and as plain data."""
    said = {one.protocol.name: one for one in algorithm_entries(["async_gossip", "noloco", "choco_sgd", "centralized"])}
    assert "with mixing: matrix: the simulator; knows no failures, because it mixes all" in said["async_gossip"].where
    assert "with fragments: 2: nodes stay the same, because with fragments one" in said["noloco"].where
    assert "knows no failures, because a difference that is lost" in said["choco_sgd"].where
    assert said["choco_sgd"].plain()["why_failures_end_it"].startswith("a difference that is lost")
    assert said["centralized"].plain()["why_nodes_stay"].startswith("one node alone trains")


@pytest.mark.parametrize("name", OURS)
def test_an_algorithm_is_a_rule_of_about_a_screen(name: str) -> None:
    """What is longer knows something that every algorithm of its kind should have: it belongs in a mechanism."""
    file = Path(protocols.__file__).parent / OURS[name].partition(":")[0].replace(".", "/")
    lines = [line for line in file.with_suffix(".py").read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= LARGER.get(file.name, SCREEN)


def test_what_is_missing_is_said() -> None:
    class Silent(D2):
        """Says less than the one that it is made of."""

        keeps = ""

    said = missing_facts(Silent())
    assert 'Silent does not say its keeps: add keeps: ClassVar[str] = "what is kept where"' in said
    assert any(
        "its update_rule: add its update rule, indented" in line for line in said
    )  # none at the head of this file


def test_the_page_is_what_they_say() -> None:
    """Counted bits are part of it: they are the same everywhere, as no model is touched.

    In a process of its own: in this one other tests may have registered algorithms.
    """
    made = subprocess.run(
        [sys.executable, "-m", "walktalk.studies.algorithms"], capture_output=True, encoding="utf-8", check=True
    )
    again = "python -m walktalk.studies.algorithms > docs/algorithms.md"
    assert made.stdout == PAGE.read_text(encoding="utf-8"), f"make it again: {again}"


def test_bits_are_counted_as_sent() -> None:
    """On a cycle every node has two neighbours: what a round sends is known in closed form, up to headers."""
    model = 32 * 10_000
    found = {one.protocol.name: one for one in algorithm_entries(None, graphs.cycle(20), 10_000)}
    once = {"async_gossip": 2, "local_dsgd": 2, "slowmo": 2, "d2": 2, "extra": 2}
    twice = dict.fromkeys(("gradient_tracking", "momentum_tracking", "k_gt"), 4)
    for name, models in {**once, **twice}.items():
        assert found[name].bits == pytest.approx(models * model, rel=0.02), name
    assert found["choco_sgd"].bits == pytest.approx(2 * model / 4, rel=0.05)  # 8 bits of 32
    assert found["multi_walk"].bits == pytest.approx(2 / 3 * model, rel=0.1)  # it stays with probability 1/3
    assert found["centralized"].bits == 0
    assert found["fedavg"].bits is None
    assert "take star" in found["fedavg"].not_here


def test_the_command() -> None:
    listed = CliRunner().invoke(app, ["algorithms"])
    assert listed.exit_code == 0, listed.output
    assert all(name in listed.output for name in PROTOCOLS)
    one = CliRunner().invoke(app, ["algorithms", "d2", "--graph", "cycle", "--nodes", "6"])
    for part in ("Tang", "x_i(t+1)", "lazy", "bits", "algorithms: [{name: d2}]"):
        assert part in one.output
    plain = json.loads(CliRunner().invoke(app, ["algorithms", "d2", "sgp", "--json"]).stdout)
    assert [entry["name"] for entry in plain] == ["d2", "sgp"]
    assert plain[0]["keys"]["lazy"]["default"] is True
    wrong = CliRunner().invoke(app, ["algorithms", "d3"])
    assert wrong.exit_code == 2
    assert "d2" in wrong.stderr
    assert CliRunner().invoke(app, ["algorithms", "--nodes", "5"]).exit_code == 2
