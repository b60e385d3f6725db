"""Encodes the answers of a login."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from struct import Struct
from typing import Any, Final, Protocol

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import CloseConnection
from gateway.protocol.error_answers import error_answer, has_messages
from gateway.protocol.frames import RequestHeader, skip_tagged_fields
from gateway.protocol.messages import (
    build,
    encode_response,
    request_name,
    request_schema,
    response_module,
)
from gateway.security.sasl.login import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE

REFUSED_BYTES: Final = 1024
"""The largest request (bytes) in place of a token that is decoded. A larger one gets no answer, because the
client has not logged in yet. Kafka decodes requests of any size.
"""
REFUSED_ROWS: Final = 32
"""A request whose refusal would have more rows gets no answer, either. Otherwise a few bytes would make a large answer."""
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
        return self._answer(ErrorCode.none, "", token, lifetime_ms)

    def refusal(self, reason: str) -> bytes:
        """Return the answer SASL_AUTHENTICATION_FAILED."""
        return self._answer(ErrorCode.sasl_authentication_failed, reason, b"", 0)

    def _answer(self, error: ErrorCode, message: str, token: bytes, lifetime_ms: int) -> bytes:
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


def illegal_state_answer(header: RequestHeader, frame: memoryview) -> bytes:
    """Return the answer ILLEGAL_SASL_STATE of a request that came instead of a token; empty where no such
    answer exists.

    Raises MalformedRequest, and CloseConnection for an API or version that does not exist.
    """
    if header.api_key == API_VERSIONS and not has_messages(API_VERSIONS, header.api_version):
        header = header._replace(api_version=0)  # the answer to a version that is too new (KIP-511)
    if not has_messages(header.api_key, header.api_version):
        raise CloseConnection(
            f"the client sent API key {header.api_key} version {header.api_version}, which does not exist, "
            "instead of a token"
        )
    if len(frame) > REFUSED_BYTES:
        return b""
    return error_answer(
        header.api_key,
        header.api_version,
        header.correlation_id,
        request_body(header, frame),
        ErrorCode.illegal_sasl_state,
        f"{request_name(header.api_key, header.api_version)} came instead of the next token of the login",
        most_rows=REFUSED_ROWS,
    )


def request_body(header: RequestHeader, frame: memoryview) -> Any:
    """Return the fields of a request. Raises MalformedRequest."""
    schema = request_schema(header.api_key, header.api_version)
    position = header.body_position
    if schema.flexible:
        position = skip_tagged_fields(frame, position)
    return schema.read(frame, position)[0]
