"""Certificates: who may join. A node needs the authority's certificate, its own, and the key of that.

They lie in the cluster's folder `certificates`: `ca.pem`, `NAME.pem`, `NAME.key`, and `revoked.pem` where something was
revoked. The common name must be the node's name, because that is what the others compare with (`revocations` says what
follows it). `authority` makes them; a deployment may bring certificates of its own.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from cryptography import x509

from walktalk.errors import SpecError, UnavailableError
from walktalk.runtimes.peers import revocations as lists
from walktalk.runtimes.peers.pem import bearer, certificates_in, common_name, is_issued_by, private_key
from walktalk.runtimes.peers.revocations import Revocations

OPERATOR = "operator"
"""The name that `walktalk status` and `walktalk stop` go by; no node may have it."""

RELAY = "relay"
"""The name that a relay's certificate is made out to; no node may have it."""

AUTHORITY = "ca"
"""The name of the authority's own files; a node of that name would overwrite its key."""

SOON = 30  # days before the end of a certificate in which it is warned of

NEXT = ".next"  # what a key's file has at its end until the certificate for it has come


@dataclass(frozen=True)
class Credentials:
    """Where one node's certificate, its key, and the authority's certificate lie, and who holds none any more."""

    authority: Path
    certificate: Path
    key: Path
    revocations: Revocations = field(default_factory=Revocations)

    @property
    def files(self) -> tuple[Path, ...]:
        """All that matter, those that need not be there too."""
        folder, name = self.certificate.parent, self.certificate.stem
        return (self.authority, self.certificate, *_keys(folder, name), self.authority.with_name(lists.LIST))


def credentials(folder: Path, name: str) -> Credentials:
    """The three files of a node, or an error that says what the others would refuse them for.

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
    revoked = lists.read(folder, authorities)
    since = revoked.since(own)
    if since is not None:
        raise Revoked(f"certificates: {found.certificate} was revoked on {since:%Y-%m-%d}; ask for another: {RENEW}")
    return Credentials(found.authority, found.certificate, key_of(own, folder, name), revoked)


RENEW = "`walktalk certs request --help` says how"


class Revoked(SpecError):
    """A node's own certificate holds no more."""


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
    """The last moment of the first certificate in a file."""
    return certificates_in(path)[0].not_valid_after_utc


class Outlook(NamedTuple):
    """How long certificates hold."""

    until: datetime.datetime
    days: int  # that are left; less than 0 where it is over
    state: Literal["good", "soon", "expired", "revoked"]
    which: Path

    def in_words(self) -> str:
        """For a log, or for whoever asks."""
        if self.state == "revoked":
            return f"{self.which.name} was revoked; the others refuse it; ask for another: {RENEW}"
        if self.state == "expired":
            return f"{self.which.name} expired on {self.until:%Y-%m-%d}; the others refuse it; renew it: {RENEW}"
        left = "tomorrow" if self.days == 1 else "today" if self.days == 0 else f"in {self.days} days"
        return f"{self.which.name} expires on {self.until:%Y-%m-%d}, {left}; renew it: {RENEW}"


def outlook(files: Credentials, now: datetime.datetime | None = None) -> Outlook:
    """How long a node's certificate and the authority's hold: that of the two which ends first."""
    ends = [(valid_until(path), path) for path in (files.certificate, files.authority)]
    return judge(*min(ends), now)


def judge(until: datetime.datetime, which: Path, now: datetime.datetime | None = None) -> Outlook:
    """What is to be said of a certificate that ends then."""
    days = (until - (now or datetime.datetime.now(datetime.timezone.utc))) // datetime.timedelta(days=1)
    return Outlook(until, days, "expired" if days < 0 else "soon" if days < SOON else "good", which)


def check_dates(path: Path, certificate: x509.Certificate) -> None:
    """Raise where it does not hold now."""
    now = datetime.datetime.now(datetime.timezone.utc)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > last:
        raise SpecError(f"certificates: {path} expired on {last:%Y-%m-%d}; renew it: {RENEW}")
    if now < first:
        raise SpecError(
            f"certificates: {path} is valid from {first:%Y-%m-%d %H:%M} UTC only, and here it is {now:%Y-%m-%d %H:%M}; "
            "is this machine's clock right?"
        )
