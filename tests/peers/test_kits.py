"""Kits: made where the authority is, opened at a site, brought up to date, refused where they are not what they say."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import walktalk
from walktalk.cli import app
from walktalk.core.errors import SpecError
from walktalk.records import yaml_text
from walktalk.runtimes.peers import (
    check_kit,
    is_stale,
    load_cluster,
    make_authority,
    make_kits,
    open_kit,
    sign_request,
    what_is_wrong,
)
from walktalk.runtimes.peers.identity.editions import Edition, heard_edition, older_kit
from walktalk.runtimes.peers.operations import kits
from walktalk.runtimes.peers.operations.kit_texts import Place, node_unit, relay_unit

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
CONTENT = {
    "name": "alliance",
    "study": "study.yaml",
    "certificates": "certs",
    "relay": "hub.example:7446",
    "nodes": {
        "lyon": {"address": "10.0.0.1:7447", "metrics": 9100},
        "nice": {"address": "10.0.0.2:7447", "listen": "0.0.0.0:7447", "part": "Nizza"},
        "paris": {"reachable": False},
    },
}
STUDY = {"network": {"topology": "edge_list", "file": "who.txt"}, "stop": {"iterations": 10}}


def headquarters(folder: Path, **changes: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "study.yaml").write_text(yaml_text.dump(STUDY))
    (folder / "who.txt").write_text("lyon nice\nnice paris\n")
    (folder / "cluster.yaml").write_text(yaml_text.dump({**CONTENT, **changes}))
    return folder / "cluster.yaml"


def made(config: Path, days: int = 90, anew: bool = False) -> kits.Kits:
    cluster = load_cluster(config)
    assert cluster.certificates is not None
    return make_kits(cluster, make_authority(cluster.certificates, 365), config.parent / "kits", days, anew)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    headquarters(folder)
    return folder


def signed_kit(home: Path, opened: kits.Opened) -> Path:
    """The archive that comes back once the site's request was signed."""
    assert opened.request is not None
    cluster = load_cluster(home / "cluster.yaml")
    sign_request(make_authority(home / "certs", 365), opened.request, cluster.hosts(), 365)
    return made(home / "cluster.yaml").archives[opened.manifest.name]


def texts_of(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as packed:
        return {entry.name: packed.extractfile(entry).read() for entry in packed}  # type: ignore[union-attr]


def repacked(archive: Path, to: Path, changes: dict[str, bytes]) -> Path:
    with tarfile.open(to, "w:gz") as packed:
        for name, data in {**texts_of(archive), **changes}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            packed.addfile(entry, io.BytesIO(data))
    return to


def test_a_kit_has_the_sites_part_of_the_file_with_the_study_and_no_key(home: Path) -> None:
    archives = made(home / "cluster.yaml").archives
    assert list(archives) == ["lyon", "nice", "paris", "relay"]
    texts = texts_of(archives["nice"])
    cluster = yaml_text.parse(texts["alliance-nice/cluster.yaml"].decode(), "a kit")
    assert cluster["study"] == {**STUDY, "network": {"topology": "edge_list", "file": "who.txt"}}
    assert texts["alliance-nice/who.txt"] == b"lyon nice\nnice paris\n"
    assert cluster["nodes"]["nice"] == CONTENT["nodes"]["nice"]  # type: ignore[index]
    assert cluster["nodes"]["lyon"] == {"address": "10.0.0.1:7447"}  # where it shows its metrics is its own business
    assert not [name for name, data in texts.items() if b"PRIVATE KEY" in data]
    readme = texts["alliance-nice/README.md"].decode()
    assert readme.count("\n1. ") == readme.count("\n2. ") == readme.count("\n3. ") == 1
    assert "\n4. " not in readme


def test_the_same_state_of_the_file_is_the_same_edition_and_another_is_the_next(home: Path) -> None:
    first = made(home / "cluster.yaml")
    before = json.loads(texts_of(first.archives["lyon"])["alliance-lyon/kit.json"])
    again = made(home / "cluster.yaml")
    assert (again.edition, again.is_new) == (first.edition, False)
    after = json.loads(texts_of(again.archives["lyon"])["alliance-lyon/kit.json"])
    assert [after[key] for key in ("edition", "files")] == [before[key] for key in ("edition", "files")]
    (home / "who.txt").write_text("lyon nice\nlyon paris\n")
    changed = made(home / "cluster.yaml")
    assert (changed.edition.number, changed.is_new) == (2, True)
    assert made(home / "cluster.yaml", anew=True).edition.number == 3
    assert is_stale(first.edition, load_cluster(home / "cluster.yaml"), make_authority(home / "certs", 365))


def test_a_site_opens_a_kit_sends_its_request_and_gets_its_certificate(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lyon"
    opened = open_kit(made(home / "cluster.yaml").archives["lyon"], folder)
    key = folder / "certs" / "lyon.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert [finding.about for finding in check_kit(folder) if not finding.is_well] == ["certificate"]
    before = key.read_bytes()
    again = open_kit(signed_kit(home, opened), folder)
    assert (again.request, again.changed) == (None, ["certs/lyon.pem"])
    assert key.read_bytes() == before
    assert all(finding.is_well for finding in check_kit(folder))
    cluster = load_cluster(folder / "cluster.yaml")
    assert cluster.own_credentials("lyon") is not None
    assert (cluster.folder, cluster.home) == (folder / "records", folder)
    unit = (folder / "walktalk-lyon.service").read_text()
    assert f"node --config {folder}/cluster.yaml --name lyon" in unit


def test_an_update_replaces_what_changed_and_keeps_key_certificate_and_records(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lyon"
    open_kit(signed_kit(home, open_kit(made(home / "cluster.yaml").archives["lyon"], folder)), folder)
    old = (home / "kits" / "alliance-lyon.tar.gz").read_bytes()
    mine = {"certs/lyon.key": b"", "certs/lyon.pem": b"", "records/lyon/checkpoint": b"kept"}
    (folder / "records" / "lyon").mkdir(parents=True)
    (folder / "records" / "lyon" / "checkpoint").write_bytes(b"kept")
    before = {name: (folder / name).read_bytes() for name in mine}
    headquarters(home, wait=99.0, study={**STUDY, "network": {"topology": "path", "nodes": 3}})
    new = made(home / "cluster.yaml").archives["lyon"]
    opened = open_kit(new, folder)
    assert (opened.before.number, opened.manifest.edition.number) == (1, 2)  # type: ignore[union-attr]
    assert set(opened.changed) == {"cluster.yaml", "README.md"}
    assert opened.removed == ["who.txt"]
    assert {name: (folder / name).read_bytes() for name in mine} == before
    assert load_cluster(folder / "cluster.yaml").wait == 99.0
    (tmp_path / "old.tar.gz").write_bytes(old)
    with pytest.raises(SpecError, match="an older one; --older goes back"):
        open_kit(tmp_path / "old.tar.gz", folder)
    assert open_kit(tmp_path / "old.tar.gz", folder, older=True).manifest.edition.number == 1
    with pytest.raises(SpecError, match="has the kit of alliance-lyon, and this is that of alliance-nice"):
        open_kit(made(home / "cluster.yaml").archives["nice"], folder)


def test_a_kit_that_was_changed_or_is_of_another_authority_is_refused(home: Path, tmp_path: Path) -> None:
    archive = made(home / "cluster.yaml").archives["lyon"]
    text = texts_of(archive)["alliance-lyon/cluster.yaml"]
    forged = repacked(
        archive, tmp_path / "f.tar.gz", {"alliance-lyon/cluster.yaml": text.replace(b"10.0.0.1", b"10.6.6.6")}
    )
    with pytest.raises(SpecError, match=r"cluster\.yaml was changed or is missing"):
        open_kit(forged, tmp_path / "lyon")
    manifest = json.loads(texts_of(archive)["alliance-lyon/kit.json"])
    manifest["files"]["cluster.yaml"] = hashlib.sha256(text.replace(b"10.0.0.1", b"10.6.6.6")).hexdigest()
    whole = {
        "alliance-lyon/cluster.yaml": text.replace(b"10.0.0.1", b"10.6.6.6"),
        "alliance-lyon/kit.json": json.dumps(manifest).encode(),
    }
    with pytest.raises(SpecError, match="this kit was changed, or is of another authority"):
        open_kit(repacked(archive, tmp_path / "g.tar.gz", whole), tmp_path / "lyon")
    for name in ("../elsewhere", "/etc/elsewhere", "alliance-lyon/../../elsewhere", "alliance-lyon/more.sh"):
        with pytest.raises(SpecError, match=r"cannot be a file of a kit|is no part of this kit"):
            open_kit(repacked(archive, tmp_path / "h.tar.gz", {name: b""}), tmp_path / "lyon")
    assert not (tmp_path / "lyon").exists()
    open_kit(archive, tmp_path / "lyon")
    (home / "certs").rename(home / "first")  # another authority, under the same name
    with pytest.raises(SpecError, match="another authority"):
        open_kit(made(home / "cluster.yaml").archives["lyon"], tmp_path / "lyon")
    (tmp_path / "n.tar.gz").write_bytes(b"nothing")
    with pytest.raises(SpecError, match="is no kit"):
        open_kit(tmp_path / "n.tar.gz", tmp_path / "n")


def test_a_certificate_for_another_key_is_refused(home: Path, tmp_path: Path) -> None:
    archive = signed_kit(home, open_kit(made(home / "cluster.yaml").archives["lyon"], tmp_path / "lyon"))
    open_kit(made(home / "cluster.yaml").archives["relay"], tmp_path / "relay")
    with pytest.raises(SpecError, match="not for the key that is here"):
        open_kit(archive, tmp_path / "elsewhere")


def test_what_is_changed_missing_or_over_is_said(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "lyon"
    open_kit(signed_kit(home, open_kit(made(home / "cluster.yaml").archives["lyon"], folder)), folder)
    (folder / "cluster.yaml").write_text((folder / "cluster.yaml").read_text() + "pace: 3\n")
    (folder / "README.md").unlink()
    monkeypatch.setattr(Edition, "days_left", property(lambda self: -1))
    wrong = [(one.about, one.said.partition(" of ")[0]) for one in check_kit(folder) if not one.is_well]
    assert {"cluster.yaml is changed", "README.md is missing"} <= {said for _, said in wrong}
    assert ("end", f"EXPIRED on {check_kit(folder)[1].said.split()[-1]}") in wrong
    assert len(what_is_wrong(folder)) == 3  # a node says so when it starts
    (folder / "kit.json").write_text("{}")
    assert len(what_is_wrong(folder)) == 1
    assert what_is_wrong(tmp_path) == what_is_wrong(None) == []
    with pytest.raises(SpecError, match="manifest"):
        check_kit(folder)


def test_the_units_are_those_of_examples_deploy() -> None:
    """Written once: what the examples show is what a kit has."""
    usual = Place("/var/lib/walktalk", "/opt/walktalk/bin/walktalk", "walktalk", "")
    units = {
        "walktalk-node@.service": node_unit("%i", usual, "/etc/walktalk/cluster.yaml", ["StateDirectory=walktalk"]),
        "walktalk-relay.service": relay_unit(usual, "/etc/walktalk/cluster.yaml"),
    }
    for file, text in units.items():
        head, _, rest = (DEPLOY / file).read_text().partition("[Unit]")
        assert all(line.startswith("#") for line in head.splitlines())
        assert "[Unit]" + rest == text


def test_the_commands_say_what_to_do_and_check_tells_a_stale_archive(home: Path, tmp_path: Path) -> None:
    run, config = CliRunner(), str(home / "cluster.yaml")
    out = run.invoke(app, ["kit", "--config", config, "--out", str(home / "kits")])
    assert out.exit_code == 0, out.output
    assert "kit 1 of" in out.output
    archive, folder = str(home / "kits" / "alliance-paris.tar.gz"), tmp_path / "paris"
    opened = run.invoke(app, ["kit", "open", archive, "--to", str(folder)])
    assert opened.exit_code == 0, opened.output
    assert f"{folder / 'certs' / 'paris.csr'}   send it to the operator" in opened.output
    signed = run.invoke(app, ["kit", "--config", config, "--out", str(home / "kits"), "--sign", str(folder / "certs")])
    assert "alliance-paris.tar.gz   with its certificate" in signed.output
    well = run.invoke(app, ["kit", "check", archive, "--config", config])
    assert well.exit_code == 0, well.output
    headquarters(home, wait=7.0)
    stale = run.invoke(app, ["kit", "check", archive, "--config", config])
    assert stale.exit_code == 1
    assert "has changed since" in stale.output


def test_two_nodes_tell_each_other_whose_kit_is_old(home: Path) -> None:
    old = made(home / "cluster.yaml").edition
    headquarters(home, wait=7.0)
    new = made(home / "cluster.yaml").edition
    authority = home / "certs" / "ca.pem"
    heard = heard_edition("alliance", new.said(), authority)
    assert heard == new
    line = f"was started with an old kit, {old.words}"
    assert (
        older_kit(old, heard, ("lyon", "nice")) == f"this node {line}; nice has {new.words}: open the new kit at lyon"
    )
    assert older_kit(new, old, ("nice", "lyon")) == f"lyon {line}; this node has {new.words}: open the new kit at lyon"
    assert older_kit(new, heard, ("lyon", "nice")) == older_kit(None, new, ("lyon", "nice")) == ""
    lie = {**new.said(), "kit": new.said()["kit"].replace("2 ", "9 ", 1)}
    for said in (lie, {"kit": "x"}, {**new.said(), "kit signature": "?"}):
        with pytest.raises(ValueError, match=r"signed|cannot be read"):
            heard_edition("alliance", said, authority)
    assert new.walktalk == walktalk.__version__
