"""`register`, and packages that name their things in the entry-point group `walktalk`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

import walktalk as wt
from walktalk import graphs
from walktalk.cli.app import app
from walktalk.core import plugins
from walktalk.core.errors import SettingError, SpecError
from walktalk.core.seeds import Seed
from walktalk.learning.tasks import TASKS
from walktalk.learning.tasks import build as build_task
from walktalk.protocols import PROTOCOLS, Machine, NetworkView
from walktalk.report import figures
from walktalk.studies import make_spec
from walktalk.studies.spec.reference import reference
from walktalk.transforms.codecs import BrainFloat, codec_named

RUNNER = CliRunner()


def test_a_protocol_is_registered_by_decorator(here: Path) -> None:
    @wt.register
    @dataclass(frozen=True)
    class Tugging(wt.Protocol):
        """Pushes and pulls.

        Args:
            force: how hard.
        """

        force: float = 1.0
        title = "push and pull"

        def machine(self, network_view: NetworkView) -> Machine:
            raise NotImplementedError

    assert PROTOCOLS["tugging"] is Tugging
    spec = make_spec({"algorithms": [{"name": "tugging", "force": [1.0, 2.5]}]})
    assert [one.title for one in spec.algorithms] == ["tugging", "tugging-force2.5"]
    with pytest.raises(SpecError, match="did you mean 'tugging'"):
        make_spec({"algorithms": [{"name": "tuggin"}]})
    assert "| `algorithms.force` | `1.0` | a number | how hard |" in reference()
    assert figures.title_of("tugging") == "Push and pull"
    assert len(set(figures.colours(["tugging", "multi_walk-1"]).values())) == 2


def test_functions_are_registered_by_what_they_return(here: Path) -> None:
    @wt.register(name="my_ring")
    def ring(nodes: int) -> wt.Graph:
        """My ring."""
        return graphs.cycle(nodes)

    @wt.register
    def nothing(nodes: int, much: bool = False) -> wt.Task:
        """Nothing to learn."""
        raise NotImplementedError

    assert graphs.build("my-ring", 5) == graphs.cycle(5)
    assert TASKS["nothing"] is nothing
    with pytest.raises(SpecError, match=r"task\.much: 3 is not possible; allowed: true, false"):
        make_spec({"task": {"name": "nothing", "much": 3}, "network": {"topology": "my_ring"}})


def test_a_codec_is_registered_by_decorator_and_by_module(here: Path) -> None:
    @wt.register
    class Halves(BrainFloat):
        """bf16 by another name."""

        name = "halves"

    assert type(codec_named("halves")) is Halves
    (here / "outside.py").write_text(
        "from walktalk.transforms.codecs import TopK\n\nclass Few(TopK):\n    name = 'few'\n"
    )
    assert codec_named("outside:Few(0.5)").size(8) == 32
    with pytest.raises(SpecError, match=r"codec: 'halve' is not possible; allowed: bf16, .*did you mean 'halves'"):
        codec_named("halve")


def test_what_cannot_be_registered_is_told() -> None:
    def silent(nodes):  # type: ignore[no-untyped-def]
        return nodes

    with pytest.raises(SettingError, match=r"the function silent cannot be registered; .*-> wt\.Task"):
        wt.register(silent)
    with pytest.raises(SettingError, match="3 cannot be registered"):
        wt.register(3)


def test_a_name_belongs_to_one(here: Path) -> None:
    def digits(nodes: int) -> wt.Task:
        raise NotImplementedError

    with pytest.raises(SettingError, match=r"task 'digits': is walktalk\.learning\.tasks\.images:digits already"):
        wt.register(digits)
    with pytest.raises(SettingError, match="a name is letters"):
        wt.register(digits, name="a:b")


@pytest.fixture
def installed(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package as pip leaves it: modules, and the metadata that names their things."""
    site = here / "site"
    info = site / "strange-1.2.dist-info"
    info.mkdir(parents=True)
    (site / "package_inside.py").write_text((here / "outside.py").read_text())
    (site / "broken.py").write_text("raise RuntimeError('made for another walktalk')\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[walktalk]\nislands = package_inside:Islands\nline = package_inside:line\nwheel = package_inside:wheel\n"
        "sick = broken:Thing\n"
    )
    monkeypatch.syspath_prepend(str(site))
    return here


def test_an_installed_package_is_found_by_its_names_and_nothing_else_of_it_is_imported(installed: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the sick one is left alone while nobody asks for it
        assert PROTOCOLS.find("islands").__module__ == "package_inside"
        assert graphs.build("wheel", 5).nodes == 5


def test_an_installed_packages_study_runs(installed: Path) -> None:
    text = (installed / "spec.yaml").read_text().replace("outside:Islands", "islands")
    (installed / "spec.yaml").write_text(text.replace("outside:", ""))
    done = RUNNER.invoke(app, ["run", "spec.yaml", "--out", "out", "--workers", "2", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "Islands in the sea" in (installed / "out" / "report.html").read_text()


def test_a_broken_plugin_is_one_warning_and_no_crash(installed: Path) -> None:
    with pytest.warns(UserWarning, match="plug-in sick of strange 1.2") as caught:
        names = set(PROTOCOLS) | set(TASKS)
    assert {"multi_walk", "islands", "digits", "line"} <= names
    (one,) = [str(warning.message) for warning in caught]
    assert "(broken:Thing) is left out: RuntimeError: made for another walktalk" in one


def test_every_kind_has_its_registry() -> None:
    assert {"algorithm", "codec", "task", "topology"} <= set(plugins.REGISTRIES)


def test_a_seed_is_a_number_that_every_library_takes_or_a_seed_where_the_type_says_so(here: Path) -> None:
    found: dict[str, object] = {}

    @wt.register
    def numbered(nodes: int, seed: int = 0) -> wt.Task:
        """Its data is drawn by other libraries."""
        found["number"] = seed
        return wt.tasks.quadratic(nodes, seed)

    @wt.register
    def seeded(nodes: int, seed: int | Seed = 0) -> wt.Graph:
        """Draws with ours."""
        found["seed"] = seed
        return graphs.cycle(nodes)

    study = Seed(7).child("repetition", 1)
    build_task("numbered", 4, study)
    graphs.build("seeded", 4, study)
    assert found == {"number": study.integer % 2**31, "seed": study}
    build_task("numbered", 4, 5)
    assert found["number"] == 5
