"""What a relay and those who come to it say to each other, and how they prove who they are.

Everybody who comes opens one connection to ask and be told (*control*): lines of JSON, with certificates inside mutual
TLS. What two nodes have to say to each other goes over a connection of each to the relay (*data*), which begins with a
token that both were told on their control connections; from there on the relay passes bytes on that it does not
understand: the TLS of the two nodes, from one end to the other.

    to the relay:    {"cluster": …, "name": …, "version": 1, "listens": true}    first, on a control connection
                     {"dial": NAME, "id": 1}   {"who": NAME, "id": 2}   {}       {} says that one is still there
    from the relay:  {"welcome": "relay"}   {"refused": WHY}                     the answer to the first
                     {"id": 1, "token": …}   {"id": 1, "refused": WHY}   {"id": 2, "here": true}
                     {"call": TOKEN, "from": NAME}   {}                          somebody dials you: come with it
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from contextlib import suppress
from typing import Any

from cryptography import x509

from walktalk.runtimes.peers.certificates import Credentials
from walktalk.runtimes.peers.pem import bearer, common_name

VERSION = 1
LONGEST = 4096  # bytes of a line
MAGIC = b"WTR1"  # a data connection begins with it; TLS and JSON do not
TOKEN_LENGTH = 32  # hexadecimal digits
PATIENCE = 10.0  # seconds for a handshake, for a first line, and for both sides of a call to come
STILL_THERE = 10.0  # seconds between two empty lines: address translation forgets idle connections after half a minute
SILENCE = 30.0  # seconds without a line until the other side counts as gone


class WordsError(Exception):
    """The other side does not speak this language, or ended the conversation."""


def new_token() -> str:
    """One that nobody guesses."""
    return secrets.token_hex(TOKEN_LENGTH // 2)


def encode(**words: Any) -> bytes:
    """A line."""
    return json.dumps(words).encode() + b"\n"


async def hear(reader: asyncio.StreamReader, seconds: float) -> dict[str, Any]:
    """The next line; `WordsError` where none comes in time, the connection ends, or it is none."""
    try:
        line = await asyncio.wait_for(reader.readline(), seconds)
    except asyncio.TimeoutError:
        raise WordsError(f"silent for {seconds:g} s") from None
    except (OSError, ValueError) as error:  # a line that is too long is a ValueError
        raise WordsError(str(error)) from error
    if not line.endswith(b"\n"):
        raise WordsError("the connection has ended")
    try:
        words = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WordsError("not a line of JSON") from error
    if not isinstance(words, dict):
        raise WordsError("not a line of JSON")
    return words


async def stay_in_touch(writer: asyncio.StreamWriter) -> None:
    """Say now and then that one is still there, until this is cancelled or the connection ends."""
    with suppress(OSError):
        while True:
            await asyncio.sleep(STILL_THERE)
            writer.write(encode())
            await writer.drain()


def host_and_port(address: str) -> tuple[str, int]:
    """Both parts of host:port; an IPv6 address stands in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def relay_context(files: Credentials) -> ssl.SSLContext:
    """TLS as the relay speaks it: whoever comes must have a certificate of the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    return _with_files(context, files)


def guest_context(files: Credentials) -> ssl.SSLContext:
    """TLS as those speak it who come to a relay."""
    return _with_files(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)


def _with_files(context: ssl.SSLContext, files: Credentials) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate, files.key)
    return context


def doubts(writer: asyncio.StreamWriter, name: str, files: Credentials | None) -> str:
    """Why the other side is not who it says it is; "" where there is no doubt, or no TLS."""
    channel = writer.get_extra_info("ssl_object")
    if channel is None or files is None:
        return ""
    certificate = x509.load_der_x509_certificate(channel.getpeercert(binary_form=True))
    holder, since = common_name(certificate), files.revocations.since(certificate)
    if bearer(holder) != name:
        return f"its certificate is made out to {holder!r}, not to {name!r}"
    return "" if since is None else f"the certificate of {name} was revoked on {since:%Y-%m-%d}"
