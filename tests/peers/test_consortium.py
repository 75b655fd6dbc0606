"""The page `docs/consortium.md`, from its first command to its last: four sites, a relay and an operator.

One site drops every incoming connection. What a person sends by mail is copied; everything else is a command of the
page, run where it says, with each site's name in the place of lyon's.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from walktalk.records import yaml_text
from walktalk.testing.chaos.cables import Cables

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("iptables") is None, reason="needs the command `iptables`"),
]

LANE = 29  # not one that chaos or another test has at the same time
PLACES = {"relay": 0, "lyon": 1, "nice": 2, "paris": 3, "rome": 4, "operator": 5}
SITES = ("lyon", "nice", "paris", "rome")
PAGE = Path(__file__).parents[2] / "docs" / "consortium.md"
ONLY_DIAL_OUT = (
    "-A INPUT -i lo -j ACCEPT",
    "-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
    "-P INPUT DROP",
)
MINUTES = 15


class People:
    """Everybody with a machine and a folder of their own, and what they have typed."""

    def __init__(self, cables: Cables, folder: Path, stack: ExitStack) -> None:
        self.cables, self.folder, self.stack = cables, folder, stack
        self.typed: Counter[str] = Counter()
        for who in PLACES:
            self.at(who).mkdir()

    def at(self, who: str) -> Path:
        return self.folder / who

    def words(self, who: str, line: str) -> list[str]:
        self.typed[who] += 1
        here = ["ip", "netns", "exec", self.cables.namespace(PLACES[who])]
        return [*here, sys.executable, "-m", *line.split()]

    def types(self, who: str, line: str, code: int = 0) -> str:
        done = subprocess.run(self.words(who, line), cwd=self.at(who), capture_output=True, text=True)
        assert done.returncode == code, f"{who}: {line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def leaves_running(self, who: str, line: str) -> subprocess.Popen[bytes]:
        log = self.stack.enter_context((self.at(who) / "log").open("ab"))
        process = subprocess.Popen(self.words(who, line), cwd=self.at(who), stdout=log, stderr=log)
        self.stack.callback(lambda: (process.terminate(), process.wait(60)))
        return process

    def log(self, who: str) -> str:
        return (self.at(who) / "log").read_text()


def blocks() -> tuple[str, list[list[str]]]:
    """The cluster's file on the page, and the commands of each of its blocks."""
    text = PAGE.read_text(encoding="utf-8")
    (cluster,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    return cluster, [block.strip().splitlines() for block in re.findall(r"```sh\n(.*?)```", text, re.S)]


def until(done, seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.5)


def test_a_stranger_comes_from_nothing_to_a_training_with_three_commands_a_site(tmp_path: Path) -> None:
    text, (make, look, sign, start, relaying, watching, form) = blocks()
    began = time.monotonic()
    with ExitStack() as stack:
        cables = stack.enter_context(Cables(len(PLACES), LANE))
        for rule in ONLY_DIAL_OUT:
            inside = ["ip", "netns", "exec", cables.namespace(PLACES["rome"]), "iptables", *rule.split()]
            subprocess.run(inside, check=True)
        people = People(cables, tmp_path, stack)
        for who, place in PLACES.items():  # as on the page: 10.0.0.1 and so on
            text = text.replace(f"10.0.0.{place + 1}:7447", cables.address(place))
            assert who in ("operator", "rome") or cables.address(place) in text
        (people.at("operator") / "cluster.yaml").write_text(text)
        for line in make:
            people.types("operator", line)

        (people.at("operator") / "requests").mkdir()
        for who in (*SITES, "relay"):
            mail(people, "operator", f"kits/alliance-{who}.tar.gz", who)
            for line in look:
                people.types(who, line.replace("lyon", who))
            mail(people, who, f"alliance-{who}/certs/{who}.csr", "operator", "requests")
        for line in sign:
            people.types("operator", line)
        for who in (*SITES, "relay"):
            mail(people, "operator", f"kits/alliance-{who}.tar.gz", who)
        people.types("relay", relaying[0])
        people.leaves_running("relay", relaying[1])
        until(lambda: "listens on port" in people.log("relay"))
        nodes = {}
        for who in SITES:
            said = people.types(who, start[0].replace("lyon", who))
            assert "✗" not in said
            assert "✓ way to the relay" in said
            nodes[who] = people.leaves_running(who, start[1].replace("lyon", who))
        until(lambda: "trained" in traces(people, "lyon"))
        took = time.monotonic() - began
        assert took < MINUTES * 60
        assert {who: people.typed[who] for who in (*SITES, "relay")} == dict.fromkeys((*SITES, "relay"), 3)
        print(f"from nothing to a first training: {took:.0f} s, commands: {dict(people.typed)}")
        for who in SITES:
            until(lambda who=who: "4 of 4 nodes take part: lyon, nice, paris, rome" in people.log(who))

        status, collect, stop = watching
        until(lambda: json.loads(asked(people, f"{status} --json") or "{}").get("rome") is not None)
        answers = json.loads(asked(people, f"{status} --json"))
        assert {name: answer["missing"] for name, answer in answers.items()} == {name: [] for name in SITES}
        people.types("operator", collect)
        facts = json.loads((people.at("operator") / "out" / "alliance" / "summary.json").read_text())["cluster"]
        assert (facts["missing"], facts["too_few"]) == ([], "")

        people.types("lyon", form[0])
        people.types("nice", form[0].replace("lyon", "nice"))
        mail(people, "lyon", "lyon.json", "operator")
        mail(people, "nice", "nice.json", "operator")
        assert "one form" in people.types("operator", form[1])

        old_kits_are_named(people, nodes, start[1])
        nodes["nice"].kill()
        nodes["nice"].wait()
        until(lambda: "nice does not take part any more" in people.log("rome"))
        assert "asks for at least 4" in people.types("operator", status, code=1)
        people.types("operator", stop)


def mail(people: People, sender: str, file: str, receiver: str, folder: str = "") -> None:
    path = people.at(sender) / file
    shutil.copyfile(path, people.at(receiver) / folder / path.name)


def asked(people: People, line: str) -> str:
    return subprocess.run(
        people.words("operator", line), cwd=people.at("operator"), capture_output=True, text=True
    ).stdout


def traces(people: People, who: str) -> str:
    folder = people.at(who) / f"alliance-{who}" / "records" / who
    return "".join(path.read_text() for path in folder.glob("trace-*.jsonl"))


def old_kits_are_named(people: People, nodes: dict[str, subprocess.Popen[bytes]], start: str) -> None:
    """The file changes, and one site alone opens the new kit: it and its neighbours say who is behind, by name."""
    path = people.at("operator") / "cluster.yaml"
    path.write_text(yaml_text.dump({**yaml_text.read(path), "stay": 1.0}))
    assert "kit 2 of" in people.types("operator", "walktalk kit --config cluster.yaml")
    mail(people, "operator", "kits/alliance-paris.tar.gz", "paris")
    people.types("paris", "walktalk kit open alliance-paris.tar.gz --no-doctor")
    nodes["paris"].terminate()
    nodes["paris"].wait(60)
    nodes["paris"] = people.leaves_running("paris", start.replace("lyon", "paris"))
    until(lambda: "this node was started with an old kit, kit 1" in people.log("lyon"))
    until(lambda: "lyon was started with an old kit, kit 1" in people.log("paris"))
