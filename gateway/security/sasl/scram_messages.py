"""The messages of SCRAM. Source: RFC 5802, and what Kafka's ScramMessages accepts of it."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Final

from gateway.security.sasl.exchange import LoginRefused

MAX_MESSAGE_BYTES: Final = 8_192
"""Bytes of one message of a client; a longer one is refused, so that a client without a login holds little memory."""

_NAME = rb"(?:[\x01-+\--<>-\x7f]|=2C|=3D)+"
_PRINTABLE = rb"[\x21-+\--~]+"
_BASE64 = rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_EXTENSIONS = rb"(?:,(?!m=)[A-Za-z]+=[\x01-+\--\x7f]+)*"  # no server may ignore the extension m
_FIRST: Final = re.compile(rb"n,(?:a=(%s))?,(n=(%s),r=(%s)(%s))" % (_NAME, _NAME, _PRINTABLE, _EXTENSIONS))
_FINAL: Final = re.compile(rb"(c=%s,r=(%s)%s),p=(%s)" % (_BASE64, _PRINTABLE, _EXTENSIONS, _BASE64))


@dataclass(frozen=True, slots=True)
class FirstMessage:
    """The first message of a client. `authorization_id` is empty when the client names no user on whose
    behalf it acts.

    `bare` is the part that the proof covers; `is_token` says that `name` is the id of a delegation token.
    """

    authorization_id: str
    name: str
    nonce: bytes
    bare: bytes
    is_token: bool


@dataclass(frozen=True, slots=True)
class FinalMessage:
    """The last message of a client. `without_proof` is the part that the proof covers."""

    nonce: bytes
    proof: bytes
    without_proof: bytes


def parse_first(message: bytes) -> FirstMessage:
    """Return the content of a client's first message. Raises LoginRefused."""
    found = _matched(_FIRST, message, "first")
    authorization_id, bare, name, nonce, extensions = found.groups()
    values = dict(pair.split(b"=", 1) for pair in extensions.split(b",")[1:])
    return FirstMessage(
        _unescaped(authorization_id or b""),
        _unescaped(name),
        nonce,
        bare,
        values.get(b"tokenauth", b"").lower() == b"true",
    )


def parse_final(message: bytes) -> FinalMessage:
    """Return the content of a client's last message. Raises LoginRefused."""
    without_proof, nonce, proof = _matched(_FINAL, message, "last").groups()
    return FinalMessage(nonce, base64.b64decode(proof), without_proof)


def server_first(nonce: bytes, salt: bytes, iterations: int) -> bytes:
    """Return the answer to a client's first message."""
    return b"r=%s,s=%s,i=%d" % (nonce, base64.b64encode(salt), iterations)


def server_final(signature: bytes) -> bytes:
    """Return the answer to a client's last message, with the proof that the server knows the credential."""
    return b"v=" + base64.b64encode(signature)


def _matched(pattern: re.Pattern[bytes], message: bytes, which: str) -> re.Match[bytes]:
    if len(message) > MAX_MESSAGE_BYTES:
        raise LoginRefused(
            f"the {which} message of the client has {len(message)} bytes; SCRAM messages have at most {MAX_MESSAGE_BYTES}"
        )
    found = pattern.fullmatch(message)
    if found is None:
        raise LoginRefused(f"the {which} message of the client is malformed: it must follow SCRAM (RFC 5802)")
    return found


def _unescaped(name: bytes) -> str:
    return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode("ascii")
