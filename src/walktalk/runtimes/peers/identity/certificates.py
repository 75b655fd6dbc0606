"""Certificates, keys and lists of the revoked as they lie in files, and what is expected of them.

A node needs the authority's certificate, its own, and the key of that. They lie in the cluster's folder `certificates`:
`ca.pem`, `NAME.pem`, `NAME.key`, and `revoked.pem` where something was revoked. The common name must be the node's
name, because that is what the others compare with. `authority` makes them; a deployment may bring certificates of its
own. Errors name the file.

The list of certificates that hold no more, `revoked.pem`, is signed by the authority (an X.509 CRL). Zenoh tells whose
certificate a connection has by its common name alone. So a list names names, in an extension of each entry, and the
certificate that replaces a revoked one is made out to another: after `b` comes `b~2`, and both speak for the node `b`.
A list that something else has made has no names in it; then certificates are known that lie beside it.
"""

from __future__ import annotations

import datetime
import functools
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import NameOID

from walktalk.core.errors import SpecError, UnavailableError
from walktalk.core.untrusted import Refused, reading
from walktalk.core.wall_clock import wall_moment
from walktalk.records import replacing, write_text

GENERATION = "~"
"""Stands between a node's name and the number of its certificate: `b`, and where that was revoked, `b~2`."""


def certificates_in(path: Path) -> list[x509.Certificate]:
    """Read the certificates in a file, at least one; a file may hold a chain."""
    try:
        return x509.load_pem_x509_certificates(bytes_of(path))
    except ValueError as error:
        raise SpecError(f"certificates: {path} is not a certificate in PEM form") from error


def private_key(path: Path) -> PrivateKeyTypes:
    """Read a private key that needs no password."""
    try:
        return serialization.load_pem_private_key(bytes_of(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SpecError(f"certificates: {path} is not a private key in PEM form without a password") from error


def request_in(path: Path) -> x509.CertificateSigningRequest:
    """Read a request, which must be signed with the key that it is about."""
    try:
        request = x509.load_pem_x509_csr(bytes_of(path))
    except ValueError as error:
        raise SpecError(f"certificates: {path} is not a certificate request in PEM form") from error
    if not request.is_signature_valid:
        raise SpecError(f"certificates: {path} is not signed with the key that it is about; make it again")
    return request


def bytes_of(path: Path) -> bytes:
    """Read a file, with errors that name it."""
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
    """The node that may speak by a certificate that is made out to this name."""
    return name.partition(GENERATION)[0]


def certificate_from(der: bytes) -> x509.Certificate:
    """A certificate as it came from somebody else, in DER form; `Refused` where it is none, whatever its bytes are."""
    return reading("a certificate", lambda: _looked_through(x509.load_der_x509_certificate(der)))


def _looked_through(certificate: x509.Certificate) -> x509.Certificate:
    """Look at all that is asked of a certificate later: the library reads some parts only when they are wanted."""
    if not isinstance(certificate.version, x509.Version):
        raise Refused("a certificate of no version that there is")
    common_name(certificate), certificate.public_key(), certificate.not_valid_after_utc, list(certificate.extensions)
    return certificate


LONGEST_CHAIN = 4  # certificates from a node's own to the authority's: deployments have one or two between


def is_issued_by(own: x509.Certificate, authorities: list[x509.Certificate], between: list[x509.Certificate]) -> bool:
    """Whether an authority has signed it, or certificates that come with it lead to one, and may issue others.

    A node's own certificate issues nothing: whoever has one would else make out others to any name.
    """
    if len(between) > LONGEST_CHAIN - 2:
        return False
    waiting, left = [(own, 0)], [one for one in between if one != own]
    while waiting:
        certificate, below = waiting.pop()
        if any(_has_signed(authority, certificate) for authority in authorities):
            return True
        issuers = [one for one in left if _may_issue(one, below) and _has_signed(one, certificate)]
        left = [one for one in left if one not in issuers]  # each is looked at once, whoever it claims to be signed by
        waiting += [(issuer, below + 1) for issuer in issuers]
    return False


def _may_issue(certificate: x509.Certificate, below: int) -> bool:
    """Whether a certificate is an authority's, for a chain with that many authorities below it."""
    extensions = certificate.extensions
    try:
        constraints = extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return False
    if not constraints.ca or (constraints.path_length is not None and below > constraints.path_length):
        return False
    try:
        return extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        return True


def _has_signed(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:  # of what a stranger sent; whatever is raised, it is not signed
        return False
    return True


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key, readable by its owner only from the first moment on; the one before stays until it is."""
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with replacing(path) as part:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key.private_bytes(*form))


def write_pem(
    path: Path, thing: x509.Certificate | x509.CertificateSigningRequest | x509.CertificateRevocationList
) -> Path:
    """Write it whole or not at all: a node that runs may read it at any moment."""
    write_text(path, thing.public_bytes(serialization.Encoding.PEM).decode("ascii"))
    return path


# -- revoked certificates ---------------------------------------------------------------------------------------------

REVOKED_FILE = "revoked.pem"
LARGEST_LIST = 1 << 20  # bytes of a list
NAME_OID = x509.ObjectIdentifier(
    "2.25.147706527045425358546192673024591613456"
)  # an OID of a random UUID: nobody else's
_UTF8 = 0x0C  # the tag of a text in DER, before its length


@dataclass(frozen=True)
class Revocations:
    """What a list of revoked certificates says."""

    number: int = 0  # grows with every change of the list
    names: Mapping[str, datetime.datetime] = field(default_factory=dict)  # common names, and since when
    serials: frozenset[int] = frozenset()

    def since(self, certificate: x509.Certificate) -> datetime.datetime | None:
        """When this certificate was revoked; None where it holds."""
        if certificate.serial_number not in self.serials and common_name(certificate) not in self.names:
            return None
        return self.names.get(common_name(certificate), wall_moment())

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


def read_revoked(folder: Path, authorities: Iterable[x509.Certificate]) -> Revocations:
    """Read the list in a folder, empty where there is none. A `SpecError` where the authority has not signed it."""
    path = folder / REVOKED_FILE
    if not path.exists():
        return Revocations()
    known = {one.serial_number: common_name(one) for one in _beside(path)}
    return parse_revoked(bytes_of(path), authorities, str(path), known)


def parse_revoked(
    data: bytes, authorities: Iterable[x509.Certificate], source: str, known: Mapping[int, str] | None = None
) -> Revocations:
    """Read a list, and check its signature.

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
    """The number of a list, and its entries (serial number, since when, common name), whoever has signed it."""
    try:
        if len(data) > LARGEST_LIST:
            raise ValueError("too long")
        content = x509.load_pem_x509_crl(data)
        entries = [(one.serial_number, one.revocation_date_utc, _name(one)) for one in content]
        return content.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number, entries
    except Exception as error:  # it may have come from anybody
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
        value = entry.extensions.get_extension_for_oid(NAME_OID).value
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
    """Make a list with these in addition to those of the one before (in PEM form, the authority's own)."""
    now = wall_moment()
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
        .add_extension(x509.UnrecognizedExtension(NAME_OID, value), critical=False)
        .build()
    )


# -- a node's own files -----------------------------------------------------------------------------------------------

OPERATOR = "operator"
"""The name that `walktalk status` and `walktalk stop` go by; no node may have it."""

RELAY = "relay"
"""The name that a relay's certificate is made out to; no node may have it."""

AUTHORITY = "ca"
"""The name of the authority's own files; a node of that name would overwrite its key."""

ALIVE = "alive"  # part of the keys that say who lives
PORTS = "ports"  # a folder in the cluster's, for ports that were found

NAME = r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"  # as host names: they become keys, file names and common names

RESERVED = {  # they would share keys or files with something else
    OPERATOR: "the name of whoever asks for status",
    ALIVE: "part of the keys that say who lives",
    AUTHORITY: "the name of the authority's own files among the certificates",
    PORTS: "the folder for ports that were found",
    RELAY: "the name of the relay's certificate",
    "revoked": "the list of certificates that hold no more",
    "launcher": "the folder of whoever starts all nodes of a run",
}

SOON, URGENT, LAST = 30, 7, 1
"""Days before the end of a certificate from which on it is warned of; counts as not being well; is said every hour."""

NEXT = ".next"  # what a key's file has at its end until the certificate for it has come


def check_name(name: str, where: str = "--name ") -> None:
    """Raise a `SpecError` where a node cannot be called so."""
    if not re.fullmatch(NAME, name):
        raise SpecError(f"{where}{name!r} cannot be a node's name; use a-z, 0-9, - and .")
    if name in RESERVED:
        raise SpecError(f"{where}{name!r} cannot be a node's name: it is {RESERVED[name]}; take another")


@dataclass(frozen=True)
class Credentials:
    """Where one node's certificate, its key and the authority's certificate lie, and which are revoked."""

    authority: Path
    certificate: Path
    key: Path
    revocations: Revocations = field(default_factory=Revocations)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that matter, also those that need not be there."""
        folder, name = self.certificate.parent, self.certificate.stem
        return (self.authority, self.certificate, *_keys(folder, name), self.authority.with_name(REVOKED_FILE))


def credentials(folder: Path, name: str) -> Credentials:
    """Find the three files of a node; an error says what the others would refuse them for.

    A refused connection says nothing of its reason to the one that is refused, so all that can be seen here is looked
    at here.
    """
    found = Credentials(folder / f"{AUTHORITY}.pem", folder / f"{name}.pem", _keys(folder, name)[0])
    for path in (found.authority, found.certificate, found.key):
        if not path.is_file():
            raise UnavailableError(f"certificates: {path} does not exist; make it with `walktalk certs`")
    authorities, (own, *between) = certificates_in(found.authority), certificates_in(found.certificate)
    holder = common_name(own)
    if bearer(holder) != name:
        raise SpecError(f"certificates: {found.certificate} is made out to {holder!r}, not to {name!r}")
    for path, certificate in ((found.certificate, own), (found.authority, authorities[0])):
        check_dates(path, certificate)
    if not is_issued_by(own, authorities, between):
        raise SpecError(f"certificates: {found.certificate} is not of the authority in {found.authority}")
    revoked = read_revoked(folder, authorities)
    since = revoked.since(own)
    if since is not None:
        raise Revoked(f"certificates: {found.certificate} was revoked on {since:%Y-%m-%d}; ask for another: {RENEW}")
    return Credentials(found.authority, found.certificate, key_of(own, folder, name), revoked)


RENEW = "`walktalk certs request --help` says how"


class Revoked(SpecError):
    """A node's own certificate was revoked."""


def _keys(folder: Path, name: str) -> tuple[Path, Path]:
    """Where a key may lie: the one in use, and one whose certificate was only asked for; then the other way round."""
    return folder / f"{name}.key", folder / f"{name}.key{NEXT}"


def key_of(certificate: x509.Certificate, folder: Path, name: str) -> Path:
    """The file with the key of a node's certificate."""
    paths = _keys(folder, name)
    for path in paths:
        if path.is_file() and private_key(path).public_key() == certificate.public_key():
            return path
    raise SpecError(f"certificates: {paths[0]} is not the key of {folder / name}.pem")


def free_key(folder: Path, name: str) -> Path:
    """Where a new key may be written: not over the one that belongs to the certificate of now."""
    paths, path = _keys(folder, name), folder / f"{name}.pem"
    if not path.is_file():
        return paths[0]
    used = [key for key in paths if key.is_file() and private_key(key).public_key() == _public_key(path)]
    return next(key for key in paths if key not in used)


def _public_key(path: Path) -> object:
    return certificates_in(path)[0].public_key()


def valid_until(path: Path) -> datetime.datetime:
    """The last moment at which the first certificate in a file holds."""
    return certificates_in(path)[0].not_valid_after_utc


class Validity(NamedTuple):
    """How long certificates hold, and what is to be said of that."""

    until: datetime.datetime
    days: int  # that are left; less than 0 where it is over
    state: Literal["good", "soon", "expired", "revoked"]
    which: Path

    @property
    def warning(self) -> int:
        """How much there is to be said: 0 nothing; 1 to 3 from 30, 7 and 1 days before the end; 4 it holds no more."""
        if self.state in ("expired", "revoked"):
            return 4
        return sum(self.days < days for days in (SOON, URGENT, LAST))

    def in_words(self) -> str:
        """A line for a log, or for whoever asks."""
        if self.state == "revoked":
            return f"{self.which.name} was revoked; the others refuse it; ask for another: {RENEW}"
        if self.state == "expired":
            open_ones = "connections that are open stay open, and new ones are refused"
            return f"{self.which.name} expired on {self.until:%Y-%m-%d}: {open_ones}; renew it: {RENEW}"
        left = "tomorrow" if self.days == 1 else "today" if self.days == 0 else f"in {self.days} days"
        return f"{self.which.name} expires on {self.until:%Y-%m-%d}, {left}; renew it: {RENEW}"


def outlook(files: Credentials, now: datetime.datetime | None = None) -> Validity:
    """How long a node's certificate and the authority's hold: that of the two which ends first."""
    ends = [(valid_until(path), path) for path in (files.certificate, files.authority)]
    return judge(*min(ends), now)


def judge(until: datetime.datetime, which: Path, now: datetime.datetime | None = None) -> Validity:
    """What is to be said of a certificate that ends at this moment."""
    days = (until - (now or wall_moment())) // datetime.timedelta(days=1)
    return Validity(until, days, "expired" if days < 0 else "soon" if days < SOON else "good", which)


def check_dates(path: Path, certificate: x509.Certificate) -> None:
    """Raise a `SpecError` where a certificate does not hold now."""
    now = wall_moment()
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > last:
        raise SpecError(f"certificates: {path} expired on {last:%Y-%m-%d}; renew it: {RENEW}")
    if now < first:
        raise SpecError(
            f"certificates: {path} is valid from {first:%Y-%m-%d %H:%M} UTC only, and here it is {now:%Y-%m-%d %H:%M}; "
            "is this machine's clock right?"
        )
