"""SCRAM-SHA-256 and SCRAM-SHA-512: a client proves that it knows a password, without sending it.

Source: RFC 5802, Kafka's ScramSaslServer. As in Kafka, an unknown user is refused at the first message, the
`c=` of the last message is not compared, and unknown extensions are ignored.

The messages of SCRAM. Source: RFC 5802, and what Kafka's ScramMessages accepts of it.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from seqgate.gateway.security.principals import user
from seqgate.gateway.security.sasl.exchange import LoggedIn, LoginRefused, Mechanism, SaslStep
from seqgate.gateway.security.sasl.scram_credential import ScramCredential, ScramHash

FindCredential = Callable[[ScramHash, str], ScramCredential | None]
"""Returns the credential of a user for a mechanism; None when the user has none."""


class TokenLogin(msgspec.Struct, frozen=True):
    """The parts of a delegation token that a login needs. The owner is the name of a user."""

    credential: ScramCredential
    owner: str
    expires_at_ms: int


FindToken = Callable[[ScramHash, str], Awaitable[TokenLogin | None]]
"""Returns the delegation token of an id; None when there is no such token, or it has expired."""


def scram_mechanism(
    hashing: ScramHash, find_credential: FindCredential, find_token: FindToken, new_nonce: Callable[[], bytes]
) -> Mechanism:
    """Return a SCRAM mechanism of a listener. `new_nonce` returns random printable ASCII without commas."""
    return Mechanism(hashing.mechanism, partial(_Login, hashing, find_credential, find_token, new_nonce))


class _Challenge(msgspec.Struct, frozen=True):
    """The state between the two messages of a client."""

    credential: ScramCredential
    nonce: bytes
    signed: bytes
    """The known part of the signed text: the client's bare first message and the answer to it."""
    logged_in: LoggedIn


@dataclass(slots=True, eq=False, repr=False)
class _Login:
    hashing: ScramHash
    find_credential: FindCredential
    find_token: FindToken
    new_nonce: Callable[[], bytes]
    challenge: _Challenge | None = None
    is_over: bool = False

    async def step(self, token: bytes) -> SaslStep:
        """Answer the client's next message. Raises LoginRefused."""
        if self.is_over:
            raise LoginRefused("the login is over; the client sent a further message")
        self.is_over = True  # The second message is valid only after the first was answered.
        if self.challenge is not None:
            return self._finish(self.challenge, token)
        step = await self._answer_first(token)
        self.is_over = False
        return step

    async def _answer_first(self, message: bytes) -> SaslStep:
        authorization_id, bare, escaped, nonce, extensions = _matched(_FIRST, message, "first").groups()
        name = _unescaped(escaped)
        given = dict(pair.split(b"=", 1) for pair in extensions.split(b",")[1:])
        is_token = given.get(b"tokenauth", b"").lower() == b"true"
        credential, logged_in = await self._known(name, is_token=is_token)
        if _unescaped(authorization_id or b"") not in {"", name}:
            raise LoginRefused(
                "the authorization id is not the name of the user", principal=logged_in.principal
            )
        nonce += self.new_nonce()
        answer = b"r=%s,s=%s,i=%d" % (nonce, base64.b64encode(credential.salt), credential.iterations)
        self.challenge = _Challenge(credential, nonce, bare + b"," + answer, logged_in)
        return SaslStep(answer)

    async def _known(self, name: str, *, is_token: bool) -> tuple[ScramCredential, LoggedIn]:
        """Return the credential of a user, or of the delegation token whose id is the name."""
        if is_token:
            token = await self.find_token(self.hashing, name)
            if token is not None:
                return token.credential, LoggedIn(user(token.owner), token.expires_at_ms, name)
        else:
            credential = self.find_credential(self.hashing, name)
            if credential is not None:
                return credential, LoggedIn(user(name))
        raise self._refusal(None)

    def _finish(self, challenge: _Challenge, message: bytes) -> SaslStep:
        without_proof, nonce, encoded = _matched(_FINAL, message, "last").groups()
        proof = base64.b64decode(encoded)
        hashing, credential = self.hashing, challenge.credential
        principal = challenge.logged_in.principal
        if not hmac.compare_digest(nonce, challenge.nonce):
            raise LoginRefused(
                "the last message of the client has another nonce than the server's answer; librdkafka "
                "before 2.6.1 sends such a message: upgrade it",
                principal=principal,
            )
        signed = challenge.signed + b"," + without_proof
        signature = hashing.hmac(credential.stored_key, signed)
        if len(proof) != len(signature):
            raise self._refusal(principal)
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashing.digest(client_key), credential.stored_key):
            raise self._refusal(principal)
        server_proof = base64.b64encode(hashing.hmac(credential.server_key, signed))
        return SaslStep(b"v=" + server_proof, challenge.logged_in)

    def _refusal(self, principal: str | None) -> LoginRefused:
        """Return the one refusal of unknown users and wrong passwords."""
        return LoginRefused(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self.hashing.mechanism}",
            principal=principal,
        )


MAX_MESSAGE_BYTES: Final = 8_192
"""Bytes of one message of a client; a longer one is refused, so that a client without a login holds little
memory.
"""

_NAME = rb"(?:[\x01-+\--<>-\x7f]|=2C|=3D)+"
_PRINTABLE = rb"[\x21-+\--~]+"
_BASE64 = rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_EXTENSIONS = rb"(?:,(?!m=)[A-Za-z]+=[\x01-+\--\x7f]+)*"  # no server may ignore the extension m
_FIRST: Final = re.compile(rb"n,(?:a=(%s))?,(n=(%s),r=(%s)(%s))" % (_NAME, _NAME, _PRINTABLE, _EXTENSIONS))
_FINAL: Final = re.compile(rb"(c=%s,r=(%s)%s),p=(%s)" % (_BASE64, _PRINTABLE, _EXTENSIONS, _BASE64))


def _matched(pattern: re.Pattern[bytes], message: bytes, which: str) -> re.Match[bytes]:
    if len(message) > MAX_MESSAGE_BYTES:
        raise LoginRefused(
            f"the {which} message of the client has {len(message)} bytes; SCRAM messages have at most "
            f"{MAX_MESSAGE_BYTES}"
        )
    found = pattern.fullmatch(message)
    if found is None:
        raise LoginRefused(f"the {which} message of the client is malformed: it must follow SCRAM (RFC 5802)")
    return found


def _unescaped(name: bytes) -> str:
    return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode("ascii")
