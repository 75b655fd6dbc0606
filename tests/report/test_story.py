"""What the page says in words: who won, what an algorithm is, what differs, what to type."""

from __future__ import annotations

import colorsys
import itertools
from pathlib import Path
from typing import Any

import pytest
from tests.studies.test_summary import run, study

from walktalk.protocols import Described, known
from walktalk.report import results_table
from walktalk.report.page.conclusions import conclusion_of
from walktalk.report.page.data import (
    APART,
    CONTRAST,
    DARK,
    LIGHT,
    Name,
    contrast,
    distance,
    names_of,
    on_dark,
    on_light,
    page_colours,
    within,
)
from walktalk.report.page.sections import Html, tag
from walktalk.report.settings import between, from_defaults, repeat_command
from walktalk.studies import load_spec, make_spec, preset_names, spec_mapping, summarize

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
    first = told.cards[0]
    assert (first.winner, first.either, first.against) == ("a", "b", "too close to call")
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
    assert against == "too close to call; about 40 repetitions would tell"


def test_cards_have_values_with_units_and_how_much_less_than_the_next() -> None:
    cards = {card.kind: card for card in conclusion_of(summary(), NAMES).cards}
    assert [cards[axis].value for axis in AXES] == ["100", "100 s", "1 MB"]
    assert cards["iteration"].against == "3 times fewer than gossip in pairs"
    assert cards["bits"].against == "3 times less than gossip in pairs"
    assert (cards["accuracy"].value, cards["accuracy"].winner) == ("93.1 %", "b")


def test_one_algorithm_alone_wins_nothing_and_is_said_to_have_come_so_far() -> None:
    table = study(run("multi_walk-2", 0, [2.0, 0.5]), run("multi_walk-2", 1, [2.0, 0.7]))
    told = conclusion_of(summarize(table), {"multi_walk-2": Name("2 walks", "multi_walk-2", "")})
    assert told.sentence.startswith("It gets down to a training loss of 0.7: that takes ")
    assert {card.winner for card in told.cards} == {None}
    assert {card.kind: card.value for card in told.cards}["loss"] == "0.6"


def test_a_reference_is_no_candidate_and_is_told_beside() -> None:
    table = study(
        run("multi_walk-2", 0, [2.0, 0.5], bits=80), run("async_gossip-pairwise", 0, [2.0, 0.6], bits=160),
        run("centralized", 0, [2.0, 0.1], bits=0),
    )  # fmt: skip
    content = summarize(table)
    assert {winner["algorithm"] for winner in content["winners"].values()} == {"multi_walk-2"}
    assert content["winners"]["bits"]["next"] == "async_gossip-pairwise"
    names = names_of(known(content["algorithms"]))
    told = conclusion_of(content, names)
    assert "the least data is sent by 2 walks." in told.sentence
    assert told.sentence.endswith(
        "To compare with: all data in one place ends at a training loss of 0.1 and an accuracy of 97.5 %."
    )
    results = results_table(content)
    assert "All data in one place is there to compare with, and cannot win." in results.note
    assert not any(cell.best for row in results.rows if row[0].text == "All data in one place" for cell in row)


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


def of_sweep(**settings: list[Any]) -> dict[str, Described]:
    ((key, values),) = settings.items()
    spec = make_spec({"algorithms": [{"name": "choco_sgd", key: values}, {"name": "multi_walk", "walks": [1, 2, 4]}]})
    return dict(spec.described)


def test_a_sweep_has_one_hue_and_gets_lighter_by_its_setting() -> None:
    described = of_sweep(gamma=[0.8, 0.1, 0.4, 0.2])
    sweep = sorted((one.settings["gamma"], one.colour) for one in described.values() if one.name == "choco_sgd")
    hls = [colorsys.rgb_to_hls(*(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))) for _, colour in sweep]
    assert [lightness for _, lightness, _ in hls] == sorted(lightness for _, lightness, _ in hls)
    hues = [hue for hue, _, _ in hls]
    assert all(abs((hue - hues[0] + 0.5) % 1.0 - 0.5) < 0.15 for hue in hues)
    assert described["multi_walk-1"].colour == "#0072B2"  # which have colours of their own, the paper's
    assert described["multi_walk-4"].colour == "#009E73"


@pytest.mark.parametrize("values", [[0.1, 0.2], [0.1, 0.2, 0.4, 0.8], [0.05, 0.1, 0.2, 0.4, 0.6, 0.8]])
def test_curves_of_a_page_are_seen_and_told_apart_in_the_light_and_in_the_dark(values: list[float]) -> None:
    """The blues of one and two walks were one in the dark."""
    colours = page_colours(of_sweep(gamma=values))
    for place, on in enumerate((LIGHT, DARK)):
        seen = [both[place] for both in colours.values()]
        assert all(contrast(colour, on) >= CONTRAST for colour in seen)
        assert min(distance(a, b) for a, b in itertools.combinations(seen, 2)) > 0.06
    assert distance(colours["multi_walk-1"][1], colours["multi_walk-2"][1]) >= APART
    assert contrast(on_dark("#000000"), DARK) > 8  # the reference is no shadow of the page


def test_distances_of_colours_are_those_of_oklab() -> None:
    assert distance("#000000", "#ffffff") == pytest.approx(1.0, abs=1e-3)
    assert distance("#ff0000", "#00ff00") == pytest.approx(0.5197, abs=2e-3)
    assert distance("#123456", "#123456") == 0
