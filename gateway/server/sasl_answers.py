"""The answers of a login."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from struct import Struct
from typing import Any, Final, Protocol

from kio.schema.errors import ErrorCode

from gateway.protocol.frames import RequestHeader
from gateway.protocol.messages import build, encode_response, response_module, response_type
from gateway.security.sasl.login import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE

_OTHER_FIELDS: Final[dict[int, dict[str, Any]]] = {
    API_VERSIONS: {"api_keys": ()},
    SASL_HANDSHAKE: {"mechanisms": ()},
}
"""The fields, beside the error code, of answers with ILLEGAL_SASL_STATE, by API key. Requests of other APIs, which no client sends
during its login, get no answer.
"""
_size = Struct(">i").pack


class TokenForm(Protocol):
    """The form of a client's tokens, and so of their answers."""

    def answer(self, token: bytes, lifetime_ms: int) -> bytes:
        """Return the answer with the server's token, and with the lifetime of the session once the client is logged in."""

    def refusal(self, reason: str) -> bytes:
        """Return the answer of a failed login; empty for none."""


class BareForm:
    """Tokens without headers, after SaslHandshake v0."""

    def answer(self, token: bytes, lifetime_ms: int) -> bytes:  # noqa: ARG002 - the form has no place for it
        """Return the server's token with its size."""
        return _size(len(token)) + token

    def refusal(self, reason: str) -> bytes:  # noqa: ARG002 - the form has no place for it
        """Return nothing: the connection closes without an answer."""
        return b""


class RequestForm:
    """Tokens in SaslAuthenticate requests."""

    def __init__(self, header: RequestHeader) -> None:
        self._header = header

    def answer(self, token: bytes, lifetime_ms: int) -> bytes:
        """Return the answer with the server's token."""
        return self._answer(ErrorCode.none, None, token, lifetime_ms)

    def refusal(self, reason: str) -> bytes:
        """Return the answer SASL_AUTHENTICATION_FAILED."""
        return self._answer(ErrorCode.sasl_authentication_failed, reason, b"", 0)

    def _answer(self, error: ErrorCode, message: str | None, token: bytes, lifetime_ms: int) -> bytes:
        header = self._header
        response = build(
            response_module(SASL_AUTHENTICATE, header.api_version).SaslAuthenticateResponse,
            error_code=error,
            error_message=message,
            auth_bytes=token,
            session_lifetime=timedelta(milliseconds=lifetime_ms),
        )
        return encode_response(SASL_AUTHENTICATE, header.correlation_id, response)


def handshake_answer(header: RequestHeader, error: ErrorCode, mechanisms: Iterable[str]) -> bytes:
    """Return the answer of a SaslHandshake, which lists the mechanisms of the listener."""
    made = response_module(SASL_HANDSHAKE, header.api_version)
    response = made.SaslHandshakeResponse(error_code=error, mechanisms=tuple(mechanisms))
    return encode_response(SASL_HANDSHAKE, header.correlation_id, response)


def illegal_state_answer(header: RequestHeader) -> bytes:
    """Return the answer ILLEGAL_SASL_STATE of a request that may not come now; empty where there is none."""
    others = _OTHER_FIELDS.get(header.api_key)
    if others is None:
        return b""
    response = build(
        response_type(header.api_key, header.api_version), error_code=ErrorCode.illegal_sasl_state, **others
    )
    return encode_response(header.api_key, header.correlation_id, response)
