"""The list of certificates that hold no more: `revoked.pem`, signed by the authority (an X.509 CRL).

Zenoh tells whose certificate a connection has by its common name alone. So a list names names, in an extension of each
entry, and the certificate that replaces a revoked one is made out to another: after `b` comes `b~2`, and both speak for
the node `b`. A list that something else has made has no names in it; then certificates are known that lie beside it.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from walktalk.errors import SpecError
from walktalk.runtimes.peers.pem import GENERATION, bearer, bytes_of, certificates_in, common_name

LIST = "revoked.pem"
LARGEST = 1 << 20  # bytes of a list
NAME = x509.ObjectIdentifier("2.25.147706527045425358546192673024591613456")  # an OID of a random UUID: nobody else's
_UTF8 = 0x0C  # the tag of a text in DER, before its length


@dataclass(frozen=True)
class Revocations:
    """What a list says."""

    number: int = 0  # grows with every change of the list
    names: Mapping[str, datetime.datetime] = field(default_factory=dict)  # common names, and since when
    serials: frozenset[int] = frozenset()

    def since(self, certificate: x509.Certificate) -> datetime.datetime | None:
        """When this one was revoked; None where it holds."""
        if certificate.serial_number not in self.serials and common_name(certificate) not in self.names:
            return None
        return self.names.get(common_name(certificate), datetime.datetime.now(datetime.timezone.utc))

    def accepted(self, name: str) -> list[str]:
        """The common names that may speak for a node."""
        revoked = {generation_of(one) for one in self.names if bearer(one) == name}
        return [in_generation(name, g) for g in range(1, max(revoked, default=0) + 2) if g not in revoked]


def in_generation(name: str, generation: int) -> str:
    """The common name of a node's certificate of this number, from 1."""
    return name if generation == 1 else f"{name}{GENERATION}{generation}"


def generation_of(name: str) -> int:
    """The number of a certificate that is made out to this name."""
    number = name.partition(GENERATION)[2]
    return int(number) if number.isdecimal() else 1


def read(folder: Path, authorities: Iterable[x509.Certificate]) -> Revocations:
    """The list in a folder, empty where there is none. A `SpecError` where the authority has not signed it."""
    path = folder / LIST
    if not path.exists():
        return Revocations()
    known = {one.serial_number: common_name(one) for one in _beside(path)}
    return parse(bytes_of(path), authorities, str(path), known)


def parse(
    data: bytes, authorities: Iterable[x509.Certificate], source: str, known: Mapping[int, str] | None = None
) -> Revocations:
    """What a list says.

    - `data`: in PEM form.
    - `authorities`: of whom one must have signed it.
    - `source`: for errors.
    - `known`: common names of certificates, for entries without one.
    """
    number, entries = entries_of(data, source)
    if not any(_signed(x509.load_pem_x509_crl(data), one) for one in authorities):
        raise SpecError(f"certificates: {source} is not signed by the authority")
    names = {name or (known or {}).get(serial, ""): since for serial, since, name in entries}
    names.pop("", None)
    return Revocations(number, names, frozenset(serial for serial, _, _ in entries))


def entries_of(data: bytes, source: str) -> tuple[int, list[tuple[int, datetime.datetime, str]]]:
    """The number of a list, and its entries: serial number, since when, common name; whoever has signed it."""
    try:
        if len(data) > LARGEST:
            raise ValueError("too long")
        content = x509.load_pem_x509_crl(data)
        entries = [(one.serial_number, one.revocation_date_utc, _name(one)) for one in content]
        return content.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number, entries
    except (ValueError, x509.ExtensionNotFound) as error:
        raise SpecError(f"certificates: {source} is not a list of revoked certificates in PEM form") from error


def _beside(path: Path) -> list[x509.Certificate]:
    return [certificates_in(other)[0] for other in sorted(path.parent.glob("*.pem")) if other != path]


def _signed(content: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    try:
        return content.issuer == authority.subject and content.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except (TypeError, ValueError):  # a key of a kind that signs nothing
        return False


def _name(entry: x509.RevokedCertificate) -> str:
    try:
        value = entry.extensions.get_extension_for_oid(NAME).value
    except x509.ExtensionNotFound:
        return ""
    text = value.value if isinstance(value, x509.UnrecognizedExtension) else b""
    return text[2:].decode("utf-8", "replace") if text[:1] == bytes([_UTF8]) else ""


def make_list(
    before: bytes | None,
    revoked: Iterable[x509.Certificate],
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
) -> x509.CertificateRevocationList:
    """A list with these in addition to those of the one before (in PEM form, the authority's own)."""
    now = datetime.datetime.now(datetime.timezone.utc)
    old = x509.load_pem_x509_crl(before) if before is not None else None
    number = old.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number if old is not None else 0
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(now)
        .next_update(authority.not_valid_after_utc)
        .add_extension(x509.CRLNumber(number + 1), critical=False)
    )
    entries = list(old) if old is not None else []
    builder = functools.reduce(lambda made, one: made.add_revoked_certificate(one), entries, builder)
    there = {one.serial_number for one in entries}
    for certificate in revoked:
        if certificate.serial_number not in there:
            builder = builder.add_revoked_certificate(_entry(certificate, now))
    return builder.sign(key, hashes.SHA256())


def _entry(certificate: x509.Certificate, now: datetime.datetime) -> x509.RevokedCertificate:
    name = common_name(certificate).encode()
    value = bytes([_UTF8, len(name)]) + name  # names have at most 63 characters
    return (
        x509.RevokedCertificateBuilder()
        .serial_number(certificate.serial_number)
        .revocation_date(now)
        .add_extension(x509.UnrecognizedExtension(NAME, value), critical=False)
        .build()
    )
