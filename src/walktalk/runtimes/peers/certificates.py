"""Certificates: who may join. A test authority, and one certificate for each node, valid for its name and addresses.

`walktalk certs` writes `ca.pem`, `ca.key` and `NAME.pem`, `NAME.key` for every node and for the operator, who asks
for `status` and says `stop`. A real deployment brings certificates of its own; the common name must be the node's name,
because that is what the others compare with. Only `ca.pem` and its own pair belong on a node; `ca.key` stays at home.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from walktalk.errors import SpecError, UnavailableError

OPERATOR = "operator"
"""The name that `walktalk status` and `walktalk stop` go by; no node may have it."""

AUTHORITY = "ca"
"""The name of the authority's own files; a node of that name would overwrite its key."""

Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Credentials:
    """Where one node's certificate, its key, and the authority's certificate lie."""

    authority: Path
    certificate: Path
    key: Path


def credentials(folder: Path, name: str) -> Credentials:
    """The three files of a node, or an error that says what the others would refuse them for.

    A refused connection says nothing of its reason to the one that is refused, so all that can be seen here is looked
    at here.
    """
    found = Credentials(folder / f"{AUTHORITY}.pem", folder / f"{name}.pem", folder / f"{name}.key")
    for path in (found.authority, found.certificate, found.key):
        if not path.is_file():
            raise UnavailableError(f"certificates: {path} does not exist; make it with `walktalk certs`")
    authorities, (own, *between) = _certificates_in(found.authority), _certificates_in(found.certificate)
    holder = common_name(own)
    if holder != name:
        raise SpecError(f"certificates: {found.certificate} is made out to {holder!r}, not to {name!r}")
    for path, certificate in ((found.certificate, own), (found.authority, authorities[0])):
        _check_dates(path, certificate)
    if not _is_issued_by(own, authorities, between):
        raise SpecError(f"certificates: {found.certificate} is not of the authority in {found.authority}")
    if _private_key(found.key).public_key() != own.public_key():
        raise SpecError(f"certificates: {found.key} is not the key of {found.certificate}")
    return found


def valid_until(path: Path) -> datetime.datetime:
    """The last moment of the first certificate in a file."""
    return _certificates_in(path)[0].not_valid_after_utc


def common_name(certificate: x509.Certificate) -> str:
    """The name that a certificate is made out to."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _certificates_in(path: Path) -> list[x509.Certificate]:
    """At least one; a file may hold a chain."""
    try:
        return x509.load_pem_x509_certificates(_bytes_of(path))
    except ValueError as error:
        raise SpecError(f"certificates: {path} is not a certificate in PEM form") from error


def _private_key(path: Path) -> PrivateKeyTypes:
    try:
        return serialization.load_pem_private_key(_bytes_of(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SpecError(f"certificates: {path} is not a private key in PEM form without a password") from error


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnavailableError(f"certificates: {path} cannot be read: {error.strerror}") from error


def _check_dates(path: Path, certificate: x509.Certificate) -> None:
    now = datetime.datetime.now(datetime.timezone.utc)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > last:
        raise SpecError(f"certificates: {path} expired on {last:%Y-%m-%d}; make new ones, with `walktalk certs`")
    if now < first:
        raise SpecError(f"certificates: {path} is valid from {first:%Y-%m-%d} only; is this machine's clock right?")


def _is_issued_by(own: x509.Certificate, authorities: list[x509.Certificate], between: list[x509.Certificate]) -> bool:
    """Whether one of the authorities has signed it, or one that comes with it and that an authority has signed."""
    issuers = [other for other in (*authorities, *between) if _has_signed(other, own)]
    return any(
        issuer in authorities or _is_issued_by(issuer, authorities, [b for b in between if b != issuer])
        for issuer in issuers
    )


def _has_signed(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def make_certificates(folder: Path, hosts: Mapping[str, Iterable[str]], days: int = 365) -> list[Path]:
    """An authority and a certificate for each name, good for these host names and addresses.

    An authority that is already there is used again, so that nodes can be added later.
    """
    if AUTHORITY in hosts:
        raise SpecError(f"nodes: {AUTHORITY!r} cannot be a node's name: the authority's own files are called so")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        authority, key = _authority(folder, days)
        written = [folder / f"{AUTHORITY}.pem"]
        for name, addresses in {**hosts, OPERATOR: ()}.items():
            own = ec.generate_private_key(ec.SECP256R1())
            certificate = _issue(name, own, authority.subject, key, days, _places(addresses))
            _write_key(folder / f"{name}.key", own)
            written.append(_write_certificate(folder / f"{name}.pem", certificate))
    except OSError as error:
        raise UnavailableError(f"certificates: {folder} cannot be written: {error.strerror}") from error
    return written


def _authority(folder: Path, days: int) -> tuple[x509.Certificate, Key]:
    certificate_path, key_path = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}.key"
    if certificate_path.is_file() and key_path.is_file():
        key = _private_key(key_path)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise SpecError(f"certificates: {key_path} is not an elliptic-curve key; use another folder")
        certificate = _certificates_in(certificate_path)[0]
        _check_dates(certificate_path, certificate)
        if certificate.public_key() != key.public_key():
            raise SpecError(f"certificates: {key_path} is not the key of {certificate_path}; use another folder")
        return certificate, key
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject("walktalk test authority")
    certificate = _issue("walktalk test authority", key, name, key, days, None)
    _write_key(key_path, key)
    _write_certificate(certificate_path, certificate)
    return certificate, key


def _issue(
    name: str, key: Key, issuer: x509.Name, issuer_key: Key, days: int, places: x509.SubjectAlternativeName | None
) -> x509.Certificate:
    """A certificate; without places it is the authority's own."""
    now = datetime.datetime.now(datetime.timezone.utc)
    constraints = x509.BasicConstraints(ca=places is None, path_length=0 if places is None else None)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks of different machines differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(constraints, critical=True)
    )
    if places is not None:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]  # a peer is both
        builder = builder.add_extension(places, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _places(addresses: Iterable[str]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = []
    for address in sorted({"localhost", "127.0.0.1", *addresses}):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        except ValueError:
            names.append(x509.DNSName(address))
    return x509.SubjectAlternativeName(names)


def _write_key(path: Path, key: Key) -> None:
    """A private key, readable by its owner only from the first moment on."""
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key.private_bytes(*form))


def _write_certificate(path: Path, certificate: x509.Certificate) -> Path:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return path
