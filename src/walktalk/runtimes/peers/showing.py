"""A certificate, a request or a list of revoked ones, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from walktalk.errors import SpecError, UserError
from walktalk.runtimes.peers import revocations
from walktalk.runtimes.peers.certificates import AUTHORITY, Outlook, judge, key_of
from walktalk.runtimes.peers.pem import bytes_of, certificates_in, common_name, request_in
from walktalk.runtimes.peers.revocations import entries_of


def described(path: Path) -> Iterator[str]:
    """Line by line."""
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
    yield f"good for       {', '.join(_places(one)) or 'signing others: it is an authority'}"
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


def _left(now: Outlook) -> str:
    return {"good": f"{now.days} days left", "soon": f"only {now.days} days left"}.get(now.state, "EXPIRED")


def _places(one: x509.Certificate) -> list[str]:
    try:
        names = one.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def _key(one: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """The same in a request and in the certificate that was made of it."""
    form = one.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digest = hashes.Hash(hashes.SHA256())
    digest.update(form)
    return digest.finalize().hex(":")


def certificate_rows(folder: Path) -> list[tuple[Any, ...]]:
    """For each certificate in a folder: whose it is, end, state, key, serial number, and whether it holds."""
    rows = []
    authority = folder / f"{AUTHORITY}.pem"
    revoked = revocations.read(folder, certificates_in(authority) if authority.exists() else [])
    for path in sorted(folder.glob("*.pem"), key=lambda path: (path != authority, path.name)):
        if path.name == revocations.LIST:
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
