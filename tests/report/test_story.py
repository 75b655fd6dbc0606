"""What the page says in words: who won, what an algorithm is, what differs, what to type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from walktalk.report.page.conclusions import conclusion_of
from walktalk.report.page.data import CONTRAST, DARK, LIGHT, Name, contrast, names_of, on_dark, on_light, within
from walktalk.report.page.sections import Html, tag
from walktalk.report.settings import between, from_defaults, repeat_command
from walktalk.studies import load_spec, make_spec, preset_names, spec_mapping

AXES = ("iteration", "time", "bits")
NAMES = {"a": Name("One walk", "One walk", ""), "b": Name("Gossip in pairs", "Async-Gossip", "")}


def summary(clear: bool | None = True, target: float | None = 0.25) -> dict[str, Any]:
    entry = {
        "repetitions": 5,
        "to_target": {axis: {"mean": 8e6 if axis == "bits" else 100.0, "std": 1.0} for axis in AXES},
    }
    slow = {
        "repetitions": 5,
        "to_target": {axis: {"mean": 24e6 if axis == "bits" else 300.0, "std": 1.0} for axis in AXES},
    }
    won = {
        axis: {"algorithm": "a", "value": entry["to_target"][axis]["mean"], "next": "b", "clear": clear}  # type: ignore[index]
        for axis in AXES
    }
    accuracy = {"algorithm": "b", "value": 0.931, "next": "a", "clear": True}
    return {"target_loss": target, "algorithms": {"a": entry, "b": slow}, "winners": {**won, "accuracy": accuracy}}


def test_the_sentence_names_the_winner_on_each_axis_and_says_which_time_it_is() -> None:
    said = conclusion_of(summary(), NAMES).sentence
    assert said == (
        "To get down to a training loss of 0.25, the fewest iterations are needed by one walk, "
        "the least virtual time by one walk, and the least data is sent by one walk."
    )
    assert "least wall-clock time" in conclusion_of(summary(), NAMES, "wall-clock time").sentence


def test_a_victory_that_may_be_luck_is_no_victory() -> None:
    told = conclusion_of(summary(clear=False), NAMES)
    assert "one walk or gossip in pairs (too close to call)" in told.sentence
    assert told.cards[0].against == "too close to gossip in pairs to call"
    assert "may be luck" in conclusion_of(summary(clear=None), NAMES).cards[0].against


def test_a_probable_victory_is_said_to_be_and_how_many_repetitions_would_tell() -> None:
    content = summary(clear=False)
    for winner in content["winners"].values():
        winner.update(clear=False, chance=0.93, repetitions_needed=6)
    told = conclusion_of(content, NAMES)
    assert "are needed by probably one walk" in told.sentence
    assert told.cards[0].against == "probably 3 times fewer than gossip in pairs; about 6 repetitions would tell"
    assert told.cards[-1].against == "probably; next: one walk; about 6 repetitions would tell"
    content["winners"]["iteration"].update(chance=0.6, repetitions_needed=40)
    against = conclusion_of(content, NAMES).cards[0].against
    assert against == "too close to gossip in pairs to call; about 40 repetitions would tell"


def test_cards_have_values_with_units_and_how_much_less_than_the_next() -> None:
    cards = {card.kind: card for card in conclusion_of(summary(), NAMES).cards}
    assert [cards[axis].value for axis in AXES] == ["100", "100 s", "1 MB"]
    assert cards["iteration"].against == "3 times fewer than gossip in pairs"
    assert cards["bits"].against == "3 times less than gossip in pairs"
    assert (cards["accuracy"].value, cards["accuracy"].winner) == ("93.1 %", "b")


def test_nobody_wins_where_no_loss_was_reached_by_all() -> None:
    assert "nobody" in conclusion_of(summary(target=None), NAMES).sentence


def test_algorithms_have_names_that_need_no_paper_and_no_two_share_one() -> None:
    spec = make_spec({
        "algorithms": [
            {"name": "multi_walk", "walks": [1, 4]},
            {"name": "multi_walk", "walks": 4, "aggregator": 3},
            {"name": "async_gossip", "mixing": ["pairwise", "matrix"]},
            {"name": "sync_gossip", "label": "mine"},
            {"name": "centralized"},
        ]
    })  # fmt: skip
    names = names_of(spec.described)
    assert names["multi_walk-1"].name == "One walk"
    assert names["multi_walk-4-at3"].name == "4 walks, aggregator 3"
    assert names["mine"].name == "mine"
    assert len({name.name for name in names.values()}) == len(names)
    assert all(name.description.endswith(".") for name in names.values())
    names = {"One walk": "one walk", "ADMM": "ADMM", "4 walks": "4 walks", "FedAdam": "FedAdam", "SlowMo": "SlowMo"}
    assert {name: within(name) for name in names} == names


def test_what_differs_from_the_defaults_comes_first_and_nothing_is_lost() -> None:
    spec = make_spec({
        "task": {"alpha": 0.5}, "optimizer": {"lr": 0.1}, "algorithms": [{"name": "multi_walk", "walks": 3}]
    })  # fmt: skip
    chosen, usual = from_defaults(spec)
    assert chosen == {"task.alpha": 0.5, "optimizer.lr": 0.1, "algorithms.0": {"name": "multi_walk", "walks": 3}}
    assert usual["network.topology"] == "erdos_renyi"
    assert usual["optimizer.momentum"] == 0.9
    assert not set(chosen) & set(usual)


def test_another_topology_is_a_difference_and_its_own_defaults_are_none() -> None:
    chosen, usual = from_defaults(make_spec({"network": {"topology": "cycle", "nodes": 8}}))
    assert {"network.topology": "cycle", "network.nodes": 8}.items() <= chosen.items()
    assert "network.p" not in chosen
    assert "network.p" not in usual


def test_studies_differ_in_what_they_differ_in() -> None:
    a, b = (spec_mapping(make_spec({"seed": seed, "task": {"alpha": 1.0}})) for seed in (0, 1))
    assert between([a, b]) == {"seed": [0, 1]}
    assert between([a, a]) == {}


@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_is_repeated_by_its_name(preset: str) -> None:
    command = repeat_command(load_spec(preset), Path("out") / preset)
    assert command == f"walktalk run {preset} --out out/{preset}-again"


def test_the_command_sets_what_was_changed_and_quotes_what_a_shell_would_break() -> None:
    changed = load_spec("quickstart", ["task.alpha=0.1", "schedule.decay_at=[0.5, 0.75]"])
    command = repeat_command(changed, Path("my study"), "peers")
    sets = "--set task.alpha=0.1 --set 'schedule.decay_at=[0.5, 0.75]'"
    assert command == f"walktalk run quickstart {sets} --engine peers --out 'my study-again'"
    other = load_spec("quickstart", ["algorithms.0.walks=8"])  # long, so it is named by its file
    assert repeat_command(other, Path("out")) == "walktalk run out/spec.yaml --out out-again"
    mine = repeat_command(make_spec({"name": "mine"}), Path("my study"))
    assert mine == "walktalk run 'my study/spec.yaml' --out 'my study-again'"


def test_text_is_escaped_and_html_is_not() -> None:
    assert tag("p", "<b>", Html("<i>"), class_='"x"') == '<p class="&quot;x&quot;">&lt;b&gt;<i></p>'
    assert tag("input", checked=True, disabled=False, id=None) == "<input checked>"


@pytest.mark.parametrize("colour", ["#000000", "#332288", "#DDCC77", "#56B4E9", "#ffffff", "#0072B2"])
def test_colours_are_seen_on_light_and_on_dark(colour: str) -> None:
    assert contrast(on_light(colour), LIGHT) >= CONTRAST
    assert contrast(on_dark(colour), DARK) >= CONTRAST
