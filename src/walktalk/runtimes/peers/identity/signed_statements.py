"""Signatures under what nodes say of themselves: others pass it on, and nobody can change it or say it for them.

An entry of a roster is signed with the key of the node's certificate, which goes along: whoever has the authority's
certificate can check both. Counts are many and small, and travel through nodes that may lie (`tally`). So each of them
has its signature, and beside it a mark, which tells the certificate: the first bytes of its digest. Certificates travel
in messages of their own, one after the other in turn, and each node keeps those of all whom the authority knows.

Without certificates nothing is signed, and everybody is believed.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding

from walktalk.core.errors import SpecError
from walktalk.core.untrusted import reading
from walktalk.core.wall_clock import wall_moment
from walktalk.runtimes.peers.identity.certificates import (
    LONGEST_CHAIN,
    Credentials,
    bearer,
    certificate_from,
    certificates_in,
    common_name,
    is_issued_by,
    private_key,
)


@dataclass(frozen=True)
class Signed:
    """A certificate and a signature, each in base64; empty where nothing is signed."""

    certificate: str = ""
    signature: str = ""


UNSIGNED = Signed()


def sign(content: bytes, files: Credentials | None) -> Signed:
    """Sign something with this node's key."""
    if files is None:
        return UNSIGNED
    certificate = x509.load_pem_x509_certificates(files.certificate.read_bytes())[0]
    key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
    return Signed(_text(certificate.public_bytes(serialization.Encoding.DER)), _text(signature_of(content, key)))


def signature_of(content: bytes, key: PrivateKeyTypes) -> bytes:
    """Sign something with a key; the signature alone."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(content, ec.ECDSA(hashes.SHA256()))
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, padding.PKCS1v15(), hashes.SHA256())
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(content)
    raise SpecError("certificates: a node's key is of a kind that cannot sign; use an elliptic-curve key")


def signer_of(content: bytes, signed: Signed, authority: Path) -> str:
    """The node whose signature this is; `ValueError` where it is nobody's that the authority knows.

    - `authority`: the file with the certificates of those whose word counts.
    """
    certificate = certificate_in(signed)
    signature = reading("a signature", lambda: base64.b64decode(signed.signature, validate=True))
    _check_issued(certificate, certificates_in(authority))
    check_signature(content, signature, certificate)
    return bearer(common_name(certificate))


def check_signature(content: bytes, signature: bytes, certificate: x509.Certificate) -> None:
    """Raise a `ValueError` where a signature is not that of the certificate's key."""
    key = certificate.public_key()
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, content, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, content, padding.PKCS1v15(), hashes.SHA256())
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, content)
        else:
            raise ValueError("it is signed with a kind of key that is not known here")
    except InvalidSignature as error:
        raise ValueError("its signature is not that of its certificate") from error


def certificate_in(signed: Signed) -> x509.Certificate:
    """The certificate of whoever has signed, or says so; `ValueError` where there is none."""
    if not signed.certificate:
        raise ValueError("it is not signed")
    return certificate_from(reading("a certificate", lambda: base64.b64decode(signed.certificate, validate=True)))


def _check_issued(certificate: x509.Certificate, authorities: list[x509.Certificate]) -> None:
    """Whether it was ever valid is enough: a member does not cease to be one when its certificate runs out."""
    if wall_moment() < certificate.not_valid_before_utc:
        raise ValueError("its certificate is not valid yet; are the clocks right?")
    if not is_issued_by(certificate, authorities, []):
        raise ValueError(f"the certificate of {common_name(certificate)!r} is of another authority")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


# -- statements with a mark -------------------------------------------------------------------------------------------

CERTIFICATE_KIND = "certificate"
MARK = 8  # bytes
KNOWN = 4096  # certificates that are kept at most in a small cluster: nodes, and those that were renewed
KNOWN_OF_EACH = 2  # in a large one: the certificate of each node, and the one that it renews it with
_SIZE = struct.Struct("<H")
_LIFE = struct.Struct("<4sIQ")  # of another length than any other word that is signed
_LIFE_MAGIC = b"life"


class Statement(NamedTuple):
    """What a node says of itself, with its signature."""

    word: bytes
    mark: bytes  # of the certificate
    signature: bytes

    @property
    def packed(self) -> bytes:
        """The statement as it travels."""
        return self.word + self.mark + _SIZE.pack(len(self.signature)) + self.signature


def statements_in(data: bytes, at: int, size: int) -> tuple[Statement, int]:
    """Read the statement that begins at a place, and where the next one begins; `ValueError` where there is none.

    - `data`: statements, one behind the other.
    - `at`: the place.
    - `size`: bytes of its word.
    """
    behind = at + size + MARK + _SIZE.size
    if behind > len(data):
        raise ValueError("a word breaks off")
    (length,) = _SIZE.unpack_from(data, at + size + MARK)
    if behind + length > len(data):
        raise ValueError("a signature breaks off")
    mark = data[at + size : at + size + MARK]
    return Statement(data[at : at + size], mark, data[behind : behind + length]), behind + length


class SignedStatements:
    """Signs what a node says of itself, and checks what others have signed."""

    def __init__(
        self, cluster: str, files: Callable[[], Credentials], name_of: Callable[[int], str], nodes: int = 0
    ) -> None:
        """
        - `cluster`: its name: a word is good in one alone.
        - `files`: the node's own, as they are now.
        - `name_of`: of a node's number; "" where there is none.
        - `nodes`: how many the cluster's file has, of all of which certificates are kept.
        """
        self._room = max(KNOWN, KNOWN_OF_EACH * nodes)
        self._cluster, self._files, self._name_of = cluster.encode() + b"\0", files, name_of
        self._used: Credentials | None = None  # the files that the key below is of
        self._key: PrivateKeyTypes | None = None
        self._mark = b""
        self._chains: dict[bytes, bytes] = {}  # by mark: a certificate and who stands between it and the authority
        self._bearers: dict[bytes, x509.Certificate] = {}
        self._turn = 0

    # -- words --------------------------------------------------------------------------------------------------------

    def statement(self, word: bytes) -> Statement:
        """Sign a statement of this node."""
        self._look_at_files()
        assert self._key is not None
        return Statement(word, self._mark, signature_of(self._cluster + word, self._key))

    def signed(self, word: bytes) -> bytes:
        """Sign a statement of this node; mark and signature stand behind it."""
        return self.statement(word).packed

    def holds(self, node: int, word: bytes, mark: bytes, signature: bytes) -> bool:
        """Whether a statement is that of the node that it is about; `ValueError` where it is made up.

        False where its certificate is not here yet (it comes in its turn), or holds no more.
        """
        self._look_at_files()
        if mark not in self._bearers:
            return False
        certificate, name = self._bearers[mark], self._name_of(node)
        signer = common_name(certificate)
        if bearer(signer) != name:
            raise ValueError(f"what {name or f'node {node}'} is to have said is signed by {signer!r}")
        check_signature(self._cluster + word, signature, certificate)
        return signer in self._files().revocations.accepted(name)

    def signed_life(self, node: int, life: int) -> bytes:
        """Sign that this node begins such a life: what makes an earlier life of it believe that it is over."""
        return self.signed(_LIFE.pack(_LIFE_MAGIC, node, life))

    def life_in(self, node: int, statement: bytes) -> int:
        """The life that a node has signed; 0 where its certificate is not known. `ValueError` where it is made up."""
        (word, mark, signature), end = statements_in(statement, 0, _LIFE.size)
        if end != len(statement):
            raise ValueError("more than one word")
        magic, about, life = _LIFE.unpack(word)
        if magic != _LIFE_MAGIC or about != node:
            raise ValueError(f"not a word of node {node} on its life")
        return int(life) if self.holds(node, word, mark, signature) else 0

    # -- certificates -------------------------------------------------------------------------------------------------

    def next(self) -> bytes:
        """The next certificate to send to a neighbour, each in its turn."""
        self._look_at_files()
        self._turn += 1
        return list(self._chains.values())[self._turn % len(self._chains)]

    def all(self) -> list[bytes]:
        """All certificates that are known."""
        self._look_at_files()
        return list(self._chains.values())

    def learn(self, chain: bytes) -> x509.Certificate | None:
        """Keep a certificate, with those between it and the authority; None where it is known or there is no room.

        `ValueError` where it is none.
        """
        own, *between = _taken_apart(chain)
        mark = _mark_of(own)
        if mark in self._bearers:
            return None
        if not is_issued_by(own, certificates_in(self._files().authority), between):
            raise ValueError(f"the certificate of {common_name(own)!r} is of another authority")
        if len(self._bearers) >= self._room:
            return None
        self._bearers[mark], self._chains[mark] = own, chain
        return own

    def _look_at_files(self) -> None:
        """Read the node's own files again, where they were renewed."""
        files = self._files()
        if files is self._used:
            return
        chain = certificates_in(files.certificate)
        self._key, self._mark = private_key(files.key), _mark_of(chain[0])
        self._bearers[self._mark], self._chains[self._mark] = chain[0], _put_together(chain)
        self._used = files


def _mark_of(certificate: x509.Certificate) -> bytes:
    return hashlib.sha256(certificate.public_bytes(Encoding.DER)).digest()[:MARK]


def _put_together(chain: Iterable[x509.Certificate]) -> bytes:
    forms = [one.public_bytes(Encoding.DER) for one in chain]
    return b"".join(_SIZE.pack(len(form)) + form for form in forms)


def _taken_apart(chain: bytes) -> list[x509.Certificate]:
    found: list[x509.Certificate] = []
    at = 0
    while at < len(chain):
        if len(found) == LONGEST_CHAIN:
            raise ValueError(f"more than {LONGEST_CHAIN} certificates in a chain")
        if at + _SIZE.size > len(chain):
            raise ValueError("a certificate breaks off")
        (length,) = _SIZE.unpack_from(chain, at)
        found.append(certificate_from(chain[at + _SIZE.size : at + _SIZE.size + length]))
        at += _SIZE.size + length
    if not found:
        raise ValueError("no certificate")
    return found
