"""What nodes say of themselves, signed: others pass it on as it is, and nobody can change it or say it for them.

Counts travel through nodes that may lie (`tally`). So where nodes have certificates, each word of a node on itself has
its signature, and beside it a mark, which tells the certificate: the first bytes of its digest. Certificates travel in
messages of their own, one after the other in turn, and each node keeps those of all whom the authority knows.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding

from walktalk.runtimes.peers.certificates import Credentials
from walktalk.runtimes.peers.pem import bearer, certificates_in, common_name, is_issued_by, private_key
from walktalk.runtimes.peers.vouching import check_signature, signature_of

KIND = "certificate"
MARK = 8  # bytes
KNOWN = 4096  # certificates that are kept at most: nodes, and those that were renewed
_SIZE = struct.Struct("<H")


class OwnWords:
    """One node's."""

    def __init__(self, cluster: str, files: Callable[[], Credentials], name_of: Callable[[int], str]) -> None:
        """
        - `cluster`: its name: a word is good in one alone.
        - `files`: the node's own, as they are now.
        - `name_of`: of a node's number; "" where there is none.
        """
        self._cluster, self._files, self._name_of = cluster.encode() + b"\0", files, name_of
        self._used: Credentials | None = None  # the files that the key below is of
        self._key: PrivateKeyTypes | None = None
        self._mark = b""
        self._chains: dict[bytes, bytes] = {}  # by mark: a certificate and who stands between it and the authority
        self._bearers: dict[bytes, x509.Certificate] = {}
        self._turn = 0

    # -- words --------------------------------------------------------------------------------------------------------

    def signed(self, word: bytes) -> bytes:
        """A word of this node, with mark and signature behind it."""
        self._look_at_files()
        assert self._key is not None
        return as_told(word, self._mark, signature_of(self._cluster + word, self._key))

    def holds(self, node: int, word: bytes, mark: bytes, signature: bytes) -> bool:
        """Whether a word is that of the node that it is about; `ValueError` where somebody has made it up.

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

    @staticmethod
    def split(data: bytes, size: int) -> Iterable[tuple[bytes, bytes, bytes]]:
        """Words of a size, each with its mark and signature; `ValueError` where they are none."""
        at, behind = 0, size + MARK + _SIZE.size
        while at < len(data):
            if at + behind > len(data):
                raise ValueError("a word breaks off")
            (length,) = _SIZE.unpack_from(data, at + size + MARK)
            if at + behind + length > len(data):
                raise ValueError("a signature breaks off")
            word, mark = data[at : at + size], data[at + size : at + size + MARK]
            yield word, mark, data[at + behind : at + behind + length]
            at += behind + length

    # -- certificates -------------------------------------------------------------------------------------------------

    def next(self) -> bytes:
        """A certificate to tell a neighbour, each in its turn."""
        self._look_at_files()
        self._turn += 1
        return list(self._chains.values())[self._turn % len(self._chains)]

    def all(self) -> list[bytes]:
        """Those that are known."""
        self._look_at_files()
        return list(self._chains.values())

    def learn(self, chain: bytes) -> bool:
        """A certificate, and those between it and the authority; whether it is new. `ValueError`: it is none."""
        own, *between = _taken_apart(chain)
        mark = _mark_of(own)
        if mark in self._bearers:
            return False
        if not is_issued_by(own, certificates_in(self._files().authority), between):
            raise ValueError(f"the certificate of {common_name(own)!r} is of another authority")
        if len(self._bearers) >= KNOWN:
            return False
        self._bearers[mark], self._chains[mark] = own, chain
        return True

    def _look_at_files(self) -> None:
        """They may have been renewed."""
        files = self._files()
        if files is self._used:
            return
        chain = certificates_in(files.certificate)
        self._key, self._mark = private_key(files.key), _mark_of(chain[0])
        self._bearers[self._mark], self._chains[self._mark] = chain[0], _put_together(chain)
        self._used = files


def as_told(word: bytes, mark: bytes, signature: bytes) -> bytes:
    """A word as it travels."""
    return word + mark + _SIZE.pack(len(signature)) + signature


def _mark_of(certificate: x509.Certificate) -> bytes:
    return hashlib.sha256(certificate.public_bytes(Encoding.DER)).digest()[:MARK]


def _put_together(chain: Iterable[x509.Certificate]) -> bytes:
    forms = [one.public_bytes(Encoding.DER) for one in chain]
    return b"".join(_SIZE.pack(len(form)) + form for form in forms)


def _taken_apart(chain: bytes) -> list[x509.Certificate]:
    found, at = [], 0
    while at < len(chain):
        if at + _SIZE.size > len(chain):
            raise ValueError("a certificate breaks off")
        (length,) = _SIZE.unpack_from(chain, at)
        found.append(x509.load_der_x509_certificate(chain[at + _SIZE.size : at + _SIZE.size + length]))
        at += _SIZE.size + length
    if not found:
        raise ValueError("no certificate")
    return found
