"""Reads a JWK set from a file or an HTTP endpoint, within limits of size and time. Blocks; a thread calls it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from gateway.security.sasl.key_set import KeySet, KeysUnusable, parse_key_set

MOST_BYTES: Final = 1 << 20
LIMIT_S: Final = 10.0
"""Time (s) for the whole answer of an endpoint."""
_OK: Final = 200
_REDIRECTS: Final = range(300, 400)


def read_keys(url: str) -> KeySet:
    """Return the keys of the JWK set at a URL. Raises KeysUnusable."""
    parts = urlsplit(url)
    try:
        document = _read_file(parts) if parts.scheme == "file" else _read_endpoint(parts)
    except ssl.SSLCertVerificationError as error:
        raise KeysUnusable(
            f"the certificate of the endpoint is not accepted: {error.verify_message}"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise KeysUnusable(f"{reason[:1].lower()}{reason[1:200]}") from None
    if len(document) > MOST_BYTES:
        raise KeysUnusable(f"the document has more than {MOST_BYTES} bytes")
    return parse_key_set(document)


def shown_url(url: str) -> str:
    """Return a URL without its query, which may hold a secret."""
    return urlsplit(url)._replace(query="", fragment="").geturl()


def _read_file(parts: SplitResult) -> bytes:
    with Path(unquote(parts.path)).open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _read_endpoint(parts: SplitResult) -> bytes:
    host = parts.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, parts.port, timeout=LIMIT_S, context=ssl.create_default_context())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port, timeout=LIMIT_S)
    )
    with contextlib.closing(connection):
        connection.connect()
        with _Deadline(connection.sock):
            target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
            connection.request(
                "GET", target, headers={"Accept": "application/jwk-set+json, application/json"}
            )
            answer = connection.getresponse()
            if answer.status != _OK:
                advice = ", and redirects are not followed" if answer.status in _REDIRECTS else ""
                raise KeysUnusable(f"the endpoint answers with status {answer.status}{advice}")
            return answer.read(MOST_BYTES + 1)


class _Deadline:
    """Ends a connection that takes longer than LIMIT_S, although bytes keep coming.

    The bytes that were read by then are dropped.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected
        self._passed = False
        self._timer = threading.Timer(LIMIT_S, self._pass)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._passed:
            raise KeysUnusable(f"the endpoint did not answer within {LIMIT_S:g} s")

    def _pass(self) -> None:
        self._passed = True
        with contextlib.suppress(OSError):
            # SSLSocket.shutdown would make the reader treat further bytes as plaintext.
            socket.socket.shutdown(self._connected, socket.SHUT_RDWR)
