"""Certificates, keys and requests as they lie in files, read with errors that name the file."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import NameOID

from walktalk.errors import SpecError, UnavailableError
from walktalk.records import write_text

GENERATION = "~"
"""Stands between a node's name and the number of its certificate: `b`, and where that was revoked, `b~2`."""


def certificates_in(path: Path) -> list[x509.Certificate]:
    """At least one; a file may hold a chain."""
    try:
        return x509.load_pem_x509_certificates(bytes_of(path))
    except ValueError as error:
        raise SpecError(f"certificates: {path} is not a certificate in PEM form") from error


def private_key(path: Path) -> PrivateKeyTypes:
    """A key that needs no password."""
    try:
        return serialization.load_pem_private_key(bytes_of(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SpecError(f"certificates: {path} is not a private key in PEM form without a password") from error


def request_in(path: Path) -> x509.CertificateSigningRequest:
    """A request that was signed with the key that it is about."""
    try:
        request = x509.load_pem_x509_csr(bytes_of(path))
    except ValueError as error:
        raise SpecError(f"certificates: {path} is not a certificate request in PEM form") from error
    if not request.is_signature_valid:
        raise SpecError(f"certificates: {path} is not signed with the key that it is about; make it again")
    return request


def bytes_of(path: Path) -> bytes:
    """All of a file."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UnavailableError(f"certificates: {path} does not exist") from error
    except OSError as error:
        raise UnavailableError(f"certificates: {path} cannot be read: {error.strerror}") from error


def common_name(holder: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """The name that a certificate or a request is made out to."""
    names = holder.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def bearer(name: str) -> str:
    """Which node may speak by a certificate that is made out to this name."""
    return name.partition(GENERATION)[0]


def is_issued_by(own: x509.Certificate, authorities: list[x509.Certificate], between: list[x509.Certificate]) -> bool:
    """Whether one of the authorities has signed it, or one that comes with it and that an authority has signed."""
    issuers = [other for other in (*authorities, *between) if _has_signed(other, own)]
    return any(
        issuer in authorities or is_issued_by(issuer, authorities, [b for b in between if b != issuer])
        for issuer in issuers
    )


def _has_signed(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """A private key, readable by its owner only from the first moment on."""
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key.private_bytes(*form))


def write_pem(
    path: Path, thing: x509.Certificate | x509.CertificateSigningRequest | x509.CertificateRevocationList
) -> Path:
    """Whole or not at all: a node that runs may read it at any moment."""
    write_text(path, thing.public_bytes(serialization.Encoding.PEM).decode("ascii"))
    return path
