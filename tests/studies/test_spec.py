from __future__ import annotations

import math
import re
from pathlib import Path
from typing import get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from walktalk.core.errors import SpecError
from walktalk.records import yaml_text
from walktalk.studies.spec import StudySpec, dump_spec, load_spec, make_spec, preset_names, spec_mapping
from walktalk.studies.spec.algorithm import expand
from walktalk.studies.spec.reference import SECTIONS


def test_an_empty_mapping_is_a_whole_study() -> None:
    spec = make_spec({})
    assert spec.network.nodes == 20
    assert spec.stop.iterations == 3000
    assert [a.title for a in spec.algorithms] == ["multi_walk-1", "multi_walk-4", "async_gossip-pairwise"]


def test_the_design_s_example_is_the_quickstart() -> None:
    spec = load_spec("quickstart")
    assert [a.title for a in spec.algorithms] == [
        "multi_walk-1",
        "multi_walk-4",
        "multi_walk-15",
        "async_gossip-pairwise",
    ]
    assert (spec.repetitions, spec.network.p, spec.task.settings["alpha"]) == (5, 0.3, 1.0)
    assert (spec.training.local_steps, spec.stop.iterations, spec.evaluate.every) == (5, 3000, 100)


@pytest.mark.parametrize("name", preset_names())
def test_what_is_dumped_loads_as_the_same_study(name: str) -> None:
    spec = load_spec(name)
    text = dump_spec(spec)
    again = make_spec(yaml_text.parse(text, "dumped"))
    assert again == spec
    assert dump_spec(again) == text


def test_what_is_dumped_is_complete_and_has_no_key_without_a_meaning() -> None:
    text = dump_spec(load_spec("us-five-sites"))
    assert "compute: 0.05" in text
    assert "aggregator: 0" in text
    assert "null" not in text
    assert "d: 1.0" not in text


BAD = {
    "nework.nodes=3": "nework: is an unknown key; allowed: name, seed, .* did you mean 'network'",
    "nodes=3": r"nodes: is an unknown key; .*; did you mean 'network\.nodes'",
    "lr=0.1": r"lr: is an unknown key; .*; did you mean 'optimizer\.lr'",
    "network.batch_size=3": r"network\.batch_size: is an unknown key; .*; did you mean 'training\.batch_size'",
    "learning_rate=1": r"learning_rate: is an unknown key; .*; did you mean 'optimizer\.lr'",
    "network.graph=cycle": r"network\.graph: is an unknown key; .*; did you mean 'network\.topology'",
    "network.node=3": r"network\.node: is an unknown key; allowed: topology, nodes, .* did you mean 'nodes'",
    "network.nodes=three": r"network\.nodes: 'three' is not possible; allowed: a whole number from 1 to 16,777,216",
    "network.nodes=0": r"network\.nodes: 0 is not possible",
    "network.nodes=true": r"network\.nodes: True is not possible",
    "network.topology=cyle": r"network\.topology: 'cyle' .* did you mean 'cycle'",
    "network.topology=edge_list": r"network\.file: is missing",
    "network.rows=3": r"network\.rows: 3 has no meaning for topology erdos_renyi",
    "network.p=1.5": r"network\.p: 1\.5 is not possible; allowed: a number from 0 to 1",
    "network.sites=mars": r"network\.sites: 'mars' .* us-five-sites",
    "algorithms.0.walks=0": r"algorithms\.0\.walks: 0 .* 1 to 20",
    "algorithms.0.walks=[1,4,21]": r"algorithms\.0\.walks: 21 .* 1 to 20",
    "algorithms.0.walks=two": r"algorithms\.0\.walks: 'two' is not possible; allowed: a whole number",
    "algorithms.0.aggregator=20": r"algorithms\.0\.aggregator",
    "algorithms.0.walk=3": r"algorithms\.0\.walk: is an unknown key; .* did you mean 'walks'",
    "algorithms.1.mixing=pairwse": r"algorithms\.1\.mixing: 'pairwse' .* pairwise, neighbourhood, matrix",
    "algorithms.1.name=gossip": r"algorithms\.1\.name: 'gossip' .* async_gossip",
    "algorithms.0.walks=[1,1]": r"algorithms\.0: 'multi_walk-1' is there already",
    "algorithms.0.lr=0": r"algorithms\.0\.lr: 0 is not possible",
    "algorithms.2.walks=1": r"algorithms\.2: '2' is not an entry of the list; allowed: 0 to 1",
    "algorithms=[]": "algorithms: .* at least one",
    "algorithms=[walk]": r"algorithms\.0: 'walk' is not a section",
    "optimizer.lr=-0.1": r"optimizer\.lr: -0\.1 is not possible; allowed: a number above 0",
    "optimizer.lr=.nan": r"optimizer\.lr: nan is not possible",
    "optimizer.lr=fast": r"optimizer\.lr: 'fast' is not possible",
    "optimizer.lr.x=3": r"optimizer\.lr: 0\.05 is not a section",
    "optimizer.name=sdg": r"optimizer\.name: 'sdg' .* did you mean 'sgd'",
    "optimizer.name=lbfgs": r"optimizer\.name: 'lbfgs' is not possible; allowed: .*rmsprop",
    "task.name=digit": r"task\.name: 'digit' .* did you mean 'digits'",
    "task.alhpa=1": r"task\.alhpa: is an unknown key; allowed: name, alpha.* did you mean 'alpha'",
    "task.alpha=0": r"task\.alpha: 0.* is not possible; allowed: a number above 0",
    "task.alpha=-1": r"task\.alpha: -1.* is not possible; allowed: a number above 0",
    "task.alpha=.inf": r"task\.alpha: inf is not possible",
    "task.alpha=much": r"task\.alpha: 'much' is not possible; allowed: a number",
    "task.hidden=2.5": r"task\.hidden: 2\.5 is not possible; allowed: a whole number",
    "optimizer.betas=[0.9,0.9]": r"optimizer\.betas: .* has no meaning for sgd",
    "optimizer.momentum=0": r"optimizer\.nesterov: true needs momentum",
    "optimizer=3": "optimizer: 3 is not a section",
    "optimizer=": "optimizer: has no value",
    "optimizer={lr: [}": "not valid YAML",
    "stop={}": r"stop\.iterations: is missing",
    "stop={target_loss: 0.1}": r"stop\.target_loss: may never be reached",
    "evaluate.seconds=3": r"evaluate\.seconds: .* exclude each other",
    "schedule.decay_at=[0.9,0.75]": r"schedule\.decay_at: .* rising",
    "schedule.decay_at=[0.9,x]": r"schedule\.decay_at: 'x' .* rising",
    "timing.compute=3": r"timing\.compute: 3\.0 has no meaning for timing model poisson",
    "timing.stragglers.share=2": r"timing\.stragglers\.share: 2 is not possible",
    "training.optimizer_state=nodes": r"training\.optimizer_state: 'nodes' .* did you mean 'node'",
    "faults=[{kill: 3}]": "kill",
    "faults=[{kind: kill, node: 99, at: 3}]": "no node 99",
    "faults=[{kind: kill, node: king, at: 3}]": "aggregator, random",
    "name=a/b": "name: 'a/b' is not possible",
    "seed=-1": "seed: -1 is not possible",
    "repetitions=2.5": r"repetitions: 2\.5 is not possible",
    "seed": "--set seed: should be key=value",
    "=3": "--set =3: should be key=value",
}


@pytest.mark.parametrize("override", BAD)
def test_a_mistake_is_one_line_that_names_key_value_and_what_is_allowed(override: str) -> None:
    with pytest.raises(SpecError, match=BAD[override]) as caught:
        load_spec("quickstart", [override])
    assert "\n" not in str(caught.value)


def test_bits_alone_never_end_an_algorithm_that_sends_nothing() -> None:
    with pytest.raises(SpecError, match=r"stop\.bits: 'centralized' sends nothing"):
        make_spec({"stop": {"bits": 1e9}, "algorithms": [{"name": "centralized"}]})
    with pytest.raises(SpecError, match=r"stop\.bits"):
        make_spec({"stop": {"bits": 1e9}, "network": {"topology": "cycle", "nodes": 1}, "algorithms": [{"walks": 1}]})


def test_a_list_stands_for_one_algorithm_each() -> None:
    spec = make_spec({"algorithms": [{"walks": [1, 2], "lr": [0.1, 0.2]}, {"name": "async_gossip"}]})
    assert [a.title for a in spec.algorithms] == [
        "multi_walk-1-lr0.1",
        "multi_walk-1-lr0.2",
        "multi_walk-2-lr0.1",
        "multi_walk-2-lr0.2",
        "async_gossip-pairwise",
    ]


def test_a_setting_that_is_a_list_is_one_value_and_a_list_of_them_several() -> None:
    """So the file that a study leaves, in which every setting has its value, is read as that study again."""
    network = {"topology": "cycle", "nodes": 3}

    def weights(given: object, **more: object) -> list[object]:
        spec = make_spec({"network": network, "algorithms": [{"name": "weighted_walk", "weights": given, **more}]})
        again = make_spec(spec_mapping(spec))
        assert again == spec
        return [(a.model_extra or {})["weights"] for a in again.algorithms]

    assert weights([1, 2, 3]) == [(1, 2, 3)]
    assert weights([1, 2, 3], walks=[1, 2]) == [(1, 2, 3)] * 2
    several = expand([{"name": "weighted_walk", "weights": [[1, 2, 3], [3, 2, 1]]}])
    assert [entry["weights"] for _, entry in several] == [[1, 2, 3], [3, 2, 1]]
    assert weights([]) == [()]
    with pytest.raises(SpecError, match="weights"):
        make_spec({"network": network, "algorithms": [{"name": "weighted_walk", "weights": [1, 2]}]})


def test_another_kind_drops_the_keys_of_the_old_one() -> None:
    assert spec_mapping(load_spec("quickstart", ["network.topology=cycle"]))["network"] == {
        "topology": "cycle",
        "nodes": 20,
    }
    adam = load_spec("quickstart", ["optimizer.name=adam"]).optimizer
    assert (adam.lr, adam.betas, adam.momentum) == (1e-3, [0.9, 0.999], None)
    assert load_spec("quickstart", ["task.name=quadratic"]).task.settings["dimension"] == 20
    network = load_spec("quickstart", ["timing.model=network", "timing.bandwidth=1e8"]).timing
    assert (network.model, network.bandwidth) == ("network", 1e8)


def test_numbers_as_people_write_them() -> None:
    spec = load_spec("quickstart", ["optimizer.lr=1e-4", "stop.iterations=1e4", "network.nodes=40.0"])
    assert (spec.optimizer.lr, spec.stop.iterations, spec.network.nodes) == (1e-4, 10_000, 40)


def test_nodes_follow_from_a_file_or_a_dimension() -> None:
    assert make_spec({"network": {"topology": "edge_list", "file": "g.txt"}}).network.nodes is None
    assert make_spec({"network": {"topology": "hypercube", "dimension": 3}}).network.nodes is None
    assert make_spec({"network": {"topology": "us-five-sites"}}).network.nodes == 20


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed: 0\noptimizer: {lr: [}\n", r"study\.yaml, line 2, column \d+: not valid YAML"),
        ("seed: 0\nseed: 1\n", r"line 2.*key 'seed' comes twice"),
        ("task: {alpha: 1, alpha: 2}", "key 'alpha' comes twice"),
        ("- a\n", "should hold key: value pairs, but is a list"),
        ("1: 2\n", "key 1 is not a text"),
        ("!!python/object/apply:os.system [ls]", "not valid YAML"),
    ],
)
def test_broken_yaml_names_the_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "study.yaml").write_text(text)
    with pytest.raises(SpecError, match=says) as caught:
        load_spec(tmp_path / "study.yaml")
    assert "\n" not in str(caught.value)


def test_an_empty_file_is_the_default_study(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("# nothing yet\n")
    assert load_spec(tmp_path / "study.yaml") == make_spec({})


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("quikstart", "neither a file nor a preset; presets: .*quickstart.*did you mean 'quickstart'"),
        ("nowhere.yaml", "nowhere.yaml: cannot be read: No such file"),
        ("folder/nowhere", "cannot be read"),
        (".", "is a folder"),
    ],
)
def test_an_unknown_source_says_what_there_is(source: str, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        load_spec(source)


@pytest.mark.parametrize(
    ("study", "says"), [("study.yaml", "its study instead: study.yaml"), ("{name: mine}", "in a file of its own")]
)
def test_a_clusters_file_is_not_a_study(study: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(f"study: {study}\nnodes: {{lyon: {{}}}}\n")
    with pytest.raises(SpecError, match=f"is a cluster's file, not a study; name .*{says}"):
        load_spec(tmp_path / "cluster.yaml")


def test_a_binary_file_is_not_a_spec(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(SpecError, match="not a text file"):
        load_spec(tmp_path / "study.yaml")


words = st.text("abc é\n\"'{[:%", max_size=5)
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
sections = st.sampled_from(
    ["name", "network", "task", "optimizer", "algorithms", "stop", "timing", "faults", "evaluate"]
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(sections, json_like, max_size=3))
def test_whatever_is_written_is_a_study_or_one_line(content: dict[str, object]) -> None:
    says = ""
    try:
        spec = make_spec(content)
        assert make_spec(yaml_text.parse(dump_spec(spec), "dumped")) == spec
    except SpecError as error:
        says = str(error)
    assert "\n" not in says


def kinds_of(annotation: object) -> set[object]:
    """The plain types that a key may have."""
    inner = get_args(annotation)
    return set().union(*map(kinds_of, inner)) if inner else {annotation}


NUMBERS = [
    (f"{section}.{name}" if section else name, field)
    for section, cls in {**SECTIONS, "": StudySpec}.items()
    for name, field in cls.model_fields.items()
    if {int, float} & kinds_of(field.annotation)
]


def may_be_a_list(annotation: object) -> bool:
    """Whether there may be a number for each node, or several for another reason: bounds are the section's to check."""
    return get_origin(annotation) is list or any(map(may_be_a_list, get_args(annotation)))


@pytest.mark.parametrize(("dotted", "field"), NUMBERS, ids=[dotted for dotted, _ in NUMBERS])
def test_every_number_has_bounds(dotted, field):
    if not may_be_a_list(field.annotation):
        sides = ("ge", "gt", "le", "lt")
        bounds = {side: getattr(one, side) for one in field.metadata for side in sides if hasattr(one, side)}
        assert bounds.keys() & {"ge", "gt"}
        assert bounds.keys() & {"le", "lt"}
        assert all(math.isfinite(bound) for bound in bounds.values())
    if get_origin(field.annotation) is not list and not dotted.startswith("faults."):
        key = dotted.replace("algorithms.", "algorithms.0.")
        with pytest.raises(SpecError, match=re.escape(f"{key}: 1e+31")):
            load_spec("quickstart", [f"{key}=1e31"])


def test_who_knows_no_failures_is_refused_with_faults_however_it_is_set():
    kill = {"faults": [{"kind": "kill", "at": 1.0, "node": 0}]}
    for resilient in (None, False, True):
        matrix = {"name": "async_gossip", "mixing": "matrix", "resilient": resilient}
        with pytest.raises(SpecError, match=r"faults: async_gossip-matrix.* knows no failures"):
            make_spec({**kill, "algorithms": [matrix]})
        named = {**matrix, "label": "all at once"}
        with pytest.raises(SpecError, match="faults: all at once knows no failures"):
            make_spec({**kill, "algorithms": [named]})
    make_spec({**kill, "algorithms": [{"name": "centralized"}, {"name": "multi_walk", "resilient": False}]})


@pytest.mark.parametrize(
    ("entry", "instead"),
    [
        ({"name": "choco_sgd"}, "local_dsgd with compression"),
        ({"name": "async_gossip", "mixing": "matrix", "label": "all at once"}, "mixing: pairwise"),
        ({"name": "async_gossip", "mixing": "matrix"}, "mixing: pairwise"),
    ],
)
def test_who_knows_no_failures_says_what_to_take_instead(entry, instead):
    with pytest.raises(SpecError, match=rf"faults: .* knows no failures; take {instead}, or no faults"):
        make_spec({"faults": [{"kind": "kill", "at": 1.0, "node": 0}], "algorithms": [entry]})


@pytest.mark.parametrize("key", ["algorithms.0.walks", "algorithms.1.patience", "task.alpha", "network.p"])
def test_a_setting_that_a_thing_declares_itself_is_bounded_too(key):
    with pytest.raises(SpecError, match=re.escape(f"{key}: 1e+30 is not possible")):
        load_spec("quickstart", [f"{key}=1e30"])
