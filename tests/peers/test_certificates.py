"""Certificates that others would refuse are refused at home, with the reason; and why somebody is not there."""

from __future__ import annotations

import contextlib
import datetime
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.peers.pair import SECONDS, endpoints, free_port, two_nodes
from walktalk.core.errors import SpecError, UnavailableError, UserError
from walktalk.core.untrusted import Refused
from walktalk.runtimes.peers.identity.authority import make_certificates
from walktalk.runtimes.peers.identity.certificates import certificate_from, certificates_in, credentials, is_issued_by
from walktalk.runtimes.peers.node.news import SILENT, UNKNOWN_PLACE, News, why_absent


def spoil(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text("hello")


def swap_key(folder: Path) -> None:
    (folder / "a.key").write_bytes((folder / "b.key").read_bytes())


def change_authority(folder: Path) -> None:
    make_certificates(folder / "other", {"a": ()})
    (folder / "ca.pem").write_bytes((folder / "other" / "ca.pem").read_bytes())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (spoil("a.pem"), "a.pem is not a certificate"),
        (spoil("ca.pem"), "ca.pem is not a certificate"),
        (spoil("a.key"), "a.key is not a private key"),
        (swap_key, "is not the key of"),
        (change_authority, "is not of the authority"),
        (lambda folder: (folder / "a.key").unlink(), "does not exist; make it with `walktalk certs`"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_said(
    damage: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    make_certificates(tmp_path, {"a": (), "b": ()})
    credentials(tmp_path, "a")
    damage(tmp_path)
    with pytest.raises(UserError, match=message):
        credentials(tmp_path, "a")


def test_one_that_has_expired_is_refused(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"b": ()})
    make_certificates(tmp_path, {"a": ()}, days=0)
    with pytest.raises(SpecError, match=r"a.pem expired on 20\d\d-"):
        credentials(tmp_path, "a")


def test_machines_whose_clocks_differ_by_hours_accept_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificates(tmp_path / "good", {"a": ()})
    certificate = x509.load_pem_x509_certificate((tmp_path / "good" / "a.pem").read_bytes())
    now = datetime.datetime.now(datetime.timezone.utc)
    assert certificate.not_valid_before_utc < now - datetime.timedelta(hours=23)
    monkeypatch.setattr("walktalk.runtimes.peers.identity.authority.CLOCKS_DIFFER", -datetime.timedelta(hours=1))
    make_certificates(tmp_path / "ahead", {"a": ()})
    with pytest.raises(SpecError, match=r"a.pem is valid from .*:\d\d UTC only, and here it is .*:\d\d; is this mach"):
        credentials(tmp_path / "ahead", "a")


def test_a_chain_over_an_authority_in_between_is_accepted(tmp_path: Path) -> None:
    """As a company's own: the root has signed an authority, which has signed the node's certificate."""
    make_certificates(tmp_path / "root", {"between": ()})
    make_certificates(tmp_path / "nodes", {"a": ()})
    middle = x509.load_pem_x509_certificate((tmp_path / "nodes" / "ca.pem").read_bytes())
    root = x509.load_pem_x509_certificate((tmp_path / "root" / "ca.pem").read_bytes())
    key = serialization.load_pem_private_key((tmp_path / "root" / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    signed = (
        x509.CertificateBuilder()
        .subject_name(middle.subject)
        .issuer_name(root.subject)
        .public_key(middle.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(middle.not_valid_before_utc)
        .not_valid_after(middle.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    own = (tmp_path / "nodes" / "a.pem").read_bytes()
    (tmp_path / "nodes" / "a.pem").write_bytes(own + signed.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "nodes" / "ca.pem").write_bytes((tmp_path / "root" / "ca.pem").read_bytes())
    assert credentials(tmp_path / "nodes", "a").certificate.name == "a.pem"
    assert root.subject.get_attributes_for_oid(NameOID.COMMON_NAME)


def made_out(name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, signer: ec.EllipticCurvePrivateKey):
    """A certificate to a name, signed by whoever has a key."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(signer, hashes.SHA256())
    )


def test_a_members_own_certificate_makes_out_no_others(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"a": (), "b": ()})
    authority, own = certificates_in(tmp_path / "ca.pem"), certificates_in(tmp_path / "a.pem")[0]
    key = serialization.load_pem_private_key((tmp_path / "a.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    forged = made_out("b", ec.generate_private_key(ec.SECP256R1()), own.subject, key)
    assert is_issued_by(own, authority, [])
    assert not is_issued_by(forged, authority, [own])


@pytest.mark.parametrize("number", [2, 20])
def test_many_certificates_of_one_key_are_looked_at_once_each(tmp_path: Path, number: int) -> None:
    make_certificates(tmp_path, {"a": ()})
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    own, *between = [made_out("x", key, name, key) for _ in range(number + 1)]
    began = time.process_time()
    assert not is_issued_by(own, certificates_in(tmp_path / "ca.pem"), between)
    assert time.process_time() - began < 0.1


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_certificates_with_any_bytes_changed_are_read_or_refused(one_certificate: bytes, data: st.DataObject) -> None:
    """Among them odd versions, which the library answers with an exception of a kind of its own."""
    changed = bytearray(one_certificate)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Refused):
        certificate_from(bytes(changed[: data.draw(st.integers(0, len(changed)))]))


@pytest.fixture(scope="module")
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A node's certificate as it travels."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, {"a": ()})
    return certificates_in(folder / "a.pem")[0].public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize("version", [1, 3, 9, 127])
def test_a_certificate_of_no_version_that_there_is_is_refused(one_certificate: bytes, version: int) -> None:
    at = one_certificate.index(bytes.fromhex("a003020102"))
    with pytest.raises(Refused):
        certificate_from(one_certificate[: at + 4] + bytes([version]) + one_certificate[at + 5 :])


def test_an_authority_that_cannot_be_used_again_is_named(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"a": ()})
    (tmp_path / "ca.key").write_text("hello")
    with pytest.raises(SpecError, match=r"ca\.key is not a private key"):
        make_certificates(tmp_path, {"a": ()})
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="cannot be written"):
        make_certificates(tmp_path / "file", {"a": ()})


def test_why_a_neighbour_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("walktalk.runtimes.peers.node.news.PATIENCE", 0.7)
    make_certificates(tmp_path / "ours", {"a": (), "b": ()})
    make_certificates(tmp_path / "theirs", {"a": ()})
    ours, theirs = credentials(tmp_path / "ours", "a"), credentials(tmp_path / "theirs", "a")
    with two_nodes((ours, credentials(tmp_path / "ours", "b"))) as (_, b):
        address = b.link.endpoint.listen
        assert why_absent("b", address, ours) == SILENT
        assert why_absent("c", address, ours) == "whoever listens there has the certificate of 'b'"
        assert "of another authority" in why_absent("b", address, theirs)
        assert "refuses this node's certificate" in why_absent("b", address, replace(theirs, authority=ours.authority))
        assert "only one of the two use certificates" in why_absent("b", address, None)
    assert "cannot be reached: Connection refused" in why_absent("b", f"127.0.0.1:{free_port()}", ours)
    assert "cannot be reached: " in why_absent("b", "nowhere.invalid:7447", ours)
    assert why_absent("b", "", ours) == UNKNOWN_PLACE


def test_one_that_is_no_node_at_all_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("walktalk.runtimes.peers.node.news.PATIENCE", 0.2)
    make_certificates(tmp_path, {"a": ()})
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert "does not speak TLS" in why_absent("b", address, credentials(tmp_path, "a"))


def test_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, _ = endpoints((free_port(), port := free_port()))
    news = News(replace(first, places={"b": f"127.0.0.1:{port}"}))
    with caplog.at_level(logging.INFO, "walktalk"):
        news.event("lost", 1, -1, -1)
        news.event("combine", 1, -1, -1)
        news.absent([1], logging.WARNING)
        end = time.monotonic() + SECONDS
        while len(caplog.messages) < 2 and time.monotonic() < end:
            time.sleep(0.01)
    assert caplog.messages == ["a: b is gone", f"a: without b: 127.0.0.1:{port} cannot be reached: Connection refused"]
