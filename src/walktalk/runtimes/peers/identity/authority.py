"""The authority of a cluster: makes certificates for tests and small deployments, signs requests of sites, revokes.

Its key is `ca.key`, which stays at home. What it has issued is kept beside it, in `issued`, a file for each of them.
Two ways to a node's certificate: `make_certificates` makes keys too, all in one place; or the site makes its key and a
request (`request_certificate`), which is signed here (`sign_request`), and no key travels.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from walktalk.core.errors import SpecError, UnavailableError, UserError
from walktalk.core.wall_clock import wall_moment
from walktalk.records import make_folder, move
from walktalk.runtimes.peers.identity.certificates import (
    AUTHORITY,
    OPERATOR,
    RELAY,
    REVOKED_FILE,
    Validity,
    bearer,
    bytes_of,
    certificates_in,
    check_dates,
    check_name,
    common_name,
    credentials,
    entries_of,
    free_key,
    judge,
    key_of,
    make_list,
    outlook,
    private_key,
    read_revoked,
    request_in,
    valid_until,
    write_key,
    write_pem,
)

Key = ec.EllipticCurvePrivateKey

ISSUED = "issued"  # a folder
CLOCKS_DIFFER = datetime.timedelta(days=1)  # between machines: some are minutes off, others have the wrong time zone
YEARS = 10  # that a new authority holds at least: certificates are renewed more often than whoever signs them


class Authority(NamedTuple):
    """A certificate authority whose files are in a folder."""

    folder: Path
    certificate: x509.Certificate
    key: Key

    def issue(self, name: str, key: PublicKeyTypes, addresses: Iterable[str], days: float) -> Path:
        """Issue a certificate for a node, good for these host names and addresses; its file."""
        revoked = read_revoked(self.folder, [self.certificate])
        common = revoked.accepted(name)[-1]
        certificate = _issue(common, key, self.certificate, self.key, days, _places(addresses))
        write_pem(self.folder / ISSUED / f"{certificate.serial_number:x}.pem", certificate)
        return write_pem(self.folder / f"{name}.pem", certificate)

    def issued(self) -> list[x509.Certificate]:
        """All certificates that it has issued and that are known here, the oldest first."""
        paths = [*(self.folder / ISSUED).glob("*.pem"), *self.folder.glob("*.pem")]
        ours = [certificates_in(path)[0] for path in paths if path.name not in (REVOKED_FILE, f"{AUTHORITY}.pem")]
        unique = {one.serial_number: one for one in ours if one.issuer == self.certificate.subject}
        return sorted(unique.values(), key=lambda one: one.not_valid_before_utc)


SPREAD = 0.1  # of the days that certificates hold, over which the ends of nodes' are spread


def lifetimes(names: Iterable[str], days: float) -> dict[str, float]:
    """The days for which each of these gets a certificate: ends are spread, so that not all of them end at once.

    Nodes get a tenth less at most, in the order of their names here; the operator and the relay get all of them.
    """
    nodes = [name for name in names if name not in (OPERATOR, RELAY)]
    last = max(1, len(nodes) - 1)
    return {name: days * (1.0 - SPREAD * place / last) for place, name in enumerate(nodes)}


def make_certificates(
    folder: Path, hosts: Mapping[str, Iterable[str]], days: float = 365, together: bool = False
) -> list[Path]:
    """Make an authority, and a key and a certificate for each name and for the operator.

    An authority that is already there is used again, so that nodes can be added later.

    - `together`: let all certificates end at the same time, and not one after the other.
    """
    if AUTHORITY in hosts:
        raise SpecError(f"nodes: {AUTHORITY!r} cannot be a node's name: the authority's own files are called so")
    try:
        authority = make_authority(folder, days)
        written = [folder / f"{AUTHORITY}.pem"]
        spread = {} if together else lifetimes(hosts, days)
        for name, addresses in {**hosts, OPERATOR: ()}.items():
            written.append(make_certificate(authority, name, addresses, spread.get(name, days)))
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return written


def why_kept(folder: Path, name: str, renew: bool) -> str:
    """Why a certificate is left as it is where all are made; "" where a new one is to be made.

    - `renew`: make another, also where the one of before holds for long.
    """
    pem, key = folder / f"{name}.pem", folder / f"{name}.key"
    if not pem.exists() or (key.exists() and renew):
        return ""
    if not key.exists():
        return "its key is at its site, where it is renewed: see `walktalk certs request --help`"
    try:
        holds = outlook(credentials(folder, name)).state == "good"
    except UserError:
        return ""
    return f"as before, valid until {valid_until(pem):%Y-%m-%d} (--renew makes another)" if holds else ""


def make_certificate(authority: Authority, name: str, addresses: Iterable[str], days: float) -> Path:
    """Make a new key and its certificate."""
    own = ec.generate_private_key(ec.SECP256R1())
    path = free_key(authority.folder, name)
    write_key(path, own)
    made = authority.issue(name, own.public_key(), addresses, days)
    if path.suffix != ".key":  # a node that reads now finds both keys, and takes the one that fits
        move(path, authority.folder / f"{name}.key")
    return made


def make_authority(folder: Path, days: float) -> Authority:
    """Open the authority in a folder, or make a new one."""
    certificate_path, key_path = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}.key"
    if certificate_path.is_file() and key_path.is_file():
        return open_authority(folder)
    try:
        make_folder(folder)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _issue("walktalk test authority", key.public_key(), None, key, max(days, 365 * YEARS), None)
        write_key(key_path, key)
        write_pem(certificate_path, certificate)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return Authority(folder, certificate, key)


def open_authority(folder: Path) -> Authority:
    """Open the authority in a folder."""
    certificate_path, key_path = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}.key"
    if not key_path.is_file():
        raise UnavailableError(
            f"certificates: {key_path} does not exist: this is done where the authority is; `walktalk certs` makes one"
        )
    key = private_key(key_path)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SpecError(f"certificates: {key_path} is not an elliptic-curve key; use another folder")
    certificate = certificates_in(certificate_path)[0]
    check_dates(certificate_path, certificate)
    if certificate.public_key() != key.public_key():
        raise SpecError(f"certificates: {key_path} is not the key of {certificate_path}; use another folder")
    return Authority(folder, certificate, key)


def request_certificate(folder: Path, name: str, new_key: bool = False) -> tuple[Path, Path]:
    """Make a request for a certificate, at a site; its file, and that of the key.

    - `new_key`: make one, also where there is one already; that in use stays until the certificate for it has come.
    """
    try:
        make_folder(folder)
        pem = folder / f"{name}.pem"
        path = folder / f"{name}.key"
        if pem.is_file() and not new_key:
            path = key_of(certificates_in(pem)[0], folder, name)
        elif pem.is_file():
            path = free_key(folder, name)
        if new_key or not path.is_file():
            write_key(path, ec.generate_private_key(ec.SECP256R1()))
        key = private_key(path)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise SpecError(f"certificates: {path} is not an elliptic-curve key; say --new-key")
        asked = x509.CertificateSigningRequestBuilder().subject_name(_subject(name)).sign(key, hashes.SHA256())
        return write_pem(folder / f"{name}.csr", asked), path
    except OSError as error:
        raise _cannot_write(folder, error) from error


def sign_request(
    authority: Authority,
    path: Path,
    known: Mapping[str, Iterable[str]],
    days: float,
    joins: bool = False,
    hosts: Iterable[str] = (),
    together: bool = False,
) -> Path:
    """Issue a certificate for whoever made a request; its file. Of a request only its name and its key count.

    - `known`: who may ask for one, and the host names and addresses that each certificate is good for.
    - `joins`: allow a name that is not in there.
    - `hosts`: what it is good for beside that.
    - `together`: give it all of the days, whoever it is for, and do not spread the ends of those that are known.
    """
    asked = request_in(path)
    name = bearer(common_name(asked))
    if name not in known:
        check_name(name, f"certificates: {path}: ")
        if not joins:
            names = f"its names are {', '.join(known)}; --joins allows others"
            raise SpecError(f"certificates: {path} is made out to {name!r}, which is not in the cluster: {names}")
    if not isinstance(asked.public_key(), ec.EllipticCurvePublicKey):
        raise SpecError(
            f"certificates: {path} is about a key that is not of an elliptic curve; ask with `walktalk certs`"
        )
    revoked = read_revoked(authority.folder, [authority.certificate])
    for other in authority.issued():
        if other.public_key() == asked.public_key() and revoked.since(other) is not None:
            raise SpecError(f"certificates: {path} is about a key that was revoked; ask again with --new-key")
        if other.public_key() == asked.public_key() and bearer(common_name(other)) != name:
            raise SpecError(
                f"certificates: {path} is about the key of {common_name(other)!r}; ask again with --new-key"
            )
    holds = days if together else lifetimes(known, days).get(name, days)
    try:
        return authority.issue(name, asked.public_key(), [*known.get(name, []), *hosts], holds)
    except OSError as error:
        raise _cannot_write(authority.folder, error) from error


def revoke_certificates(authority: Authority, name: str) -> tuple[Path, list[str]]:
    """Revoke all certificates of a name that would still hold; the list's file, and a line about each of them."""
    before = read_revoked(authority.folder, [authority.certificate])
    holding = [
        one
        for one in authority.issued()
        if bearer(common_name(one)) == name
        and before.since(one) is None
        and judge(one.not_valid_after_utc, authority.folder).state != "expired"
    ]
    if not holding:
        raise SpecError(
            f"certificates: {name!r} has none here that holds; `walktalk certs list --help` says how to see them"
        )
    path = authority.folder / REVOKED_FILE
    old = path.read_bytes() if path.exists() else None
    try:
        write_pem(path, make_list(old, holding, authority.certificate, authority.key))
    except OSError as error:
        raise _cannot_write(authority.folder, error) from error
    said = "{}, serial number {:x}, which was valid until {:%Y-%m-%d}"
    return path, [said.format(common_name(one), one.serial_number, one.not_valid_after_utc) for one in holding]


def _cannot_write(folder: Path, error: OSError) -> UnavailableError:
    return UnavailableError(f"certificates: {folder} cannot be written: {error.strerror}")


def _issue(
    name: str,
    key: PublicKeyTypes,
    issuer: x509.Certificate | None,
    issuer_key: Key,
    days: float,
    places: x509.SubjectAlternativeName | None,
) -> x509.Certificate:
    """Make a certificate; without an issuer and places it is the authority's own."""
    now = wall_moment()
    end = now + datetime.timedelta(days=days)
    constraints = x509.BasicConstraints(ca=places is None, path_length=0 if places is None else None)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer.subject if issuer is not None else _subject(name))
        .public_key(key)  # type: ignore[arg-type]
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(min(end, issuer.not_valid_after_utc) if issuer is not None else end)
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
            names.append(x509.IPAddress(ipaddress.ip_address(address.strip("[]"))))
        except ValueError:
            names.append(x509.DNSName(address))
    return x509.SubjectAlternativeName(names)


# -- for people to read -----------------------------------------------------------------------------------------------


def describe_certificates(path: Path) -> Iterator[str]:
    """Describe a certificate, a request or a list of revoked ones for a person, line by line."""
    data = bytes_of(path)
    if b"CERTIFICATE REQUEST-----" in data:
        yield from _request(path)
    elif b"BEGIN X509 CRL-----" in data:
        yield from _list(path, data)
    elif b"PRIVATE KEY-----" in data:
        raise SpecError(f"{path} is a private key; look at the certificate or at the request instead")
    else:
        for certificate in certificates_in(path):
            yield from _certificate(path, certificate)


def _certificate(path: Path, one: x509.Certificate) -> Iterator[str]:
    first, last, now = one.not_valid_before_utc, one.not_valid_after_utc, judge(one.not_valid_after_utc, path)
    yield f"made out to    {common_name(one)}"
    yield f"issued by      {one.issuer.rfc4514_string()}"
    yield f"valid          {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, {_left(now)}"
    yield f"good for       {', '.join(_good_for(one)) or 'signing others: it is an authority'}"
    yield f"serial number  {one.serial_number:x}"
    yield f"fingerprint    {one.fingerprint(hashes.SHA256()).hex(':')}"
    yield f"key            {_key(one)}"


def _request(path: Path) -> Iterator[str]:
    one = request_in(path)
    yield f"request by     {common_name(one)}"
    yield f"key            {_key(one)}"


def _list(path: Path, data: bytes) -> Iterator[str]:
    number, entries = entries_of(data, str(path))
    yield f"revoked        list {number}"
    for serial, since, name in entries:
        yield f"{since:%Y-%m-%d %H:%M}  {name or 'somebody'}, serial number {serial:x}"


def _left(now: Validity) -> str:
    return {"good": f"{now.days} days left", "soon": f"only {now.days} days left"}.get(now.state, "EXPIRED")


def _good_for(one: x509.Certificate) -> list[str]:
    try:
        names = one.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def _key(one: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """The digest of the public key, which is the same in a request and in the certificate that was made of it."""
    form = one.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digest = hashes.Hash(hashes.SHA256())
    digest.update(form)
    return digest.finalize().hex(":")


def certificate_rows(folder: Path) -> list[tuple[Any, ...]]:
    """List the certificates of a folder: whose each is, end, state, key, serial number, whether it holds."""
    rows = []
    authority = folder / f"{AUTHORITY}.pem"
    revoked = read_revoked(folder, certificates_in(authority) if authority.exists() else [])
    for path in sorted(folder.glob("*.pem"), key=lambda path: (path != authority, path.name)):
        if path.name == REVOKED_FILE:
            continue
        own, name = certificates_in(path)[0], path.stem
        now, since = judge(own.not_valid_after_utc, path), revoked.since(own)
        state = _left(now) if since is None else f"REVOKED on {since:%Y-%m-%d}"
        try:
            key_of(own, folder, name)
            key = "here"
        except UserError:
            key = "not here"
        holds = since is None and now.state != "expired"
        holder = name if path == authority else common_name(own)
        rows.append((holder, f"{own.not_valid_after_utc:%Y-%m-%d}", state, key, f"{own.serial_number:x}"[:12], holds))
    return rows
