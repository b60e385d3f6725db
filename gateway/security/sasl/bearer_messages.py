"""The messages of OAUTHBEARER. Source: RFC 7628, and what Kafka accepts of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.security.sasl.exchange import LoginRefused

INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
"""The answer to a token that is refused; the client acknowledges it with one byte, and is then refused."""
_AUTH: Final = b"auth"
_FIRST: Final = re.compile(
    rb"n,(?:a=((?:[\x01-+\--<>-\x7f]|=2C|=3D)+))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_CREDENTIALS: Final = re.compile(rb"([A-Za-z0-9_]+) +([-._~+/A-Za-z0-9]+=*)")
_MALFORMED: Final = "the first message of the client is not that of OAUTHBEARER (RFC 7628)"


@dataclass(frozen=True, slots=True)
class FirstMessage:
    """The content of the client's first message.

    `authorization_id` is empty when the client names no user on whose behalf it acts.
    """

    authorization_id: str
    token: str


def parse_first_message(message: bytes) -> FirstMessage:
    """Return the content of the client's first message; extensions are checked and dropped. Raises LoginRefused."""
    found = _FIRST.fullmatch(message)
    if found is None:
        raise LoginRefused(_MALFORMED)
    authorization_id, pairs = found.groups()
    credentials = [
        value for name, _, value in (pair.partition(b"=") for pair in pairs.split(b"\x01")) if name == _AUTH
    ]
    if len(credentials) != 1:
        raise LoginRefused(f"{_MALFORMED}: it must have auth exactly once")
    parts = _CREDENTIALS.fullmatch(credentials[0])
    if parts is None or parts[1].lower() != b"bearer":
        raise LoginRefused(f"{_MALFORMED}: the value of auth must be a bearer token")
    return FirstMessage(_name(authorization_id or b""), parts[2].decode("ascii"))


def _name(escaped: bytes) -> str:
    return escaped.replace(b"=2C", b",").replace(b"=3D", b"=").decode("ascii")
