"""Keys made at the sites, certificates signed by the authority, revoked ones refused, and what ends soon is said."""

from __future__ import annotations

import base64
import datetime
import logging
import os
import re
import stat
from itertools import pairwise
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

from tests.peers.pair import SECONDS, endpoints, free_port, meet, two_nodes
from walktalk.cli import app
from walktalk.core.errors import SpecError, UnavailableError
from walktalk.runtimes.peers import make_cluster
from walktalk.runtimes.peers.identity.authority import (
    make_authority,
    make_certificates,
    open_authority,
    request_certificate,
    revoke_certificates,
    sign_request,
)
from walktalk.runtimes.peers.identity.certificates import (
    REVOKED_FILE,
    Credentials,
    certificates_in,
    common_name,
    credentials,
    judge,
    make_list,
    outlook,
    read_revoked,
    write_pem,
)
from walktalk.runtimes.peers.identity.renewal import Renewal
from walktalk.runtimes.peers.node.news import why_absent
from walktalk.runtimes.peers.wire.session import settings

CLUSTER = make_cluster({"nodes": {"a": {"address": "10.0.0.1:7447"}, "b": {}}, "relay": "hub.example:7446"})


def signed(home: Path, site: Path, name: str, **asked: bool) -> Path:
    """A site asks, the authority signs, the certificate goes back; as files on two machines."""
    path, _ = request_certificate(site, name, **asked)
    made = sign_request(make_authority(home, 365), path, CLUSTER.hosts(), 365)
    for file in (made, home / "ca.pem"):
        (site / file.name).write_bytes(file.read_bytes())
    return site / made.name


def test_a_key_that_never_leaves_its_site(tmp_path: Path) -> None:
    pem = signed(tmp_path / "home", tmp_path / "site", "a")
    files = credentials(tmp_path / "site", "a")
    assert not list((tmp_path / "home").glob("a.key*"))
    assert stat.S_IMODE(os.stat(files.key).st_mode) == 0o600
    places = certificates_in(pem)[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(place.value) for place in places} == {"10.0.0.1", "127.0.0.1", "localhost"}  # those of the file


def test_to_renew_keeps_the_key_and_a_new_one_waits_beside_it(tmp_path: Path) -> None:
    home, site = tmp_path / "home", tmp_path / "site"
    signed(home, site, "a")
    first = credentials(site, "a")
    key = first.key.read_bytes()
    signed(home, site, "a")
    assert credentials(site, "a").key.read_bytes() == key
    for used in ("a.key.next", "a.key", "a.key.next"):  # in turn: what is in use is never written over
        request_certificate(site, "a", new_key=True)
        before = credentials(site, "a").key  # the node could be started now
        assert before.name != used
        made = sign_request(open_authority(home), site / "a.csr", CLUSTER.hosts(), 365)
        (site / "a.pem").write_bytes(made.read_bytes())
        assert credentials(site, "a").key.name == used


def request_for(path: Path, name: str, key: ec.EllipticCurvePrivateKey | None = None) -> Path:
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    )
    write_pem(path, builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()))
    return path


@pytest.mark.parametrize("name", ["ca", "c", "A b", "revoked", "alive"])
def test_only_names_of_the_cluster_are_signed(name: str, tmp_path: Path) -> None:
    home = make_authority(tmp_path, 365)
    key = (tmp_path / "ca.key").read_bytes()
    asked = request_for(tmp_path / "x.csr", name)
    with pytest.raises(SpecError, match=r"is not in the cluster|cannot be a node's name"):
        sign_request(home, asked, CLUSTER.hosts(), 365)
    if name == "c":  # a good name of somebody who joins
        assert sign_request(home, asked, CLUSTER.hosts(), 365, joins=True, hosts=["c.example"]).name == "c.pem"
    else:
        with pytest.raises(SpecError, match="cannot be a node's name"):
            sign_request(home, asked, CLUSTER.hosts(), 365, joins=True)
    assert (tmp_path / "ca.key").read_bytes() == key


def test_a_key_is_one_nodes_alone_and_a_revoked_one_comes_not_back(tmp_path: Path) -> None:
    home = make_authority(tmp_path, 365)
    key = ec.generate_private_key(ec.SECP256R1())
    sign_request(home, request_for(tmp_path / "a.csr", "a", key), CLUSTER.hosts(), 365)
    with pytest.raises(SpecError, match="is about the key of 'a'"):
        sign_request(home, request_for(tmp_path / "b.csr", "b", key), CLUSTER.hosts(), 365)
    revoke_certificates(home, "a")
    with pytest.raises(SpecError, match="a key that was revoked; ask again with --new-key"):
        sign_request(home, tmp_path / "a.csr", CLUSTER.hosts(), 365)
    with pytest.raises(SpecError, match="'a' has none here that holds"):
        revoke_certificates(home, "a")


def test_a_request_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = request_for(tmp_path / "a.csr", "a")
    form = bytearray(x509.load_pem_x509_csr(path.read_bytes()).public_bytes(Encoding.DER))
    form[-1] ^= 1  # of the signature
    body = base64.encodebytes(bytes(form)).decode()
    path.write_text(f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n")
    with pytest.raises(SpecError, match="is not signed with the key that it is about"):
        sign_request(make_authority(tmp_path, 365), path, CLUSTER.hosts(), 365)
    with pytest.raises(UnavailableError, match=r"ca\.key does not exist: this is done where the authority is"):
        open_authority(tmp_path / "elsewhere")


# -- revocation -------------------------------------------------------------------------------------------------------


def test_what_replaces_a_revoked_certificate_speaks_for_the_same_node(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"a": (), "b": ()})
    home = open_authority(tmp_path)
    accepted = []
    for generation in range(1, 4):
        assert common_name(certificates_in(tmp_path / "b.pem")[0]) == ("b" if generation == 1 else f"b~{generation}")
        accepted.append(credentials(tmp_path, "a").revocations.accepted("b"))
        credentials(tmp_path, "b")
        revoke_certificates(home, "b")
        with pytest.raises(SpecError, match=r"b\.pem was revoked on 20\d\d-.*ask for another"):
            credentials(tmp_path, "b")
        make_certificates(tmp_path, {"b": ()})
    assert accepted == [["b"], ["b~2"], ["b~3"]]
    files = credentials(tmp_path, "a")
    assert files.revocations.number == 3
    one, _ = endpoints((free_port(), free_port()), (files, None))
    subjects = {s["id"]: s.get("cert_common_names") for s in settings(one)["access_control"]["subjects"]}
    assert (subjects["b"], subjects["operator"]) == (["b~4"], ["operator"])


def test_only_the_authority_can_revoke(tmp_path: Path) -> None:
    for place in ("ours", "theirs"):
        make_certificates(tmp_path / place, {"a": (), "b": ()})
    theirs, ours = open_authority(tmp_path / "theirs"), open_authority(tmp_path / "ours")
    path, _ = revoke_certificates(theirs, "a")
    (tmp_path / "ours" / REVOKED_FILE).write_bytes(path.read_bytes())
    with pytest.raises(SpecError, match="is not signed by the authority"):
        credentials(tmp_path / "ours", "b")
    forged = make_list(None, certificates_in(tmp_path / "ours" / "a.pem"), ours.certificate, theirs.key)
    write_pem(tmp_path / "ours" / REVOKED_FILE, forged)
    with pytest.raises(SpecError, match="is not signed by the authority"):
        credentials(tmp_path / "ours", "b")
    (tmp_path / "ours" / REVOKED_FILE).write_text("nonsense")
    with pytest.raises(SpecError, match="is not a list of revoked certificates"):
        credentials(tmp_path / "ours", "b")


def test_a_list_of_another_tool_names_those_whose_certificates_lie_beside_it(tmp_path: Path) -> None:
    """Entries have serial numbers only, as those of any company's authority."""
    make_certificates(tmp_path, {"a": (), "b": ()})
    home = open_authority(tmp_path)
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateRevocationListBuilder().issuer_name(home.certificate.subject)
    builder = builder.last_update(now).next_update(now + datetime.timedelta(days=1))
    for serial in (certificates_in(tmp_path / "b.pem")[0].serial_number, 4711):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = builder.add_revoked_certificate(entry)
    builder = builder.add_extension(x509.CRLNumber(7), critical=False)
    write_pem(tmp_path / REVOKED_FILE, builder.sign(home.key, hashes.SHA256()))
    found = read_revoked(tmp_path, [home.certificate])
    assert (found.number, set(found.names), len(found.serials)) == (7, {"b"}, 2)


# -- while a node runs ------------------------------------------------------------------------------------------------


class Watched:
    """A `Renewal` that looks when it is told to."""

    def __init__(self, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("walktalk.runtimes.peers.identity.renewal.LOOK_EVERY", 1e6)
        self.applied: list[Credentials] = []
        self.there: tuple[set[str], set[str]] = {"b"}, set()
        self.renewal = Renewal(
            credentials(folder, name), name, lambda: ["b", "operator"], self.applied.append, lambda: self.there
        )

    def look(self) -> None:
        for _ in range(2):  # what has changed is taken at the second look
            self.renewal.look()


def test_new_files_are_taken_when_they_hold_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "walktalk")
    make_certificates(tmp_path, {"a": (), "b": ()})
    node = Watched(tmp_path, "a", monkeypatch)
    node.look()
    assert not node.applied
    make_certificates(tmp_path, {"a": ()}, days=100)
    node.renewal.look()
    assert not node.applied  # it may be half written
    node.renewal.look()
    assert len(node.applied) == 1
    assert 98 < node.renewal.outlook.days < 100
    (tmp_path / "a.pem").write_bytes((tmp_path / "b.pem").read_bytes())
    node.look()
    node.look()
    assert len(node.applied) == 1
    assert caplog.text.count("made out to 'b', not to 'a'; it goes on with the certificate that it has") == 1
    make_certificates(tmp_path, {"a": ()}, days=200)
    node.look()
    assert len(node.applied) == 2
    (tmp_path / "b.pem").unlink()  # no business of this one's
    node.look()
    assert len(node.applied) == 2


def test_nobody_is_lost_by_opening_connections_anew_because_it_has_no_new_certificate_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_certificates(tmp_path, {"a": (), "b": ()})
    now = datetime.datetime.now(datetime.timezone.utc)
    node, hour = Watched(tmp_path, "a", monkeypatch), datetime.timedelta(hours=1)
    node.renewal.learn_end("b", now - hour)
    make_certificates(tmp_path, {"a": ()}, days=100)
    node.look()
    node.look()
    assert not node.applied
    assert caplog.text.count("leaves its connections open until b has one, too") == 1
    assert 98 < node.renewal.outlook.days < 100  # nothing is left to do for whoever has renewed it
    node.there = set(), {"b"}
    node.look()
    assert len(node.applied) == 1  # who is not there is not lost
    node.there = {"b"}, {"c"}
    make_certificates(tmp_path, {"a": ()}, days=200)
    node.look()
    assert len(node.applied) == 1  # its own holds: c can come
    node.renewal._in_force_until = now - hour
    node.look()
    assert len(node.applied) == 2  # c could not
    node.there = {"b"}, set()
    make_certificates(tmp_path, {"a": ()}, days=300)
    node.look()
    assert len(node.applied) == 2
    node.renewal.learn_end("b", now + hour)
    node.look()
    assert len(node.applied) == 3


def test_ends_of_certificates_that_are_made_together_are_spread(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(8)]
    make_certificates(tmp_path, dict.fromkeys(names, ()))
    ends = sorted(certificates_in(tmp_path / f"{name}.pem")[0].not_valid_after_utc for name in names)
    days = [(later - sooner).total_seconds() / 86_400 for sooner, later in pairwise(ends)]
    assert all(4.5 < between < 6.0 for between in days)
    assert certificates_in(tmp_path / "operator.pem")[0].not_valid_after_utc >= ends[-1]
    request_certificate(tmp_path, "n7")
    last = certificates_in(sign_request(open_authority(tmp_path), tmp_path / "n7.csr", dict.fromkeys(names, ()), 365))
    assert abs(last[0].not_valid_after_utc - ends[0]) < datetime.timedelta(minutes=5)
    make_certificates(tmp_path / "together", dict.fromkeys(names, ()), together=True)
    found = {certificates_in(tmp_path / "together" / f"{name}.pem")[0].not_valid_after_utc for name in names}
    assert max(found) - min(found) < datetime.timedelta(minutes=5)


def test_a_list_is_taken_from_whoever_brings_it_and_never_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home, site = tmp_path / "home", tmp_path / "site"
    make_certificates(home, {"a": (), "b": (), "c": ()})
    site.mkdir()
    for name in ("ca.pem", "a.pem", "a.key"):
        (site / name).write_bytes((home / name).read_bytes())
    node = Watched(site, "a", monkeypatch)
    texts = [revoke_certificates(open_authority(home), name)[0].read_text() for name in ("c", "b", "a")]
    assert node.renewal.receive_list(texts[0])
    node.look()
    assert not node.applied  # c is nobody whom it talks to: connections stay
    assert node.renewal.files.revocations.number == 1
    assert node.renewal.receive_list(texts[1])
    node.look()
    assert [files.revocations.accepted("b") for files in node.applied] == [["b~2"]]
    assert "a: refuses b: its certificate was revoked on" in caplog.text
    assert not node.renewal.receive_list(texts[0])
    make_certificates(tmp_path / "other", {"b": ()})
    foreign = revoke_certificates(open_authority(tmp_path / "other"), "b")[0].read_text()
    with pytest.raises(SpecError, match="not signed by the authority"):
        node.renewal.receive_list(foreign)
    (site / REVOKED_FILE).unlink()
    node.look()
    assert node.renewal.files.revocations.number == 2
    assert "the list of the revoked is gone or old; the one before stays in force" in caplog.text
    assert node.renewal.receive_list(texts[2])
    node.look()
    assert node.renewal.outlook.state == "revoked"
    assert "a.pem was revoked on" in caplog.text


@pytest.mark.parametrize(
    ("days", "state", "said"),
    [
        (31.5, "good", ""),
        (29.5, "soon", r"a.pem expires on \d{4}-\d\d-\d\d, in 29 days; renew it: `walktalk certs request --help`"),
        (6.5, "soon", "in 6 days"),
        (0.5, "soon", "today"),
        (-0.5, "expired", r"a.pem expired on \d{4}-\d\d-\d\d: connections that are open stay open"),
    ],
)
def test_what_ends_soon_is_warned_of(days: float, state: str, said: str) -> None:
    now = datetime.datetime(2030, 1, 1, tzinfo=datetime.timezone.utc)
    found = judge(now + datetime.timedelta(days=days), Path("a.pem"), now)
    assert found.state == state
    assert found.warning == {31.5: 0, 29.5: 1, 6.5: 2, 0.5: 3, -0.5: 4}[days]
    if said:
        assert re.search(said, found.in_words())


def test_the_authoritys_end_is_warned_of_too_and_outlives_what_it_signs(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"a": ()}, days=100_000)
    files = credentials(tmp_path, "a")
    ends = [certificates_in(path)[0].not_valid_after_utc for path in (files.certificate, files.authority)]
    assert ends[0] <= ends[1]
    make_certificates(tmp_path / "short", {"a": ()}, days=20)
    soon = outlook(credentials(tmp_path / "short", "a"))
    assert (soon.state, soon.which.name) == ("soon", "a.pem")


def test_a_revoked_neighbour_is_refused_on_both_sides_and_its_successor_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Over the network: the list is brought to both while they run, and each acts on it."""
    make_certificates(tmp_path / "one", {"a": (), "b": ()})
    home = open_authority(tmp_path / "one")
    (tmp_path / "two").mkdir()
    for name in ("ca.pem", "b.pem", "b.key"):
        (tmp_path / "two" / name).write_bytes((tmp_path / "one" / name).read_bytes())
    with two_nodes((credentials(tmp_path / "one", "a"), credentials(tmp_path / "two", "b"))) as (a, b):
        meet(a, b)
        text = revoke_certificates(home, "b")[0].read_text()
        (tmp_path / "one" / REVOKED_FILE).unlink()
        for node in (a, b):
            assert node.link.connections.renewal is not None
            assert node.link.connections.renewal.receive_list(text)
        assert a.peers.get(timeout=SECONDS) == (1, False)  # at once: it is not excused
        address = b.link.endpoint.listen
        assert "its certificate was revoked on" in why_absent("b", address, credentials(tmp_path / "one", "a"))
        make_certificates(tmp_path / "one", {"b": ()})
        for name in ("b.pem", "b.key"):
            (tmp_path / "two" / name).write_bytes((tmp_path / "one" / name).read_bytes())
        assert b.link.connections.renewal is not None
        for _ in range(2):
            b.link.connections.renewal.look()
        there = False
        while not there:
            number, there = a.peers.get(timeout=SECONDS)
            assert number == 1
    assert "a: refuses b: its certificate was revoked on" in caplog.text
    assert f"b: certificates: {tmp_path / 'two' / 'b.pem'} was revoked on" in caplog.text


# -- as a person calls it ---------------------------------------------------------------------------------------------


def call(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.output


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text("certificates: certs\nnodes: {a: {address: 127.0.0.1:9}, b: {address: 127.0.0.1:9}}\n")
    return path


def test_the_commands_from_a_request_to_its_revocation(config: Path, tmp_path: Path) -> None:
    site, certs = tmp_path / "site", tmp_path / "certs"
    code, said = call("certs", "request", "a", "--config", config, "--out", site)
    assert code == 0
    assert "walktalk certs sign a.csr --config cluster.yaml\n" in said
    code, said = call("certs", "request", "new", "--config", config, "--out", site)
    assert "walktalk certs sign new.csr --config cluster.yaml --joins\n" in said  # it is not in the file
    assert call("certs", "--config", config, "--together")[0] == 0  # the rest in one place
    (certs / "a.key").unlink()
    assert call("certs", "sign", site / "a.csr", "--config", config)[0] == 0
    code, said = call("certs", "--config", config)
    assert said.count("as before") == 3
    assert "its key is at its site" in said
    code, said = call("certs", "list", "--config", config)
    assert (code, said.count("364 days left")) == (0, 3)
    keys = [
        [line for line in call("certs", "show", p)[1].splitlines() if "key  " in line]
        for p in (site / "a.csr", certs / "a.pem")
    ]
    assert keys[0] == keys[1] != []
    code, said = call("certs", "revoke", "a", "--config", config, "--seconds", 0.1)
    assert code == 0
    assert "revoked a, serial number" in said
    assert "a: does not answer: copy the list into its folder of certificates" in said
    code, said = call("certs", "list", "--config", config)
    assert code == 1
    assert "REVOKED" in said
    assert "a, serial number" in call("certs", "show", certs / REVOKED_FILE)[1]
    assert call("certs", "request", "a", "--config", config, "--out", site, "--new-key")[0] == 0
    assert call("certs", "sign", site / "a.csr", "--config", config)[0] == 0
    assert "made out to    a~2" in call("certs", "show", certs / "a.pem")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("certs", "request", "ca"), "'ca' cannot be a node's name: it is the name of the authority's own files"),
        (("certs", "request", "A b"), "'A b' cannot be a node's name; use a-z"),
        (("certs", "sign", "none.csr"), "none.csr does not exist"),
        (("certs", "revoke", "a"), "ca.key does not exist: this is done where the authority is"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], message: str, config: Path) -> None:
    code, said = call(*words, "--config", config)
    assert code == 2
    assert message in " ".join(said.split())
    assert len(said.strip().splitlines()) == 1
