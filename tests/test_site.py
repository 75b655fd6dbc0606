"""The documentation builds without a warning, needs nothing from elsewhere, explains every argument, and is true."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer

import walktalk
from walktalk.cli import app
from walktalk.studies import StudySpec, make_spec
from walktalk.studies.spec import reference

griffe = pytest.importorskip("griffe")
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {page.name: page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md")}
API = {name: page for page, text in PAGES.items() for name in re.findall(r"^::: (\S+)", text, re.M)}
EXECUTED = ("start.md", "own.md", "adapters.md", "loops.md", "peers.md")  # others have tests of their own
GIVEN = {  # what a page says that its reader has
    "adapters.md": """
import torch
import walktalk as wt
model = torch.nn.Sequential()
for name, size in (("q_proj", 16), ("v_proj", 16), ("head", 2)):
    model.add_module(name, torch.nn.Linear(16, size))
loss, graph = torch.nn.functional.cross_entropy, wt.graphs.cycle(4)
parts = [(torch.randn(20, 16), torch.randint(0, 2, (20,))) for _ in range(4)]
""",
    "peers.md": """
from pathlib import Path
from typing import Any
from safetensors.torch import save_file
from torch.nn import Bilinear as Risk_
Risk = lambda: Risk_(2, 2, 1)
place = Path("out/two-sites/runs/multi_walk-2/0")
place.mkdir(parents=True)
save_file(Risk().state_dict(), place / "model.safetensors")
""",
}
COMMANDS = sorted(
    {
        (page.name, line.split(" #")[0].strip())
        for page in DOCS.glob("*.md")
        for line in re.findall(r"^ {0,4}(walktalk [^\n`]+)$", page.read_text(encoding="utf-8"), re.M)
    }
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        build, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_it_builds_without_a_warning_and_every_page_is_there(site):
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {"index.html", "start.html", "protocol.html", "commands.html", "api/train.html"} <= pages
    assert "project/REPRODUCTION.html" in pages


def test_it_asks_nobody_else_for_anything(site):
    """Scripts, styles, fonts and pictures are the site's own; links that a person may follow are another matter."""
    asked = re.compile(r"""(?:<script[^>]*\ssrc|<link[^>]*\shref|<img[^>]*\ssrc)=["']?(https?:[^"'\s>]+)""")
    pages, styles = list(site.rglob("*.html")), list(site.rglob("*.css"))
    assert pages
    assert styles
    for path in pages:
        assert not asked.findall(path.read_text(encoding="utf-8")), path
    for path in styles:
        assert not re.findall(r"url\(['\"]?https?:", path.read_text(encoding="utf-8")), path


def test_the_reference_of_keys_is_the_programs_own():
    told = subprocess.run([sys.executable, "-m", reference.__name__], capture_output=True, text=True, check=True)
    assert (DOCS / "spec.md").read_text(encoding="utf-8") == told.stdout


@pytest.fixture(scope="module")
def sources():
    sys.path.insert(0, str(DOCS / "site"))
    try:
        from field_comments import FieldComments
    finally:
        sys.path.pop(0)
    extensions = griffe.load_extensions(FieldComments())
    return griffe.load("walktalk", search_paths=[str(ROOT / "src")], extensions=extensions, docstring_parser="google")


@pytest.mark.parametrize("name", API)
def test_every_argument_in_the_reference_is_explained(name, sources):
    thing = sources
    for part in name.split(".")[1:]:
        thing = thing[part]
        thing = thing.final_target if thing.is_alias else thing
    assert thing.docstring is not None
    takes = {parameter.name.lstrip("*") for parameter in getattr(thing, "parameters", ())} - {"self"}
    parts = [part for part in thing.docstring.parsed if part.kind.value == "parameters"]
    explained = {parameter.name.lstrip("*") for part in parts for parameter in part.value if parameter.description}
    assert takes <= explained, f"{name} says nothing about {', '.join(sorted(takes - explained))}"


def test_everything_that_the_package_offers_is_in_the_reference(site):
    shown = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    modules = {"adapters", "advisor", "chains", "graphs", "figures", "tasks", "theory"}
    elsewhere = {"Optimizer", "StudySpec", "__version__"}  # OptimizerSpec under its own name; the keys of a study
    for name in set(walktalk.__all__) - modules - elsewhere:
        assert re.search(rf'id="walktalk\.(\w+\.)*{name}"', shown), name


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=lambda text: text)
def test_commands_have_the_options_that_pages_say(page, command):
    """Parsed as the command line would, without running anything; `[…]` and `…` are for the reader."""
    words = shlex.split(re.sub(r"\[[^\]]*\]|…", "", command))[1:]
    one, path = typer.main.get_command(app), "walktalk"
    while words and hasattr(one, "commands"):
        if words[0].startswith("--") and one.invoke_without_command:
            break
        assert words[0] in one.commands, f"{path} has no command {words[0]}"
        path, one = f"{path} {words[0]}", one.commands[words.pop(0)]
    known = {option for parameter in one.params for option in parameter.opts} | {"--help"}
    for word in words:
        assert not word.startswith("--") or word.partition("=")[0] in known, f"{path} has no option {word}"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("page", EXECUTED)
def test_python_on_the_pages_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}  # a block goes on where the one above it ended
    for example in (GIVEN.get(page, ""), *blocks(page, "python")):
        if "--8<--" not in example:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(example, page, "exec"), names)


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_studies_and_clusters_on_the_pages_are_accepted(page, tmp_path, monkeypatch):
    from walktalk.records import yaml_text
    from walktalk.runtimes.peers import make_cluster

    monkeypatch.chdir(tmp_path)
    (tmp_path / "who.csv").write_text("".join(blocks("networks.md", "csv")), encoding="utf-8")
    for example in blocks(page, "yaml"):
        content = yaml_text.parse(example, page)
        assert isinstance(content, dict)
        if "nodes" in content:
            assert make_cluster(content).nodes
        elif set(content) <= set(StudySpec.model_fields) and not re.search(r'"\w+:\w', example):  # none of the reader's
            least = {"network": {"topology": "complete", "nodes": 20}, "algorithms": [{"name": "multi_walk"}]}
            assert make_spec({**least, **content}).algorithms
        else:
            assert "groups" in content or re.search(r'"\w+:\w', example), example  # alerts for Prometheus, or theirs


def table_names(text: str) -> set[str]:
    """What stands in backquotes in the first column of tables."""
    rows = re.findall(r"^\| ([^|]*) \|", text, re.M)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_key_of_a_cluster_file_is_on_the_page():
    from walktalk.runtimes.peers.operations.cluster import Cluster, Place

    text = (DOCS / "peers.md").read_text(encoding="utf-8")
    of_cluster, of_node = text.split("### Keys of a cluster file")[1].split("\n## ")[0].split("Keys of a node")
    assert table_names(of_cluster) == {name for name, field in Cluster.model_fields.items() if not field.exclude}
    assert table_names(of_node) == {name for name, field in Place.model_fields.items() if not field.exclude}


def test_every_metric_of_a_node_is_on_the_page():
    source = (ROOT / "src/walktalk/runtimes/peers/operations/metrics.py").read_text(encoding="utf-8")
    told = {name.split("{")[0] for name in table_names((DOCS / "operations.md").read_text(encoding="utf-8"))}
    told = {re.sub("_(total|sum)$", "", name) for name in told if name.startswith("walktalk_")}
    assert told == set(re.findall(r'"(walktalk_\w+)"', source))


WRITTEN = [
    path
    for pattern in (
        "*.md",
        "docs/*.md",
        "examples/*.py",
        "benchmarks/**/*.py",
        "reproduction/*.py",
        "reproduction/*.md",
    )
    for path in sorted(ROOT.glob(pattern))
    if path.suffix in (".md", ".py") and path.name != "CHANGELOG.md"  # which tells of what was
]
FILES = r"\.(?:ya?ml|json|html|md|py|toml|example|service)$"  # what is written after a dot is no name of ours then


@pytest.mark.parametrize("page", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_name_that_is_written_exists_by_that_name(page):
    """`walktalk.x.y`, `wt.X` and `walktalk.x:y`: neither gone, nor an old name that is about to go."""
    text = page.read_text(encoding="utf-8")
    names = {re.sub(r"^wt\b", "walktalk", name) for name in re.findall(r"\b(?:wt|walktalk)(?:[.:][A-Za-z_]\w*)+", text)}
    for name in sorted(name for name in names if not re.search(FILES, name) and "NAME" not in name):
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            assert is_there(*re.split("[.:]", name)), f"{page.name}: {name}"


def is_there(*parts: str) -> bool:
    """Whether there is such a module, or something in one, or a field of something in one."""
    found: Any = importlib.import_module(parts[0])
    for k, part in enumerate(parts[1:], 2):
        fields = {**getattr(found, "__dataclass_fields__", {}), **getattr(found, "model_fields", {})}
        if part in fields:
            return True
        if not hasattr(found, part):
            with contextlib.suppress(ImportError):
                importlib.import_module(".".join(parts[:k]))
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True
