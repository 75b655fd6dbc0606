"""Who says so: a node's signature under what it says of itself, so that others can pass it on and nobody can change it.

A signature is made with the key of the node's certificate, which goes along: whoever has the authority's certificate
can check both. Without certificates nothing is signed, and everybody is believed.
"""

from __future__ import annotations

import base64
import binascii
import datetime
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from walktalk.errors import SpecError
from walktalk.runtimes.peers.certificates import Credentials
from walktalk.runtimes.peers.pem import bearer, common_name


@dataclass(frozen=True)
class Signed:
    """A certificate and a signature, each in base64; empty where nothing is signed."""

    certificate: str = ""
    signature: str = ""


UNSIGNED = Signed()


def sign(content: bytes, files: Credentials | None) -> Signed:
    """Vouch for something, with this node's key."""
    if files is None:
        return UNSIGNED
    certificate = x509.load_pem_x509_certificates(files.certificate.read_bytes())[0]
    key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
    return Signed(_text(certificate.public_bytes(serialization.Encoding.DER)), _text(signature_of(content, key)))


def signature_of(content: bytes, key: PrivateKeyTypes) -> bytes:
    """The signature alone."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(content, ec.ECDSA(hashes.SHA256()))
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, padding.PKCS1v15(), hashes.SHA256())
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(content)
    raise SpecError("certificates: a node's key is of a kind that cannot sign; use an elliptic-curve key")


def signer_of(content: bytes, signed: Signed, authority: Path) -> str:
    """Whose signature this is; `ValueError` where it is nobody's that the authority knows.

    - `authority`: the file with the certificates of those whose word counts.
    """
    certificate = certificate_in(signed)
    try:
        signature = base64.b64decode(signed.signature, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"it is not signed: {error}") from error
    _check_issued(certificate, x509.load_pem_x509_certificates(authority.read_bytes()))
    check_signature(content, signature, certificate)
    return bearer(common_name(certificate))


def check_signature(content: bytes, signature: bytes, certificate: x509.Certificate) -> None:
    """`ValueError` where it is not that of the certificate's key."""
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
    """That of whoever has signed, or says so; `ValueError` where there is none."""
    try:
        return x509.load_der_x509_certificate(base64.b64decode(signed.certificate, validate=True))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"it is not signed: {error}") from error


def _check_issued(certificate: x509.Certificate, authorities: list[x509.Certificate]) -> None:
    """Whether it was ever valid is enough: a member does not cease to be one when its certificate runs out."""
    now = datetime.datetime.now(datetime.timezone.utc)
    if now < certificate.not_valid_before_utc:
        raise ValueError("its certificate is not valid yet; are the clocks right?")
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return
    raise ValueError(f"the certificate of {common_name(certificate)!r} is of another authority")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
