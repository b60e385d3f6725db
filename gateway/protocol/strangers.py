"""Recognizes clients of another protocol by the first four bytes that they send, which stand where Kafka has
a size.
"""

from __future__ import annotations

_HTTP_METHODS = (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_TLS_HANDSHAKE, _TLS_MAJOR_VERSION = 0x16, 0x03


def size_complaint(size: int, max_bytes: int) -> str:
    """Return what is wrong with a size that no request may have, and what the client probably speaks instead."""
    first = size.to_bytes(4, "big", signed=True)
    if first in _HTTP_METHODS:
        return f"its first bytes are {first.decode()!r}, which looks like HTTP; this listener speaks Kafka's protocol"
    if first[0] == _TLS_HANDSHAKE and first[1] == _TLS_MAJOR_VERSION:
        return "its first bytes look like TLS; this listener speaks plaintext (security.protocol=PLAINTEXT in the client)"
    if size < 0:
        return f"it announces a request of {size} bytes, so it does not speak Kafka's protocol"
    return (
        f"it announces a request of {size} bytes; at most {max_bytes} are allowed (socket.request.max.bytes)"
    )
