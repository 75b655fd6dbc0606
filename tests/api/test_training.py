"""One `Training` for all calls, or its fields as keywords; each keyword is listed, checked and explained."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import get_type_hints

import pytest

import walktalk as wt
from walktalk.api import training
from walktalk.core.settings import meanings_in

CYCLE = wt.graphs.cycle(4)
FUNCTIONS = {
    wt.train: (training.TrainKeywords, training.RunOptions),
    wt.compare: (training.CompareKeywords, training.RunOptions),
    wt.advise: (training.AdviseKeywords, training.AdviceOptions),
    wt.forecast: (training.TrainingKeywords, training.Training),
}


def history(*given, **keywords):
    task = wt.tasks.digits(nodes=4)
    return wt.train(task, wt.AsyncGossip(), CYCLE, *given, device="cpu", progress=False, **keywords).history


def test_an_object_and_its_fields_mean_the_same():
    settings = {"stop": 40, "evaluate": 20, "local_steps": 2, "batch_size": 8, "seed": 3}
    assert history(wt.Training(**settings)).equals(history(**settings))


def test_a_keyword_beside_a_training_replaces_its_field():
    usual = wt.Training(stop=40, evaluate=20, seed=3)
    assert history(usual, seed=4).equals(history(stop=40, evaluate=20, seed=4))
    assert not history(usual, seed=4).equals(history(usual))


def test_what_is_no_training_is_refused():
    with pytest.raises(wt.UserError, match=r"training: 40 is not possible; allowed: wt\.Training"):
        wt.train("digits", "d2", CYCLE, 40)


CALLS = {
    "train": lambda **more: wt.train("digits", "d2", CYCLE, **more),
    "compare": lambda **more: wt.compare("digits", "d2", CYCLE, **more),
    "advise": lambda **more: wt.advise("digits", CYCLE, **more),
    "forecast": lambda **more: wt.forecast("d2", CYCLE, model_bytes=4, **more),
}


@pytest.mark.parametrize("name", CALLS)
def test_unknown_keywords_are_one_line_with_what_was_meant(name):
    with pytest.raises(TypeError, match=rf"^{name}\(\) got .* 'batchsize'; did you mean 'batch_size'\?$"):
        CALLS[name](batchsize=3)
    with pytest.raises(TypeError, match=r"'nonsense'; allowed: .*batch_size, local_steps"):
        CALLS[name](nonsense=3)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda one: one.__name__)
def test_every_keyword_is_listed_with_its_default_and_its_meaning(function):
    keywords, options = FUNCTIONS[function]
    named = set(get_type_hints(keywords))
    parameters = inspect.signature(function).parameters
    assert named <= set(parameters)
    meanings = meanings_in(function.__doc__)
    defaults = {field.name: field.default for kind in (training.Training, options) for field in fields(kind)}
    for name in named:
        assert parameters[name].default == defaults[name]
        assert len(meanings[name].split()) >= 3


def test_the_typed_dictionaries_are_the_dataclasses():
    """What editors and type checkers know of a keyword is what the object has."""
    kinds = {
        name: kind for one in (training.Training, training.RunOptions) for name, kind in get_type_hints(one).items()
    }
    assert get_type_hints(training.CompareKeywords) == kinds
    kinds = {
        name: kind for one in (training.Training, training.AdviceOptions) for name, kind in get_type_hints(one).items()
    }
    assert get_type_hints(training.AdviseKeywords) == kinds
