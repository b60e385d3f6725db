"""The messages with which a raw connection logs in."""

from __future__ import annotations


def plain_token(user: str, password: str, authorization_id: str = "") -> bytes:
    """Return the one message that a client of PLAIN sends."""
    return f"{authorization_id}\0{user}\0{password}".encode()
