"""What people install: a wheel that works in an empty environment, and a page on a package index whose links work."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from readme_renderer.markdown import render

import walktalk

ROOT = Path(__file__).parents[1]
SOURCES = ("src", "pyproject.toml", "setup.py", "README.md", "LICENSE")
PLACE = {"GITHUB_SERVER_URL": "https://example.org", "GITHUB_REPOSITORY": "people/walktalk"}


def built(folder: Path, **place: str) -> Path:
    """A wheel, built from a copy of the sources."""
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name, **({"ignore": IGNORED} if copy is shutil.copytree else {}))
    known = {key: value for key, value in os.environ.items() if key not in PLACE}
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*pip, "-w", "dist", "."], cwd=folder, env={**known, **place}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"), **PLACE)


def described(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def shown_links(wheel: Path) -> list[str]:
    """Where the links and pictures of the description lead, as an index renders it."""
    shown = render(described(wheel).get_payload(decode=True).decode())
    assert shown is not None
    return re.findall(r'(?:href|src)="([^"]*)"', shown)


def test_a_study_runs_from_the_wheel_in_an_empty_environment(wheel, tmp_path):
    venv.create(tmp_path / "env", with_pip=False)
    here = tmp_path / "env" / "bin" / "python"
    install = ["install", "--quiet", "--no-compile", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(here), *install], check=True, capture_output=True)
    # Its dependencies are those of this environment; .pth files there are not followed, so its walktalk is not seen.
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    where = [here, "-c", "import walktalk; print(walktalk.__file__)"]
    assert str(packages) in subprocess.run(where, env=environment, capture_output=True, text=True).stdout
    command = [tmp_path / "env" / "bin" / "walktalk", "run", "smoke", "--out", "study"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "study" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "study" / "history.csv").read_text().count("\n") > 10


def test_everything_that_lies_in_the_package_is_in_the_wheel(wheel):
    listed = subprocess.run(["git", "ls-files", "src/walktalk"], cwd=ROOT, capture_output=True, text=True)
    files = {Path(line).relative_to("src").as_posix() for line in listed.stdout.splitlines() if (ROOT / line).exists()}
    with zipfile.ZipFile(wheel) as archive:
        assert files <= set(archive.namelist())
    assert len(files) > 200 or listed.returncode  # an archive of the sources has no git


def test_the_description_has_links_that_work_on_an_index(wheel):
    links = shown_links(wheel)
    assert len(links) > 5
    at_home = [link for link in links if link.startswith("https://example.org/people/walktalk/")]
    assert at_home
    assert all(link.startswith(("https://", "#")) for link in links)
    for link in at_home:  # each leads to a file that is there
        path = re.sub(rf"^.*/(blob|raw)/v{re.escape(walktalk.__version__)}/", "", link).partition("#")[0]
        assert (ROOT / path).exists(), link


def test_without_an_address_nothing_leads_nowhere(tmp_path):
    wheel = built(tmp_path)
    assert all(link.startswith(("https://", "#")) for link in shown_links(wheel))
    assert described(wheel).get_all("Project-URL") is None


def test_one_version_everywhere(wheel):
    assert described(wheel)["Version"] == walktalk.__version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == walktalk.__version__
    said = subprocess.run([sys.executable, "-m", "walktalk", "--version"], capture_output=True, text=True).stdout
    assert said == f"walktalk {walktalk.__version__}\n"


def test_the_index_is_told_who_and_for_what(wheel):
    about = described(wheel)
    assert about["Author"]
    assert about["License-Expression"] == "Apache-2.0"
    assert {"docs", "peers", "language", "ray"} <= set(about.get_all("Provides-Extra"))
    assert "Project-URL" in about


def test_workflows_call_what_the_makefile_has():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        flow = yaml.safe_load(path.read_text())
        steps = [step for job in flow["jobs"].values() for step in job["steps"]]
        called |= {step["run"].removeprefix("make ") for step in steps if step.get("run", "").startswith("make ")}
    assert {"test", "docs"} <= called <= targets


def test_issue_forms_are_complete():
    forms = [yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")]
    assert len(forms) >= 2
    for form in forms:
        assert form["name"]
        assert form["description"]
        assert all(part["type"] in ("textarea", "input", "markdown", "dropdown") for part in form["body"])
        ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
        assert len(ids) == len(set(ids))
