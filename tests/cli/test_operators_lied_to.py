"""A bad member answers an operator with rubbish: the command ends as documented, and names it."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
import zenoh
from typer.testing import CliRunner, Result

from walktalk.cli.app import app
from walktalk.runtimes.peers import load_cluster, make_certificates
from walktalk.runtimes.peers.operations.answers import FIELDS, read_answer

STUDY = {"network": {"topology": "complete", "nodes": 2}, "algorithms": [{"name": "multi_walk"}], "stop": {"time": 1.0}}
ODD = [None, True, 7, -1, 1e400, "x", [], ["x"], [["x"]], {}, {"a": None}, {"a": "b"}, [None], "\x1b[2J", 10**30]
RUBBISH = [
    b"",
    b"null",
    b"[]",
    b'"x"',
    b"\xff\xfe",
    b"[" * 5000,
    b'{"a":' * 5000,
    b'{"roster": [["x"]]}',
    b'{"roster": [[' + b"1," * 5000 + b"1]]}",
    b'{"roster": [["b", 1, 2, ":::", [], "", 0, "b", "", ""]]}',
    b'{"roster": [["zz", 70, 0, "[::1", [], "", 1, "zz", "", ""]]}',
    *(json.dumps(dict.fromkeys(FIELDS, value)).encode() for value in ODD),
]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def call(*args: object) -> Result:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def config(tmp_path: Path) -> Path:
    places = {name: {"address": f"127.0.0.1:{free_port()}"} for name in "ab"}
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump({"study": STUDY, "folder": "records", "nodes": places}, sort_keys=False))
    return path


@contextmanager
def liar(config: Path, name: str, answer: Callable[[], bytes]) -> Iterator[None]:
    """Answers every question that is asked of a node."""
    cluster = load_cluster(config)
    settings = zenoh.Config()
    settings.insert_json5("mode", '"peer"')
    settings.insert_json5("listen/endpoints", json.dumps([f"tcp/{cluster.nodes[name].address}"]))
    settings.insert_json5("scouting/multicast/enabled", "false")
    with zenoh.open(settings) as session:
        keys = f"walktalk/{cluster.name}/{name}/**"
        session.declare_queryable(keys, lambda query: query.reply(query.key_expr, answer()))
        yield


COMMANDS = [("status",), ("stop",), ("leave", "a"), ("leave", "b", "--dead")]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_ends_as_documented_whatever_is_answered(command: tuple[str, ...], config: Path) -> None:
    said = [b""]
    with liar(config, "a", lambda: said[0]):
        for said[0] in RUBBISH if command == ("status",) else RUBBISH[6:13]:
            result = call(*command, "--config", config, "--seconds", 0.1)
            assert result.exit_code in (0, 1, 2)
            assert "Traceback" not in result.output
            assert "\x1b[2J" not in result.output


def test_collect_ends_as_documented_whatever_is_answered(config: Path, tmp_path: Path) -> None:
    said = [b""]
    with liar(config, "a", lambda: said[0]):
        for said[0] in (*RUBBISH[:4], *RUBBISH[-4:]):
            result = call("collect", "--config", config, "--out", tmp_path / "out", "--seconds", 0.1)
            assert result.exit_code == 2
            assert "Traceback" not in result.output


def test_the_liar_is_named_and_can_be_left_out(config: Path) -> None:
    with liar(config, "a", lambda: b'{"iterations": "many", "walks": [1]}'):
        shown = json.loads(call("status", "--json", "--config", config, "--seconds", 0.3).stdout)
        assert shown["a"]["complaints"] == ["part of its answer is refused: iterations"]
        assert shown["a"]["walks"] == [1]
        page = call("status", "--config", config, "--seconds", 0.3)
        assert "a: part of its answer is refused: iterations" in page.stdout
        assert page.exit_code == 1
        without = json.loads(call("status", "--json", "--config", config, "--seconds", 0.3, "--without", "a").stdout)
        assert without == {"b": None}


def test_a_list_of_the_revoked_is_written_whoever_lies(config: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path / "certs", {"a": (), "b": (), "operator": ()})
    content = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**content, "certificates": "certs"}, sort_keys=False))
    with liar(config, "a", lambda: b'{"roster": [["x"]]}'):
        result = call("certs", "revoke", "b", "--config", config, "--seconds", 0.3)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "certs" / "revoked.pem").exists()
    assert result.stdout.startswith("revoked ")


@pytest.mark.parametrize("answer", RUBBISH)
def test_what_is_left_of_an_answer_has_the_kinds_that_are_expected(answer: bytes) -> None:
    found = read_answer(answer)
    assert all(FIELDS[name](value) for name, value in found.items() if name in FIELDS)


def test_every_field_of_every_answer_has_a_kind() -> None:
    """Those that a node's own status has; a new one needs a line in the table."""
    source = (Path(__file__).parents[2] / "src/walktalk/runtimes/peers/node/health.py").read_text()
    body = source.partition("def status(")[2].partition("\n    @property")[0]
    named = [line.partition('"')[2].partition('"')[0] for line in body.splitlines() if line.strip().startswith('"')]
    assert len([name for name in named if name.isidentifier()]) > 25
    assert {name for name in named if name.isidentifier()} <= FIELDS.keys()
