"""Why a neighbour is not there, as far as one can see from here: for the log of a node that waited in vain.

Zenoh tries to connect for ever and does not say what comes in between, so the same way is gone once by hand: the
address, the connection, and with certificates the handshake in both directions.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

from cryptography import x509

from walktalk.runtimes.peers.certificates import Credentials
from walktalk.runtimes.peers.pem import bearer, common_name

PATIENCE = 3.0  # seconds for each step
UNKNOWN_PLACE = "it has not come, and its port is not known here"
SILENT = (
    "it is reached, but does not answer; is it of another cluster, does it refuse this node's certificate, "
    "or does only one of the two use certificates? If this node has moved, its neighbours' files must say where to"
)


def why_absent(name: str, address: str, files: Credentials | None) -> str:
    """One line about this neighbour; takes some seconds at most."""
    host, _, port = address.rpartition(":")
    if not host:
        return UNKNOWN_PLACE
    try:
        connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
    except OSError as error:
        return f"{address} cannot be reached: {error.strerror or error}"
    with connection:
        return SILENT if files is None else _handshake(name, host, connection, files)


def _handshake(name: str, host: str, connection: socket.socket, files: Credentials) -> str:
    try:
        certificate = _certificate(host, connection, files)
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is of another authority, for another address, or out of date ({error.verify_message})"
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if "alert" in reason:
            return f"it refuses this node's certificate ({reason.rpartition('alert ')[2]})"
        return f"it does not speak TLS ({reason}); has it no certificates?"
    except OSError as error:
        return f"it does not speak TLS ({error}); has it no certificates?"
    holder = common_name(certificate) if certificate is not None else ""
    if bearer(holder) != name:
        return f"whoever listens there has the certificate of {holder!r}"
    since = files.revocations.since(certificate) if certificate is not None else None
    return SILENT if since is None else f"its certificate was revoked on {since:%Y-%m-%d}"


def _certificate(host: str, connection: socket.socket, files: Credentials) -> x509.Certificate | None:
    """That of the other side, if both sides accept each other's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate, files.key)
    with context.wrap_socket(connection, server_hostname=host) as channel:
        form = channel.getpeercert(binary_form=True)
        with suppress(TimeoutError):
            channel.recv(1)  # the other side judges our certificate after its own part of the handshake is done
    return x509.load_der_x509_certificate(form) if form else None
