"""The record of who trained what: what each node counts and signs, and what is found out when somebody changes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_command_line import walktalk
from walktalk.records import TraceRow
from walktalk.runtimes.peers import (
    check_record,
    credentials,
    make_certificates,
    make_record,
    read_record,
    read_statement,
    text_of,
)
from walktalk.runtimes.peers.node.event_log import STATEMENT
from walktalk.runtimes.peers.node.statement import (
    LIVES,
    RECEIVED,
    SENT,
    Exchanged,
    signed,
    statement_of,
    write_statement,
)

NAMES = ("lyon", "oslo", "paris")
DAY = 86_400.0
TODAY = 20_000 * DAY  # 2024-10-04


def name_of(number: int) -> str:
    return dict(enumerate(NAMES)).get(number, "")


def rows(*events: tuple[float, str, str, int, int]) -> list[TraceRow]:
    """A trace of node 0: seconds, event, slot, peer, bytes."""
    return [TraceRow(TODAY + t, 0, event, slot, peer, bytes=size) for t, event, slot, peer, size in events]


def counted(trace: list[TraceRow], walktalk: str = "") -> Exchanged:
    found = Exchanged(walktalk)
    for row in trace:
        found.add(row)
    return found


# -- what is counted --------------------------------------------------------------------------------------------------

TRACE = rows(
    (0.0, "started", "", -1, 0),
    (1.0, "send", "walk", 1, 1000),
    (2.0, "receive", "walk", 1, 0),
    (3.0, "send", "", 1, 64),
    (4.0, "send", "walk", 2, 1000),
    (5.0, "superseded", "", 2, 1000),
    (DAY, "send", "walk", 1, 1000),
)


def test_what_left_whom_and_when_is_counted_by_neighbour_and_day() -> None:
    found = counted(TRACE, "1.2")
    found.hand_out("copy.safetensors", 500, begins=True, moment=TODAY + 9.0)
    found.hand_out("copy.safetensors", 500, begins=False, moment=TODAY + 9.0)
    found.hand_out("trace-1.jsonl", 70, begins=True, moment=TODAY + 9.0)
    said = found.said(name_of)
    assert said[SENT]["oslo"] == {
        "models": 2,
        "messages": 3,
        "bytes": 2064,
        "first": "2024-10-04T00:00:01+00:00",
        "last": "2024-10-05T00:00:00+00:00",
        "days": {"2024-10-04": [1, 1064], "2024-10-05": [1, 1000]},
    }
    assert said[SENT]["paris"]["models"] == said[SENT]["paris"]["bytes"] == 0  # it was taken back before it left
    assert said[RECEIVED]["oslo"]["models"] == 1
    assert (said[SENT]["operator"]["models"], said[SENT]["operator"]["bytes"]) == (1, 1070)
    assert said["lives"] == [
        {"began": "2024-10-04T00:00:00+00:00", "last": "2024-10-05T00:00:00+00:00", "walktalk": "1.2"}
    ]
    assert said["whole"]


def write_life(folder: Path, life: int, trace: list[TraceRow]) -> list[Path]:
    path = folder / f"trace-{life}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in trace))
    return [path]


def test_counts_go_on_from_life_to_life_and_nothing_counts_twice(tmp_path: Path) -> None:
    """A node that was killed has sent more than its checkpoint says; its log has the rest."""
    before = counted(TRACE[:4], "1.1")
    kept = json.loads(json.dumps(before.kept()))  # as the checkpoint has it
    lives = {7: write_life(tmp_path, 7, [*TRACE[:4], TraceRow(TODAY + 3.5, 0, "saved", number=3), *TRACE[4:]])}
    after = Exchanged("1.2")
    after.go_on(kept, lives, 3)
    later = TraceRow(TODAY + 2 * DAY, 0, "send", "walk", 1, bytes=1000)
    after.add(later)
    whole = counted(TRACE)
    whole.add(later)
    assert {key: flow.said() for key, flow in after.flows.items()} == {
        key: flow.said() for key, flow in whole.flows.items()
    }
    assert [(life.began - TODAY, life.last - TODAY, life.walktalk) for life in after.lives] == [
        (0.0, DAY, "1.1"),
        (2 * DAY, 2 * DAY, "1.2"),
    ]
    again = Exchanged("1.2")
    again.go_on(json.loads(json.dumps(after.kept())), {7: lives[7]}, 99)  # all of that log is in the checkpoint
    assert {key: flow.said() for key, flow in again.flows.items()} == {
        key: flow.said() for key, flow in after.flows.items()
    }


def test_of_a_checkpoint_that_counts_nothing_all_logs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As version 1 of checkpoints: the first life after an upgrade counts what was sent before."""
    monkeypatch.setattr("threading.Thread.start", lambda self: waiting.append(self))
    waiting: list[Any] = []
    lives = {7: write_life(tmp_path, 7, TRACE[:4]), 8: write_life(tmp_path, 8, TRACE[4:])}
    found = Exchanged("1.2")
    found.go_on(None, lives, 3)
    assert found.kept() is None  # another life is to count again
    assert not found.said(name_of)["whole"]
    found.add(TraceRow(TODAY + 2 * DAY, 0, "send", "walk", 1, bytes=1000))
    waiting[0].run()
    assert found.said(name_of)["whole"]
    assert found.flows[SENT, 1].models == 3
    assert [life.began - TODAY for life in found.lives] == [0.0, 4.0, 2 * DAY]


def test_of_very_many_lives_the_first_and_the_latest_are_named() -> None:
    found = Exchanged()
    found.go_on({"flows": {}, "lives": [[1000 * n, 1000 * n, ""] for n in range(3 * LIVES)]}, {}, 1)
    assert len(found.lives) < LIVES
    assert (found.lives[0].began, found.lives[-1].began) == (0.0, 3.0 * LIVES - 1)


# -- what is signed ---------------------------------------------------------------------------------------------------


def own(node: str, **changes: Any) -> dict[str, Any]:
    return {
        "cluster": "test",
        "node": node,
        "site": "",
        "members": list(NAMES),
        "iterations": 20,
        "bytes_sent": 3000,
        "samples": 190,
        "state": "over",
        "moment": "2024-10-05T00:00:00+00:00",
        **changes,
    }


FACTS = {"version": 8, "width": 5, "initial model": [0.5, 0.25], "seed": 0, "algorithm": "MultiWalk(walks=2)"}


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    make_certificates(folder, dict.fromkeys((*NAMES, "operator"), ()))
    make_certificates(folder / "other", dict.fromkeys((*NAMES, "operator"), ()))
    return folder


def a_record(certs: Path | None, **changed: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Of three sites that sent each other models; what some say is changed before they sign it."""
    statements: dict[str, Any] = {}
    for number, name in enumerate(NAMES):
        exchanged = counted(
            [TraceRow(TODAY + t, number, event, "walk", peer, bytes=1000) for t in range(3) for peer in range(3)
             if peer != number for event in ("send", "receive")]
        ).said(name_of)  # fmt: skip
        said = statement_of(FACTS, own(name), exchanged)
        changed.get(name, lambda said: None)(said)
        statements[name] = signed(said, None if certs is None else credentials(certs, name))
    files = None if certs is None else credentials(certs, "operator")
    return make_record("test", statements, {"state": "finished", "copy": "that of lyon", "iterations": 60}, files)


def complaints(record: dict[str, Any], certs: Path) -> list[str]:
    return check_record(json.loads(text_of(record)), certs / "ca.pem").complaints


def sign_again(record: dict[str, Any], certs: Path) -> dict[str, Any]:
    """As an operator would who has changed something."""
    content = {key: value for key, value in record.items() if key != "by"}
    outer = signed(content, credentials(certs, "operator"))
    return {**content, "by": {key: outer[key] for key in ("certificates", "signature")}}


def test_a_record_that_nobody_changed_is_good(certs: Path) -> None:
    record = a_record(certs)
    assert complaints(record, certs) == []
    assert [site.name for site in check_record(record, certs / "ca.pem").sites] == list(NAMES)
    study = record["sites"]["lyon"]["statement"]["study"]
    assert study == {"width": 5, "seed": 0, "algorithm": "MultiWalk(walks=2)"}  # what all versions say alike


def test_each_change_is_found_and_whose_it_is_is_said(certs: Path) -> None:
    record = a_record(certs)
    record["sites"]["oslo"]["statement"]["iterations"] = 2000
    altered = "it was altered after it was signed"
    assert complaints(record, certs) == [f"the record as a whole: {altered}", f"oslo: {altered}"]
    assert complaints(sign_again(record, certs), certs) == [f"oslo: {altered}"]  # the operator cannot speak for it
    record = a_record(certs)
    record["result"]["state"] = "stopped"
    assert complaints(record, certs) == [f"the record as a whole: {altered}"]


def test_missing_signatures_and_missing_sites_are_named(certs: Path) -> None:
    record = a_record(certs)
    record["sites"]["oslo"]["signature"] = ""
    record["sites"]["lyon"]["certificates"] = []
    assert complaints(sign_again(record, certs), certs) == ["lyon: it is not signed", "oslo: it is not signed"]
    record = a_record(certs)
    del record["sites"]["paris"]  # the others say that it belongs
    assert complaints(sign_again(record, certs), certs) == ["paris: there is no statement of it"]
    unsigned = complaints(a_record(None), certs)
    assert len(unsigned) == 4
    assert all(line.endswith("it is not signed") for line in unsigned)


def test_wrong_keys_are_named(certs: Path) -> None:
    record = a_record(certs)
    record["sites"]["oslo"] = signed(record["sites"]["oslo"]["statement"], credentials(certs, "paris"))
    assert complaints(sign_again(record, certs), certs) == ["oslo: it is signed by 'paris'"]
    record["sites"]["oslo"] = signed(record["sites"]["oslo"]["statement"], credentials(certs / "other", "oslo"))
    assert complaints(sign_again(record, certs), certs) == [
        "oslo: it is signed with a certificate of another authority, made out to 'oslo'"
    ]
    record["sites"]["oslo"] = record["sites"]["paris"]  # a genuine one, of another site
    assert complaints(sign_again(record, certs), certs) == [
        "oslo: it is signed by 'paris'",
        "oslo: its statement is about 'paris'",
    ]
    assert "another authority" in complaints(a_record(certs / "other"), certs)[0]


def test_a_site_that_signs_less_than_left_it_is_named(certs: Path) -> None:
    def less(said: dict[str, Any]) -> None:
        said[SENT]["oslo"]["models"] = 1

    assert complaints(a_record(certs, lyon=less), certs) == [
        "lyon: it says that it sent 1 models to oslo, which got 3 from it"
    ]

    def less_so_far(said: dict[str, Any]) -> None:
        less(said)
        said["state"] = "runs"  # it was asked a moment before the other

    assert complaints(a_record(certs, lyon=less_so_far), certs) == []


def test_sites_of_two_studies_or_clusters_are_named(certs: Path) -> None:
    record = a_record(
        certs, oslo=lambda said: said["study"].update(seed=1), paris=lambda said: said.update(cluster="x")
    )
    assert complaints(record, certs) == [
        "oslo and lyon were of different studies: seed",
        "paris: its statement is about the cluster 'x'",
    ]


NONSENSE: list[Any] = [None, [], 3, "x", {}, {"statement": {}}, {"statement": {"lives": [3]}, "certificates": ["x"]}]


@pytest.mark.parametrize("said", [*NONSENSE, {"statement": {"sent": {"a": 3}}, "certificates": "x", "signature": [1]}])
def test_whatever_stands_in_a_record_it_is_refused_by_name(said: Any, certs: Path) -> None:
    record = {**a_record(certs), "sites": {"lyon": said}, "result": said, "by": said}
    found = complaints(record, certs)
    assert any(line.startswith("lyon: ") for line in found)
    assert any(line.startswith("the record as a whole: ") for line in found)


def test_a_statement_is_written_and_read_and_nonsense_is_none(tmp_path: Path, certs: Path) -> None:
    said = statement_of(FACTS, own("lyon"), counted(TRACE).said(name_of))
    write_statement(tmp_path, said, credentials(certs, "lyon"))
    found = read_statement(tmp_path / STATEMENT)
    assert found is not None
    assert found["statement"] == said
    for nonsense in ("", "[]", '{"statement": 3}', "{" * 10_000):
        (tmp_path / STATEMENT).write_text(nonsense)
        assert read_statement(tmp_path / STATEMENT) is None
    assert read_statement(tmp_path / "nowhere") is None


# -- walktalk record verify -------------------------------------------------------------------------------------------


def test_verify_says_who_has_done_what_and_whether_it_is_signed(certs: Path, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(text_of(a_record(certs)))
    code, out, err = walktalk("record", "verify", path, "--authority", certs / "ca.pem", "--sent")
    assert (code, err) == (0, "")
    assert "All 3 sites have signed what stands here." in out
    assert "lyon to oslo: 3 models, 0.0 MB, 2024-10-04T00:00:00+00:00 to 2024-10-04T00:00:02+00:00" in out
    assert [line.split()[:3] for line in out.splitlines()[1:4]] == [[name, "over", "20"] for name in NAMES]
    path.write_text(path.read_text().replace('"iterations": 20', '"iterations": 21', 1))
    code, _, err = walktalk("record", "verify", path, "--authority", certs / "ca.pem")
    assert code == 1
    assert "lyon: it was altered after it was signed" in err
    code, out, _ = walktalk("record", "verify", path, "--authority", certs / "ca.pem", "--json")
    assert code == 1
    assert json.loads(out)["sites"]["lyon"]["problems"] == ["it was altered after it was signed"]


def test_what_is_no_record_is_one_line(certs: Path, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    given = ("record", "verify", path, "--authority", certs / "ca.pem")
    assert walktalk(*given)[::2] == (2, f"error: {path} cannot be read: No such file or directory\n")
    path.write_text("[]")
    assert "is no record that can be read: no form" in walktalk(*given)[2]
    path.write_text('{"form": "walktalk-record-2"}')
    assert "it is of the form 'walktalk-record-2', and this walktalk reads 'walktalk-record-1'" in walktalk(*given)[2]
    with pytest.raises(Exception, match="no record"):
        read_record(path)
    assert (
        "whose word counts? Give --config CLUSTER.yaml, or --authority ca.pem" in walktalk("record", "verify", path)[2]
    )
